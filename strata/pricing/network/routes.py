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

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import BadValue, require
from strata.hardware.fabric import Fabric, sustained_link
from strata.hardware.transport import Packets
from strata.pricing.network.algorithms import device_links
from strata.pricing.network.collective_schedules import ScheduleStep
from strata.pricing.network.packet_trains import Message, TrainPath, TrainSimulation, longest_train
from strata.pricing.network.packets import packet_count, packet_time

# In a tree, one link upwards is shared by all that lies below it; any other dimension has links of each
# device's own.
LEVELS = ("switch", "ring", "chain", "full", "tree")
ACKNOWLEDGES = 0.0  # size of what answers a message
PART_OF_A_BYTE = 1e-6  # shares of a buffer are not exact


@dataclass(frozen=True)
class RouteLevel:
    """One dimension to route on: kind, size, and bandwidth [B/s] and latency [s] of one link."""

    kind: str
    size: int
    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        if self.kind not in LEVELS or self.size < 1:
            raise BadValue(
                f"a level is one of {', '.join(LEVELS)} with a size of at least 1,"
                f" but got {self.kind} of {self.size}"
            )


@dataclass(frozen=True)
class RouteLink:
    """A link in one direction: where it stands, and its level's speed."""

    place: Hashable
    bandwidth: float
    latency: float


@dataclass(frozen=True, eq=False)
class RoutedTraffic:
    """Routed schedules: time until all are done, each one's own [s]; bytes and busy time [s] of links."""

    time: float
    times: tuple[float, ...]
    bytes: dict[RouteLink, float]
    busy: dict[RouteLink, float]


def route_levels(fabric: Fabric) -> tuple[RouteLevel, ...]:
    """Levels of a sized fabric: a device's bandwidth into a dimension is split over its links there.

    A step's latency is the way into a switch and out of it, half of it each; a dragonfly counts as one
    switch.

    >>> from strata.hardware.fabric import fabric, sized
    >>> [(level.kind, level.size) for level in route_levels(sized(fabric("hgx-h200"), (8, 2)))]
    [('switch', 8), ('switch', 2)]
    """
    levels = []
    for d in fabric.dimension:
        along = d.kind in ("ring", "chain", "full")
        kind, latency = (d.kind, d.latency) if along else ("switch", d.latency / 2.0)
        bandwidth = float(sustained_link(d)) / float(device_links(d))
        levels.append(RouteLevel(kind, int(d.size), bandwidth, float(latency)))
    return tuple(levels)


def route(source: int, target: int, levels: Sequence[RouteLevel]) -> list[RouteLink]:
    """Links between devices, innermost dimension first, the shorter way round a ring (forward when equal).

    >>> grid = (RouteLevel("ring", 4, 1e9, 1e-6), RouteLevel("chain", 3, 1e9, 1e-6))
    >>> # one step back; two along the ring and two along the chain
    >>> len(route(0, 3, grid)), len(route(0, 10, grid))
    (1, 4)
    """
    here, there = _coordinates(source, levels), _coordinates(target, levels)
    path: list[RouteLink] = []
    for first, end in level_blocks(levels):
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


def _coordinates(rank: int, levels: Sequence[RouteLevel]) -> tuple[int, ...]:
    places = []
    for level in levels:
        places.append(rank % level.size)
        rank //= level.size
    return tuple(places)


def level_blocks(levels: Sequence[RouteLevel]) -> Iterator[tuple[int, int]]:
    """First level and end of each dimension routed as one: a switch with the trees above it, or one level."""
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
    here: tuple[int, ...], there: tuple[int, ...], levels: Sequence[RouteLevel], first: int, top: int
) -> Iterator[RouteLink]:
    """Up from a device to the switch of level `top` and down: a link of its own, then one of each switch."""

    def link(i: int, direction: str, place: tuple[int, ...]) -> RouteLink:
        return RouteLink(
            (i, direction, (*place[:first], *([0] * (i - first)), *place[i:])),
            levels[i].bandwidth,
            levels[i].latency,
        )

    yield from (link(i, "up", here) for i in range(first, top + 1))
    yield from (link(i, "down", there) for i in reversed(range(first, top + 1)))


def _within(here: tuple[int, ...], goal: int, i: int, level: RouteLevel) -> list[RouteLink]:
    """Links along one dimension, named by the device at their end."""

    def link(direction: Hashable, place: int) -> RouteLink:
        end = (*here[:i], place, *here[i + 1 :])
        return RouteLink((i, direction, end), level.bandwidth, level.latency)

    start, size = here[i], level.size
    if level.kind == "switch":
        return [link("up", start), link("down", goal)]
    if level.kind == "full":
        return [link(goal, start)]
    ahead = (goal - start) % size
    step = 1 if (ahead <= size / 2 if level.kind == "ring" else goal > start) else -1
    count = min(ahead, size - ahead) if level.kind == "ring" else abs(goal - start)
    return [link(step, (start + k * step) % size) for k in range(count)]


def route_steps(
    steps: Sequence[ScheduleStep], levels: Sequence[RouteLevel], packets: Packets
) -> RoutedTraffic:
    """A whole schedule without a barrier: a device goes on when its step is acknowledged, and it has its own.

    >>> from strata.pricing.network.collective_schedules import schedule
    >>> torus = (RouteLevel("ring", 4, 32e9, 32e-9), RouteLevel("ring", 4, 32e9, 32e-9))
    >>> steps = schedule("all_reduce", "by_dimension", (4, 4), 65536.0)
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> round(route_steps(steps, torus, clock).time * 1e9)  # the harness in validation/ns3: 4866
    4866
    """
    return run_schedules((steps,), levels, packets)


def run_schedules(
    schedules: Sequence[Sequence[ScheduleStep]], levels: Sequence[RouteLevel], packets: Packets
) -> RoutedTraffic:
    r"""Several schedules that start at once on the same links; messages of all contend.

    A packet of n bytes that reaches a link of bandwidth β at a, behind one that leaves it at f, is at the
    next node at

    .. math:: \max(a, f) + s(n, \beta) + \alpha

    s its time on the wire (`packet_time`), α the hop's latency [s]. Trains of k packets hold a link for k s,
    and their first packet goes on before the last is there.

    >>> link, clock = (RouteLevel("switch", 2, 1e9, 500e-9),), Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> one = (ScheduleStep(np.array([0]), np.array([1]), np.array([3000.0])),)
    >>> both = run_schedules((one, one), link, clock)  # six packets on the wire, first come before the others
    >>> [round(t * 1e9) for t in both.times]  # the harness in validation/ns3: the same
    [6300, 9450]
    """
    links, messages = _posted(schedules, levels, packets)
    run = TrainSimulation(
        messages=messages,
        links=len(links),
        ranks=device_count(levels),
        steps=[len(steps) for steps in schedules],
        longest=longest_train(messages),
    )
    run.run()
    carried: dict[RouteLink, float] = defaultdict(float)
    busy: dict[RouteLink, float] = defaultdict(float)
    for message in messages:
        path = message.there
        for number, full, last in zip(path.links, path.full, path.last, strict=True):
            carried[links[number]] += message.size
            busy[links[number]] += ((message.packets - 1) * full + last) * float(packets.tick)
    times = tuple(t * float(packets.tick) for t in run.done)
    return RoutedTraffic(max(times, default=0.0), times, dict(carried), dict(busy))


def steps_on_devices(steps: Sequence[ScheduleStep], members: Sequence[int]) -> tuple[ScheduleStep, ...]:
    """A group's steps on some of a fabric's devices: rank i is device `members[i]`.

    >>> one = ScheduleStep(np.array([0]), np.array([1]), np.array([8.0]))
    >>> [(int(s.source[0]), int(s.target[0])) for s in steps_on_devices((one,), (3, 5))]
    [(3, 5)]
    """
    device = np.asarray(members, int)
    return tuple(ScheduleStep(device[step.source], device[step.target], step.bytes) for step in steps)


def device_count(levels: Sequence[RouteLevel]) -> int:
    """Devices that levels join."""
    return int(np.prod([level.size for level in levels], dtype=int))


def _ticks(time: Number, packets: Packets) -> float:
    """A time in ticks, free of the last bits that would put equal times apart."""
    return round(float(time / packets.tick), 6)


def _last_packet(size: float, packets: Packets) -> float:
    """Bytes of a message's last packet, header included; of an acknowledgement where there is no message."""
    return float(
        packets.reply
        if size == ACKNOWLEDGES
        else size - (packet_count(size, packets) - 1.0) * packets.payload + packets.header
    )


def _posted(
    schedules: Sequence[Sequence[ScheduleStep]], levels: Sequence[RouteLevel], packets: Packets
) -> tuple[list[RouteLink], list[Message]]:
    """All links by number, and all messages; a message is whole bytes, and one of none is not sent."""
    ranks = device_count(levels)
    numbers: dict[RouteLink, int] = {}
    whole = float(packets.payload + packets.header)

    @cache
    def slot(packet: float, bandwidth: float) -> float:
        return _ticks(packet_time(packet, bandwidth, packets), packets)

    @cache
    def links_of(source: int, target: int) -> list[RouteLink]:
        return route(source, target, levels)

    @cache
    def path(source: int, target: int, size: float) -> TrainPath:
        links, last = links_of(source, target), _last_packet(size, packets)
        return TrainPath(
            links=tuple(numbers.setdefault(link, len(numbers)) for link in links),
            full=tuple(slot(whole, link.bandwidth) for link in links),
            last=tuple(slot(last, link.bandwidth) for link in links),
            latency=tuple(_ticks(link.latency, packets) for link in links),
        )

    messages = []
    for number, at, source, target, size in _sent(schedules):
        require(
            min(source, target) >= 0 and max(source, target) < ranks,
            f"the fabric has {ranks} devices",
            source=source,
            target=target,
        )
        messages.append(
            Message(
                source=source,
                target=target,
                schedule=number,
                step=at,
                size=size,
                packets=int(packet_count(size, packets)),
                there=path(source, target, size),
                back=path(target, source, ACKNOWLEDGES),
            )
        )
    return list(numbers), messages


def _sent(schedules: Sequence[Sequence[ScheduleStep]]) -> Iterator[tuple[int, int, int, int, float]]:
    """Schedule, step, source, target and whole bytes of every message that is sent."""
    for number, steps in enumerate(schedules):
        for at, step in enumerate(steps):
            sizes = np.ceil(np.asarray(step.bytes, float) - PART_OF_A_BYTE)
            columns = (step.source.tolist(), step.target.tolist(), sizes.tolist())
            for source, target, size in zip(*columns, strict=True):
                if source != target and size > 0:
                    yield number, at, source, target, size
