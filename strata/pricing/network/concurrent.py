"""Collectives that run at once on the same links: fair sharing in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue
from strata.hardware.fabric import Fabric
from strata.hardware.system import System
from strata.pricing.network.collective_cost import CollectiveCost, collective
from strata.pricing.network.collectives import Joined, crossings, joined_levels
from strata.pricing.network.levels import slowest
from strata.pricing.network.transport_times import AlgorithmTimes
from strata.software.engine import Engine


def fair_share_finish(works: Sequence[Number], rests: Sequence[Number]) -> tuple[Number, ...]:
    r"""When each of several collectives that start at once on one link is done [s].

    .. math:: t_i = l_i + \sum_j \min(w_i, w_j)

    works w, the time each needs of the link by itself; rests l, its latencies, which need no link [s]. While
    n of them send, each has an n-th of the bandwidth; one that is done leaves its share to the others. The
    link is never idle before the last is done, so that the longest sends for :math:`\sum_j w_j`.

    Kleinrock, Queueing Systems, vol. 2 (1976), sec. 4.4: processor sharing.

    >>> fair_share_finish((1.0, 3.0), (0.0, 0.5))
    (2.0, 4.5)
    """
    ends = []
    for work, rest in zip(works, rests, strict=True):
        time = rest
        for other in works:
            time = time + namespace(work, other).minimum(work, other)
        ends.append(time)
    return tuple(ends)


def time_by_link(cost: CollectiveCost) -> tuple[dict[str, Number], Number]:
    """A collective's time by the links it needs [s]: what grows with its bytes in each dimension (by its
    name, or that of an inner one it is reached through), and the rest.
    """
    works: dict[str, Number] = {}
    joined = joined_levels(cost.op, cost.layouts, cost.fabric, cost.asked)
    for here in crossings(cost.op, cost.layouts, cost.fabric, cost.asked):
        port = here.dimension.shares_links_of or here.dimension.name
        if joined is None or not joined.always:
            sending = _growing(here.times(cost.op), replace(here, payload=0.0 * here.payload).times(cost.op))
            alone = sending if joined is None else namespace(sending).where(joined.where, 0.0, sending)
            works[port] = works.get(port, 0.0) + here.where(alone)
    if joined is not None:
        for port, work in _ruling_level(joined, cost).items():
            works[port] = works.get(port, 0.0) + work
    total: Number = sum(works.values(), start=0.0)
    xp = namespace(cost.time, total)
    # A message to a neighbour waits for the slowest dimension only, so that its works add up to more than its
    # time.
    part = xp.minimum(1.0, cost.time / xp.maximum(total, 1e-300))
    return {port: work * part for port, work in works.items()}, cost.time - total * part


def _ruling_level(joined: Joined, cost: CollectiveCost) -> dict[str, Number]:
    """What grows with the bytes over several levels, with the level that is busy longest: the others wait."""
    empty = joined_levels(
        replace(cost.op, payload=0.0 * cost.op.payload), cost.layouts, cost.fabric, cost.asked
    )
    assert empty is not None  # the same group
    grown = _growing(joined.times, empty.times)
    sending = namespace(grown).where(joined.where, grown, 0.0)
    least = joined.least(cost.pattern, cost.bytes)
    longest = slowest(least)
    works: dict[str, Number] = {}
    left: Number = 1.0
    for one, busy in reversed(list(zip(joined.levels, least, strict=True))):
        rules = namespace(busy, longest).where(busy >= longest, left, 0.0)
        left = left - rules
        port = one.dimension.shares_links_of or one.dimension.name
        works[port] = works.get(port, 0.0) + sending * rules
    return works


def _growing(full: AlgorithmTimes, empty: AlgorithmTimes) -> Number:
    """What the cheapest algorithm costs more than with nothing to send."""
    best: Number = float("inf")
    more: Number = 0.0
    for name, time in full.items():
        xp = namespace(best, time, more)
        better = time < best
        more = xp.where(better, time - empty[name], more)
        best = xp.where(better, time, best)
    return more


@dataclass(frozen=True, eq=False)
class ConcurrentCollectives:
    """Collectives that start at once: each alone, and when each is done."""

    alone: tuple[CollectiveCost, ...]
    finish: tuple[Number, ...]

    @property
    def time(self) -> Number:
        """Until all are done [s]."""
        return slowest(self.finish)

    @property
    def one_after_the_other(self) -> Number:
        """The sum of their times alone [s]."""
        return sum((c.time for c in self.alone), start=0.0)


def finish_times(costs: Sequence[CollectiveCost]) -> tuple[Number, ...]:
    """When each of several collectives that start at once is done [s]. Each is taken to meet all others in
    all dimensions both cross: rather too long, but never longer than one after the other.
    """
    parts = [time_by_link(cost) for cost in costs]
    times: list[Number] = [rest for _, rest in parts]
    for port in {port: None for works, _ in parts for port in works}:
        works = [part.get(port, 0.0) for part, _ in parts]
        times = [
            time + more
            for time, more in zip(times, fair_share_finish(works, [0.0] * len(works)), strict=True)
        ]
    return tuple(times)


def concurrent_collectives(
    on: str | System | Fabric,
    asked: Sequence[Mapping[str, Any]],
    engine: str | Engine = "ideal",
    links: bool = False,
) -> ConcurrentCollectives:
    """Several collectives at once on the same devices, each as `collective` takes it: pattern, bytes, ranks,
    stride, algorithm.

    >>> gather, scatter = {"pattern": "all_gather", "bytes": 1e9}, {"pattern": "reduce_scatter", "bytes": 1e8}
    >>> both = concurrent_collectives("8xh200", [gather, scatter | {"ranks": 4}])
    >>> bool(max(c.time for c in both.alone) < both.time <= both.one_after_the_other)
    True
    """
    if not asked:
        raise BadValue(
            "concurrent_collectives needs one collective or more,"
            " like [{'pattern': 'all_gather', 'bytes': 1e6}], but got none"
        )
    for one in asked:
        if not {"pattern", "bytes"} <= set(one) <= {"pattern", "bytes", "ranks", "stride", "algorithm"}:
            raise BadValue(
                "a collective of concurrent_collectives has pattern and bytes, and may have ranks, stride,"
                f" algorithm, but got {', '.join(one) or 'none'}"
            )
    alone = tuple(collective(on, engine=engine, links=links, **one) for one in asked)
    try:
        np.broadcast_shapes(*(np.shape(c.time) for c in alone))
    except ValueError:
        told = ", ".join(f"{c.pattern} {np.shape(c.time)}" for c in alone)
        raise BadValue(f"collectives at once must broadcast against each other, but got {told}") from None
    return ConcurrentCollectives(alone, finish_times(alone))
