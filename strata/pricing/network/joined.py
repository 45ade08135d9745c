"""Where one algorithm of a library runs over several levels of a fabric, and what it takes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strata.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.hardware.fabric_parts import Dimension
from strata.mapping.place import GroupLayout
from strata.pricing.network.algorithm_names import always_crosses, crosses, select_algorithms, shown_size
from strata.pricing.network.level_parts import Level, between_nodes, crossed_levels, joins_levels
from strata.pricing.network.levels import level_times, slowest
from strata.pricing.network.transport_times import AlgorithmTimes
from strata.workload.graph import Collective


@dataclass(frozen=True, eq=False, slots=True)
class Joined:
    """A collective that one algorithm runs over several levels at once: where it does, its levels and
    algorithms.
    """

    where: Any  # points that cross a level between nodes
    always: bool  # all of them do
    levels: list[Level]
    times: AlgorithmTimes

    def lower(self, pattern: str, payload: Number) -> Number:
        """What must cross the busiest level at its links' peak [s]."""
        return slowest(self.least(pattern, payload))

    def least(self, pattern: str, payload: Number) -> list[Number]:
        """What must cross each level at its links' peak [s]."""
        ranks = self.levels[-1].outer
        least = []
        for one in self.levels:
            share = (one.size - 1.0) / one.size
            if pattern == "all_to_all":
                sent = (one.outer - one.inner) / ranks * payload
            elif pattern == "broadcast":
                sent = share * payload / one.inner
            else:
                sent = share * payload / one.inner * least_passes(pattern, one.dimension)
            least.append(one.where(sent / one.dimension.bandwidth))
        return least


def least_passes(pattern: str, dimension: Dimension) -> Number:
    """How often a buffer must cross a dimension's links: twice to be summed and told, once where the switch
    adds up.
    """
    if pattern != "all_reduce":
        return 1.0
    return 2.0 if dimension.reduction is None else 2.0 / (1.0 + dimension.reduction)


def joined_levels(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str]
) -> Joined | None:
    """A collective over levels of which one lies between nodes, all of them a library's; None where there is
    no such point, or where an algorithm is asked for in each dimension: those are phases, one after another.
    """
    crossed = [
        (layout, dimension)
        for layout, dimension in zip(layouts, fabric.dimension, strict=True)
        if not (layout.size.__class__ is float and layout.size <= 1.0)
    ]
    if op.pattern == "send" or not isinstance(asked, str):
        return None
    if not joins_levels([dimension for _, dimension in crossed]):
        return None
    nodes: Number = 1.0
    for layout, dimension in crossed:
        nodes = nodes * layout.size if between_nodes(dimension) else nodes
    if not crosses(nodes):
        return None
    first = next(d.transport_model for d in fabric.dimension if d.transport_model is not None)
    levels = crossed_levels(layouts, fabric.dimension)
    times = level_times(op.pattern, op.payload, levels, first)
    if asked:
        shape = " x ".join(f"{shown_size(one.size)} {one.dimension.name}" for one in levels)
        times = select_algorithms(asked, times, f"the levels {shape}, with transport {first.name} inside,")
    return Joined(nodes > 1, always_crosses(nodes), levels, times)


def either_times(joined: Joined | None, own: AlgorithmTimes) -> AlgorithmTimes:
    """Algorithms over several levels where there are such, else those of one dimension."""
    if joined is None:
        return own
    if joined.always:
        return joined.times
    names = dict.fromkeys((*own, *joined.times))
    return {
        name: namespace(joined.where, *(t[name] for t in (own, joined.times) if name in t)).where(
            joined.where, joined.times.get(name, float("inf")), own.get(name, float("inf"))
        )
        for name in names
    }
