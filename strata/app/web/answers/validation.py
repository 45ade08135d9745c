"""Validation: the table of accuracy, points of one file, what a row says, and a file predicted anew."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from strata.app.web.questions import WebQuestion, answers
from strata.app.web.worker import Tell, tells
from strata.errors import UnknownName
from strata.reading import file_text
from strata.shipped import shipped_folder
from strata.validation.accuracy.pictures import group_unit
from strata.validation.accuracy.points import kind_of_file, measured_row, packed_points, stored_points
from strata.validation.accuracy.run import Watched, validate
from strata.validation.fit.files import is_fitted

FileName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$", max_length=80),
]
FIGURES = ("points", "failed", "mape", "median", "p90", "worst", "bias", "within_15", "within_30")


class MeasuredFile(WebQuestion):
    """A file of measurements, by its name below the data folder."""

    file: FileName = "h200/gemm.csv"


class MeasuredLine(MeasuredFile):
    """One row of it, by its line."""

    row: Annotated[int, Field(ge=1, le=10**7)]


@lru_cache(maxsize=1)
def _table(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_text(folder / "accuracy.json"))
    return found


@answers("validation", "Every measured file with its errors")
def accuracy_told(_: dict[str, Any]) -> dict[str, Any]:
    """Every file: its kind, its errors, and whether only rows that no fit has seen count."""
    folder = shipped_folder("validation")
    held = stored_points(folder)
    files = [
        {key: entry[key] for key in FIGURES}
        | {
            "file": entry["file"],
            "kind": kind_of_file(entry["file"]),
            "held_out": is_fitted(entry["file"]),
            "groups": len(entry["groups"]),
            "ready": entry["file"] in held,
        }
        for entry in _table(folder)["files"]
    ]
    return {"files": files}


@answers("validation/points", "Measured and predicted of every compared row of a file", MeasuredFile)
def file_points(question: dict[str, Any]) -> dict[str, Any]:
    """Points of one file as they are committed, and its groups with their errors."""
    folder, name = shipped_folder("validation"), _known(question["file"])
    entry = next(e for e in _table(folder)["files"] if e["file"] == name)
    return _told(name, entry, stored_points(folder).get(name)) | {"now": False}


@answers("validation/row", "What one measured row says", MeasuredLine)
def row_told(question: dict[str, Any]) -> dict[str, Any]:
    """The cells of one measured row, by column."""
    folder, name = shipped_folder("validation"), _known(question["file"])
    cells = measured_row(folder, name, question["row"], [name])
    return {"cells": {column: text[:200] for column, text in cells.items() if text}}


@answers("validation/run", "Predict a file anew", MeasuredFile, job=True)
@tells
def file_again(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The same of a file whose every row is predicted now."""
    folder, name = shipped_folder("validation"), _known(question["file"])

    def watch(at: Watched) -> None:
        tell({"file": at.name, "rows": at.rows, "files": at.files, "of": at.of_files})

    outcome = validate(folder, keep_points=True, unseen=True, only=[name], progress=watch)
    entry = next(e for e in outcome["files"] if e["file"] == name)
    return _told(name, entry, packed_points(outcome["points"]).get(name)) | {"now": True}


def _known(name: str) -> str:
    known = [entry["file"] for entry in _table(shipped_folder("validation"))["files"]]
    if name not in known:
        raise UnknownName("file of measurements", name, known, "the table of files")
    return name


def _told(name: str, entry: dict[str, Any], points: dict[str, Any] | None) -> dict[str, Any]:
    groups = [] if points is None else points["groups"]
    return {
        "file": name,
        "kind": kind_of_file(name),
        "held_out": is_fitted(name),
        "figures": {key: entry[key] for key in FIGURES},
        "groups": [
            {"group": group, **{key: figures.get(key) for key in FIGURES}}
            for group, figures in entry["groups"].items()
        ],
        "units": {group: group_unit(name, group) for group in groups},
        "points": points,
    }
