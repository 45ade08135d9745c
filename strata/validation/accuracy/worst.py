"""Where the error is: families of points with the most of it, and the worst rows with their commands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.errors import UnknownName
from strata.validation.accuracy.compare import statistics
from strata.validation.measured.reader import command_of_row
from strata.validation.readers.labels import Catalogue, machine_of

FAMILIES = ("chip", "model", "engine", "network")
BY = (*FAMILIES, "file", "group")


def where_the_error_is(
    folder: Path,
    points: list[dict[str, Any]],
    count: int,
    by: tuple[str, ...] = ("file",),
    left_out: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The families that were left out with most of the error, then families of the points with most of it,
    and the rows that are off by the largest factors. Only points behind the files' own figures count, rows
    of one command as one; what has no prediction is off by no factor.
    """
    for name in by:
        if name not in BY:
            raise UnknownName("family of measured rows", name, BY, ", ".join(BY))
    counted = list(
        {
            (p["file"], p["command"] or p["row"], p["group"], p["predicted"]): p
            for p in points
            if p["headline"]
        }.values()
    )
    predicted = [point for point in counted if point["predicted"] > 0 < point["measured"]]
    predicted.sort(key=lambda p: float(abs(np.log(p["predicted"] / p["measured"]))), reverse=True)
    return {
        "by": list(by),
        "left_out": _left_out(left_out, set(by) & set(FAMILIES) or set(FAMILIES))[:count],
        "families": _families(counted, by)[:count],
        "rows": [_row(folder, point) for point in predicted[:count]],
    }


def _families(points: list[dict[str, Any]], by: tuple[str, ...]) -> list[dict[str, Any]]:
    """Figures of each family, the one with the most error first: its share is of the sum over all points."""
    members: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for point in points:
        key = tuple(_family(point, name) for name in by)
        members.setdefault(key, []).append(point)
    figures = {
        key: statistics(*(np.array([p[end] for p in some]) for end in ("measured", "predicted")))
        for key, some in members.items()
    }
    whole = sum(one["mape"] * one["points"] for one in figures.values()) or 1.0
    rows = [
        dict(zip(by, key, strict=True))
        | {name: one[name] for name in ("points", "mape", "median", "bias")}
        | {"share": one["mape"] * one["points"] / whole}
        for key, one in figures.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])


def _left_out(files: Sequence[dict[str, Any]], kinds: set[str]) -> list[dict[str, Any]]:
    """Families of some kinds, each predicted by numbers refitted without it, the one with the most error
    first.
    """
    every = [
        {"family": name, **{key: one[key] for key in ("kind", "file", "metric", "refitted")}, **figures}
        for one in files
        for name, figures in one["families"].items()
        if one["kind"] in kinds
    ]
    return sorted(every, key=lambda one: -one["mape"] * one["rows"])


def _family(point: dict[str, Any], name: str) -> str:
    if name not in FAMILIES:
        return str(point[name])
    label = str(point["families"].get(name, ""))
    return _chip(label) if name == "chip" else label


@lru_cache(maxsize=1024)
def _chip(label: str) -> str:
    """The chip that a label of a chip or a system is of."""
    try:
        return machine_of(label)[0] or Catalogue().chip(label).name
    except UnknownName:
        return label


def _row(folder: Path, point: dict[str, Any]) -> dict[str, Any]:
    asked = f"strata validate {point['file']} --row {point['row']}"
    return {name: point[name] for name in ("file", "row", "group", "measured", "predicted")} | {
        "error": point["predicted"] / point["measured"] - 1.0,
        "command": point["command"] or command_of_row(folder, point["file"], point["row"]) or asked,
        "unit": "SI",
    }
