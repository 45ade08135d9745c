"""What other mappings lose against the best one: kernel by kernel, pinned groups, the next best; and where
each stands under the roofs of DRAM and network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strata.base.errors import BadValue
from strata.hardware.system import System
from strata.optimise.fuse import Fusion, MappingIntensity, fuse_kernels, kernel_by_kernel, next_best
from strata.optimise.mappings.joint_problem import LayerMapping, MappedBlock, known_kernels
from strata.optimise.mappings.joint_search import MappedStep

BEST, KERNELS, PINNED = "best", "kernel by kernel", "pinned"


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedMapping:
    """A mapping under the same degrees and layouts: its blocks' partitions, seconds of all layers of one rank
    and micro-batch, times that of the best, and why it does not fit.
    """

    name: str
    blocks: tuple[tuple[float, Fusion], ...]  # how often each runs, its partitions
    time: float
    loss: float
    reason: str = ""

    @property
    def partitions(self) -> int:
        return sum(len(fusion.partitions) for _, fusion in self.blocks)


def compared_mappings(
    best: MappedStep, pinned: Sequence[Sequence[str]] = (), following: int = 0
) -> tuple[ComparedMapping, ...]:
    """The best mapping, kernel by kernel, the best with groups of kernels pinned, and so many next best."""
    layer = best.layer
    every = [(BEST, [b.fusion for b in layer.blocks])]
    every.append((KERNELS, [kernel_by_kernel(b.problem) for b in layer.blocks]))
    if pinned:
        every.append((PINNED, [_pinned(b, pinned, layer) for b in layer.blocks]))
    every += [(f"number {place}", fusions) for place, fusions in enumerate(_next(layer, following), 2)]
    found = []
    for name, fusions in every:
        runs = tuple((b.times, f) for b, f in zip(layer.blocks, fusions, strict=True))
        total = sum(times * f.time for times, f in runs)
        reason = next((f.reason for f in fusions if f.reason), "")
        found.append(ComparedMapping(name=name, blocks=runs, time=total, loss=0.0, reason=reason))
    least = found[0].time
    return tuple(replace(each, loss=each.time / least - 1.0) for each in found)


def _pinned(block: MappedBlock, pinned: Sequence[Sequence[str]], layer: LayerMapping) -> Fusion:
    """A block with its share of the pinned groups; unknown kernels and a broken order are one line."""
    known_kernels(pinned, [k.name for b in layer.blocks for k in b.problem.kernels])
    problem = block.problem
    groups = [tuple(name for name in group if name in problem.index) for group in pinned]
    try:
        return fuse_kernels(replace(problem, pinned=tuple(g for g in groups if g)))
    except BadValue as error:
        raise BadValue(f"the pinned groups break the order of the graph: {error}") from None


def _next(layer: LayerMapping, count: int) -> list[list[Fusion]]:
    """The next best mappings: one block takes one of its next best partitions."""
    if not count:
        return []
    best = [b.fusion for b in layer.blocks]
    found: list[tuple[float, list[Fusion]]] = []
    for place, block in enumerate(layer.blocks):
        for other in next_best(block.problem, count + 1)[1:]:
            changed = [*best[:place], other, *best[place + 1 :]]
            found.append((block.times * (other.time - block.fusion.time), changed))
    found.sort(key=lambda pair: pair[0])
    return [fusions for _, fusions in found[:count]]


def mapping_points(
    best: MappedStep, compared: Sequence[ComparedMapping], system: System
) -> tuple[MappingIntensity, ...]:
    """Operations of one rank for every byte of DRAM and of network that a mapping moves.

    Bytes of network are its time on the links that a device has.
    """
    flop = sum(b.times * sum(k.flop for k in b.problem.kernels) for b in best.layer.blocks)
    link = links_bandwidth(system)
    found = []
    for each in compared:
        if each.reason:
            continue
        moved = sum(times * sum(p.traffic for p in f.partitions) for times, f in each.blocks)
        sent = sum(times * sum(p.network for p in f.partitions) for times, f in each.blocks) * link
        found.append(
            MappingIntensity(
                name=each.name,
                memory=flop / moved if moved else float("inf"),
                network=flop / sent if sent else float("inf"),
                rate=flop / each.time,
            )
        )
    return tuple(found)


def links_bandwidth(system: System) -> float:
    """What a device sends over the links of its first dimension [B/s]."""
    first = system.fabric.dimension[0]
    return float(first.bandwidth) * float(first.efficiency)
