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
from strata.pricing.network.levels import level_times
from strata.pricing.network.transport_times import AlgorithmTimes
from strata.workload.graph import Collective


@dataclass(frozen=True, eq=False, slots=True)
class OverNodes:
    """A group that reaches over nodes: where it does, and its levels."""

    where: Any  # points that cross a level between nodes
    always: bool  # all of them do
    levels: list[Level]


@dataclass(frozen=True, eq=False, slots=True)
class Joined(OverNodes):
    """A collective that one algorithm runs over several levels at once."""

    times: AlgorithmTimes

    def least(self, pattern: str, payload: Number, sent: Sequence[Number] | None = None) -> list[Number]:
        """What must cross each level at its links' peak [s]; `sent`: its `level_bytes`, where known."""
        sent = level_bytes(pattern, payload, self.levels) if sent is None else sent
        return [
            one.where(each * (least_passes(pattern, one.dimension) / one.dimension.bandwidth))
            for one, each in zip(self.levels, sent, strict=True)
        ]


def level_bytes(pattern: str, payload: Number, levels: Sequence[Level]) -> list[Number]:
    """Bytes that a rank sends over its links of each level once round: of an all-to-all what is for ranks
    there, else its share of what the members of the level lack.
    """
    if pattern == "all_to_all":
        return [(one.outer - one.inner) / levels[-1].outer * payload for one in levels]
    return [(one.size - 1.0) / one.size * payload / one.inner for one in levels]


def least_passes(pattern: str, dimension: Dimension) -> Number:
    """How often a buffer must cross a dimension's links: twice to be summed and told, once where the switch
    adds up.
    """
    if pattern != "all_reduce":
        return 1.0
    return 2.0 if dimension.reduction is None else 2.0 / (1.0 + dimension.reduction)


def over_nodes(layouts: tuple[GroupLayout, ...], fabric: Fabric) -> OverNodes | None:
    """Levels of a group, one of which lies between nodes and all of which are a library's; None where there
    is no such point.
    """
    crossed = [
        (layout, dimension)
        for layout, dimension in zip(layouts, fabric.dimension, strict=True)
        if not (layout.size.__class__ is float and layout.size <= 1.0)
    ]
    if not joins_levels([dimension for _, dimension in crossed]):
        return None
    nodes: Number = 1.0
    for layout, dimension in crossed:
        nodes = nodes * layout.size if between_nodes(dimension) else nodes
    if not crosses(nodes):
        return None
    return OverNodes(nodes > 1, always_crosses(nodes), crossed_levels(layouts, fabric.dimension))


def joined_levels(
    op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric, asked: str | Sequence[str]
) -> Joined | None:
    """A collective over levels of which one lies between nodes, all of them a library's; None where there is
    no such point, or where an algorithm is asked for in each dimension: those are phases, one after another.
    """
    if op.pattern == "send" or not isinstance(asked, str):
        return None
    over = over_nodes(layouts, fabric)
    if over is None:
        return None
    first = next(d.transport_model for d in fabric.dimension if d.transport_model is not None)
    levels = over.levels
    times = level_times(op.pattern, op.payload, levels, first)
    if asked:
        shape = " x ".join(f"{shown_size(one.size)} {one.dimension.name}" for one in levels)
        times = select_algorithms(asked, times, f"the levels {shape}, with transport {first.name} inside,")
    return Joined(over.where, over.always, levels, times)


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
