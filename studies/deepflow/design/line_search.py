"""Descent along logarithms of shares: slopes by differences or by JAX, every length of a line search in one
batch, and starts that race.

A step's time is a sum of maxima of rooflines: at any design most variables have no slope, and where two roofs
meet the slope jumps. So a step tries the slope, its average over past steps (which leads along such an edge),
and each probe by itself, all at many lengths, and takes the best of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deepflow.design.ledger import OUT, Ledger
from strata.base.arrays import Array

BOTH_SIDES = 0.1  # stride below which slopes are central differences
PER_START = 400  # evaluations of the budget for each start, at least
FRANK_WOLFE = 24  # steps towards the shortest combination of slopes
SHIFTS = 12  # random moves a step
PAST = 8  # steps whose slopes are kept
LENGTHS = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.125])  # of a step, as multiples of the last that gained


@dataclass(frozen=True, kw_only=True)
class LineSearchRule:
    """How starts are drawn, raced and moved."""

    slope: str = "difference"  # or "jax"
    screen: float = 0.15  # share of the budget that is drawn at random, for the starts
    starts: int = 24  # best draws that descend
    race: int = 4  # steps after which the worse half of them ends
    width: float = 0.12  # first probe, along the logarithm
    stride: float = 0.4  # first step, along the logarithm
    narrowest: float = 2e-3  # stride at which a start has converged


@dataclass(eq=False)
class _Climbers:
    """Starts under way: free coordinates, choices, merits, strides, averaged slopes."""

    free: Array
    choices: Array
    merits: Array
    stride: Array
    past: Array  # slopes of the last steps [starts, steps, columns]

    def take(self, which: Array) -> _Climbers:
        rows = (self.free, self.choices, self.merits, self.stride, self.past)
        return _Climbers(*(row[which] for row in rows))

    def __len__(self) -> int:
        return len(self.free)


def line_search(
    ledger: Ledger, rng: np.random.Generator, rule: LineSearchRule, start: Array | None = None
) -> None:
    """Draw, descend from the best, and draw anew around the best design until all is `Spent`."""
    variables = ledger.variables
    starts = int(np.clip(ledger.budget // PER_START, 1, rule.starts))
    drawn = variables.random(rng, max(int(ledger.budget * rule.screen), starts))
    if start is not None:
        drawn[0] = start
    while True:
        merits = ledger.merits(drawn)
        if not variables.smooth_count:
            return  # nothing has a slope: the draw went through every combination in turn
        chosen = _distinct_best(drawn[:, variables.smooth_count :], merits, starts)
        _race(ledger, rng, _begun(ledger, drawn[chosen], merits[chosen], rule), rule)
        drawn = _around_best(ledger, rng, rule)


def _distinct_best(choices: Array, merits: Array, count: int) -> Array:
    """The best draws, of each combination of choices at most a quarter of them (but at least one)."""
    order = np.argsort(merits, kind="stable")
    most = max(count // 4, 1)
    _, kind = np.unique(choices, axis=0, return_inverse=True)
    kept: list[int] = []
    seen: dict[int, int] = {}
    for k in order:
        own = int(np.ravel(kind)[k])
        if seen.get(own, 0) < most or not choices.shape[1]:
            kept.append(int(k))
            seen[own] = seen.get(own, 0) + 1
        if len(kept) == count:
            break
    return np.array(kept)


def _begun(ledger: Ledger, designs: Array, merits: Array, rule: LineSearchRule) -> _Climbers:
    variables = ledger.variables
    free = variables.to_free(designs)
    return _Climbers(
        free,
        designs[:, variables.smooth_count :],
        merits,
        np.full(len(designs), rule.stride),
        np.repeat(np.full_like(free, np.nan)[:, None], PAST, axis=1),
    )


def _around_best(ledger: Ledger, rng: np.random.Generator, rule: LineSearchRule) -> Array:
    """A new draw: half of it near the best design with other choices, half of it anywhere."""
    variables = ledger.variables
    count = max(int(ledger.budget * rule.screen / 3), 2 * rule.starts)
    drawn = variables.random(rng, count)
    near = count // 2
    free = np.repeat(variables.to_free(ledger.best[None]), near, axis=0)
    free += rng.normal(0.0, rule.stride, free.shape) * (rng.random(free.shape) < 0.5)
    drawn[:near] = variables.from_free(free, drawn[:near, variables.smooth_count :])
    drawn[0] = ledger.best
    return drawn


def _race(ledger: Ledger, rng: np.random.Generator, climbers: _Climbers, rule: LineSearchRule) -> None:
    """Step all starts until each has converged; now and then the worse half ends."""
    steps = 0
    while len(climbers):
        climbers = _step(ledger, rng, climbers, rule)
        climbers = climbers.take(climbers.stride > rule.narrowest)
        steps += 1
        if steps % rule.race == 0 and len(climbers) > 1:
            order = np.argsort(climbers.merits, kind="stable")
            climbers = climbers.take(order[: (len(order) + 1) // 2])


def _step(ledger: Ledger, rng: np.random.Generator, climbers: _Climbers, rule: LineSearchRule) -> _Climbers:
    """One step of every start: slopes, then all lengths along them, in two batches."""
    count, columns = climbers.free.shape
    width = np.minimum(rule.width, climbers.stride)
    if rule.slope == "jax":
        slope, tried, merits = (
            _exact_slope(ledger, climbers),
            climbers.free[:, None][:, :0],
            climbers.merits[:, None][:, :0],
        )
    else:
        slope, tried, merits = _probed_slope(ledger, climbers, width)
    past = np.concatenate([slope[:, None], climbers.past[:, :-1]], axis=1)
    ways = np.stack([_directed(slope), _directed(shortest_combination(past))], axis=1)  # [starts, 2, columns]
    moves = climbers.stride[:, None, None, None] * LENGTHS[:, None] * ways[:, :, None]
    shifts = _shifts(rng, (count, SHIFTS, columns)) * climbers.stride[:, None, None]
    trials = climbers.free[:, None] - np.concatenate([moves.reshape(count, -1, columns), shifts], axis=1)
    found = _merits(ledger, climbers, trials)
    every, values = np.concatenate([tried, trials], axis=1), np.concatenate([merits, found], axis=1)
    best = np.argmin(values, axis=1)
    rows = np.arange(count)
    gained = values[rows, best] < climbers.merits - 1e-9
    ahead = np.where(gained[:, None], every[rows, best], climbers.free)
    went = np.abs(ahead - climbers.free).max(axis=1)
    stride = np.where(gained, np.clip(1.5 * went, 0.5 * climbers.stride, 2.0), 0.6 * climbers.stride)
    settled = ledger.variables.to_free(ledger.variables.from_free(ahead, climbers.choices))
    return replace(
        climbers,
        free=settled,  # the same designs, back within limits
        merits=np.where(gained, values[rows, best], climbers.merits),
        stride=stride,
        past=past,
    )


def _shifts(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Random moves of a few variables at a time, some long, most short: they find what no slope shows, such
    as the next whole bank or unit.
    """
    few = rng.random(shape) < 3.0 / shape[2]
    shifts: Array = rng.normal(size=shape) * few * rng.choice([1.0, 0.3, 0.1], (*shape[:2], 1))
    return shifts


def shortest_combination(slopes: Array) -> Array:
    r"""The shortest convex combination of some slopes [N, slopes, columns]: where roofs meet, it is what is
    left of the slope along the edge between them.

    .. math:: d = \arg\min \Big\{ \lVert \sum_k \lambda_k g_k \rVert : \lambda \ge 0, \sum_k \lambda_k = 1 \Big\}

    by Frank-Wolfe steps of exact length; slopes that are not known (nan) take no part.

    Burke, Lewis & Overton, SIAM J. Optim. 15 (2005), sec. 2 (gradient sampling).

    >>> shortest_combination(np.array([[[1.0, 2.0], [1.0, -2.0]]])).round(3).tolist()
    [[1.0, 0.0]]
    """
    known = np.asarray(np.isfinite(slopes).all(axis=2))
    every = np.where(known[:, :, None], slopes, 0.0)
    rows, point = np.arange(len(slopes)), every[:, 0]
    for _ in range(FRANK_WOLFE):
        along = np.where(known, np.einsum("nkc,nc->nk", every, point), np.inf)
        move = every[rows, np.argmin(along, axis=1)] - point
        length = -np.sum(point * move, axis=1) / np.maximum(np.sum(move * move, axis=1), 1e-300)
        point = point + np.clip(length, 0.0, 1.0)[:, None] * move
    return point


def _directed(slope: Array) -> Array:
    """A slope whose steepest part is 1."""
    return slope / np.maximum(np.abs(slope).max(axis=1, keepdims=True), 1e-300)


def _probed_slope(ledger: Ledger, climbers: _Climbers, width: Array) -> tuple[Array, Array, Array]:
    """Differences of the merit, with the probes and their merits [starts, probes]: upwards alone while steps
    are long, to both sides when they are short.
    """
    columns = climbers.free.shape[1]
    both = bool(climbers.stride.max() < BOTH_SIDES)
    turn = np.concatenate([np.eye(columns), -np.eye(columns)]) if both else np.eye(columns)
    probes = climbers.free[:, None] + width[:, None, None] * turn
    merits = _merits(ledger, climbers, probes)
    # a probe on the other side of feasibility is a wall or a gain, not a slope
    alike = (merits < OUT) == (climbers.merits[:, None] < OUT)
    level = np.where(alike, merits, climbers.merits[:, None]) - climbers.merits[:, None]
    up = level[:, :columns]
    slope = (up - level[:, columns:]) / (2.0 * width[:, None]) if both else up / width[:, None]
    return slope, probes, merits


def _exact_slope(ledger: Ledger, climbers: _Climbers) -> Array:
    variables = ledger.variables
    slopes = ledger.slopes(variables.from_free(climbers.free, climbers.choices))
    return variables.free_slope(climbers.free, slopes)


def _merits(ledger: Ledger, climbers: _Climbers, free: Array) -> Array:
    """Merits of some free coordinates of each start [starts, trials, columns], in one batch."""
    count, trials, columns = free.shape
    choices = np.repeat(climbers.choices, trials, axis=0)
    designs = ledger.variables.from_free(free.reshape(-1, columns), choices)
    return ledger.merits(designs).reshape(count, trials)
