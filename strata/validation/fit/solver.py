"""The engine of every fit: a few physically named quantities of a record, moved within their ranges until
rows are met, with every third line held out to say how good that is.

A chip, a transport or an engine is fitted in the same way; what differs is which rows count and how a version
of the record predicts them. No shape is looked up: the same equations price the rows before and after.
"""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from strata.arrays import Array
from strata.params import leaf_paths, override, value_at
from strata.validation.fit.families import FORMAT_OF, Family, Quantity
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints
from strata.validation.readers.registry import data_files, matches
from strata.validation.readers.tables import Table, read_table

LEAST_ROWS = 12  # fitted rows below which a quantity would only remember them
MOST_ROWS = 1500  # fitted rows of one file: more cost time and change nothing
SMALLEST = 1e-12  # predicted, so that a failed row has a logarithm
INSIDE = 1e-3  # of a logarithm: how far from the ends of its range a quantity starts
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class FitSearch:
    """How least squares go about it. Each try is a row of steps of a logarithm with which slopes are taken,
    one descent after the other; the best try counts. Errors above `robust` count less than their square: as
    their size (soft_l1), or hardly more than at all where rows may be of another cause (cauchy).
    """

    tries: tuple[tuple[float, ...], ...]
    robust: float
    evaluations: int
    loss: str = "soft_l1"


@dataclass(frozen=True, eq=False, kw_only=True)
class FitProblem(Generic[R]):
    """A record, the quantities of it that may move, and the points that a version of it predicts."""

    record: R
    kind: str  # chip, transport or engine
    quantities: Sequence[Quantity]
    predict: Callable[[R], list[ComparedPoints]]
    search: FitSearch
    weights: Sequence[
        float
    ] = ()  # of each set of points against the others; none: every point counts the same
    even: Sequence[Array] = ()  # a weight for each point of each set, times its set's; none: all alike

    def version(self, values: Iterable[float]) -> R:
        """The record with other values of the quantities."""
        pairs = zip(self.quantities, values, strict=True)
        new: R = override(self.record, {q.path: float(v) for q, v in pairs}, self.kind)[0]
        return new


@dataclass(frozen=True, eq=False, kw_only=True)
class FitSolution(Generic[R]):
    """The record with its new quantities, rounded to the digits they deserve; points behind it, and the mean
    error on those that were not fitted, before and after.
    """

    record: R
    values: dict[str, float]
    rows: int
    held_out: int
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class FitOutcome:
    """What the fit of a family of kernels, of a transport or of an engine gave: new quantities (none where
    the old ones were better), the rows behind them, and the error on rows that were not fitted.
    """

    family: str
    values: dict[str, float]
    rows: int
    held_out: int
    before: float
    after: float
    files: tuple[str, ...]
    source: str


def log_errors(points: ComparedPoints, rows: Array) -> Array:
    """Logarithm of predicted over measured, as of a time: more of a rate is less time."""
    ratio = np.maximum(points.predicted[rows], SMALLEST) / points.measured[rows]
    return np.where(points.rate[rows], -1.0, 1.0) * np.log(ratio)


def mean_error(points: Sequence[ComparedPoints], rows: Sequence[Array]) -> float:
    """Mean error of some points of each set; nan where there are none."""
    logs = np.concatenate([log_errors(p, r) for p, r in zip(points, rows, strict=True)])
    return float(np.mean(np.abs(np.expm1(logs)))) if len(logs) else math.nan


def solve_fit(problem: FitProblem[R]) -> FitSolution[R]:
    """Values that fit best, in logarithms: all quantities are positive, and their sizes lie fifteen decades
    apart.
    """
    first = problem.predict(problem.record)
    # Points, not lines, are held out: a shape that two backends ran is one point.
    learn = [_thinned(np.flatnonzero(p.line % HELD_OUT != 0)) for p in first]
    check = [np.flatnonzero(p.line % HELD_OUT == 0) for p in first]
    weights = _row_weights(problem.weights, learn)
    if problem.even:
        each = np.concatenate([w[rows] for w, rows in zip(problem.even, learn, strict=True)])
        weights = weights * each * (math.sqrt(len(each)) / np.linalg.norm(each))

    def residual(x: Array) -> Array:
        points = problem.predict(problem.version(np.exp(x)))
        return np.concatenate([log_errors(p, r) for p, r in zip(points, learn, strict=True)]) * weights

    start = np.log([max(float(value_at(problem.record, q.path)), SMALLEST) for q in problem.quantities])
    best = min((_descended(problem, residual, start, steps) for steps in problem.search.tries), key=_cost)
    values = {
        q.path: float(f"{value:.3g}") for q, value in zip(problem.quantities, np.exp(best.x), strict=True)
    }
    new = problem.version(values.values())
    return FitSolution(
        record=new,
        values=values,
        rows=sum(map(len, learn)),
        held_out=sum(map(len, check)),
        before=mean_error(first, check),
        after=mean_error(problem.predict(new), check),
    )


def _thinned(rows: Array) -> Array:
    return rows[:: max(1, math.ceil(len(rows) / MOST_ROWS))]


def _row_weights(shares: Sequence[float], learn: list[Array]) -> Array:
    """Weights that give each set of points its share whatever its size, of mean square 1."""
    if not shares:
        return np.ones(sum(map(len, learn)))
    weights = np.concatenate(
        [
            np.full(len(rows), share / math.sqrt(max(len(rows), 1)))
            for rows, share in zip(learn, shares, strict=True)
        ]
    )
    scaled: Array = weights * (math.sqrt(len(weights)) / np.linalg.norm(weights))
    return scaled


def _descended(
    problem: FitProblem[R], residual: Callable[[Array], Array], start: Array, steps: tuple[float, ...]
) -> Any:
    """Least squares from a start, with coarser slopes first."""
    from scipy.optimize import least_squares

    low, high = (np.log([getattr(q, end) for q in problem.quantities]) for end in ("low", "high"))
    at, solved = start, None
    for step in steps:
        solved = least_squares(
            residual,
            np.clip(at, low + INSIDE, high - INSIDE),
            bounds=(low, high),
            loss=problem.search.loss,
            f_scale=problem.search.robust,
            diff_step=step,
            max_nfev=problem.search.evaluations,
        )
        at = solved.x
    return solved


def _cost(solved: Any) -> float:
    return float(solved.cost)


# -------------------------------------------------------------------------- rows and quantities


def family_tables(family: Family, folder: Path, belongs: Callable[[str], bool]) -> list[Table]:
    """The rows of a family whose system `belongs`: the name in their column, or else in their folder."""
    tables = []
    for name in data_files(folder):
        if not matches(name, *family.files):
            continue
        table = read_table(folder, name)
        owners = _owners(table).astype(str)
        keep = np.isin(owners, [owner for owner in np.unique(owners) if belongs(str(owner))])
        for column in family.column:
            if column in table.columns:
                keep &= np.isin(table.text(column).astype(str), family.values)
        if keep.any():
            tables.append(table.keep(keep))
    return tables


def _owners(table: Table) -> Array:
    """The system or chip of each row: as a column says, else the folder."""
    for column in ("system", "chip"):
        if column in table.columns:
            return table.text(column)
    return np.full(len(table), table.chip)


def even_weights(table: Table, points: ComparedPoints, column: str) -> Array:
    """A weight for each point such that every doubling of a size counts the same in each group, as far as it
    has eight points.
    """
    sizes = dict(zip(table.lines.tolist(), table.number(column), strict=True))
    doubling = [int(math.log2(max(sizes[line], 1.0))) for line in points.line.tolist()]
    keys = list(zip(points.group.tolist(), doubling, strict=True))
    count = Counter(keys)
    return np.array([1.0 / math.sqrt(max(count[key], 8)) for key in keys])


def has_enough(tables: Sequence[Table]) -> bool:
    """Whether rows remain to be fitted when a third is held out."""
    return sum(map(len, tables)) >= LEAST_ROWS * HELD_OUT // (HELD_OUT - 1)


def free_quantities(
    family: Family, record: Any, tables: Sequence[Table], told: Collection[str] = ()
) -> list[Quantity]:
    """What a family may move: what the record has (a * in a path stands for every name), of formats that were
    measured, and what no family before it has told.
    """
    seen = {
        FORMAT_OF.get(str(value), "")
        for table in tables
        for column in family.column
        if column in table.columns
        for value in np.unique(table.text(column).astype(str))
    }
    return [
        Quantity(path, q.low, q.high, q.format)
        for q in family.quantities
        for path in leaf_paths(record)
        if fnmatch.fnmatchcase(path, q.path) and path not in told and (not q.format or q.format in seen)
    ]


# ------------------------------------------------------------------------- what fits rest on


def fitted_source(solution: FitSolution[Any], files: Sequence[str], date: str, *, rows_of: str = "") -> str:
    """What fitted quantities rest on, in words."""
    held = (
        f"held-out third ({solution.held_out} rows)" if solution.held_out else "fitted rows, none to spare,"
    )
    return (
        f"fitted: {' and '.join(files)}{f', rows of {rows_of}' if rows_of else ''}, "
        f"two thirds of them ({solution.rows}), {date or 'undated'}; "
        f"mean error of the {held} {solution.after:.1%}, {solution.before:.1%} before"
    )


def outcome_of(
    solution: FitSolution[Any], family: str, files: Iterable[str], date: str, *, rows_of: str = ""
) -> FitOutcome:
    """What is reported of a fit."""
    named = tuple(files)
    return FitOutcome(
        family=family,
        values=solution.values,
        rows=solution.rows,
        held_out=solution.held_out,
        before=solution.before,
        after=solution.after,
        files=named,
        source=fitted_source(solution, named, date, rows_of=rows_of),
    )
