"""A file, or a row, that cannot be read fails by itself: named with the reason, and the others are compared."""

import json
from pathlib import Path

import pytest

from strata.validation.accuracy.run import validate

GOOD = (Path(__file__).parents[3] / "validation" / "h200" / "gemm.csv").read_text().splitlines()[:6]
HEADER = GOOD[0].split(",")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "gemm.csv").write_text("\n".join(GOOD) + "\n")
    return tmp_path


BROKEN = {
    "nothing in it": ("", "is empty"),
    "no such columns": ("a,b\n1,2\n", "has no column"),
    "a column twice": ("m,m\n1,2\n", "names a column twice"),
    "no quote at the end": ('m,n\n"1,2\n', "cannot be read as CSV"),
    "not text": (b"\xff\xfe\x00\x01", "is not CSV"),
}


@pytest.mark.parametrize(("content", "said"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_read_is_a_failed_file(folder, strata, content, said):
    path = folder / "h200" / "stream.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    outcome = validate(folder)
    (unread,) = outcome["unread"]
    assert unread["file"] == "h200/stream.csv" and unread["row"] == 0 and said in unread["why"]
    entries = {entry["file"]: entry for entry in outcome["files"]}
    assert entries["h200/gemm.csv"]["points"] == 5 and entries["h200/stream.csv"]["failed"] == 1
    ran = strata("validate", "--data", folder, "--json")
    assert ran.code == 2 and "1 file could not be read: h200/stream.csv" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert json.loads(ran.out)["unread"] == outcome["unread"]
    assert "h200/stream.csv: cannot be read" in strata("validate", "--data", folder).out


def test_rows_that_cannot_be_read_are_named_and_left_out(folder, strata):
    rows = [line.split(",") for line in GOOD]
    rows[2][HEADER.index("m")] = "many"
    rows[3] = rows[3][:-1]
    rows[4][HEADER.index("m")] = "inf"
    (folder / "h200" / "gemm.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    outcome = validate(folder)
    assert [row["row"] for row in outcome["unread"]] == [3, 4, 5]
    assert "column 'm' must be a number, but got 'many'" in outcome["unread"][0]["why"]
    assert outcome["files"][0]["points"] == 2
    ran = strata("validate", "--data", folder)
    assert ran.code == 2 and "3 rows could not be read: h200/gemm.csv line 3" in ran.err
