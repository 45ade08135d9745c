"""`strata generate`: what came out, files that other commands take, one line for each mistake."""

import xml.etree.ElementTree as tree

import pytest

import strata as st

H100 = ("generate", "--technology", "n5", "--budget", "h100", "--template", "gpu")


def test_components_budgets_and_worth_are_told(answer):
    said = answer(*H100)
    for word in (
        "476 in 119 bundles",
        "l2",
        "memory",
        "what binds",
        "left over",
        "814 mm2",
        "700 W",
        "1 % more",
    ):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(*H100, "--device", "hbm3", "--set", "power=500W", "--json")
    found = st.generation("n5", "h100", "gpu", device="hbm3", power=500.0)
    assert data["fits"] and data["infeasible"] == []
    assert data["matrix_FLOP_per_s"]["bf16"] == pytest.approx(found.made.running.core.rate)
    assert data["use"]["power_W"]["total"] == 500.0
    assert data["binds"] == found.binds


def test_the_file_is_a_chip_that_predicts(answer, tmp_path):
    path = tmp_path / "chip.toml"
    answer(*H100, "--out", str(path))
    made, read = st.generation("n5", "h100", "gpu"), st.chip(str(path))
    assert read.compute.matrix_rate["bf16"] == pytest.approx(made.chip.compute.matrix_rate["bf16"])
    assert read.sources["memory.bandwidth"].source.startswith("derived: ")
    joined = st.system(f"8x{path}").fabric.dimension[0]
    assert joined.size == 8 and joined.bandwidth == pytest.approx(made.made.running.networks[0].bandwidth)
    result = st.evaluate(f"8x{path}", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")
    assert result.fits and 0 < float(result.metrics.tokens_per_s) < float("inf")


def test_a_picture_has_both_bars(answer, tmp_path):
    answer(*H100, "--svg", str(tmp_path / "chip.svg"))
    assert tree.parse(tmp_path / "chip.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "given, said",
    [
        (("--set", "die_area=2mm2"), "cannot be built: area of one bundle of units"),
        (("--set", "power_share.core=1.2"), "power_share is a share and at most 1"),
        (("--set", "logic.min_voltage=0.2V"), "threshold < lowest <= highest"),
        (("--device", "hbm9"), "no device called 'hbm9'"),
        (("--link", "inter"), "--link takes NETWORK=NAME"),
        (("--link", "outer=nvlink5"), "no network of the template called 'outer'"),
    ],
)
def test_a_mistake_is_one_line(strata, given, said):
    got = strata(*H100, *given)
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1
