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
    (folder / "strange.csv").write_text("a\n1\n")
    return folder


def test_validate_compares_what_it_knows_and_names_the_rest(answer, tmp_path):
    data = small_data(tmp_path / "data")
    got = answer("validate", "--data", data, "--json")
    assert set(got) == {"files", "not_yet", "unknown", "unread", "units"}
    assert (got["not_yet"], got["unknown"]) == ([], ["strange.csv"])
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
    assert "strange.csv" in text


def test_only_some_files_or_groups(strata, answer, tmp_path):
    data = small_data(tmp_path / "data")
    every = answer("validate", "--data", data, "--json")["files"][0]
    for pattern in ("h200/decoder.csv", "h200/*", "h200", "decoder.csv"):
        got = answer("validate", "--data", data, "--only", pattern, "--json")
        assert (got["files"], got["not_yet"], got["unknown"]) == ([every], [], [])
    group = next(iter(every["groups"]))
    (entry,) = answer("validate", "--data", data, "--only", group, "--json")["files"]
    assert entry["groups"] == {group: every["groups"][group]}
    assert entry["mape"] == pytest.approx(every["groups"][group]["mape"])
    both = answer("validate", "--data", data, "--only", group, "--only", "strange.csv", "--json")
    assert (len(both["files"]), both["unknown"]) == (1, ["strange.csv"])
    for wrong, near in (("h200/decodr.csv", "h200/decoder.csv"), (f"x{group}", group)):
        got = strata("validate", "--data", data, "--only", wrong)
        assert got.code == 2 and got.err.count("\n") == 1
        assert f"called '{wrong}'" in got.err and near in got.err


def test_progress_counts_files_rows_and_bytes(tmp_path):
    from strata.validation import validate

    seen = []
    outcome = validate(small_data(tmp_path / "data"), progress=seen.append)
    assert [(at.name, at.files, at.of_files) for at in seen] == [("h200/decoder.csv", 0, 1), ("", 1, 1)]
    assert (seen[-1].rows, seen[-1].size) == (outcome["files"][0]["points"], seen[-1].of_size)
