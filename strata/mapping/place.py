"""place(): where the ranks of each plan dimension lie on the fabric."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.mapping.plan import Plan


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """A group of ranks on one fabric dimension: how many members, and how far apart they sit."""

    size: Number
    stride: Number


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
    """How a group of ranks lies on each dimension of a fabric.

    >>> from strata.hardware.fabric import fabric, sized
    >>> two = sized(fabric("hgx-h200"), (8.0, 4.0))
    >>> [(float(s.size), float(s.stride)) for s in spread(2.0, 8.0, two)]
    [(4.0, 2.0), (2.0, 1.0)]
    """
    found = []
    below: Number = 1.0
    for dimension in fabric.dimension:
        xp = namespace(stride, degree, dimension.size, below)
        above = below * dimension.size
        first = xp.maximum(stride, below)
        size = xp.maximum(xp.minimum(stride * degree, above) / first, 1.0)
        found.append(Spread(size, xp.maximum(xp.minimum(stride, above) / below, 1.0)))
        below = above
    return tuple(found)
