"""validate(): every known file below a folder, predicted row by row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strata.validation.accuracy.compare import file_entry
from strata.validation.accuracy.holdout import is_fitted, unseen_models
from strata.validation.fit.files import SERVED_FILES
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, held_out
from strata.validation.readers.registry import data_files, matches, not_read, reader_of
from strata.validation.readers.tables import Table, read_table


def compared_files(
    folder: Path | str, catalogue: Catalogue | None = None, *only: str
) -> Iterator[tuple[Table, ComparedPoints]]:
    """Every known file below a folder, or those of some patterns, with its measured and predicted points, for
    plots and residuals.
    """
    names = catalogue or Catalogue()
    for name in data_files(Path(folder)):
        reader = reader_of(name, names)
        if reader is not None and (not only or matches(name, *only)):
            table = read_table(Path(folder), name)
            yield table, reader(table, names)


def validate(folder: Path | str, *, keep_points: bool = False, unseen: bool = False) -> dict[str, Any]:
    """Predict every row of every known file and compare; `keep_points` adds "points", a list of all of them,
    for plots.

    `unseen` is for the project's own data: of files that chips are fitted to, only the held-out third is
    compared, and "unseen_models" says the same of served models that no fit has seen.

    Fractions, not percent. `not_yet` names files, and groups of rows of read files, whose physics is not
    modelled yet, `unknown` files no reader fits.
    """
    names, catalogue = data_files(Path(folder)), Catalogue()
    files: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    served: dict[str, list[dict[str, Any]]] = {}
    rows_later: list[str] = []
    for table, points in compared_files(folder, catalogue):
        if unseen and table.name in SERVED_FILES:
            served[table.name] = unseen_models(table, points)
        shown = held_out(points) if unseen and is_fitted(table.name) else points
        files.append(file_entry(table.name, shown))
        rows_later += [f"{table.name} {group}" for group in points.later]
        if keep_points:
            kept += _plain_points(table.name, shown)
    later, unknown = not_read(names, catalogue)
    outcome: dict[str, Any] = {"files": files, "not_yet": later + rows_later, "unknown": unknown}
    if unseen:
        outcome["unseen_models"] = [row for name in SERVED_FILES for row in served.get(name, [])]
        outcome["held_out"] = [name for name in names if is_fitted(name)]
    return outcome | {"points": kept} if keep_points else outcome


def _plain_points(name: str, points: ComparedPoints) -> list[dict[str, Any]]:
    """Points as plain JSON types."""
    rows = zip(points.line, points.group, points.measured, points.predicted, points.headline, strict=True)
    return [
        {
            "file": name,
            "row": int(line),
            "group": str(group),
            "measured": float(measured),
            "predicted": float(predicted),
            "headline": bool(headline),
        }
        for line, group, measured, predicted, headline in rows
    ]
