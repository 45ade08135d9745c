"""Collectives simulated packet by packet in ns-3: our own runs, and published ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.hardware.transport import Packets, packets
from strata.pricing.network.packets import (
    GridAxis,
    SwitchTree,
    grid_all_gather,
    grid_all_reduce,
    grid_all_to_all,
    tree_all_gather,
    tree_all_reduce,
    tree_all_to_all,
    tree_ring_all_gather,
    tree_ring_all_reduce,
)
from strata.pricing.network.routes import RouteLevel, device_count, run_schedules, steps_on_devices
from strata.pricing.network.schedules import ScheduleStep, schedule
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.tables import Table

ON_TREES: dict[tuple[str, str], Callable[[Any, SwitchTree, Packets], Any]] = {
    ("all_gather", "halving_doubling"): tree_all_gather,
    ("all_gather", "halving_doubling_inner_first"): partial(tree_all_gather, outer_first=False),
    ("all_gather", "ring"): tree_ring_all_gather,
    ("all_reduce", "rabenseifner"): tree_all_reduce,
    # assumed: the published files do not say what its stages are
    ("all_reduce", "rs_ag_ag_3stage"): tree_all_reduce,
    ("all_reduce", "ring"): tree_ring_all_reduce,
    ("all_to_all", "direct"): tree_all_to_all,
}
ON_GRIDS: dict[tuple[str, str], Callable[[Any, tuple[GridAxis, ...], Packets], Any]] = {
    ("all_gather", "ring"): grid_all_gather,
    ("all_gather", "rs_ag_ag_3stage"): grid_all_gather,
    ("all_reduce", "ring"): grid_all_reduce,
    ("all_reduce", "rs_ag_ag_3stage"): grid_all_reduce,
    ("all_to_all", "relay"): grid_all_to_all,
    ("all_to_all", "direct"): partial(grid_all_to_all, whole=False),
}
# schedules that start at once, and what they run on
Job = tuple[Sequence[Sequence[ScheduleStep]], Sequence[RouteLevel]]
TOPOLOGIES = ("switch", "torus", "mesh")
BY_DOUBLING = ("halving_doubling", "halving_doubling_inner_first", "rabenseifner")


def packet_collective_time(
    topology: str, collective: str, algorithm: str, s: dict[str, Array], network: Packets
) -> Any:
    """Time of rows of one topology, collective and algorithm [s]; columns as in the files, in GB/s, ns and
    bytes.

    >>> s = {"nodes_inner": 8.0, "nodes_outer": 1.0, "nodes_third": 1.0, "bytes": 65536.0}
    >>> s |= {"link_GBps_inner": 32.0, "link_GBps_outer": 32.0, "hop_ns_inner": 32.0, "hop_ns_outer": 32.0}
    >>> time = packet_collective_time("switch", "all_reduce", "rabenseifner", s, packets("ns3"))
    >>> round(float(time) * 1e9)
    4782
    """
    if topology not in TOPOLOGIES:
        raise BadValue(f"topology must be one of {', '.join(TOPOLOGIES)}, but got '{topology}'")
    known: dict[tuple[str, str], Any] = ON_TREES if topology == "switch" else ON_GRIDS
    if (collective, algorithm) not in known:
        legal = ", ".join(f"{c} by {a}" for c, a in known)
        raise BadValue(f"no {collective} by {algorithm} on a {topology}; there are: {legal}")
    rate, hop = (
        (s["link_GBps_inner"] * 1e9, s["link_GBps_outer"] * 1e9),
        (s["hop_ns_inner"] * 1e-9, s["hop_ns_outer"] * 1e-9),
    )
    inner, outer = s["nodes_inner"], s["nodes_outer"]
    if topology == "switch":
        if algorithm in BY_DOUBLING and np.any(np.log2(inner * outer) % 1):
            raise BadValue(f"{algorithm} needs a power of two of ranks, but got {inner * outer}")
        return known[collective, algorithm](
            s["bytes"], SwitchTree(inner, outer, rate[0], hop[0], rate[1], hop[1]), network
        )
    wraps = 1.0 if topology == "torus" else 0.0
    sides = ((inner, 0), (outer, 1), (s["nodes_third"], 1))
    return known[collective, algorithm](
        s["bytes"], tuple(GridAxis(n, rate[i], hop[i], wraps) for n, i in sides), network
    )


def _compared(table: Table, network: Packets) -> ComparedPoints:
    s = table.numbers("nodes_inner", "link_GBps_inner", "hop_ns_inner", "bytes")
    s["nodes_outer"] = np.maximum(table.number("nodes_outer", 1.0), 1.0)
    s["nodes_third"] = (
        table.number("nodes_third", 1.0) if "nodes_third" in table.columns else np.ones(len(table))
    )
    # One level of switches has no outer link: any will do.
    for name in ("link_GBps", "hop_ns"):
        outer = table.number(f"{name}_outer")
        s[f"{name}_outer"] = np.where(outer > 0, outer, s[f"{name}_inner"])
    keys = [table.text("topology"), table.text("collective"), table.text("algorithm")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        return packet_collective_time(*key, {k: x[rows] for k, x in s.items()}, network)

    forecasts = forecast(table, keys, price, ("nodes_inner", "link_GBps_inner", "hop_ns_inner", "bytes"))
    sides = np.stack([s["nodes_inner"], s["nodes_outer"], s["nodes_third"]], axis=1)
    # Names of a mesh and a torus by what they are: one side longer than 1 is a ring or a chain.
    shape = np.array([_shape(t, row) for t, row in zip(keys[0], sides, strict=True)], dtype=object)
    names = group_names(shape, keys[1], count=len(table))
    return compare_metric(table, table.number("ns3_ns") * 1e-9, forecasts, names)


def _shape(topology: str, sides: Array) -> str:
    """Name of a topology with its sides.

    >>> _shape("torus", np.array([4.0, 2.0, 1.0]))
    'torus-4x2'
    """
    longer = [f"{n:.0f}" for n in sides if n > 1] or ["1"]
    return f"{topology}-{'x'.join(longer)}"


def own_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Runs of the harness in validation/ns3."""
    return _compared(table, packets("ns3"))


def published_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Published runs: switch and torus, all-gather, all-reduce, all-to-all, 512 B to 1 GB."""
    return _compared(table, packets("astra-sim"))


def scheduled_runs(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Runs of the harness that are spelt out message by message: any schedule on any levels, several at once,
    parts of a fabric.
    """
    cells = [{name: str(values[i]) for name, values in table.columns.items()} for i in range(len(table))]

    def price(key: tuple[int], rows: Array) -> float:
        return _routed_time(tuple(cells[key[0]].items()))

    forecasts = forecast(table, [np.arange(len(table))], price)
    group = [f"{cell['topology']}/{schedule_name(cell)}" for cell in cells]
    return compare_metric(table, table.number("ns3_ns") * 1e-9, forecasts, group)


@lru_cache(maxsize=1024)  # tables, pictures and limits read the same file, and a large run takes a second
def _routed_time(cells: tuple[tuple[str, str], ...]) -> float:
    return run_schedules(*scheduled_job(dict(cells)), packets("ns3")).time


def schedule_name(cell: Mapping[str, str]) -> str:
    """What a row of spelt-out schedules runs, in a word."""
    skewed = "skewed " if cell["skew"] else ""
    beside = " beside another" if cell["other_collective"] else " of a part" if cell["members"] else ""
    return skewed + cell["collective"] + beside


def scheduled_job(cell: Mapping[str, str]) -> Job:
    """The schedules and levels of a row: levels as kind:size:GB/s:ns, members as first:count:stride (all
    devices when empty).

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
