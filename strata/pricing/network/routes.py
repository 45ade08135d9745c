"""Routes: any traffic between the devices of a composed fabric, link by link and packet by packet.

The closed forms of `strata.pricing.network.packets` hold for symmetric groups. This router takes any steps of
messages from device to device, sends each dimension by dimension, and lets them queue on the links they share
(`strata.pricing.network.packet_trains`); it loops over messages, so it is for asymmetric traffic, for
collectives at once, and for checking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from strata.errors import BadValue, require
from strata.hardware.fabric import Fabric, sustained_link
from strata.hardware.transport import Packets
from strata.pricing.network.packet_trains import Mail, Traffic, Way, longest_train
from strata.pricing.network.packets import packet_count, packet_time
from strata.pricing.network.schedules import Step

Array = np.ndarray[Any, Any]
# In a tree, one link upwards is shared by all that lies below it; any other dimension has links of each
# device's own.
LEVELS = ("switch", "ring", "chain", "full", "tree")
ACKNOWLEDGES = 0.0  # size of what answers a message
PART_OF_A_BYTE = 1e-6  # shares of a buffer are not exact


@dataclass(frozen=True)
class Level:
    """One dimension to route on: kind, size, and bandwidth [B/s] and latency [s] of one link."""

    kind: str
    size: int
    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        if self.kind not in LEVELS or self.size < 1:
            raise BadValue(
                f"a level is one of {', '.join(LEVELS)} with a size of at least 1, but got {self.kind} of {self.size}"
            )


@dataclass(frozen=True)
class Link:
    """A link in one direction: where it stands, and its level's speed."""

    place: Hashable
    bandwidth: float
    latency: float


@dataclass(frozen=True, eq=False)
class Routed:
    """Routed schedules: the time until all are done and each one's own [s]; bytes and busy time [s] of each
    link that is used.
    """

    time: float
    times: tuple[float, ...]
    bytes: dict[Link, float]
    busy: dict[Link, float]


def levels_of(fabric: Fabric) -> tuple[Level, ...]:
    """Levels of a fabric whose dimensions have sizes: a device's bandwidth into a dimension is split over its
    links there.

    A step's latency is the way into a switch and out of it, half of it each; a dragonfly counts as one
    switch.

    >>> from strata.hardware.fabric import fabric, sized
    >>> [(level.kind, level.size) for level in levels_of(sized(fabric("hgx-h200"), (8, 2)))]
    [('switch', 8), ('switch', 2)]
    """
    made = []
    for d in fabric.dimension:
        size = int(d.size)
        links = {"ring": min(2, size - 1), "chain": min(2, size - 1), "full": size - 1}.get(d.kind, 1)
        kind, latency = (
            (d.kind, d.latency) if d.kind in ("ring", "chain", "full") else ("switch", d.latency / 2.0)
        )
        made.append(Level(kind, size, float(sustained_link(d)) / max(links, 1), float(latency)))
    return tuple(made)


def route(source: int, target: int, levels: Sequence[Level]) -> list[Link]:
    """Links from a device to another, innermost dimension first, on the shorter way round a ring (forward
    when equal).

    >>> grid = (Level("ring", 4, 1e9, 1e-6), Level("chain", 3, 1e9, 1e-6))
    >>> len(route(0, 3, grid)), len(route(0, 10, grid))  # one step back; two steps along the ring and two along the chain
    (1, 4)
    """
    here, there = _coordinates(source, levels), _coordinates(target, levels)
    path: list[Link] = []
    for first, end in _blocks(levels):
        top = max((i for i in range(first, end) if here[i] != there[i]), default=None)
        if top is not None:
            goal = (*here[:first], *there[first:end], *here[end:])
            path += (
                _within(here, there[first], first, levels[first])
                if end == first + 1
                else _climb(here, goal, levels, first, top)
            )
            here = goal
    return path


def _coordinates(rank: int, levels: Sequence[Level]) -> tuple[int, ...]:
    made = []
    for level in levels:
        made.append(rank % level.size)
        rank //= level.size
    return tuple(made)


def _blocks(levels: Sequence[Level]) -> Iterator[tuple[int, int]]:
    """First level and end of each dimension that is routed as one: a switch with the trees above it, or one
    level.
    """
    first = 0
    for i, level in enumerate(levels):
        if level.kind == "tree":
            if levels[first].kind != "switch":
                raise BadValue("below a tree there must be one switch, and trees above it")
        elif i:
            yield first, i
            first = i
    if levels:
        yield first, len(levels)


def _climb(
    here: tuple[int, ...], there: tuple[int, ...], levels: Sequence[Level], first: int, top: int
) -> Iterator[Link]:
    """Up from a device to the switch of level `top` and down to another: a link of its own, then one of each
    switch below.
    """

    def link(i: int, way: str, place: tuple[int, ...]) -> Link:
        return Link(
            (i, way, (*place[:first], *([0] * (i - first)), *place[i:])),
            levels[i].bandwidth,
            levels[i].latency,
        )

    yield from (link(i, "up", here) for i in range(first, top + 1))
    yield from (link(i, "down", there) for i in reversed(range(first, top + 1)))


def _within(here: tuple[int, ...], goal: int, i: int, level: Level) -> list[Link]:
    """Links along one dimension, named by the device at their end."""

    def link(way: Hashable, place: int) -> Link:
        return Link((i, way, (*here[:i], place, *here[i + 1 :])), level.bandwidth, level.latency)

    start, size = here[i], level.size
    if level.kind == "switch":
        return [link("up", start), link("down", goal)]
    if level.kind == "full":
        return [link(goal, start)]
    ahead = (goal - start) % size
    step = 1 if (ahead <= size / 2 if level.kind == "ring" else goal > start) else -1
    count = min(ahead, size - ahead) if level.kind == "ring" else abs(goal - start)
    return [link(step, (start + k * step) % size) for k in range(count)]


def routed(traffic: Array, levels: Sequence[Level], how: Packets) -> Routed:
    """Time and link loads of one step: every device sends `traffic[source, target]` bytes at once, to its
    next neighbours first.

    >>> pair = np.array([[0.0, 3000.0], [0.0, 0.0]])
    >>> round(routed(pair, (Level("switch", 2, 1e9, 500e-9),), Packets(1000.0, 50.0, 50.0, 1e-9)).time * 1e9)
    6300
    """
    ranks = devices(levels)
    require(
        traffic.shape == (ranks, ranks),
        f"traffic has {ranks} rows and columns, one for each device",
        shape=traffic.shape,
    )
    source, target = np.nonzero(traffic * (1 - np.eye(ranks)))
    order = np.argsort((target - source) % ranks, kind="stable")
    source, target = source[order], target[order]
    return routed_steps((Step(source, target, traffic[source, target]),), levels, how)


def routed_steps(steps: Sequence[Step], levels: Sequence[Level], how: Packets) -> Routed:
    """A whole schedule without a barrier: a device goes on when what it sent is acknowledged and what it
    waits for is in.

    >>> from strata.pricing.network.schedules import schedule
    >>> torus = (Level("ring", 4, 32e9, 32e-9), Level("ring", 4, 32e9, 32e-9))
    >>> steps = schedule("all_reduce", "by_dimension", (4, 4), 65536.0)
    >>> round(routed_steps(steps, torus, Packets(1000.0, 50.0, 50.0, 1e-9)).time * 1e9)  # the harness in validation/ns3: 4866
    4866
    """
    return run_schedules((steps,), levels, how)


def run_schedules(schedules: Sequence[Sequence[Step]], levels: Sequence[Level], how: Packets) -> Routed:
    r"""Several schedules that start at once on the same links; messages of all contend.

    A packet of n bytes that reaches a link of bandwidth β at a, behind one that leaves it at f, is at the
    next node at

    .. math:: \max(a, f) + s(n, \beta) + \alpha

    s its time on the wire (`packet_time`), α the hop's latency [s]. Trains of k packets hold a link for k s,
    and their first packet goes on before the last is there.

    >>> link, how = (Level("switch", 2, 1e9, 500e-9),), Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> one = (Step(np.array([0]), np.array([1]), np.array([3000.0])),)
    >>> both = run_schedules((one, one), link, how)  # six packets on the wire, those that came first before the others
    >>> [round(t * 1e9) for t in both.times]  # the harness in validation/ns3: the same
    [6300, 9450]
    """
    links, mail = _posted(schedules, levels, how)
    run = Traffic(mail, len(links), devices(levels), [len(steps) for steps in schedules], longest_train(mail))
    run.run()
    carried: dict[Link, float] = defaultdict(float)
    busy: dict[Link, float] = defaultdict(float)
    for m in mail:
        for number, full, last in zip(m.there.links, m.there.full, m.there.last, strict=True):
            carried[links[number]] += m.size
            busy[links[number]] += ((m.packets - 1) * full + last) * float(how.tick)
    times = tuple(t * float(how.tick) for t in run.done)
    return Routed(max(times, default=0.0), times, dict(carried), dict(busy))


def placed(steps: Sequence[Step], members: Sequence[int]) -> tuple[Step, ...]:
    """A group's steps on some of a fabric's devices: rank i is device `members[i]`.

    >>> one = Step(np.array([0]), np.array([1]), np.array([8.0]))
    >>> [(int(s.source[0]), int(s.target[0])) for s in placed((one,), (3, 5))]
    [(3, 5)]
    """
    where = np.asarray(members, int)
    return tuple(Step(where[step.source], where[step.target], step.bytes) for step in steps)


def devices(levels: Sequence[Level]) -> int:
    """Devices that levels join."""
    return int(np.prod([level.size for level in levels], dtype=int))


def _ticks(time: float, how: Packets) -> float:
    """A time in ticks, free of the last bits that would put equal times apart."""
    return round(float(time / how.tick), 6)


def _last_packet(size: float, how: Packets) -> float:
    """Bytes of a message's last packet, header included; of an acknowledgement where there is no message."""
    return float(
        how.reply
        if size == ACKNOWLEDGES
        else size - (packet_count(size, how) - 1.0) * how.payload + how.header
    )


def _posted(
    schedules: Sequence[Sequence[Step]], levels: Sequence[Level], how: Packets
) -> tuple[list[Link], list[Mail]]:
    """All links by number, and all messages; a message is whole bytes, and one of none is not sent."""
    ranks = devices(levels)
    numbers: dict[Link, int] = {}
    paths: dict[tuple[int, int], list[Link]] = {}
    ways: dict[tuple[int, int, float], Way] = {}

    @cache
    def slot(packet: float, bandwidth: float) -> float:
        return _ticks(packet_time(packet, bandwidth, how), how)

    def way(source: int, target: int, size: float) -> Way:
        if (source, target) not in paths:
            paths[source, target] = route(source, target, levels)
        path = paths[source, target]
        if (source, target, size) not in ways:
            packets = [float(how.payload + how.header), _last_packet(size, how)]
            full, last = ([slot(packet, link.bandwidth) for link in path] for packet in packets)
            there = [numbers.setdefault(link, len(numbers)) for link in path]
            ways[source, target, size] = Way(
                tuple(there), tuple(full), tuple(last), tuple(_ticks(link.latency, how) for link in path)
            )
        return ways[source, target, size]

    mail = []
    for number, steps in enumerate(schedules):
        for at, step in enumerate(steps):
            sizes = np.ceil(np.asarray(step.bytes, float) - PART_OF_A_BYTE)
            for source, target, size in zip(
                step.source.tolist(), step.target.tolist(), sizes.tolist(), strict=True
            ):
                if source == target or size <= 0:
                    continue
                require(
                    min(source, target) >= 0 and max(source, target) < ranks,
                    f"the fabric has {ranks} devices",
                    source=source,
                    target=target,
                )
                packets = int(packet_count(size, how))
                mail.append(
                    Mail(
                        source,
                        target,
                        number,
                        at,
                        size,
                        packets,
                        way(source, target, size),
                        way(target, source, ACKNOWLEDGES),
                    )
                )
    return list(numbers), mail
