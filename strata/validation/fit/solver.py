"""The optimiser of every fit: a few physically named quantities, moved within their ranges until rows are
met, with every third configuration held out to say how good that is.

What differs from fit to fit is which rows count and how a version of some records predicts them. No shape
is looked up: the same equations price the rows before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.validation.fit.rows import GroupRows
from strata.validation.fit.table import FitSearch
from strata.validation.fit.versions import SMALLEST, Versions
from strata.validation.readers.comparison import ComparedPoints, is_held_out

LEAST_ROWS = 12  # fitted rows below which a quantity would only remember them
MOST_ROWS = 1500  # fitted rows of one file: more cost time and change nothing
INSIDE = 1e-3  # of a logarithm: how far from the ends of its range a quantity starts
FURTHEST = 1.0  # of a logarithm: straight lines are not followed further than that
DIGITS = 3  # of a fitted value: more are noise


@dataclass(frozen=True, eq=False, kw_only=True)
class FitSolution:
    """New values, rounded to the digits they deserve; points behind them, and the mean error on those that
    were not fitted, before and after.
    """

    values: dict[str, float]
    rows: int
    held_out: int
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class Lines:
    """Errors of some points as straight lines: at the values that stand, and their slopes over quantities,
    all in logarithms.
    """

    errors: Array
    slopes: Array  # [points, quantities]


def log_errors(points: ComparedPoints, rows: Array | None = None) -> Array:
    """Logarithm of predicted over measured, as of a time: more of a rate is less time."""
    rows = np.arange(len(points)) if rows is None else rows
    ratio = np.maximum(points.predicted[rows], SMALLEST) / points.measured[rows]
    return np.where(points.rate[rows], -1.0, 1.0) * np.log(ratio)


def mean_error(points: Sequence[ComparedPoints], rows: Sequence[Array]) -> float:
    """Mean error of some points of each set; nan where there are none."""
    logs = np.concatenate([log_errors(p, r) for p, r in zip(points, rows, strict=True)])
    return float(np.mean(np.abs(np.expm1(logs)))) if len(logs) else math.nan


def solve_fit(rows: GroupRows, versions: Versions) -> FitSolution:
    """Values that fit best, in logarithms: all quantities are positive, and their sizes lie fifteen decades
    apart.
    """
    start, search = versions.start, rows.group.search
    first = rows.points(versions.at(start))
    # points, not lines, are held out: a shape that two backends ran is one point
    learn = [_thinned(np.flatnonzero(~is_held_out(p))) for p in first]
    check = [np.flatnonzero(is_held_out(p)) for p in first]
    weights = _point_weights(rows, first, learn)

    def residual(x: Array) -> Array:
        points = rows.points(versions.at(np.exp(x)))
        return np.concatenate([log_errors(p, r) for p, r in zip(points, learn, strict=True)]) * weights

    ends = tuple(np.log(end) for end in versions.ends)
    tries = [_descended(search, residual, np.log(start), ends, steps) for steps in search.tries]
    best = np.exp(min(tries, key=lambda solved: float(solved.cost)).x)
    values = {
        q.path: float(f"{value:.{DIGITS}g}") for q, value in zip(versions.quantities, best, strict=True)
    }
    last = rows.points(versions.at(values.values()))
    return FitSolution(
        values=values,
        rows=sum(map(len, learn)),
        held_out=sum(map(len, check)),
        before=mean_error(first, check),
        after=mean_error(last, check),
    )


def moved_along(lines: Lines, rows: Array, versions: Versions, search: FitSearch) -> Array:
    """How far quantities move along straight lines for the least errors of some rows, in logarithms. A number
    moves by `loose` as lightly as one row errs by `robust`.
    """
    here, slopes = lines.errors[rows], lines.slopes[rows]
    if not slopes.shape[1]:
        return np.zeros(0)
    if search.loose:
        count = slopes.shape[1]
        here = np.concatenate([here, np.zeros(count)])
        slopes = np.concatenate([slopes, np.eye(count) * (search.robust / search.loose)])
    far = [np.clip(np.log(end / versions.start), -FURTHEST, FURTHEST) for end in versions.ends]
    wide = np.minimum(far[0], -INSIDE), np.maximum(far[1], INSIDE)
    solved = _least(
        search, lambda x: here + slopes @ x, np.zeros(slopes.shape[1]), wide, jac=lambda x: slopes
    )
    return np.asarray(np.clip(solved.x, *far))


def _thinned(rows: Array) -> Array:
    return rows[:: max(1, math.ceil(len(rows) / MOST_ROWS))]


def _point_weights(rows: GroupRows, first: list[ComparedPoints], learn: list[Array]) -> Array:
    """Weights of mean square 1 that give each set of points its share whatever its size."""
    weights = np.ones(sum(map(len, learn)))
    if files := rows.weights():
        shares = zip(learn, files, strict=True)
        each = [np.full(len(own), share / math.sqrt(max(len(own), 1))) for own, share in shares]
        weights = _scaled(np.concatenate(each))
    if even := rows.even(first):
        weights = weights * _scaled(np.concatenate([w[r] for w, r in zip(even, learn, strict=True)]))
    return weights


def _scaled(weights: Array) -> Array:
    scaled: Array = weights * (math.sqrt(len(weights)) / np.linalg.norm(weights))
    return scaled


def _descended(
    search: FitSearch,
    residual: Callable[[Array], Array],
    start: Array,
    ends: tuple[Array, ...],
    steps: tuple[float, ...],
) -> Any:
    """Least squares from a start, with coarser slopes first."""
    at, solved = start, None
    for step in steps:
        inside = np.clip(at, ends[0] + INSIDE, ends[1] - INSIDE)
        solved = _least(search, residual, inside, ends, diff_step=step)
        at = solved.x
    return solved


def _least(
    search: FitSearch, residual: Callable[[Array], Array], start: Array, ends: Any, **further: Any
) -> Any:
    from scipy.optimize import least_squares

    given: dict[str, Any] = {"loss": search.loss, "f_scale": search.robust, "max_nfev": search.evaluations}
    return least_squares(residual, start, bounds=ends, **given, **further)
