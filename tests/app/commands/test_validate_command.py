"""`strata validate`: what it knows is compared, the rest is named."""

from pathlib import Path

import pytest

import strata as st

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")


def small_data(folder):
    source = Path(st.__file__).parents[1] / "validation" / "h200" / "decoder.csv"
    if not source.exists():
        pytest.skip("measured data is not in this checkout")
    (folder / "h200").mkdir(parents=True)
    (folder / "h200" / "decoder.csv").write_text("".join(source.read_text().splitlines(keepends=True)[:8]))
    (folder / "serving" / "requests").mkdir(parents=True)
    (folder / "serving" / "requests" / "a.csv").write_text("a\n1\n")
    (folder / "strange.csv").write_text("a\n1\n")
    return folder


def test_validate_compares_what_it_knows_and_names_the_rest(answer, tmp_path):
    data = small_data(tmp_path / "data")
    got = answer("validate", "--data", data, "--json")
    assert set(got) == {"files", "not_yet", "unknown"}
    assert (got["not_yet"], got["unknown"]) == (["serving/requests/a.csv"], ["strange.csv"])
    (entry,) = got["files"]
    assert {
        "file",
        "points",
        "failed",
        "mape",
        "median",
        "p90",
        "worst",
        "bias",
        "weighted",
        "groups",
    } <= set(entry)
    assert entry["file"] == "h200/decoder.csv"
    assert entry["points"] >= 1
    text = answer("validate", "--data", data)
    assert "h200/decoder.csv" in text
    assert "serving/requests/a.csv: not predicted yet" in text
