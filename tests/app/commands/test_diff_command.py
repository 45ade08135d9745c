"""`strata diff`: exactly what changed."""

import json

import pytest

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")


def saved(answer, path, *words):
    path.write_text(json.dumps(answer("predict", *words, "--json")))
    return path


def test_diff_finds_exactly_what_changed(answer, tmp_path):
    first = saved(answer, tmp_path / "a.json", *LLAMA, "--plan", "tp=8")
    second = saved(
        answer, tmp_path / "b.json", *LLAMA, "--plan", "tp=8", "--set", "chip.memory.bandwidth=9.6 TB/s"
    )
    rows = {row["path"]: row for row in answer("diff", first, second, "--json")}
    assert rows["inputs.chip.numbers.memory.bandwidth.value"] == {
        "path": "inputs.chip.numbers.memory.bandwidth.value",
        "first": 4.8e12,
        "second": 9.6e12,
        "unit": "B/s",
        "ratio": 2.0,
    }
    inputs = {path for path in rows if path.startswith(("inputs.", "question."))}
    assert inputs == {
        "inputs.chip.hash",
        "inputs.chip.numbers.memory.bandwidth.value",
        "inputs.chip.numbers.memory.bandwidth.source",
    }
    assert rows["metrics.tokens_per_s"]["ratio"] > 1
    assert "metrics.memory_used" not in rows
    text = answer("diff", first, second)
    assert "4.8 TB/s" in text
    assert f"{len(rows)} differences" in text


def test_diff_of_equal_results(answer, tmp_path):
    path = saved(answer, tmp_path / "a.json", *LLAMA, "--plan", "tp=8")
    assert answer("diff", path, path, "--json") == []
    assert "are the same" in answer("diff", path, path)


def test_two_technologies_side_by_side(answer):
    rows = {row["path"]: row for row in answer("diff", "n7", "n5", "--json")}
    assert rows["process.sram_cell"]["ratio"] == pytest.approx(0.021 / 0.027)
    assert rows["on_chip.sram-dense.bank_capacity"]["ratio"] == 1.0
    assert rows["on_chip.mram.area"]["first"] is None and rows["on_chip.mram.area"]["ratio"] is None
    text = answer("diff", "n7", "n5")
    assert "technology n7 and n5" in text and "0.027 um2" in text and "0.778" in text


def test_two_devices_and_two_links(answer, tmp_path):
    devices = {row["path"]: row for row in answer("diff", "hbm3e", "hbm4", "--json")}
    assert devices["bandwidth"]["second"] == 2.048e12 and devices["bandwidth"]["unit"] == "B/s"
    links = {row["path"]: row for row in answer("diff", "nvlink5", "nvlink6", "--json")}
    assert links["edge_bandwidth"]["ratio"] == pytest.approx(2.0)
    own = tmp_path / "mine.toml"
    own.write_text(
        'base = "nvlink6"\nname = "mine"\nlane_rate = { value = "60 GB/s", source = "our own plan" }\n'
    )
    mine = {row["path"]: row for row in answer("diff", "nvlink6", own, "--json")}
    assert mine["lane_rate"]["ratio"] == pytest.approx(1.2)
    both = {row["path"]: row for row in answer("diff", own, own, "--json")}
    assert both == {path: {**row, "first": row["second"], "ratio": 1.0} for path, row in mine.items()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("n7", "nvlink5"),
            "strata: n7 is a technology and nvlink5 is a link: two of one kind can be compared",
        ),
        (("n6", "n5"), "called 'n6'; nearest: n16, n7, n5; all: strata list technologies"),
        (("none.toml", "n5"), "strata: none.toml is a part and n5 is a technology"),
    ],
)
def test_diff_of_what_cannot_be_compared(strata, words, said):
    got = strata("diff", *words)
    assert got.code == 2 and said in got.err and got.err.count("\n") == 1 and got.out == ""
