"""place(): where the ranks of each plan dimension lie on the fabric."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, ceil_div, floor_div, namespace
from strata.hardware.fabric import Fabric
from strata.mapping.plan import Plan


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """A group of ranks on one fabric dimension: how many members, and how far apart they sit.

    `least`: members in the emptiest of the next dimension's parts, where a group does not fill them evenly; all when left out.
    """

    size: Number
    stride: Number
    least: Number | None = None

    @property
    def members(self) -> Number:
        """Ranks that share what the next dimension has to carry."""
        return self.size if self.least is None else self.least


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """For each group of a plan, its spread over each fabric dimension, innermost first."""

    groups: dict[str, tuple[Spread, ...]]


def place(plan: Plan, fabric: Fabric, active: frozenset[str]) -> Placement:
    """Lay the plan's dimensions on the fabric in its order, innermost first.

    A group with stride s and p members covers the ranks s, 2s .. ps; a fabric dimension with stride S and size F covers
    the interval S .. SF. What they share is the group's size there. The expert group lies over tp x cp x dp.
    """
    groups = {}
    stride: Number = 1.0
    for name in plan.order:
        degree = getattr(plan, name)
        if name in active:
            groups[name] = spread(stride, degree, fabric)
        stride = stride * degree
    if "ep" in active:
        groups["ep"] = spread(expert_stride(plan), exchange_ranks(plan), fabric)
    return Placement(groups)


def expert_stride(plan: Plan) -> Number:
    """Distance between ranks that exchange tokens: ranks inside a tensor group hold the same tokens already."""
    return namespace(plan.tp, plan.moe_tp).maximum(plan.tp, plan.moe_tp)


def exchange_ranks(plan: Plan) -> Number:
    """Ranks a token may have to be sent to: the expert group counted in whole tensor groups."""
    return namespace(plan.ep, plan.moe_tp, plan.tp).maximum(plan.ep * plan.moe_tp / expert_stride(plan), 1.0)


def spread(stride: Number, degree: Number, fabric: Fabric) -> tuple[Spread, ...]:
    r"""How a group of ranks lies on each dimension of a fabric.

    A group that does not fill the inner dimensions evenly is priced by its fullest and its emptiest part: sizes are rounded up,
    and what crosses the next dimension is shared by the emptiest part's members only. Six ranks on nodes of four are 4 on one
    node and 2 on the other: four inside, two nodes, and two links that carry half of the buffer each. Neither is ever less than
    what an even group needs. A group smaller than a dimension does not straddle its end; devices left over stay idle.

    >>> from strata.hardware.fabric import fabric, sized
    >>> two = sized(fabric("hgx-h200"), (8.0, 4.0))
    >>> [(float(s.size), float(s.stride)) for s in spread(2.0, 8.0, two)]
    [(4.0, 2.0), (2.0, 1.0)]
    >>> node, between = spread(1.0, 6.0, sized(fabric("hgx-h200"), (4.0, 4.0)))
    >>> float(node.size), float(node.members), float(between.size)
    (4.0, 2.0, 2.0)
    """
    found: list[Spread] = []
    below: Number = 1.0
    for dimension in fabric.dimension:
        xp = namespace(stride, degree, dimension.size, below)
        above = below * dimension.size
        first = xp.maximum(stride, below)
        held = xp.maximum(xp.minimum(stride * degree, above) / first, 1.0)
        size, full = ceil_div(held, 1.0), floor_div(held, 1.0)
        if found:
            inside = found[-1]
            fewest = xp.where(full < size, xp.maximum(floor_div(inside.least * (held - full), 1.0), 1.0), inside.least)
            found[-1] = Spread(inside.size, inside.stride, fewest)
        found.append(Spread(size, xp.maximum(xp.minimum(stride, above) / below, 1.0), full))
        below = above
    return tuple(found)
