"""Routes: any traffic between the devices of a composed fabric, link by link and packet by packet.

The closed forms of `strata.pricing.packets` hold for symmetric groups. This router takes a matrix of bytes from each device to
each other, sends every flow dimension by dimension, adds up what each link carries, and times the step by the same rule; it
loops over pairs, so it is for asymmetric traffic and for checking. Contention is that of one step whose flows start together;
the flow with the longest way is taken to be the last on the busiest link, so unlike flows are rather over- than underestimated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.errors import BadValue, require
from strata.hardware.fabric import Fabric, sustained_link
from strata.hardware.transport import Packets
from strata.pricing.packets import packet_slots, packet_time

Array = np.ndarray[Any, Any]
# In a tree, one link upwards is shared by all that lies below it; any other dimension has links of each device's own.
LEVELS = ("switch", "ring", "chain", "full", "tree")


@dataclass(frozen=True)
class Level:
    """One dimension to route on: kind, size, and bandwidth [B/s] and latency [s] of one link."""

    kind: str
    size: int
    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        if self.kind not in LEVELS or self.size < 1:
            raise BadValue(f"a level is one of {', '.join(LEVELS)} with a size of at least 1, but got {self.kind} of {self.size}")


@dataclass(frozen=True)
class Link:
    """A link in one direction: where it stands, and its level's speed."""

    place: Hashable
    bandwidth: float
    latency: float


@dataclass(frozen=True, eq=False)
class Routed:
    """A routed step: its time [s], and bytes and busy time [s] of each link that is used."""

    time: float
    bytes: dict[Link, float]
    busy: dict[Link, float]


def levels_of(fabric: Fabric) -> tuple[Level, ...]:
    """Levels of a fabric whose dimensions have sizes: a device's bandwidth into a dimension is split over its links there.

    A step's latency is the way into a switch and out of it, half of it each; a dragonfly counts as one switch.

    >>> from strata.hardware.fabric import fabric, sized
    >>> [(level.kind, level.size) for level in levels_of(sized(fabric("hgx-h200"), (8, 2)))]
    [('switch', 8), ('switch', 2)]
    """
    made = []
    for d in fabric.dimension:
        size = int(d.size)
        links = {"ring": min(2, size - 1), "chain": min(2, size - 1), "full": size - 1}.get(d.kind, 1)
        kind, latency = (d.kind, d.latency) if d.kind in ("ring", "chain", "full") else ("switch", d.latency / 2.0)
        made.append(Level(kind, size, float(sustained_link(d)) / max(links, 1), float(latency)))
    return tuple(made)


def route(source: int, target: int, levels: Sequence[Level]) -> list[Link]:
    """Links from a device to another, innermost dimension first, on the shorter way round a ring (forward when equal).

    >>> grid = (Level("ring", 4, 1e9, 1e-6), Level("chain", 3, 1e9, 1e-6))
    >>> len(route(0, 3, grid)), len(route(0, 10, grid))  # one step back; two steps along the ring and two along the chain
    (1, 4)
    """
    here, there = _coordinates(source, levels), _coordinates(target, levels)
    top = max((i for i, level in enumerate(levels) if level.kind == "tree" and here[i] != there[i]), default=None)
    if top is not None:
        return list(_climb(here, there, levels, top))
    path: list[Link] = []
    for i, level in enumerate(levels):
        if here[i] != there[i]:
            path += _within(here, there[i], i, level)
            here = (*here[:i], there[i], *here[i + 1 :])
    return path


def _coordinates(rank: int, levels: Sequence[Level]) -> tuple[int, ...]:
    made = []
    for level in levels:
        made.append(rank % level.size)
        rank //= level.size
    return tuple(made)


def _climb(here: tuple[int, ...], there: tuple[int, ...], levels: Sequence[Level], top: int) -> Iterator[Link]:
    """Up from a device to the switch of level `top` and down to another: a switch below, then one link for each tree above."""
    if any(level.kind != ("tree" if i else "switch") for i, level in enumerate(levels[: top + 1])):
        raise BadValue("below a tree there must be one switch, and trees above it")
    for i in range(top + 1):
        yield Link((i, "up", here[i:]), levels[i].bandwidth, levels[i].latency)
    for i in reversed(range(top + 1)):
        yield Link((i, "down", there[i:]), levels[i].bandwidth, levels[i].latency)


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
    r"""Time and link loads of one step: every device sends `traffic[source, target]` bytes at once.

    .. math:: T = \max_f \Big[ \max_{b \in f} \Big( \sum_{h<b} s_h + B_b + \sum_{h>b} l_h \Big) + \sum_{h \in f} (2 \alpha_h + a_h)
              + \max_{b \in f} \Big( (m_b - 1) a_b - \sum_{h \in f} \alpha_h \Big)^+ \Big]

    over flows f; s, l the first and last packet on a link, B all packets the link carries [s]; a acknowledgement, α latency [s];
    m flows on a link. The same rule as `message_time`, with loads from routes.

    >>> pair = np.array([[0.0, 3000.0], [0.0, 0.0]])
    >>> round(routed(pair, (Level("switch", 2, 1e9, 500e-9),), Packets(1000.0, 50.0, 50.0, 1e-9)).time * 1e9)
    6300
    """
    ranks = int(np.prod([level.size for level in levels]))
    require(traffic.shape == (ranks, ranks), f"traffic has {ranks} rows and columns, one for each device", shape=traffic.shape)
    carried: dict[Link, float] = defaultdict(float)
    busy: dict[Link, float] = defaultdict(float)
    flows: dict[Link, int] = defaultdict(int)
    paths = []
    for source, target in zip(*np.nonzero(traffic), strict=True):
        if source == target:
            continue
        size, path = float(traffic[source, target]), route(int(source), int(target), levels)
        paths.append((size, path))
        for link in path:
            carried[link] += size
            busy[link] += packet_slots(size, link.bandwidth, how)[2]
            flows[link] += 1
    longest = max((_flow_time(size, path, busy, flows, how) for size, path in paths), default=0.0)
    return Routed(longest, dict(carried), dict(busy))


def _flow_time(size: float, path: Sequence[Link], busy: dict[Link, float], flows: dict[Link, int], how: Packets) -> float:
    started = done = back = away = replies = 0.0
    for link in path:
        first, last, _ = packet_slots(size, link.bandwidth, how)
        reply = packet_time(how.reply, link.bandwidth, how)
        done = max(done + last, started + busy[link])
        started += first
        back += 2.0 * link.latency + reply
        away += link.latency
        replies = max(replies, (flows[link] - 1) * reply)
    return float(done + back + max(0.0, replies - away))
