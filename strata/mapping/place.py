"""place(): where the ranks of each plan dimension lie on the fabric; which rank each device is; and
plans in other orders on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from strata.base.arrays import Array, Number, ceil_div, floor_div, namespace
from strata.base.errors import UnknownName, require
from strata.hardware.fabric import DIRECT, ONE_RING, Fabric
from strata.hardware.system import System
from strata.mapping.layout import Layout
from strata.mapping.plan import DIMENSIONS, ORDERS, Plan
from strata.mapping.plan_layout import ORDERED, active_groups, strides
from strata.mapping.plans import taken

IDLE = -1  # of devices that a plan leaves out


@dataclass(frozen=True, eq=False, slots=True)
class GroupLayout:
    """A group of ranks on one fabric dimension: how many members, how far apart; `least`: members in the
    emptiest of the next dimension's parts, all when left out.
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

    groups: dict[str, tuple[GroupLayout, ...]]


def place(division: Plan | Layout, fabric: Fabric, active: frozenset[str]) -> Placement:
    """Lay the groups of a plan or layout on the fabric, innermost first.

    A group with stride s and p members covers the ranks s, 2s .. ps; a fabric dimension with stride S and
    size F covers the interval S .. SF. What they share is the group's size there. The groups of a mixture's
    experts lie over tp x cp x dp.
    """
    groups = {}
    for name, (stride, ranks, levels) in division.group_ranks(active).items():
        if name in active:
            groups[name] = (
                spread(stride, ranks, fabric) if levels is None else _over(levels, stride, ranks, fabric)
            )
    return Placement(groups)


def _over(
    levels: tuple[tuple[Number, Number], ...], start: Number, ranks: Number, fabric: Fabric
) -> tuple[GroupLayout, ...]:
    """A group of every `start`-th rank, counted through levels of (stride, degree) that lie anywhere."""
    found: tuple[GroupLayout, ...] = ()
    below: Number = 1.0
    for stride, degree in levels:
        xp = namespace(start, ranks, below, degree, stride)
        above = below * degree
        taken_here = xp.maximum(xp.minimum(start * ranks, above) / xp.maximum(start, below), 1.0)
        skipped = xp.maximum(xp.minimum(start, above) / below, 1.0)
        lies = spread(stride * skipped, taken_here, fabric)
        found = tuple(_both(a, b) for a, b in zip(found, lies, strict=True)) if found else lies
        below = above
    return found


def _both(a: GroupLayout, b: GroupLayout) -> GroupLayout:
    """Two groups of one fabric dimension as one: each member of the first has its own of the second."""
    xp = namespace(a.size, a.stride, b.stride)
    return GroupLayout(a.size * b.size, xp.where(a.size > 1, a.stride, b.stride), a.members * b.members)


def in_every_order(plan: Plan, fabric: Fabric, active: frozenset[str]) -> tuple[Plan, np.ndarray]:
    """Plans of an array in every order that lies differently on a fabric, and which plan each came from.

    Orders that give every group the same spread are one; strides do not count where any two devices are one
    step apart.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.plan import Plan
    >>> two, four = Plan(tp=np.array([8.0]), dp=np.array([4.0])), sized(fabric("hgx-h200"), (8, 4))
    >>> one, active = sized(fabric("hgx-h200"), (32, 1)), frozenset(("tp", "dp"))
    >>> [in_every_order(two, f, active)[0].order.tolist() for f in (four, one)]
    [[0.0, 8.0], [0.0]]
    """
    count = np.size(plan.tp)
    orders = [replace(plan, order=np.full(count, float(code))) for code in range(len(ORDERS))]
    seen = np.array([layout_key(one, fabric, active) for one in orders])
    new = np.array([np.all(seen[:code] != seen[code], axis=0) for code in range(len(ORDERS))])
    which, codes = np.nonzero(new.T)
    return replace(taken(plan, which), order=codes * 1.0), which


def layout_key(plan: Plan, fabric: Fabric, active: frozenset[str]) -> np.ndarray:
    """A mark of how each plan of an array lies on a fabric: equal where every group has the same spread."""
    # a spread's mark is a sum that no other spread has
    marks = np.random.default_rng(0).random((16, len(fabric.dimension), 3))
    placed = place(plan, fabric, active | {ORDERED})
    mark = np.zeros(np.size(plan.tp))
    for group, lies in zip(marks, placed.groups.values(), strict=False):
        for (size, members, stride), one, dimension in zip(group, lies, fabric.dimension, strict=True):
            far = 0.0 if dimension.kind in DIRECT else np.where(one.size > 1, one.stride, 0.0)
            mark = mark + size * one.size + members * one.members + stride * far
    return mark


def spread(stride: Number, degree: Number, fabric: Fabric) -> tuple[GroupLayout, ...]:
    r"""How a group of ranks lies on each dimension of a fabric.

    A group that does not fill the inner dimensions evenly is priced by its fullest and its emptiest part:
    sizes are rounded up, and what crosses the next dimension is shared by the emptiest part's members only.
    Six ranks on nodes of four are 4 on one node and 2 on the other: four inside, two nodes, and two links
    that carry half of the buffer each. Neither is ever less than what an even group needs. A group smaller
    than a dimension does not straddle its end; devices left over stay idle.

    >>> from strata.hardware.fabric import fabric, sized
    >>> two = sized(fabric("hgx-h200"), (8.0, 4.0))
    >>> [(float(s.size), float(s.stride)) for s in spread(2.0, 8.0, two)]
    [(4.0, 2.0), (2.0, 1.0)]
    >>> node, between = spread(1.0, 6.0, sized(fabric("hgx-h200"), (4.0, 4.0)))
    >>> float(node.size), float(node.members), float(between.size)
    (4.0, 2.0, 2.0)

    Over a dimension whose `crossing` is one ring, a group that reaches into it lies there alone:

    >>> rings = replace(two, dimension=(two.dimension[0], replace(two.dimension[1], crossing=ONE_RING)))
    >>> [[float(s.size) for s in spread(1.0, n, rings)] for n in (8.0, 16.0)]
    [[8.0, 1.0], [1.0, 16.0]]
    """
    found: list[GroupLayout] = []
    below: Number = 1.0
    for dimension in fabric.dimension:
        xp = namespace(stride, degree, dimension.size, below)
        above = below * dimension.size
        first = xp.maximum(stride, below)
        held = xp.maximum(xp.minimum(stride * degree, above) / first, 1.0)
        size, full = ceil_div(held, 1.0), floor_div(held, 1.0)
        if found:
            inside = found[-1]
            fewest = xp.where(
                full < size, xp.maximum(floor_div(inside.least * (held - full), 1.0), 1.0), inside.least
            )
            found[-1] = GroupLayout(inside.size, inside.stride, fewest)
        found.append(GroupLayout(size, xp.maximum(xp.minimum(stride, above) / below, 1.0), full))
        if dimension.crossing == ONE_RING:
            found = _one_ring(found, degree)
        below = above
    return tuple(found)


def _one_ring(found: list[GroupLayout], degree: Number) -> list[GroupLayout]:
    """A group that reaches into the last dimension as one ring over it: every member a step of its own."""
    *inner, last = found
    xp = namespace(last.size, degree)
    crosses = last.size > 1
    alone = [
        GroupLayout(xp.where(crosses, 1.0, i.size), i.stride, xp.where(crosses, 1.0, i.members))
        for i in inner
    ]
    whole = xp.where(crosses, degree, 1.0)
    return [*alone, GroupLayout(whole, last.stride, whole)]


@dataclass(frozen=True, eq=False)
class RankNumbers:
    """Of one kind of group: each device's number inside its group, and the number of that group."""

    size: int
    number: Array
    group: Array

    def members(self) -> Array:
        """Devices of every group, one row each, in the order of their numbers on the fabric."""
        used = np.flatnonzero(self.group != IDLE)
        return used[np.argsort(self.group[used], kind="stable")].reshape(-1, self.size)


def rank_numbers(plan: Plan, devices: int, name: str) -> RankNumbers:
    """Numbers of the devices in the groups of a plan: tp, cp, dp, pp, or one of a mixture's or of sums.

    >>> from strata.mapping.plan import plan
    >>> found = rank_numbers(plan("tp=2,dp=2,pp=2"), 9, "dp")
    >>> found.number.tolist(), found.members().tolist()
    ([0, 0, 1, 1, 0, 0, 1, 1, -1], [[0, 2], [1, 3], [4, 6], [5, 7]])
    """
    every = plan.group_ranks(frozenset((ORDERED,)))
    if name not in every:
        raise UnknownName("group of ranks", name, every, ", ".join(every))
    stride, size, counted = (every[name][0], every[name][1], every[name][2] is not None)
    apart, step, members = strides(plan), int(float(stride)), int(float(size))
    ranks = np.arange(devices)
    degrees = {d: int(float(getattr(plan, d))) for d in DIMENSIONS}
    places = {d: ranks // int(float(apart[d])) % degrees[d] for d in DIMENSIONS}
    # groups of a mixture and of sums are counted through tp, cp and dp, however these lie
    inner = places["tp"] + degrees["tp"] * (places["cp"] + degrees["cp"] * places["dp"])
    line = inner if counted else ranks
    number = line // step % members
    first = line - number * step
    if counted:
        first = first + places["pp"] * degrees["tp"] * degrees["cp"] * degrees["dp"]
    used = ranks < int(np.prod(list(degrees.values())))
    group = np.full(devices, IDLE)
    group[used] = np.unique(first[used], return_inverse=True)[1]
    even = bool(np.all(np.bincount(group[used]) == members))
    require(even, f"groups of {name} must divide the {int(used.sum())} ranks of the plan", ranks=members)
    return RankNumbers(members, np.where(used, number, IDLE), group)


def try_orders(
    system: System,
    every: Plan,
    score: Callable[[Plan], np.ndarray],
    scores: np.ndarray,
    order: np.ndarray,
    at: np.ndarray,
    some: np.ndarray,
) -> int:
    """Price the plans `at` some places, for `some` batches, in every order but the usual one, and keep the
    better ones in `scores` and `order` [batches, plans]; how many were priced.
    """
    rows, which = in_every_order(taken(every, at), system.fabric, active_groups(every))
    codes = np.asarray(rows.order)
    moved = codes > 0
    rows, codes, which = taken(rows, moved), codes[moved], at[which[moved]]
    if not len(which):
        return 0
    other = score(rows)
    for column in range(len(which)):
        better = other[:, column] > scores[some, which[column]]
        scores[some[better], which[column]] = other[better, column]
        order[some[better], which[column]] = codes[column]
    return int(other.size)


def orders_matter(fabric: Fabric) -> bool:
    """Whether groups can lie differently on a fabric: not where every two devices are one step apart."""
    crossed = [d for d in fabric.dimension if np.any(np.asarray(d.size) > 1)]
    return len(crossed) > 1 or any(d.kind not in DIRECT for d in crossed)
