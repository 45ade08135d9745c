"""Partitions of a block that may still be part of a good mapping, priced again and again under other layouts.

Which tensors cross the border of a partition does not depend on layouts, so that flows are matrices times the
bytes of tensors; and a partition with a number of tiles that no chain as quick as the incumbent holds at the
least value of everything is never priced again. The best partitions under one layout (`LeafFusion`) are the
end of a branch of the search over layouts.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from strata.base.arrays import Array
from strata.base.units import show
from strata.optimise.fuse import Fusion, all_steps, fuse_kernels, priced_path, too_large
from strata.optimise.fusion.fuse_path import PathResult, Paths, Steps, shortest_fusion
from strata.optimise.fusion.fusion_problem import FusionProblem
from strata.optimise.fusion.partition_prices import PartitionPricer
from strata.pricing.fusion import PartitionFlows, PartitionWork, TensorUse, utilised_time

if TYPE_CHECKING:
    from strata.optimise.mappings.joint_block import OpenBlock

FLOWS = ("read", "written", "internal", "crossing", "whole")
ROWS_LIMIT = 200_000  # partitions whose flows are kept as matrices
SLACK = 1e-9  # of a comparison of sums in another order


class NarrowedSteps:
    """The useful partitions of a block, and the numbers of tiles they are useful with."""

    def __init__(self, pricer: PartitionPricer, steps: Steps):
        problem = pricer.problem
        self.one = problem.rules.tiles == "one"
        self.apart = problem.apart
        self.sets = steps.sets(slice(None))
        self.span = pricer.span(self.sets)
        self.useful = np.ones((len(problem.tiles), len(self.sets)), dtype=bool)
        self.matrices = self._matrices(pricer) if len(self.sets) <= ROWS_LIMIT else None
        self.steps, self.index = steps, np.arange(len(self.sets))

    def _taken(self, keep: Array, useful: Array) -> NarrowedSteps:
        """Some of these partitions only, with fewer numbers of tiles."""
        child, own = copy(self), self.steps
        for name in ("paths", "rows"):  # of all of them
            child.__dict__.pop(name, None)
        child.useful, child.index = useful[:, keep], self.index[keep]
        child.steps = Steps(
            first=own.first[keep], second=own.second[keep], rows=own.rows, section=own.section[keep]
        )
        return child

    @cached_property
    def paths(self) -> Paths:
        return Paths(self.steps, 0, self.apart)

    @cached_property
    def rows(self) -> tuple[Array, list[Any], tuple[Array, Array]]:
        """Partitions as rows, shares of tensors in their flows, and spans: once for all children of a set."""
        if len(self.index) == len(self.sets):
            return self.sets, self.matrices or [], self.span
        matrices = [matrix[self.index] for matrix in self.matrices or ()]
        return self.sets[self.index], matrices, (self.span[0][self.index], self.span[1][self.index])

    def _matrices(self, pricer: PartitionPricer) -> list[Any]:
        """For each flow the share of every tensor's bytes that belongs to it, by partition."""
        made: list[list[Array]] = [[] for _ in FLOWS]
        own = pricer.groups
        for tensor in own:
            one = TensorUse(source=tensor.source, targets=tensor.targets, bytes=1.0, whole=tensor.whole)
            pricer.groups = [one]
            flows = pricer.flows(self.sets)
            for place, name in enumerate(FLOWS):
                made[place].append(np.broadcast_to(getattr(flows, name), len(self.sets)).astype(np.float16))
        pricer.groups = own
        dense = (np.array(rows).T.reshape(len(self.sets), -1) for rows in made)
        return [csr_array(rows.astype(np.float64)) for rows in dense]

    def costs(self, pricer: PartitionPricer) -> Array:
        """Times of all useful partitions at every number of tiles; infinite where they are of no use."""
        problem = pricer.problem
        sets, matrices, span = self.rows
        flows = None
        if matrices:
            sizes = np.array([float(group.bytes) for group in pricer.groups])
            flows = PartitionFlows(**{n: m @ sizes for n, m in zip(FLOWS, matrices, strict=True)})
        work = pricer.work(sets, flows=flows, span=span)
        computes = tiled_computes(pricer, sets)
        found = np.full(self.useful.shape, np.inf)
        for place, tiles in enumerate(problem.tiles):
            rows = np.nonzero(self.useful[place])[0]
            if not len(rows):
                continue
            some: Any = slice(None) if len(rows) == len(sets) else rows
            own = pricer.compute(sets[some], tiles) if computes is None else computes[some, place]
            found[place, some] = pricer.times(work_rows(work, some, own), tiles)
        return found

    def least(self, pricer: PartitionPricer) -> float:
        """Time of the best chain."""
        costs = self.costs(pricer)
        rounds = costs if self.one else costs.min(0)[None]
        return min(float(self.paths.forward(cost)[-1][-1]) for cost in rounds)

    def branch(self, pricer: PartitionPricer, worst: float) -> tuple[float, NarrowedSteps]:
        """Time of the best chain, and the partitions that a chain quicker than `worst` may hold, here and
        wherever nothing is cheaper.
        """
        costs, steps = self.costs(pricer), self.steps
        through = np.full(costs.shape, np.inf)
        least = np.inf
        for which in pricer.problem.rounds:
            cost = costs[which].min(0)
            if not np.isfinite(cost).any():
                continue
            ahead = self.paths.forward(cost)[-1]
            least = min(least, float(ahead[-1]))
            if ahead[-1] <= worst * (1 + 1e-9):
                through[which] = (ahead[steps.first] + self.paths.backward(cost)[steps.second]) + costs[which]
        if least > worst * (1 + 1e-9):
            return least, self
        useful = through <= worst * (1 + 1e-9)
        return least, self._taken(np.asarray(useful.any(0)), useful)

    def best(self, pricer: PartitionPricer) -> PathResult | None:
        """The best chain itself; a problem with fewer numbers of tiles takes the first ones."""
        problem = pricer.problem
        costs = self.costs(pricer)[: len(problem.tiles)]
        rounds = list(costs[:, None]) if self.one else [costs]
        best: tuple[float, Array, Array] | None = None
        for number, rows in enumerate(rounds):
            cost = rows.min(0)
            if not np.isfinite(cost).any():
                continue
            found = self.paths.forward(cost)
            value = float(found[-1][-1])
            if np.isfinite(value) and (best is None or value < best[0]):
                path = np.array(self.paths.trace(cost, found))
                best = (value, path, np.full(len(path), number) if self.one else rows[:, path].argmin(0))
        if best is None:
            return None
        value, path, tiles = best
        return PathResult(
            time=value,
            sets=self.sets[self.index[path]],
            tiles=tuple(problem.tiles[int(i)] for i in tiles),
            ideals=self.steps.ideals,
            steps=len(self.index),
            priced=int(self.useful.sum()),
        )


def tiled_computes(pricer: PartitionPricer, sets: Array) -> Array | None:
    """Compute times of partitions at every number of tiles; None where cores are shared out for each."""
    problem = pricer.problem
    if problem.rules.compute == "cores":
        return None
    if problem.rules.compute == "utilisation":
        one = np.asarray(utilised_time(sets @ pricer.flop, problem.chip.peak, problem.chip.utilisation))
        return np.broadcast_to(one[:, None], (len(sets), len(problem.tiles)))
    times = np.array([pricer.own_times(tiles) for tiles in problem.tiles])
    if np.ptp(times, axis=0).max(initial=0.0) == 0.0:
        return np.broadcast_to((sets @ times[0])[:, None], (len(sets), len(problem.tiles)))
    found: Array = np.asfortranarray(sets @ times.T)
    return found


def work_rows(work: PartitionWork, rows: Any, compute: Array) -> PartitionWork:
    """What some of the partitions ask for, with their compute times."""

    def some(value: Any) -> Any:
        return value[rows] if np.ndim(value) else value

    flows = PartitionFlows(**{name: some(getattr(work.flows, name)) for name in FLOWS})
    named = ("weights", "network", "extra", "levels", "whole_levels", "alone", "pieces")
    own = {name: some(getattr(work, name)) for name in named}
    return PartitionWork(flows=flows, compute=compute, held=work.held, live=work.live, **own)


def tensor_ends(problem: FusionProblem) -> tuple[object, ...]:
    """What two problems must share for the same partitions and flows."""
    return (
        tuple(k.name for k in problem.kernels),
        tuple((t.name, t.source, t.target, t.whole) for t in problem.tensors),
    )


@dataclass(eq=False)
class LeafFusion:
    """One block's problem: partitions quicker than `worst` [s] with `free` bytes of DRAM for tensors; CP-SAT,
    where a block has too many order ideals, has so many seconds. `cramped`: the DRAM made a difference.
    """

    problem: FusionProblem
    worst: float
    free: float
    seconds: float
    cramped: bool = False

    def best(self, own: OpenBlock | None, narrowed: NarrowedSteps | None) -> Fusion | None:
        """The best partitions; None where they are not quicker than `worst`. `narrowed`: those partitions of
        the block that are still of use.
        """
        problem = self.problem
        if own is None or own.every is None or tensor_ends(problem) != tensor_ends(own.base):
            return self._apart()
        pricer = PartitionPricer(problem)
        if narrowed is None:
            return self._chain(pricer, shortest_fusion(pricer, own.every, self.worst * (1 + SLACK)))
        path = narrowed.best(pricer)
        return self._chain(pricer, path if path and path.time < self.worst * (1 + SLACK) else None)

    def _apart(self) -> Fusion | None:
        """For a layout that gives the block kernels of its own (sums between ranks), or too many ideals."""
        pricer = PartitionPricer(self.problem)
        steps = all_steps(pricer)
        if steps is not None:
            return self._chain(pricer, shortest_fusion(pricer, steps, self.worst * (1 + SLACK)))
        found = fuse_kernels(self.problem, method="cp-sat", seconds=self.seconds)
        if not found.feasible or max(p.dram for p in found.partitions) <= self.free:
            return found
        return self._within("cp-sat")

    def _chain(self, pricer: PartitionPricer, path: PathResult | None) -> Fusion | None:
        """Partitions of a shortest path, or others where these need more DRAM than there is."""
        problem = self.problem
        if path is None:
            reason = too_large(problem, pricer)
            return fuse_kernels(problem, seconds=self.seconds) if reason else None
        found = priced_path(problem, pricer, path)
        if max(p.dram for p in found.partitions) > self.free:
            return self._within("auto")
        return replace(
            found, lower_bound=found.time, proof="shortest path over order ideals", method="ideals"
        )

    def _within(self, method: str) -> Fusion:
        self.cramped = True
        limited = replace(self.problem, chip=replace(self.problem.chip, dram_capacity=self.free))
        return fuse_kernels(limited, method=method, seconds=self.seconds)


def dram_missing(least: float, need: float, room: float) -> str:
    """What is missing: under the layouts that divide most, where even these are too large."""
    if least > room:
        said, need = "needs at least", least
    else:
        said = "needs"
    return f"{said} {show(need, 'B')} of DRAM a chip, has {show(room, 'B')} ({need / room:.3g} times)"
