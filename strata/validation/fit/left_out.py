"""What a fit is worth on kinds of rows it has not seen: whole groups left out in turn, each judged by
quantities fitted to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.arrays import Array
from strata.validation.fit.families import Family
from strata.validation.fit.solver import FitProblem, FitSearch, mean_error, solve_fit
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.registry import reader_of
from strata.validation.readers.tables import Table

SEARCH = FitSearch(tries=((0.03,),), robust=0.1, evaluations=40)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A group of rows, and its mean error with quantities fitted to the rest."""

    group: str
    rows: int
    error: float
    values: dict[str, float]


def leave_groups_out(
    table: Table, family: Family, columns: Sequence[str], catalogue: Catalogue | None = None
) -> list[LeftOut]:
    """Every value of the columns (a precision, a size) left out in turn: the family's quantities of the
    table's chip are fitted to two thirds of the other rows, and all rows of the group are predicted.
    """
    known = Catalogue() if catalogue is None else catalogue
    keep = np.ones(len(table), bool)
    for column in family.column:
        keep &= np.isin(table.text(column).astype(str), family.values)
    table = table.keep(keep)
    groups = [
        (column, str(value)) for column in columns for value in np.unique(table.text(column).astype(str))
    ]
    return [_without(table, family, column, value, known) for column, value in groups]


def _without(table: Table, family: Family, column: str, value: str, catalogue: Catalogue) -> LeftOut:
    inside: Array = table.text(column).astype(str) == value
    rest = table.keep(~inside)
    problem = FitProblem(
        record=catalogue.chip(table.chip),
        kind="chip",
        quantities=family.quantities,
        predict=lambda version: [_predicted(rest, catalogue.with_chip(version))],
        search=SEARCH,
    )
    solution = solve_fit(problem)
    points = _predicted(table.keep(inside), catalogue.with_chip(solution.record))
    error = mean_error([points], [np.arange(len(points.line))])
    return LeftOut(group=f"{column}={value}", rows=int(inside.sum()), error=error, values=solution.values)


def _predicted(table: Table, catalogue: Catalogue) -> ComparedPoints:
    reader = reader_of(table.name, catalogue)
    assert reader is not None  # files of a family have one
    return reader(table, catalogue)
