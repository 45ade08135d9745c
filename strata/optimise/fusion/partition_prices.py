"""Prices of many partitions of one fusion problem at once, by the equations of `pricing/fusion.py`.

A partition is a row of zeros and ones, one for each kernel. Exhaustive search, shortest paths, pinned
mappings and single prices all end here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from strata.base.arrays import Array, Number, ceil_div
from strata.optimise.fusion.fusion_problem import OUTSIDE, FusionProblem
from strata.pricing.fusion import (
    PartitionFlows,
    PartitionLimits,
    PartitionWork,
    TensorUse,
    core_cycles,
    live_bytes,
    padded_work,
    partition_flows,
    pipelined_time,
    price_partition,
    utilised_time,
)

KernelSides = tuple[float, float, float]  # rows, columns and depth
ROUNDING = 1 + 1e-12  # of a bound that sums the same numbers in another order


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionPrices:
    """Times [s], rooms [B] and passes of partitions at one number of tiles; `time` is inf where out."""

    compute: Array
    memory: Array
    network: Array
    time: Array
    sram: Array
    dram: Array
    traffic: Array
    passes: Array
    fits: Array


@lru_cache(maxsize=4096)
def core_steps(
    rows: float, columns: float, depth: float, array: tuple[float, float], cores: int
) -> tuple[Array, Array]:
    """Cycles of a tile that more cores make fewer, and the least cores for each: cycles fall, cores rise.

    >>> cycles, cores = core_steps(64.0, 12.0, 10.0, (32.0, 6.0), 4)
    >>> cycles.tolist(), cores.tolist()
    ([40.0, 20.0, 10.0], [1.0, 2.0, 4.0])
    """
    width, height = array
    simd = depth == 0.0
    lanes = _useful(rows, width, cores)
    stages = np.ones(1) if simd else _useful(columns, height, cores)
    used = (lanes[:, None] * stages[None, :]).ravel()
    shape = (width, 1.0) if simd else array
    spread = core_cycles(rows, columns, max(depth, 1.0), lanes[:, None], stages[None, :], shape)
    cycles = np.broadcast_to(spread, (len(lanes), len(stages))).ravel()
    inside = used <= cores
    used, cycles = used[inside], cycles[inside]
    order = np.lexsort((cycles, used))
    used, cycles = used[order], cycles[order]
    best = np.minimum.accumulate(cycles)
    new = np.concatenate(([True], best[1:] < best[:-1]))
    return best[new], used[new]


def _useful(extent: float, side: float, cores: int) -> Array:
    """Counts of cores along a side that make fewer folds than one core less."""
    count = np.arange(1.0, cores + 1.0)
    folds = np.asarray(ceil_div(extent, count * side))
    return count[np.concatenate(([True], folds[1:] < folds[:-1]))]


class PartitionPricer:
    """What partitions of a problem cost; built once for a problem, asked for many partitions at a time.

    `shapes`: rows, columns and depths that each kernel may still have, where it may have several.
    """

    def __init__(self, problem: FusionProblem, shapes: Sequence[Sequence[KernelSides]] = ()):
        self.problem = problem
        self.shapes = shapes or [[(k.rows, k.columns, k.depth)] for k in problem.kernels]
        kernels, rules, count = problem.kernels, problem.rules, len(problem.kernels)
        self.weights = np.array([k.weight_bytes for k in kernels])
        channels = max((len(k.network) for k in kernels), default=0) or 1
        self.network = np.array([(*k.network, *(0.0,) * (channels - len(k.network))) for k in kernels])
        self.extra = np.array([k.extra_bytes for k in kernels])
        self.flop = np.array([k.flop for k in kernels])
        self.pieces = np.array([k.pieces for k in kernels])
        self.time = np.array([k.time for k in kernels])
        self.level, self.whole_level = problem.levels
        once = rules.shared_tensors == "once"
        groups: dict[object, list[int]] = {}
        for i, tensor in enumerate(problem.tensors):
            groups.setdefault((tensor.name, tensor.source) if once else i, []).append(i)
        place = {**problem.index, OUTSIDE: count}
        self.groups = [
            TensorUse(
                source=place[problem.tensors[members[0]].source],
                targets=tuple(place[problem.tensors[m].target] for m in members),
                bytes=max(problem.tensors[m].bytes for m in members),
                whole=tuple(problem.tensors[m].whole and rules.whole_operands == "yes" for m in members),
            )
            for members in groups.values()
        ]
        chip = problem.chip
        self.limits = PartitionLimits(
            sram=chip.sram, bandwidth=chip.dram_bandwidth, capacity=chip.dram_capacity, start=chip.start
        )
        self._grids: dict[int, tuple[Array, Array, Array]] = {}

    def flows(self, sets: Array) -> PartitionFlows:
        """What partitions read, write and buffer."""
        copies = min(self.problem.micro_batches, 2.0)
        return partition_flows(self.groups, _columns(sets), [*self.level, 0.0], copies)

    def live(self, before: Array, sets: Array) -> Array:
        """Bytes of tensors that lie in DRAM while a partition runs after the kernels `before` it."""
        return np.zeros(len(sets)) + live_bytes(self.groups, _columns(before), _columns(sets))

    def span(self, sets: Array) -> tuple[Array, Array]:
        """Levels of kernels in partitions, and levels behind operands that must be whole."""
        held = sets > 0
        return (_spread(held, self.level) + 1.0, _spread(held, self.whole_level))

    def grid(self, tiles: int) -> tuple[Array, Array, Array]:
        """Candidate cycles of a tile (rising), the least cores each kernel needs for them in any of its
        shapes, and its least core-cycles.
        """
        if tiles not in self._grids:
            chip = self.problem.chip
            steps = [
                [
                    core_steps(m, float(ceil_div(n, float(tiles))), k, chip.array, chip.cores)
                    for m, n, k in own
                ]
                for own in self.shapes
            ]
            candidates = np.unique(np.concatenate([cycles for own in steps for cycles, _ in own]))
            cores = np.full((len(candidates), len(steps)), chip.cores + 1.0)
            for i, own in enumerate(steps):
                for cycles, used in own:
                    at = np.searchsorted(-cycles, -candidates)
                    needed = np.where(at < len(used), used[np.minimum(at, len(used) - 1)], np.inf)
                    cores[:, i] = np.minimum(cores[:, i], needed)
            areas = np.array([min((c * u).min() for c, u in own) for own in steps])
            self._grids[tiles] = candidates, cores, areas
        return self._grids[tiles]

    def shared_cycles(self, sets: Array, tiles: int) -> Array:
        """Least cycles of each partition's slowest kernel with all cores shared out, by bisection."""
        candidates, cores, _ = self.grid(tiles)
        limit = self.problem.chip.cores
        low, high = np.zeros(len(sets), dtype=np.int64), np.full(len(sets), len(candidates) - 1)
        wide = np.einsum("pk,pk->p", sets, cores[high]) > limit
        while np.any(low < high):
            middle = (low + high) // 2
            enough = np.einsum("pk,pk->p", sets, cores[middle]) <= limit
            high = np.where(enough, middle, high)
            low = np.where(enough, low, middle + 1)
        return np.where(wide, np.inf, candidates[high])

    def compute(self, sets: Array, tiles: int) -> Array:
        """Compute time of each partition [s] by the rules."""
        problem, how = self.problem, self.problem.rules.compute
        if how == "cores":
            found: Array = np.asarray(
                pipelined_time(self.shared_cycles(sets, tiles), float(tiles), problem.chip.clock)
            )
            return found
        if how == "utilisation":
            return np.asarray(utilised_time(sets @ self.flop, problem.chip.peak, problem.chip.utilisation))
        return np.asarray(sets @ self.own_times(tiles))

    def own_times(self, tiles: int) -> Array:
        """Times of kernels on the whole chip [s]; products with short tiles take longer."""
        grain = self.problem.chip.grain
        if grain <= 1.0:
            return self.time
        columns = np.array([k.columns for k in self.problem.kernels])
        products = np.array([k.depth > 0 for k in self.problem.kernels])
        return np.where(products, self.time * padded_work(columns, float(tiles), grain), self.time)

    def least_compute(self, sets: Array, tiles: int) -> Array:
        """A lower bound of `compute` that needs no bisection: core-cycles over cores."""
        if self.problem.rules.compute != "cores":
            return self.compute(sets, tiles)
        chip, areas = self.problem.chip, self.grid(tiles)[2]
        return np.asarray(pipelined_time(sets @ areas / chip.cores, float(tiles), chip.clock)) / ROUNDING

    def work(
        self,
        sets: Array,
        *,
        compute: Number = 0.0,
        live: Array | None = None,
        flows: PartitionFlows | None = None,
        span: tuple[Array, Array] | None = None,
    ) -> PartitionWork:
        """What partitions ask for: all but the compute time is the same at any number of tiles."""
        problem = self.problem
        levels, whole_levels = (1.0, 0.0) if problem.rules.fill == "no" else span or self.span(sets)
        return PartitionWork(
            flows=self.flows(sets) if flows is None else flows,
            weights=sets @ self.weights,
            compute=compute,
            network=(sets @ self.network).max(1),
            extra=sets @ self.extra,
            levels=levels,
            whole_levels=whole_levels,
            alone=(alone := sets.sum(1) == 1.0),
            pieces=np.where(alone, sets @ self.pieces, 1.0),
            held=self.weights.sum() * problem.layers + problem.held_bytes,
            live=0.0 if live is None else live,
        )

    def times(self, work: PartitionWork, tiles: int) -> Array:
        """Times of partitions that ask for so much; infinite where one does not fit."""
        problem = self.problem
        price = price_partition(work, self.limits, problem.rules, float(tiles), problem.micro_batches)
        return np.where(price.fits & np.isfinite(price.time), price.time, np.inf)

    def prices(
        self, sets: Array, tiles: int, *, live: Array | None = None, compute: Array | None = None
    ) -> PartitionPrices:
        """Prices of partitions; a bound may be handed in for the compute time before its fill. Without `live`
        tensors only weights must fit the DRAM.
        """
        problem = self.problem
        sets = np.asarray(sets, dtype=np.float64)
        own = self.compute(sets, tiles) if compute is None else compute
        work = self.work(sets, compute=own, live=live)
        price = price_partition(work, self.limits, problem.rules, float(tiles), problem.micro_batches)
        fits = price.fits & np.isfinite(price.time)
        found = {f.name: np.broadcast_to(getattr(price, f.name), len(sets)) for f in fields(PartitionPrices)}
        return PartitionPrices(**found | {"fits": fits, "time": np.where(fits, price.time, np.inf)})


def _columns(sets: Array) -> list[Array]:
    """For each kernel, and last the world outside, whether it lies in each partition."""
    return [*np.ascontiguousarray(sets.T > 0), np.zeros(len(sets), dtype=bool)]


def fills(problem: FusionProblem, tiles: int) -> bool:
    """Whether a pipeline fills: not where kernels without cores of their own take turns on one tile."""
    return problem.rules.fill == "yes" and (tiles > 1 or problem.rules.compute == "cores")


def _spread(held: Array, level: Array) -> Array:
    """Highest less lowest level among the kernels of each partition."""
    high = np.full(len(held), -np.inf)
    low = np.full(len(held), np.inf)
    for value in np.unique(level):
        there = held[:, level == value].any(1)
        high = np.where(there, value, high)
        low = np.where(there & np.isinf(low), value, low)
    return np.where(np.isfinite(high), high - low, 0.0)
