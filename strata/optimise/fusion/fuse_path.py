"""Shortest path over order ideals: the best fusion, proved, where the lattice of ideals is small enough.

A mapping is a chain of ideals; its time is the sum over steps (I, J), and every limit is one of a step, so
the best mapping is a shortest path. Steps are first priced by a lower bound of their compute time; those that
cannot lie on a path as short as the best known are never priced in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from strata.base.arrays import Array
from strata.optimise.fusion.fusion_problem import FusionProblem, as_rows, nested_pairs
from strata.optimise.fusion.partition_prices import PartitionPricer

SLACK = 1 + 1e-9  # of a bound against an incumbent, for rounding
BLOCK = 1 << 16  # steps priced at once


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps:
    """Partitions between nested ideals: places of both, sorted by the second; rows of the ideals."""

    first: Array
    second: Array
    rows: Array
    section: Array  # 0 in the forward kernels, 1 in the backward ones where these are apart

    @property
    def ideals(self) -> int:
        return len(self.rows)

    def sets(self, chosen: Array | slice) -> Array:
        """Rows of the kernels of some steps; all at once would fill the memory."""
        return (self.rows[self.second[chosen]] - self.rows[self.first[chosen]]).astype(np.float64)


def fusion_steps(pricer: PartitionPricer, masks: Sequence[int], limit: int) -> Steps | None:
    """All partitions between nested ideals that pins and directions allow; None where they are too many."""
    problem = pricer.problem
    rows = as_rows(masks, len(problem.kernels))
    # Weights stay in SRAM whole but in a partition of one kernel: most sets are out for that alone.
    found = nested_pairs(rows, problem.chip.sram * (1 + 1e-6), pricer.weights, limit)
    if found is None:
        return None
    steps = Steps(first=found[0], second=found[1], rows=rows, section=np.zeros(len(found[0]), dtype=np.int8))
    allowed = [_allowed(problem, steps.sets(part)) for part in _blocks(len(steps.first))]
    keep, section = (np.concatenate(both) for both in zip(*allowed, strict=True))
    return Steps(first=steps.first[keep], second=steps.second[keep], rows=rows, section=section[keep])


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, max(count, 1), BLOCK)]


def _allowed(problem: FusionProblem, sets: Array) -> tuple[Array, Array]:
    """Whether pins and directions allow each partition, and its section."""
    section = np.zeros(len(sets), dtype=np.int8)
    allowed = np.ones(len(sets), dtype=bool)
    if problem.apart:
        backward = np.array([k.backward for k in problem.kernels])
        section = (sets[:, backward].sum(1) > 0).astype(np.int8)
        allowed &= (section == 0) | (sets[:, ~backward].sum(1) == 0)
    return (allowed & _one_group(problem, sets) if problem.pinned else allowed), section


def _one_group(problem: FusionProblem, sets: Array) -> Array:
    """Whether each partition holds exactly one pinned group, whole, and no kernel of another."""
    touched, whole = np.zeros(len(sets)), np.zeros(len(sets))
    for group in problem.pinned:
        held = sets[:, [problem.index[name] for name in group]]
        touched += held.any(1)
        whole += held.all(1)
    return (touched == 1) & (whole == 1)


class Paths:
    """Shortest distances over steps with given costs, partition by partition, within a number of them."""

    def __init__(self, steps: Steps, limit: int, apart: bool):
        self.steps, self.limit, self.apart = steps, limit, apart
        # nested_pairs yields steps by their second ideal
        self.heads, self.starts = np.unique(steps.second, return_index=True)

    def _limits(self) -> list[tuple[int, int]]:
        """(section, partitions allowed) one after the other; without a limit all at once."""
        if not self.limit:
            return [(-1, self.steps.ideals)]
        return [(0, self.limit // 2), (1, self.limit // 2)] if self.apart else [(-1, self.limit)]

    def forward(self, cost: Array) -> list[Array]:
        """Distances from the empty ideal after 0, 1, 2 ... partitions: least with at most so many."""
        distance = np.full(self.steps.ideals, np.inf)
        distance[0] = 0.0
        found = [distance]
        for section, allowed in self._limits():
            own = cost if section < 0 else np.where(self.steps.section == section, cost, np.inf)
            for _ in range(allowed):
                reached = found[-1].copy()
                if len(self.starts):
                    least = np.minimum.reduceat(found[-1][self.steps.first] + own, self.starts)
                    reached[self.heads] = np.minimum(reached[self.heads], least)
                found.append(reached)
                if np.array_equal(reached, found[-2]):
                    break
        return found

    @cached_property
    def _tails(self) -> tuple[Array, Array, Array, Array]:
        """Steps in the order of their first ideals: these, where each begins, and second ideals."""
        order = np.argsort(self.steps.first, kind="stable")
        tails, starts = np.unique(self.steps.first[order], return_index=True)
        return order, tails, starts, self.steps.second[order]

    def backward(self, cost: Array) -> Array:
        """Distances to the full ideal, whatever the number of partitions: a lower bound within a limit."""
        distance = np.full(self.steps.ideals, np.inf)
        distance[-1] = 0.0
        order, tails, starts, after = self._tails
        own = cost[order]
        while len(starts):
            least = np.minimum.reduceat(distance[after] + own, starts)
            reached = distance.copy()
            reached[tails] = np.minimum(reached[tails], least)
            if np.array_equal(reached, distance):
                break
            distance = reached
        return distance

    def trace(self, cost: Array, found: list[Array]) -> list[int]:
        """Steps of a shortest path to the full ideal, in order."""
        path: list[int] = []
        place, layer = self.steps.ideals - 1, len(found) - 1
        while place != 0:
            while layer > 0 and found[layer - 1][place] == found[layer][place]:
                layer -= 1
            into = np.arange(*np.searchsorted(self.steps.second, [place, place + 1]))
            total = found[layer - 1][self.steps.first[into]] + cost[into]
            step = int(into[np.argmin(total)])
            path.append(step)
            place, layer = int(self.steps.first[step]), layer - 1
        return path[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class PathResult:
    """The best chain: its partitions and their tiles; how many ideals, steps and full prices it took."""

    time: float
    sets: Array
    tiles: tuple[int, ...]
    ideals: int
    steps: int
    priced: int


def step_bounds(pricer: PartitionPricer, steps: Steps) -> Array:
    """Lower bounds of the time of each step at each number of tiles; infinite where it does not fit."""
    problem = pricer.problem
    count = len(steps.first)
    bounds = np.empty((len(problem.tiles), count), dtype=np.float32)
    for part in _blocks(count):
        sets = steps.sets(part)
        flows = pricer.flows(sets)
        span = pricer.span(sets) if problem.rules.fill == "yes" else None
        live = pricer.live(steps.rows[steps.first[part]], sets)
        work = pricer.work(sets, live=live, flows=flows, span=span)
        for i, tiles in enumerate(problem.tiles):
            least = pricer.least_compute(sets, tiles)
            bounds[i, part] = pricer.times(replace(work, compute=least), tiles)
    return bounds * np.float32(1 - 1e-6)  # below the real bounds, however they were rounded


def _times(pricer: PartitionPricer, steps: Steps, tiles: int, chosen: Array) -> Array:
    """Times of chosen steps, in full."""
    parts = [chosen[part] for part in _blocks(len(chosen))]
    return np.concatenate([pricer.prices(steps.sets(part), tiles).time for part in parts])


def shortest_fusion(pricer: PartitionPricer, steps: Steps, worst: float = np.inf) -> PathResult | None:
    """The best chain of partitions; None where none fits, or none is better than `worst`.

    With one number of tiles for all, the incumbent of each is the bound for the next; most promising first.
    """
    problem = pricer.problem
    bounds = step_bounds(pricer, steps)
    rounds, paths = problem.rounds, Paths(steps, problem.max_partitions, problem.apart)
    ahead = [paths.forward(bounds[r].min(0)) for r in rounds]
    best, priced = None, 0
    for place in sorted(range(len(rounds)), key=lambda i: ahead[i][-1][-1]):
        if not ahead[place][-1][-1] < worst:
            break
        found, count = _one_round(pricer, steps, bounds, rounds[place], (paths, ahead[place]), worst)
        priced += count
        if found is not None and found[0] < worst:
            worst, best = found[0], found
    if best is None:
        return None
    time, sets, tiles = best
    return PathResult(
        time=time, sets=sets, tiles=tiles, ideals=steps.ideals, steps=len(steps.first), priced=priced
    )


def _one_round(
    pricer: PartitionPricer,
    steps: Steps,
    bounds: Array,
    which: list[int],
    bounded: tuple[Paths, list[Array]],
    worst: float,
) -> tuple[tuple[float, Array, tuple[int, ...]] | None, int]:
    """The best chain with these numbers of tiles free in each partition, and how many prices it took."""
    problem, (paths, ahead) = pricer.problem, bounded
    least = bounds[which].min(0)
    # A first incumbent: the chain that is best by the bounds, at its real price.
    path = np.array(paths.trace(least, ahead))
    real = np.stack([_times(pricer, steps, problem.tiles[i], path) for i in which])
    worst = min(worst, float(real.min(0).sum()) * SLACK)
    through = ahead[-1][steps.first] + paths.backward(least)[steps.second]
    costs = np.full((len(which), len(steps.first)), np.inf)
    priced = 0
    for row, i in enumerate(which):
        chosen = np.nonzero(np.isfinite(bounds[i]) & (through + bounds[i] <= worst))[0]
        costs[row, chosen] = _times(pricer, steps, problem.tiles[i], chosen)  # bounds know the DRAM's limit
        priced += len(chosen)
    cost = costs.min(0)
    final = paths.forward(cost)
    if not np.isfinite(final[-1][-1]):
        return None, priced
    path = np.array(paths.trace(cost, final))
    tiles = tuple(problem.tiles[which[int(costs[:, s].argmin())]] for s in path)
    return (float(final[-1][-1]), steps.sets(path), tiles), priced


def in_line(pricer: PartitionPricer) -> PathResult | None:
    """A good mapping in no time: the best whose partitions are runs of one of two topological orders."""
    best = None
    for order in (pricer.problem.order, _depth_first(pricer.problem)):
        masks = [0]
        for kernel in order:
            masks.append(masks[-1] | 1 << kernel)
        steps = fusion_steps(pricer, masks, len(masks) ** 2)
        found = (
            None if steps is None else shortest_fusion(pricer, steps, np.inf if best is None else best.time)
        )
        best = best if found is None else found
    return best


def _depth_first(problem: FusionProblem) -> list[int]:
    """A topological order that follows what was just made."""
    left, order = {i: set(b) for i, b in enumerate(problem.before)}, list[int]()
    while left:
        ready = [i for i, b in left.items() if not b]
        latest = {k: place for place, k in enumerate(order)}
        chosen = max(ready, key=lambda i: max((latest[b] for b in problem.before[i]), default=-1))
        order.append(chosen)
        left = {i: b - {chosen} for i, b in left.items() if i != chosen}
    return order


def ranked_fusions(
    pricer: PartitionPricer, steps: Steps, count: int, best: float
) -> Iterator[tuple[float, Array, tuple[int, ...]]]:
    """The `count` best mappings in order of time: k shortest paths over steps that can lie on one."""
    problem = pricer.problem
    bounds = step_bounds(pricer, steps)
    paths = Paths(steps, 0, problem.apart)
    stretch = 1.02
    while True:
        worst, every = best * stretch, []
        for which in problem.rounds:
            least = bounds[which].min(0)
            through = paths.forward(least)[-1][steps.first] + paths.backward(least)[steps.second]
            for i in which:
                chosen = np.nonzero(through + bounds[i] <= worst)[0]
                times = _times(pricer, steps, problem.tiles[i], chosen)
                every += [(int(s), float(t), i) for s, t in zip(chosen, times, strict=True) if np.isfinite(t)]
        found = _k_shortest(steps, every, count, problem.rules.tiles == "one")
        if (len(found) >= count and found[count - 1][0] <= worst) or stretch > 1e3:
            break
        stretch = 1 + (stretch - 1) * 4
    for time, chain in found[:count]:
        chosen_sets = steps.sets(np.array([s for s, _ in chain]))
        yield time, chosen_sets, tuple(problem.tiles[i] for _, i in chain)


def _k_shortest(
    steps: Steps, every: list[tuple[int, float, int]], count: int, one: bool
) -> list[tuple[float, tuple[tuple[int, int], ...]]]:
    """The best chains over (step, time, tiles); with one number of tiles for a chain where `one`."""
    keys = sorted({i for _, _, i in every}) if one else [-1]
    found: list[tuple[float, tuple[tuple[int, int], ...]]] = []
    for key in keys:
        into: dict[int, list[tuple[int, float, int]]] = {}
        for step, time, tiles in every:
            if key in (-1, tiles):
                into.setdefault(int(steps.second[step]), []).append((step, time, tiles))
        best: dict[int, list[tuple[float, tuple[tuple[int, int], ...]]]] = {0: [(0.0, ())]}
        for place in sorted(into):
            ways = [
                (before + time, (*chain, (step, tiles)))
                for step, time, tiles in into[place]
                for before, chain in best.get(int(steps.first[step]), ())
            ]
            best[place] = sorted(ways)[:count]
        found += best.get(steps.ideals - 1, [])
    return sorted(found)
