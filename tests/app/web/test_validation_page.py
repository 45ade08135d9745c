"""Answers of the validation page: the committed table, points that agree with it, rows as they stand in files."""

import csv
import json

import numpy as np
import pytest

from strata.app.web.worker import answered
from strata.base.shipped import shipped_folder
from strata.validation.accuracy.points import KINDS_OF_FILES, stored_points, unpacked_points, write_points

FOLDER = shipped_folder("validation")
TABLE = json.loads((FOLDER / "accuracy.json").read_text(encoding="utf-8"))


def done(call, question):
    told = answered(call, question, print)
    assert "error" not in told, told
    return told["done"]


def test_every_file_has_its_kind_and_errors():
    told = done("validation.accuracy_told", {})
    files = told["files"]
    assert all(len(row) == len(told["headline"]["columns"]) for row in told["headline"]["rows"])
    assert [f["file"] for f in files] == [e["file"] for e in TABLE["files"]]
    assert {f["kind"] for f in files} == {*KINDS_OF_FILES}
    assert all(f["ready"] for f in files)


@pytest.mark.parametrize("entry", TABLE["files"], ids=lambda e: e["file"])
def test_committed_points_agree_with_the_table(entry):
    """`python -m strata.validation.accuracy.tables` writes both from one run."""
    held = stored_points(FOLDER)[entry["file"]]
    main = np.array(held["headline"], bool)
    measured, predicted = (np.array(held[key])[main] for key in ("measured", "predicted"))
    if entry["file"].startswith("serving/") and len(measured) > entry["points"]:
        return  # rows of one command count as one, by their median
    assert len(measured) == entry["points"] - entry["failed"] or len(measured) == entry["points"]
    errors = np.abs(predicted / np.where(measured, measured, 1.0) - 1.0)[measured > 0]
    assert np.mean(errors) == pytest.approx(entry["mape"], rel=0.02, abs=5e-4)


def test_points_of_a_file():
    told = done("validation.file_points", {"file": "h200/gemm.csv"})
    assert told["seen"] == "held out" and not told["now"]
    assert all(len(row) == len(told["left_out"]["columns"]) for row in told["left_out"]["rows"])
    assert len(told["points"]["row"]) == told["figures"]["points"]
    assert set(told["units"].values()) == {"s"}


def test_a_row_is_what_its_line_says():
    told = done("validation.row_told", {"file": "h200/gemm.csv", "row": 5})
    with (FOLDER / "h200" / "gemm.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert told["cells"] == {key: value.strip() for key, value in rows[3].items() if value}
    assert told["command"].startswith("strata kernel gemm --chip h200")


def test_where_the_error_is():
    told = done("validation.worst_told", {"by": "file", "kind": "kernels"})
    assert told["by"] == ["file"] and len(told["families"]) >= 10 and len(told["rows"]) == 20
    assert all(row["command"] for row in told["rows"])
    assert told["families"][0]["share"] >= told["families"][1]["share"]
    by_chip = done("validation.worst_told", {"by": "chip", "kind": "all"})
    assert all(one["kind"] == "chip" for one in by_chip["left_out"])


def test_a_file_predicted_now_is_as_committed():
    said = []
    told = answered("validation.file_again", {"file": "h200/stream.csv"}, said.append)["done"]
    kept = done("validation.file_points", {"file": "h200/stream.csv"})
    assert told["now"] and said[0]["file"] == "h200/stream.csv"
    assert told["points"]["predicted"] == pytest.approx(kept["points"]["predicted"], rel=1e-3)


def test_writing_again_gives_the_same_bytes(tmp_path):
    point = {"file": "a.csv", "row": 2, "group": "g", "measured": 1.0, "predicted": 2.0, "headline": True}
    first = write_points([point], tmp_path).read_bytes()
    assert write_points([point], tmp_path).read_bytes() == first
    assert stored_points(tmp_path)["a.csv"]["predicted"] == [2.0]
    (again,) = unpacked_points(stored_points(tmp_path))
    assert again == point | {"command": "", "families": {}}


@pytest.mark.parametrize(
    "call, question",
    [
        ("validation.file_points", {"file": "h200/nonesuch.csv"}),
        ("validation.file_points", {"file": "accuracy.json"}),
        ("validation.row_told", {"file": "a/../../README.md", "row": 1}),
        ("validation.row_told", {"file": "h200/gemm.csv", "row": 10**6}),
    ],
)
def test_mistakes_are_one_line(call, question):
    told = answered(call, question, print)
    assert told["status"] == 422 and told["error"].startswith(("no ", "file: "))
