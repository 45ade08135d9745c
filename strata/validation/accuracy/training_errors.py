"""How far predictions of training are from measured runs: file by file, on lines and on whole families of
runs that no fit has seen.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.validation.accuracy.compare import statistics
from strata.validation.accuracy.run import compared_files
from strata.validation.fit.files import is_fitted
from strata.validation.fit.trainers import FamiliesLeftOut, leave_families_out
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, held_out
from strata.validation.readers.registry import matches
from strata.validation.readers.tables import Table, read_table
from strata.validation.readers.training_nanotron import FIXED, nanotron

TRAINING = "training/*.csv"
RUNS = "training/h100_nanotron.csv"
SLOW, LIKE = 2.0, 0.3  # times as long as predicted; an error within which a run is as another build makes it
YES_OR_NO = "training/*_oom.csv"  # what fits is no error of a time


def training_errors(folder: Path | str, *only: str) -> list[dict[str, Any]]:
    """For each file of training runs: errors of all its rows, of the held-out third where some of its lines
    were fitted, and of its rows predicted without their own family (`leave_families_out`).
    """
    return [
        _file_errors(table, points)
        for table, points in compared_files(folder, None, *(only or (TRAINING,)))
        if not matches(table.name, YES_OR_NO)
    ]


def _file_errors(table: Table, points: ComparedPoints) -> dict[str, Any]:
    head = points.keep(points.headline.astype(bool))
    fitted = is_fitted(table.name)
    return {
        "file": table.name,
        "all": _figures(head),
        "held_out": _figures(held_out(head)) if fitted else None,
        "left_out": [family_errors(found) for found in leave_families_out(table)],
    }


def family_errors(found: FamiliesLeftOut) -> dict[str, Any]:
    """Figures of all rows together, and the family with the largest median."""
    medians = {
        name: statistics(found.points.measured[rows], found.points.predicted[rows])["median"]
        for name in found.names
        if (rows := found.family == name).any()
    }
    worst = max(medians, key=lambda name: medians[name])
    return {
        "kind": found.kind,
        "families": len(found.names),
        "refitted": found.refitted,
        **_figures(found.points),
        "worst_family": worst,
        "worst_median": medians[worst],
        "worst_points": int(np.count_nonzero(found.family == worst)),
    }


def _figures(points: ComparedPoints) -> dict[str, Any]:
    return statistics(points.measured, points.predicted)


def mislabelled_runs(folder: Path | str) -> dict[str, Any]:
    """Of nanotron's runs with stages that say they were made after its pipeline fix: how many are `slow`,
    more than twice as long as of that build; how many of these are as the `other` build makes them, within
    30 %; and the mean error of the `rest` of the file without those.
    """
    table = read_table(Path(folder), RUNS)
    before = replace(table, columns={**table.columns, FIXED: np.full(len(table), "0", dtype=object)})
    told, other = (_speeds(nanotron(rows, Catalogue())) for rows in (table, before))
    after = dict(
        zip(table.lines.tolist(), (table.number(FIXED) != 0) & (table.number("pp") > 1), strict=True)
    )
    slow = np.array([after[int(line)] for line in told.line]) & (told.predicted > SLOW * told.measured)
    as_other = slow & (np.abs(other.predicted / other.measured - 1.0) <= LIKE)
    rest = _figures(told.keep(~as_other))["mape"]
    return {"slow": int(slow.sum()), "other": int(as_other.sum()), "rest": rest}


def _speeds(points: ComparedPoints) -> ComparedPoints:
    head: Array = points.headline.astype(bool)
    return points.keep(head)
