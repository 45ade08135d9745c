"""`strata post-train`: the numbers of the Python API, a picture that is valid, and one line for each mistake."""

import xml.etree.ElementTree as tree

import pytest

import strata as st

ASKED = (
    "post-train",
    "-m",
    "llama-3.1-8b",
    "-s",
    "16xh100",
    "--batch",
    "16",
    "--group",
    "8",
    "--minibatch",
    "64",
)
PLANS = ("--rollout-plan", "dp=8", "--training-plan", "dp=8,zero=3,recompute=full")


def test_tables_tell_ways_phases_and_memory(answer):
    said = answer(*ASKED, "--pools", "one")
    for word in (
        "llama-3.1-8b on 16xh100",
        "rollout tail",
        "training",
        "weight transfer",
        "memory of a device",
        "kWh",
    ):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(*ASKED, *PLANS, "--async", "--rollout-devices", "8", "--json")
    recipe = st.post_training_recipe("grpo", batch=16, group=8, minibatch=64)
    way = st.post_training(
        "16xh100", "llama-3.1-8b", recipe, "dp=8", PLANS[-1], rollout_devices=8, asynchronous=True
    ).best
    told = data["ways"][0]
    assert told["time_s"] == pytest.approx(way.time) and told["cost_USD"] == pytest.approx(way.usd)
    assert sum(p["time_s"] for p in told["phases"]) == pytest.approx(sum(p.time for p in way.phases))
    assert data["question"]["minibatch"] == 64 and told["asynchronous"] and data["why_none"] == ""


def test_a_picture_has_a_line_for_each_pool(strata, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "iteration.svg"
    assert strata(*ASKED, *PLANS, "--async", "--svg", file).code == 0
    text = file.read_text()
    assert tree.fromstring(text).tag.endswith("svg")
    assert "rollout pool (8)" in text and "training pool (8)" in text


def test_a_table_has_a_row_for_each_way(strata, tmp_path):
    file = tmp_path / "ways.csv"
    assert strata(*ASKED, "--pools", "one", "--table", file).code == 0
    lines = file.read_text().splitlines()
    assert len(lines) >= 3 and "training_s" in lines[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--minibatch", "60"), "minibatch"),
        (("--rollout-devices", "5"), "rollout_devices"),
        (("--recipe", "gpro"), "grpo"),
        (("--rollout-engine", "vlm"), "no engine"),
        (("--keep", "perhaps"), "yes or no"),
        (("--svg", "a.gif"), ".svg"),
        (("--rollout-plan", "dp=16", "--training-plan", "dp=128"), "legal"),
    ],
)
def test_mistakes_are_one_line(strata, words, said):
    found = strata(*ASKED, *words)
    assert found.code == 2 and said in found.err and found.err.count("\n") == 1 and not found.out
