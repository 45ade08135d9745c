"""Other predictors on the same rows as Strata: columns of measured files, files of predictions, and figures
that others published.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadFile
from strata.base.reading import toml_file
from strata.base.units import factor
from strata.validation.accuracy.compare import statistics
from strata.validation.measured.own import header, is_finite_cell
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.tables import read_table

PUBLISHED = "published.toml"  # in the folder of measurements: [[figure]] with these keys
FIGURE = ("rival", "file", "group", "mape", "points", "source")
PREDICTIONS = (
    "file",
    "row",
    "predicted",
)  # columns of another predictor's file; `group` where rows have more


def rival_entries(name: str, points: ComparedPoints) -> list[dict[str, Any]]:
    """Rivals of a file's own columns beside ours, each on the points that it predicts."""
    entries = []
    for rival, values in points.rivals.items():
        rows = np.isfinite(values) & (values > 0) & points.headline
        if rows.any():
            measured, ours = points.measured[rows], points.predicted[rows]
            entries.append(_entry(rival, name, measured, values[rows], ours))
    return entries


def _entry(rival: str, file: str, measured: Array, theirs: Array, ours: Array) -> dict[str, Any]:
    figures, own = statistics(measured, theirs), statistics(measured, ours)
    return {
        "rival": rival,
        "file": file,
        "points": figures["points"],
        "mape": figures["mape"],
        "ours": own["mape"],
        "median": figures["median"],
        "our_median": own["median"],
    }


def published_entries(folder: Path, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures that others published of a file's rows, or of groups of them, beside ours: not the same points
    where they do not say which.
    """
    path = folder / PUBLISHED
    figures = toml_file(path, "TOML of published figures").get("figure", []) if path.is_file() else []
    by_name = {entry["file"]: entry for entry in files}
    entries = []
    for figure in figures:
        if set(figure) - set(FIGURE) or not {"rival", "file", "mape", "source"} <= set(figure):
            raise BadFile(f"{PUBLISHED}: a figure has {', '.join(FIGURE)}, but got {', '.join(figure)}")
        pattern, entry = figure.get("group", ""), by_name.get(figure["file"])
        if entry is None:
            continue
        groups = [one for group, one in entry["groups"].items() if fnmatchcase(group, pattern)]
        ours = groups if pattern else [entry]
        count = sum(one["points"] for one in ours)
        mean = sum(one["mape"] * one["points"] for one in ours) / count if count else None
        entries.append(
            {
                "rival": figure["rival"],
                "file": figure["file"],
                "points": figure.get("points"),
                "mape": float(figure["mape"]),
                "ours": mean,
                "as_published": figure["source"],
            }
        )
    return entries


def predicted_files(path: Path) -> list[str]:
    """The measured files that another predictor's file is about."""
    return list(dict.fromkeys(_predictions(path)[0]["file"].tolist()))


def _predictions(path: Path) -> tuple[dict[str, Array], Array, float]:
    """Columns of a file of predictions by name, its lines, and the factor of `predicted` to SI."""
    table = read_table(path.parent, path.name)
    heads = {cell: header(path.name, cell) for cell in table.columns}
    columns = {
        "row" if field.name == "line" else field.name: table.text(cell) for cell, field in heads.items()
    }
    lacking = [name for name in PREDICTIONS if name not in columns]
    if lacking:
        raise BadFile(
            f"{path.name} has no column {' and '.join(lacking)}; predictions have file, row (the line of the "
            f"file), predicted [unit] and, where rows have several numbers, group; it has: "
            f"{', '.join(table.columns)}"
        )
    unit = next(field.unit for field in heads.values() if field.name == "predicted")
    return columns, table.lines, factor(unit)[0]


def score_predictions(
    folder: Path, path: Path, points: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Another predictor's numbers beside ours on the same points, file by file, and lines of its file that
    name no measured row, with the reason. Rows that are not compared here (of fitted files those that a fit
    has seen) are counted as left out.
    """
    columns, lines, scale = _predictions(path)
    by_row: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for point in points:
        by_row.setdefault((point["file"], str(point["row"])), {})[point["group"]] = point
    measured = {name: {*map(str, read_table(folder, name).lines)} for name in {p["file"] for p in points}}
    scored: dict[str, list[tuple[float, float, float]]] = {}
    left_out: Counter[str] = Counter()
    why: dict[int, str] = {}
    groups = columns.get("group", np.full(len(lines), "", dtype=object))
    told = zip(lines.tolist(), columns["file"], columns["row"], groups, columns["predicted"], strict=True)
    for line, file, row, group, cell in told:
        of_row = by_row.get((file, row), {})
        some = [point for name, point in of_row.items() if group in ("", name)]
        if len(some) == 1 and is_finite_cell(cell):
            ours = some[0]
            scored.setdefault(file, []).append((ours["measured"], float(cell) * scale, ours["predicted"]))
        elif len(some) == 1:
            why[line] = f"'predicted' must be a number, but got '{cell}'"
        elif some:
            why[line] = f"row {row} has several numbers: say which by group: {', '.join(of_row)}"
        elif of_row:
            why[line] = f"row {row} of {file} has no group '{group}'; it has: {', '.join(of_row)}"
        elif row in measured.get(file, ()):
            left_out[file] += 1
        else:
            why[line] = f"{file} has no line {row}"
    return [
        _entry(path.stem, file, *np.array(rows).T) | {"left_out": left_out[file]}
        for file, rows in scored.items()
    ], why


def add_predictions(outcome: dict[str, Any], folder: Path, path: Path, points: list[dict[str, Any]]) -> None:
    """Put another predictor's figures into an outcome, and lines of its file that name no row."""
    entries, why = score_predictions(folder, path, points)
    outcome["arena"] = entries + outcome.get("arena", [])
    outcome["unread"] += [{"file": path.name, "row": line, "why": said} for line, said in why.items()]
