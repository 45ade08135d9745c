"""The optimiser of every fit: a few physically named quantities, moved within their ranges until rows are
met, with every third configuration held out to say how good that is.

What differs from fit to fit is which rows count and how a version of some records predicts them. No shape
is looked up: the same equations price the rows before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from strata.base.arrays import Array
from strata.validation.fit.rows import SMALLEST, GroupRows, Versions
from strata.validation.fit.table import FitSearch
from strata.validation.readers.comparison import ComparedPoints, is_held_out

LEAST_ROWS = 12  # fitted rows below which a quantity would only remember them
MOST_ROWS = 1500  # fitted rows of one file: more cost time and change nothing
GRID = 4  # decimals of the logarithm of a value
DAMPED = 1e-2  # of the curvature, at first
DAMPINGS = 6  # fourfold ones that are tried before a place counts as the best
LEAST_GAIN = 1e-9  # of the cost: less is noise
SMALL_GAIN = 1e-4  # of the cost, after which no further slopes are taken
FURTHEST = 1.0  # of a logarithm: straight lines are not followed further than that
ALONG = 0.1  # step for slopes of what is straight


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
    every = [np.flatnonzero(~is_held_out(p)) for p in first]
    learn = [own[:: max(1, math.ceil(len(own) / MOST_ROWS))] for own in every]
    check = [np.flatnonzero(is_held_out(p)) for p in first]

    weights = np.concatenate(
        [np.full(len(r), w / max(len(r), 1) ** 0.5) for r, w in zip(learn, rows.weights(), strict=True)]
    )
    weights *= len(weights) ** 0.5 / max(float(np.linalg.norm(weights)), SMALLEST)

    def residual(x: Array) -> Array:
        points = rows.points(versions.at(np.exp(x)))
        return np.concatenate([log_errors(p, r) for p, r in zip(points, learn, strict=True)]) * weights

    ends = [np.log(end) for end in versions.ends]
    tries = [_descended(search, residual, versions, ends, steps) for steps in search.tries]
    best = min(tries, key=lambda solved: solved[0])[1]
    informed = _informed(search, residual, best, np.log(start))
    values = rounded_values(versions, np.exp(best), search)
    last = rows.points(versions.at(np.where(informed, list(values.values()), start)))
    return FitSolution(
        values={path: value for (path, value), kept in zip(values.items(), informed, strict=True) if kept},
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
    """How far quantities move along straight lines for the least errors of some rows, in logarithms."""
    errors, slopes = lines.errors[rows], lines.slopes[rows]
    if not slopes.shape[1]:
        return np.zeros(0)
    here = np.log(versions.start)
    ends = [np.clip(np.log(end), here - FURTHEST, here + FURTHEST) for end in versions.ends]
    return _descended(search, lambda x: errors + slopes @ (x - here), versions, ends, (ALONG,))[1] - here


def _descended(
    search: FitSearch,
    residual: Callable[[Array], Array],
    versions: Versions,
    ends: Sequence[Array],
    steps: tuple[float, ...],
) -> tuple[float, Array]:
    """Least squares from where versions stand, with coarser slopes first: the cost and where it is met.

    Damped as Levenberg and Marquardt do, in logarithms: what rows do not tell stays where it was. Places are
    rounded, so that machines whose last digits differ take the same way down the same one of many valleys.
    """
    own = np.log(versions.own)

    def pulled(x: Array) -> Array:
        return np.concatenate([residual(x), (x - own) * (search.robust / search.loose)])

    at = np.round(np.clip(np.log(versions.start), *ends), GRID)
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


def _informed(search: FitSearch, residual: Callable[[Array], Array], best: Array, start: Array) -> Array:
    """Which quantities rows inform: the others, back at their start, cost less than a number is worth
    (Schwarz, Annals of Statistics 6 (1978)).
    """
    kept, errors = np.ones(len(best), bool), residual(best)
    cost, allowed = _cost(search, errors), len(errors) ** (1.0 / max(len(errors), 1))
    while kept.any():
        without = {
            i: _cost(search, residual(np.where(kept & (np.arange(len(best)) != i), best, start)))
            for i in np.flatnonzero(kept)
        }
        least = min(without, key=lambda i: without[i])
        if without[least] > cost * allowed:
            break
        kept[least], cost = False, without[least]
    return kept


def _better(
    search: FitSearch,
    residual: Callable[[Array], Array],
    here: tuple[Array, Array],
    slopes: Array,
    ends: Sequence[Array],
    damping: float,
) -> tuple[Array, Array, float] | None:
    """A place of less cost along slopes, its errors and the next damping; none where there is none."""
    at, errors = here
    weight = 1.0 / (1.0 + (errors / search.robust) ** 2) ** (0.5 if search.loss == "soft_l1" else 1.0)
    uphill = slopes.T @ (weight * errors)
    free = ~(((at <= ends[0]) & (uphill > 0)) | ((at >= ends[1]) & (uphill < 0)))
    curved = (slopes.T * weight) @ slopes
    for _ in range(DAMPINGS):
        step = np.zeros(len(at))
        inside = curved[np.ix_(free, free)]
        step[free] = np.linalg.solve(inside + damping * np.diag(np.diag(inside)), -uphill[free])
        there = np.round(np.clip(at + np.clip(step, -FURTHEST, FURTHEST), *ends), GRID)
        left = residual(there)
        if _cost(search, left) < _cost(search, errors) * (1.0 - LEAST_GAIN):
            return there, left, damping / 4.0
        damping *= 4.0
    return None


def _cost(search: FitSearch, errors: Array) -> float:
    """What errors count: those above `robust` as their size, or hardly more than at all."""
    square = (errors / search.robust) ** 2
    counts = np.sqrt(1.0 + square) - 1.0 if search.loss == "soft_l1" else np.log1p(square)
    return float(np.sum(counts))
