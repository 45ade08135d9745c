"""Validation: the table of accuracy, points of one file, what a row says, and a file predicted anew."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from strata.app.render.accuracy_pictures import group_unit
from strata.app.web.answers import Tell, WebQuestion, answers
from strata.base.errors import UnknownName
from strata.base.shipped import shipped_folder
from strata.validation.accuracy.headline import (
    FAMILIES,
    HEADLINE,
    family_cells,
    headline_cells,
    how_seen,
    stored_families,
    stored_table,
)
from strata.validation.accuracy.points import (
    kind_of_file,
    measured_row,
    packed_points,
    stored_points,
    unpacked_points,
)
from strata.validation.accuracy.run import Watched, validate
from strata.validation.accuracy.worst import where_the_error_is
from strata.validation.measured.reader import command_of_row

FileName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$", max_length=80),
]
WORST = 20  # families, and rows
FIGURES = ("points", "failed", "mape", "median", "p90", "worst", "bias", "within_15", "within_30")


class MeasuredFile(WebQuestion):
    """A file of measurements, by its name below the data folder."""

    file: FileName = "h200/gemm.csv"


class MeasuredLine(MeasuredFile):
    """One row of it, by its line."""

    row: Annotated[int, Field(ge=1, le=10**7)]


class Worst(WebQuestion):
    """Where the error is: by which families, of which kind of files."""

    by: Literal["chip", "engine", "model", "network", "file"] = "chip"
    kind: Literal["all", "serving", "training", "steps", "kernels", "network", "hardware"] = "all"


@lru_cache(maxsize=1)
def _table(folder: Path) -> dict[str, Any]:
    return stored_table(folder)


@answers("validation")
def accuracy_told(_: dict[str, Any]) -> dict[str, Any]:
    """Every measured file with its errors, families left out first."""
    folder = shipped_folder("validation")
    table, held = _table(folder), stored_points(folder)
    files = [
        {key: entry[key] for key in FIGURES}
        | _named(entry["file"])
        | {"groups": len(entry["groups"]), "ready": entry["file"] in held}
        for entry in table["files"]
    ]
    return {"files": files, "headline": {"columns": list(HEADLINE), "rows": headline_cells(table)}}


@answers("validation/worst", Worst)
def worst_told(question: dict[str, Any]) -> dict[str, Any]:
    """Where the error is."""
    folder = shipped_folder("validation")
    every = (entry["file"] for entry in _table(folder)["files"])
    wanted = [name for name in every if question["kind"] in ("all", kind_of_file(name))]
    points = {name: held for name, held in stored_points(folder).items() if name in wanted}
    families = stored_families(folder, wanted)
    return where_the_error_is(folder, unpacked_points(points), WORST, (question["by"],), families)


@answers("validation/points", MeasuredFile)
def file_points(question: dict[str, Any]) -> dict[str, Any]:
    """Measured and predicted of every compared row of a file."""
    folder, name = shipped_folder("validation"), _known(question["file"])
    entry = next(e for e in _table(folder)["files"] if e["file"] == name)
    return _told(name, entry, stored_points(folder).get(name)) | {"now": False}


@answers("validation/row", MeasuredLine)
def row_told(question: dict[str, Any]) -> dict[str, Any]:
    """What one measured row says."""
    folder, name = shipped_folder("validation"), _known(question["file"])
    cells = measured_row(folder, name, question["row"], [name])
    return {
        "cells": {column: text[:200] for column, text in cells.items() if text},
        "command": command_of_row(folder, name, question["row"]),
    }


@answers("validation/run", MeasuredFile, job=True)
def file_again(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Predict a file anew."""
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


def _named(name: str) -> dict[str, Any]:
    return {"file": name, "kind": kind_of_file(name), "seen": how_seen(name)}


def _told(name: str, entry: dict[str, Any], points: dict[str, Any] | None) -> dict[str, Any]:
    groups = [] if points is None else points["groups"]
    families = stored_families(shipped_folder("validation"), [name])
    return {
        **_named(name),
        "left_out": {"columns": list(FAMILIES)[1:], "rows": [row[1:] for row in family_cells(families)]},
        "figures": {key: entry[key] for key in FIGURES},
        "groups": [
            {"group": group, **{key: figures.get(key) for key in FIGURES}}
            for group, figures in entry["groups"].items()
        ],
        "units": {group: group_unit(name, group) for group in groups},
        "points": points,
    }
