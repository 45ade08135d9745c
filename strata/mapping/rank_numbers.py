"""Which rank each device of a fabric is: its number in every group of a plan, and which group that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strata.arrays import Array
from strata.errors import UnknownName, require
from strata.mapping.plan import DIMENSIONS, Plan
from strata.mapping.plan_layout import ORDERED, strides

IDLE = -1  # of devices that a plan leaves out


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
