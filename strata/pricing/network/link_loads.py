"""Loads of links: bytes that steps of messages put on every link of a composed fabric, all at once. It goes
round as the router (`strata.pricing.network.routes`) does, and counts bytes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue, require
from strata.hardware.fabric import Fabric, devices_of
from strata.mapping.place import spread
from strata.pricing.network.collective_schedules import ScheduleStep, legal_schedules, schedule
from strata.pricing.network.packet_collectives import preferred_schedules, routed_levels
from strata.pricing.network.routes import RouteLevel, device_count, level_blocks

MOST_PARTS = 20_000_000  # of buffers and messages that are followed: about two seconds


@dataclass(frozen=True, eq=False)
class LevelLoads:
    """Loads of one dimension's links: bytes by the device that a link leaves ("up" to a switch or tree, "+1"
    and "-1" along a ring or chain, "to j" where each pair has a link) or, "down" from a switch, reaches.
    """

    level: RouteLevel
    bytes: dict[str, Array]

    @property
    def busy(self) -> dict[str, Array]:
        """How long each link sends [s]."""
        return {way: carried / self.level.bandwidth for way, carried in self.bytes.items()}


def link_loads(steps: Sequence[ScheduleStep], levels: Sequence[RouteLevel]) -> list[LevelLoads]:
    """Bytes on every link of some levels, innermost first.

    >>> steps = schedule("all_gather", "ring", (4,), 400.0)
    >>> (ring,) = link_loads(steps, (RouteLevel("ring", 4, 1e9, 1e-6),))
    >>> {way: carried.tolist() for way, carried in ring.bytes.items()}
    {'+1': [300.0, 300.0, 300.0, 300.0], '-1': [0.0, 0.0, 0.0, 0.0]}
    """
    source = np.concatenate([np.asarray(step.source, int) for step in steps])
    target = np.concatenate([np.asarray(step.target, int) for step in steps])
    size = np.concatenate([np.asarray(step.bytes, float) for step in steps])
    devices = device_count(levels)
    inside = bool(source.size == 0 or max(source.max(), target.max()) < devices)
    require(inside, f"the fabric has {devices} devices", device=max(source.max(), target.max()))
    strides = np.cumprod([1, *(level.size for level in levels)])
    there = [target // strides[i] % level.size for i, level in enumerate(levels)]
    here = source.copy()  # where the messages are, dimension after dimension
    found: list[LevelLoads] = []
    for first, end in level_blocks(levels):
        goal = here.copy()
        for i in range(first, end):
            goal += (there[i] - here // strides[i] % levels[i].size) * strides[i]
        for i in range(first, end):
            loads = _Loads(devices, size)
            if levels[i].kind in ("switch", "tree"):
                _climbed(loads, here, goal, strides[first], strides[i])
            elif levels[i].kind == "full":
                end = goal // strides[i] % levels[i].size
                for j in range(levels[i].size):
                    loads.add(f"to {j}", here, (end == j) & (here != goal))
            else:
                _along(loads, here, goal, int(strides[i]), levels[i])
            found.append(LevelLoads(levels[i], loads.bytes))
        here = goal
    return found


class _Loads:
    """Sums of bytes by link."""

    def __init__(self, devices: int, size: Array) -> None:
        self.devices, self.size = devices, size
        self.bytes: dict[str, Array] = {}

    def add(self, way: str, device: Array, where: Array) -> None:
        carried = np.bincount(device[where], self.size[where], self.devices)
        self.bytes[way] = self.bytes.get(way, 0.0) + carried


def _climbed(loads: _Loads, here: Array, goal: Array, first: int, stride: int) -> None:
    """Up to a switch of this level and down again, for all that goes beyond what lies below it; links of a
    tree are named by the first device below them.
    """
    beyond = here // stride != goal // stride
    for way, at in (("up", here), ("down", goal)):
        loads.add(way, at - at % stride + at % first, beyond)


def _along(loads: _Loads, here: Array, goal: Array, stride: int, level: RouteLevel) -> None:
    """Link after link along a ring, the shorter way round (forward when equal), or along a chain."""
    start, end = here // stride % level.size, goal // stride % level.size
    ahead = (end - start) % level.size
    ring = level.kind == "ring"
    forward = ahead <= level.size / 2 if ring else end > start
    count = np.minimum(ahead, level.size - ahead) if ring else np.abs(end - start)
    for way, turn in (("+1", 1), ("-1", -1)):
        mine = forward if turn == 1 else ~forward
        loads.add(way, here, mine & (count > 0))
        for k in range(1, int(count[mine].max(initial=0))):
            at = here + ((start + turn * k) % level.size - start) * stride
            loads.add(way, at, mine & (count > k))


def collective_loads(
    fabric: Fabric, pattern: str, members: Array, bytes: float, algorithm: str = ""
) -> tuple[str, list[LevelLoads]]:
    """The schedule's name and the loads of a collective that every group runs at once. `members`: devices of
    the groups, a row each; `bytes`: the whole buffer of a rank. A fabric has a size for each dimension.

    >>> from strata.hardware.fabric import fabric, sized
    >>> node = sized(fabric("hgx-h200"), (8, 1))
    >>> name, (nvlink, _) = collective_loads(node, "all_to_all", np.arange(8)[None], 8e6)
    >>> name, float(nvlink.bytes["up"][0])
    ('direct', 7000000.0)
    """
    ranks = int(members.shape[1])
    sizes = group_sizes(members[0], fabric)
    name = algorithm or load_schedules(pattern, members[0], fabric)[0]
    # parts of a buffer that a schedule names, and messages of all groups
    passed = sum(sizes) / 2.0 if name == "relay" else 4.0
    count = int(ranks**2 * (passed + 2.0 * len(members)))
    if count > MOST_PARTS:
        raise BadValue(
            f"loads are counted of up to {MOST_PARTS:,} parts of buffers, but {pattern} by {name} of "
            f"{len(members)} groups of {ranks} ranks has about {count:,}"
        )
    steps = [
        replace(
            step,
            source=members[:, step.source].ravel(),
            target=members[:, step.target].ravel(),
            bytes=np.tile(step.bytes, len(members)),
        )
        for step in schedule(pattern, name, sizes, bytes)
    ]
    whole = spread(1.0, float(devices_of(fabric)), fabric)
    return name, link_loads(steps, routed_levels(whole, fabric))


def load_schedules(pattern: str, members: Array, fabric: Fabric) -> tuple[str, ...]:
    """Schedules that a group's collective may go by, the likeliest first.

    >>> from strata.hardware.fabric import fabric, sized
    >>> load_schedules("all_to_all", np.arange(8), sized(fabric("hgx-h200"), (8, 1)))
    ('direct', 'pairwise', 'relay')
    """
    sizes = group_sizes(members, fabric)
    if len(sizes) != len(fabric.dimension):  # a group that lies unevenly goes round in one ring
        legal = legal_schedules(pattern, sizes)
        return tuple(sorted(legal, key=lambda name: name not in ("ring", "direct")))
    return tuple(dict.fromkeys(preferred_schedules(pattern, sizes, fabric)))


def group_sizes(members: Array, fabric: Fabric) -> tuple[int, ...]:
    """Places of each dimension a group takes, innermost first; all in one where it fills them unevenly.

    >>> from strata.hardware.fabric import fabric, sized
    >>> two = sized(fabric("hgx-h200"), (8, 4))
    >>> group_sizes(np.arange(0, 32, 4), two), group_sizes(np.arange(9), two)
    ((2, 4), (9,))
    """
    sizes, below = [], 1
    for dimension in fabric.dimension:
        sizes.append(len(np.unique(members // below % int(dimension.size))))
        below *= int(dimension.size)
    return tuple(sizes) if np.prod(sizes) == len(members) else (len(members),)
