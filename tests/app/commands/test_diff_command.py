"""`strata diff`: exactly what changed."""

import json

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
