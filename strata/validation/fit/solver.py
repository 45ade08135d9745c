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
GRID = 4  # decimals of the logarithm of a value
DAMPED = 1e-2  # of the curvature, at first
DAMPINGS = 6  # fourfold ones that are tried before a place counts as the best
LEAST_GAIN = 1e-9  # of the cost: less is noise
SMALL_GAIN = 1e-4  # of the cost, after which no further slopes are taken
FURTHEST = 1.0  # of a logarithm: straight lines are not followed further than that


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
    best = min(tries, key=lambda solved: solved[0])[1]
    told = _told(search, residual, best, np.log(start))
    values = rounded_values(versions, np.exp(best), search)
    last = rows.points(versions.at(np.where(told, list(values.values()), start)))
    return FitSolution(
        values={path: value for (path, value), kept in zip(values.items(), told, strict=True) if kept},
        rows=sum(map(len, learn)),
        held_out=sum(map(len, check)),
        before=mean_error(first, check),
        after=mean_error(last, check),
    )


def rounded_values(versions: Versions, values: Array, search: FitSearch) -> dict[str, float]:
    """Values of quantities by path, to the digits they deserve."""
    pairs = zip(versions.quantities, values, strict=True)
    return {q.path: float(f"{value:.{search.digits}g}") for q, value in pairs}


def moved_along(lines: Lines, rows: Array, versions: Versions, search: FitSearch) -> Array:
    """How far quantities move along straight lines for the least errors of some rows, in logarithms. A number
    moves from where its record has it by `loose` as lightly as one row errs by `robust`.
    """
    here, slopes = lines.errors[rows], lines.slopes[rows]
    if not slopes.shape[1]:
        return np.zeros(0)
    if search.loose:
        count = slopes.shape[1]
        lightly = search.robust / search.loose
        here = np.concatenate([here, lightly * np.log(versions.start / versions.own)])
        slopes = np.concatenate([slopes, np.eye(count) * lightly])
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
) -> tuple[float, Array]:
    """Least squares from a start, with coarser slopes first: the cost and where it is met.

    Damped as Levenberg and Marquardt do, in logarithms: what rows do not tell stays where it was. Places are
    rounded, so that machines whose last digits differ take the same way down the same one of many valleys.
    """

    def pulled(x: Array) -> Array:
        return np.concatenate([residual(x), (x - start) * (search.robust / search.loose)])

    at = np.round(np.clip(start, *ends), GRID)
    errors = pulled(at)
    for step in steps:
        damping = DAMPED
        for _ in range(search.evaluations):
            ways = np.where(at + step > ends[1], -step, step)
            slopes = np.stack([(pulled(at + way) - errors) / way.sum() for way in np.diag(ways)], axis=1)
            moved = _better(search, pulled, (at, errors), slopes, ends, damping)
            if moved is None:
                break
            gain = 1.0 - _cost(search, moved[1]) / _cost(search, errors)
            at, errors, damping = moved
            if gain < SMALL_GAIN:
                break
    return _cost(search, errors), at


def _told(search: FitSearch, residual: Callable[[Array], Array], best: Array, start: Array) -> Array:
    """Which quantities rows tell: without those that are left, back at their start, errors would be larger than
    one number less is worth (Schwarz, Annals of Statistics 6 (1978)).
    """
    told, errors = np.ones(len(best), bool), residual(best)
    cost, allowed = _cost(search, errors), len(errors) ** (1.0 / max(len(errors), 1))
    while told.any():
        without = {
            i: _cost(search, residual(np.where(told & (np.arange(len(best)) != i), best, start)))
            for i in np.flatnonzero(told)
        }
        least = min(without, key=lambda i: without[i])
        if without[least] > cost * allowed:
            break
        told[least], cost = False, without[least]
    return told


def _better(
    search: FitSearch,
    residual: Callable[[Array], Array],
    here: tuple[Array, Array],
    slopes: Array,
    ends: tuple[Array, ...],
    damping: float,
) -> tuple[Array, Array, float] | None:
    """A place of less cost along slopes, its errors and the damping that led there; none where there is none."""
    at, errors = here
    weight = 1.0 / (1.0 + (errors / search.robust) ** 2) ** (0.5 if search.loss == "soft_l1" else 1.0)
    uphill = slopes.T @ (weight * errors)
    free = ~(((at <= ends[0]) & (uphill > 0)) | ((at >= ends[1]) & (uphill < 0)))
    curved = (slopes.T * weight) @ slopes
    for _ in range(DAMPINGS):
        step = np.zeros(len(at))
        held = curved[np.ix_(free, free)]
        step[free] = np.linalg.solve(held + damping * np.diag(np.diag(held)), -uphill[free])
        there = np.round(np.clip(at + np.clip(step, -FURTHEST, FURTHEST), *ends), GRID)
        found = residual(there)
        if _cost(search, found) < _cost(search, errors) * (1.0 - LEAST_GAIN):
            return there, found, damping / 4.0
        damping *= 4.0
    return None


def _cost(search: FitSearch, errors: Array) -> float:
    """What errors count: those above `robust` as their size, or hardly more than at all."""
    square = (errors / search.robust) ** 2
    counts = np.sqrt(1.0 + square) - 1.0 if search.loss == "soft_l1" else np.log1p(square)
    return float(np.sum(counts))


def _least(
    search: FitSearch, residual: Callable[[Array], Array], start: Array, ends: Any, **further: Any
) -> Any:
    from scipy.optimize import least_squares

    given: dict[str, Any] = {"loss": search.loss, "f_scale": search.robust, "max_nfev": search.evaluations}
    return least_squares(residual, start, bounds=ends, **given, **further)
