"""Packet simulators by their own words: collectives on a switch, torus or mesh, and spelt-out schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import BadValue
from strata.hardware.transport import Packets
from strata.pricing.network import packets
from strata.pricing.network.collective_schedules import ScheduleStep, schedule
from strata.pricing.network.routes import RouteLevel, device_count, steps_on_devices

ON_TREES: dict[tuple[str, str], Callable[..., Any]] = {
    ("all_gather", "halving_doubling"): packets.tree_all_gather,
    ("all_gather", "halving_doubling_inner_first"): partial(packets.tree_all_gather, outer_first=False),
    ("all_gather", "ring"): packets.tree_ring_all_gather,
    ("all_reduce", "rabenseifner"): packets.tree_all_reduce,
    # assumed: the published files do not say what its stages are
    ("all_reduce", "rs_ag_ag_3stage"): packets.tree_all_reduce,
    ("all_reduce", "ring"): packets.tree_ring_all_reduce,
    ("all_to_all", "direct"): packets.tree_all_to_all,
}
ON_GRIDS: dict[tuple[str, str], Callable[..., Any]] = {
    ("all_gather", "ring"): packets.grid_all_gather,
    ("all_gather", "rs_ag_ag_3stage"): packets.grid_all_gather,
    ("all_reduce", "ring"): packets.grid_all_reduce,
    ("all_reduce", "rs_ag_ag_3stage"): packets.grid_all_reduce,
    ("all_to_all", "relay"): packets.grid_all_to_all,
    ("all_to_all", "direct"): partial(packets.grid_all_to_all, whole=False),
}
TOPOLOGIES = {"switch": ON_TREES, "torus": ON_GRIDS, "mesh": ON_GRIDS}
BY_DOUBLING = ("halving_doubling", "halving_doubling_inner_first", "rabenseifner")
# schedules that start at once, and what they run on
Job = tuple[Sequence[Sequence[ScheduleStep]], Sequence[RouteLevel]]


def packet_collective_time(
    topology: str,
    collective: str,
    algorithm: str,
    network: Packets,
    *,
    bytes: Number,
    inner: Number,
    outer: Number,
    third: Number,
    inner_rate: Number,
    outer_rate: Number,
    inner_hop: Number,
    outer_hop: Number,
) -> Any:
    """Time of a collective by an algorithm on a topology of up to three sides, packet by packet [s]; sides in
    nodes, rates in B/s, hops in s.

    >>> from strata.hardware.transport import packets
    >>> links = {"inner_rate": 32e9, "outer_rate": 32e9, "inner_hop": 32e-9, "outer_hop": 32e-9}
    >>> asked = ("switch", "all_reduce", "rabenseifner", packets("ns3"))
    >>> time = packet_collective_time(*asked, bytes=65536.0, inner=8.0, outer=1.0, third=1.0, **links)
    >>> round(float(time) * 1e9)
    4782
    """
    if topology not in TOPOLOGIES:
        raise BadValue(f"topology must be one of {', '.join(TOPOLOGIES)}, but got '{topology}'")
    known = TOPOLOGIES[topology]
    if (collective, algorithm) not in known:
        legal = ", ".join(f"{c} by {a}" for c, a in known)
        raise BadValue(f"no {collective} by {algorithm} on a {topology}; there are: {legal}")
    priced = known[collective, algorithm]
    if topology == "switch":
        if algorithm in BY_DOUBLING and np.any(np.log2(inner * outer) % 1):
            raise BadValue(f"{algorithm} needs a power of two of ranks, but got {inner * outer}")
        tree = packets.SwitchTree(inner, outer, inner_rate, inner_hop, outer_rate, outer_hop)
        return priced(bytes, tree, network)
    wraps = 1.0 if topology == "torus" else 0.0
    inside, around = (inner_rate, inner_hop, wraps), (outer_rate, outer_hop, wraps)
    axes = (
        packets.GridAxis(inner, *inside),
        packets.GridAxis(outer, *around),
        packets.GridAxis(third, *around),
    )
    return priced(bytes, axes, network)


def scheduled_job(cell: Mapping[str, str]) -> Job:
    """A row's schedules and levels: kind:size:GB/s:ns, members first:count:stride (all devices when empty).

    >>> row = {"levels": "ring:4:32:32", "members": "0:2:2", "collective": "all_gather", "algorithm": "ring"}
    >>> schedules, levels = scheduled_job(row | {"bytes": "100", "skew": "", "other_collective": ""})
    >>> step = schedules[0][0]
    >>> [(int(a), int(b), float(n)) for a, b, n in zip(step.source, step.target, step.bytes)]
    [(0, 2, 50.0), (2, 0, 50.0)]
    """
    try:
        parts = [word.split(":") for word in cell["levels"].split()]
        levels = tuple(
            RouteLevel(kind, int(size), float(rate) * 1e9, float(hop) * 1e-9)
            for kind, size, rate, hop in parts
        )
    except ValueError:
        raise BadValue(
            f"levels are like 'switch:8:256:128 tree:4:32:512' (kind:size:GB/s:ns), "
            f"but got '{cell['levels']}'"
        ) from None
    groups = ("", "other_") if cell["other_collective"] else ("",)
    return [_group(cell, which, levels) for which in groups], levels


def _group(cell: Mapping[str, str], which: str, levels: tuple[RouteLevel, ...]) -> tuple[ScheduleStep, ...]:
    """The steps of one of a row's groups on its devices."""
    sizes, members = tuple(level.size for level in levels), np.arange(device_count(levels))
    if cell[f"{which}members"]:
        first, count, stride = (int(word) for word in cell[f"{which}members"].split(":"))
        sizes, members = (count,), first + stride * np.arange(count)
    size: Any = float(cell[f"{which}bytes"])
    if not which and cell["skew"]:
        # Target t is wanted (1 + t)^-skew as much as the first; each rank has the same to send in all.
        wanted = (1.0 + np.arange(len(members))) ** -float(cell["skew"])
        size = np.tile(np.round(size * wanted / wanted.sum()), (len(members), 1))
    return steps_on_devices(
        schedule(cell[f"{which}collective"], cell[f"{which}algorithm"], sizes, size), members.tolist()
    )
