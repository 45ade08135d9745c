"""The best fusion of kernels into partitions on a chip, with its proof; given mappings by the same prices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import show
from strata.optimise.fusion.fuse_path import PathResult, Steps, fusion_steps, ranked_fusions, shortest_fusion
from strata.optimise.fusion.fusion_problem import FusionProblem, order_ideals
from strata.optimise.fusion.partition_prices import PartitionPricer

IDEAL_LIMIT = 20_000
STEP_LIMIT = 5_000_000  # some 20 s, 1 GB


@dataclass(frozen=True, eq=False, kw_only=True)
class FusedPartition:
    """Kernels that run together: times [s], rooms and DRAM traffic [B], tiles, passes over weights."""

    kernels: tuple[str, ...]
    tiles: int
    time: float
    compute: float
    memory: float
    network: float
    sram: float
    dram: float
    traffic: float
    passes: float
    fits: bool

    @property
    def binds(self) -> str:
        """The resource that takes longest."""
        times = {"compute": self.compute, "memory": self.memory, "network": self.network}
        return max(times, key=lambda name: times[name])


@dataclass(frozen=True, eq=False, kw_only=True)
class Fusion:
    """A mapping: partitions in order, its time and the proven bound [s]; `reason` says why nothing fits."""

    partitions: tuple[FusedPartition, ...]
    time: float
    lower_bound: float
    proof: str
    method: str
    seconds: float
    reason: str = ""

    @property
    def feasible(self) -> bool:
        return bool(self.partitions) and bool(np.isfinite(self.time))

    @property
    def gap(self) -> float:
        """How much shorter a mapping could be at most, as a share of this one's time."""
        return max(0.0, 1.0 - self.lower_bound / self.time) if self.feasible else float("inf")

    @property
    def optimal(self) -> bool:
        return self.feasible and self.gap <= 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class MappingIntensity:
    """A mapping on a hierarchical roofline: FLOP/s of one chip, and FLOP for each byte of DRAM and of its
    links: two points at one rate. Infinite where nothing moves.
    """

    name: str
    rate: float
    memory: float
    network: float


def fuse_kernels(problem: FusionProblem, *, method: str = "auto", seconds: float = 60.0) -> Fusion:
    """The mapping of least time, by the shortest path over order ideals, or by CP-SAT where these are too
    many.

    `method`: auto, ideals or cp-sat; `seconds` are CP-SAT's.
    """
    require(method in ("auto", "ideals", "cp-sat"), "method is auto, ideals or cp-sat", method=method)
    began = time.perf_counter()
    pricer = PartitionPricer(problem)
    if method != "cp-sat":
        steps = all_steps(pricer)
        if steps is not None:
            best = shortest_fusion(pricer, steps)
            if best is None:
                reason = too_large(problem, pricer) or _no_chain(problem)
                return no_fusion("no mapping fits", "ideals", time.perf_counter() - began, reason)
            proof = (
                f"optimal by shortest path over {best.ideals:,} order ideals, {best.steps:,} partitions "
                f"({best.priced:,} priced in full, the others excluded by bounds)"
            )
            found = priced_path(problem, pricer, best)
            took = time.perf_counter() - began
            return replace(found, lower_bound=found.time, proof=proof, method="ideals", seconds=took)
        if method == "ideals":
            raise BadValue(
                f"more than {IDEAL_LIMIT:,} order ideals or {STEP_LIMIT:,} partitions: use method cp-sat"
            )
    from strata.optimise.fusion.fuse_cpsat import fuse_by_cpsat

    found = fuse_by_cpsat(problem, seconds=seconds)
    if not found.feasible and np.isinf(found.lower_bound):
        found = replace(found, reason=too_large(problem, pricer) or _no_chain(problem))
    return replace(found, seconds=time.perf_counter() - began)


def all_steps(pricer: PartitionPricer) -> Steps | None:
    """Partitions between all ideals of a problem; None where they are too many for a shortest path."""
    masks = order_ideals(pricer.problem.before, IDEAL_LIMIT)
    return None if masks is None else fusion_steps(pricer, masks, STEP_LIMIT)


def price_mapping(
    problem: FusionProblem,
    partitions: Sequence[Sequence[str]],
    tiles: int | Sequence[int] | None = None,
    *,
    pricer: PartitionPricer | None = None,
) -> Fusion:
    """A given mapping at the same prices: names of kernels in each partition, in order.

    Without `tiles` the best numbers are taken: one for all or one for each, as the rules say. A mapping that
    does not fit has an infinite time and a reason.
    """
    began = time.perf_counter()
    pricer = PartitionPricer(problem) if pricer is None else pricer
    sets, before = _rows(problem, partitions)
    if tiles is None:
        live = pricer.live(before, sets)
        table = np.stack([pricer.prices(sets, n, live=live).time for n in problem.tiles])
        if problem.rules.tiles == "one":
            best = np.full(len(sets), int(table.sum(1).argmin()))
        else:
            best = table.argmin(0)
        counts = [problem.tiles[i] for i in best]
    else:
        counts = [tiles] * len(sets) if isinstance(tiles, int) else list(tiles)
        require(len(counts) == len(sets), "tiles is one number or one for each partition", tiles=tiles)
    fused = tuple(_partition(problem, pricer, (sets[i], before[i]), counts[i]) for i in range(len(sets)))
    total = float(sum(p.time for p in fused))
    reason = "" if np.isfinite(total) else _why(problem, next(p for p in fused if not np.isfinite(p.time)))
    return Fusion(
        partitions=fused,
        time=total,
        lower_bound=0.0,
        proof="given, not searched",
        method="given",
        seconds=time.perf_counter() - began,
        reason=reason,
    )


def priced_path(problem: FusionProblem, pricer: PartitionPricer, path: PathResult) -> Fusion:
    """The mapping of a path over ideals."""
    return price_mapping(problem, _names(problem, path.sets), path.tiles, pricer=pricer)


def kernel_by_kernel(problem: FusionProblem) -> Fusion:
    """Each kernel a partition of its own: the mapping of processors without dataflow."""
    return price_mapping(problem, [(problem.kernels[i].name,) for i in problem.order])


def next_best(problem: FusionProblem, count: int = 2) -> tuple[Fusion, ...]:
    """The `count` best mappings, best first; they differ in a partition or a number of tiles."""
    require(not problem.max_partitions, "next_best takes no limit of partitions")
    pricer = PartitionPricer(problem)
    steps = all_steps(pricer)
    if steps is None:
        raise BadValue(f"more than {IDEAL_LIMIT:,} order ideals: the next best mapping is not searched for")
    best = shortest_fusion(pricer, steps)
    if best is None:
        return ()
    return tuple(
        replace(
            price_mapping(problem, _names(problem, sets), tiles, pricer=pricer),
            lower_bound=best.time,
            proof=f"number {i} of all mappings, by k shortest paths over {steps.ideals:,} order ideals",
            method="ideals",
        )
        for i, (_, sets, tiles) in enumerate(ranked_fusions(pricer, steps, count, best.time), 1)
    )


def no_fusion(
    proof: str, method: str, seconds: float, reason: str, lower_bound: float = float("inf")
) -> Fusion:
    """That nothing was found."""
    return Fusion(
        partitions=(),
        time=float("inf"),
        lower_bound=lower_bound,
        proof=proof,
        method=method,
        seconds=seconds,
        reason=reason,
    )


def _partition(
    problem: FusionProblem, pricer: PartitionPricer, rows: tuple[Array, Array], tiles: int
) -> FusedPartition:
    sets, before = rows[0][None, :], rows[1][None, :]
    price = pricer.prices(sets, tiles, live=pricer.live(before, sets))
    return FusedPartition(
        kernels=tuple(problem.kernels[i].name for i in problem.order if rows[0][i]),
        tiles=int(tiles),
        fits=bool(price.fits[0]),
        **{
            name: float(np.asarray(getattr(price, name))[0])
            for name in ("time", "compute", "memory", "network", "sram", "dram", "traffic", "passes")
        },
    )


def _rows(problem: FusionProblem, partitions: Sequence[Sequence[str]]) -> tuple[Array, Array]:
    """Rows of a mapping's partitions and of what comes before each; bad ones are named."""
    sets = np.zeros((len(partitions), len(problem.kernels)))
    for place, names in enumerate(partitions):
        for name in names:
            if name not in problem.index:
                raise UnknownName("kernel", name, problem.index)
            sets[place, problem.index[name]] += 1.0
    for i, count in enumerate(sets.sum(0)):
        require(
            count == 1, f"kernel {problem.kernels[i].name} must be in one partition", partitions=int(count)
        )
    where = sets.argmax(0)
    for source, target in problem.edges:
        made, used = problem.kernels[source].name, problem.kernels[target].name
        require(bool(where[source] <= where[target]), f"{made} must not come after {used}, which reads it")
    return sets, np.cumsum(sets, axis=0) - sets


def _names(problem: FusionProblem, sets: Array) -> list[tuple[str, ...]]:
    return [tuple(problem.kernels[i].name for i in problem.order if row[i]) for row in sets]


def _why(problem: FusionProblem, partition: FusedPartition) -> str:
    """What binds a partition that does not fit, and by how much."""
    chip, named = problem.chip, ", ".join(partition.kernels)
    for what, need, limit in (
        ("SRAM", partition.sram, chip.sram),
        ("DRAM", partition.dram, chip.dram_capacity),
    ):
        if need > limit:
            had = f"{show(need, 'B')} of {what}, has {show(limit, 'B')} ({need / limit:.3g} times)"
            return f"{named}: needs {had}"
    return f"{named}: needs more than the {chip.cores} cores there are"


def too_large(problem: FusionProblem, pricer: PartitionPricer | None = None) -> str:
    """One line on the kernel that fits no partition, and what binds; empty where each fits alone.

    Alone a kernel has all cores, and may take its weights in passes.
    """
    pricer = PartitionPricer(problem) if pricer is None else pricer
    every = np.eye(len(problem.kernels))
    prices = [pricer.prices(every, n) for n in problem.tiles]
    stuck = np.nonzero(~np.any([p.fits for p in prices], axis=0))[0]
    if not len(stuck):
        return ""
    kernel = int(stuck[0])
    tiles = problem.tiles[int(np.argmin([p.sram[kernel] for p in prices]))]
    return _why(problem, _partition(problem, pricer, (every[kernel], 0.0 * every[kernel]), tiles))


def _no_chain(problem: FusionProblem) -> str:
    why = "the pinned groups" if problem.pinned else f"{problem.max_partitions or 'any number of'} partitions"
    return f"no mapping fits the chip with {why}"
