"""Kernels and collectives for machines and for people, and collectives as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import colour_of, picture
from strata.app.render.tables import card, cells_of, picked, table
from strata.base.arrays import Array
from strata.base.drawing import check_picture
from strata.base.units import show
from strata.pricing.network.collective_cost import CollectiveCost, bus_factor
from strata.pricing.network.concurrent import ConcurrentCollectives


def kernel_dicts(kernel: Any, count: int) -> list[dict[str, Any]]:
    """Kernels for machines: what was asked and what each costs, in SI units."""
    from strata.pricing.price import RESOURCES

    def each(values: dict[str, Any]) -> list[dict[str, float]]:
        spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in values.items()}
        return [{name: float(value[i]) for name, value in spread.items()} for i in range(count)]

    price, chip = kernel.price, kernel.chip
    asked = {"chip": chip.name, "kernel": kernel.kind} | ({"op": kernel.run.op} if kernel.run.op else {})
    asked["precision"] = kernel.precision
    times = each(picked(price, "time_s=time lower_s=lower upper_s=upper"))
    sizes = each(kernel.sizes)
    shares = each({n: getattr(price, n) for n in RESOURCES if n != "network" or kernel.run.fabric})
    spent = each(
        picked(kernel, "flop=price.flop flop_per_s memory_B=price.memory_bytes")
        | picked(kernel, "memory_B_per_s=memory_bandwidth until_end_B=bytes_until_end")
        | {"memory_share": kernel.memory_bandwidth / chip.memory.bandwidth, "cache_B": price.cache_bytes}
        | {"energy_J": price.energy + chip.energy.static_power * price.time}
        | picked(kernel, "clock_Hz=clock max_clock_Hz=chip.compute.max_clock power_W=power")
        | {"power_limit_W": chip.energy.power_limit}
    )
    bound = np.broadcast_to(np.asarray(kernel.bound_by), (count,))
    rows = []
    for i in range(count):
        row = {**asked, "sizes": sizes[i], **times[i], "bound_by": str(bound[i]), "resources_s": shares[i]}
        rows.append(row | spent[i])
    return rows


def _asked_text(row: dict[str, Any], varied: list[str], once: bool) -> str:
    """What was asked, in words."""
    from strata.pricing.kernel_kinds import KINDS
    from strata.pricing.kernel_request import SIZES

    usual = {name: value for name, value in KINDS[row["kernel"]].usual.items() if SIZES[name].unit}
    own = {n: v for n, v in row["sizes"].items() if n not in varied and usual.get(n) != v}
    sizes = " ".join(f"{name}={value:g}" for name, value in own.items())
    asked = " ".join(filter(None, (row["kernel"], row.get("op", ""), sizes)))
    return f"{asked}, {row['precision']} on {row['chip']}, {'once' if once else 'repeated'}"


def kernel_card(row: dict[str, Any], once: bool) -> Any:
    """One kernel for people."""
    time, lower, upper, power, limit = cells_of(row, "time_s:s lower_s:s upper_s:s power_W:W power_limit_W:W")
    shares = ", ".join(f"{k} {show(v, 's')}" for k, v in row["resources_s"].items() if v > 0)
    rate, work, moved, bandwidth = cells_of(row, "flop_per_s:FLOP/s flop:FLOP memory_B:B memory_B_per_s:B/s")
    clock, fastest, cache, energy = cells_of(row, "clock_Hz:Hz max_clock_Hz:Hz cache_B:B energy_J:J")
    slowed = row["clock_Hz"] < row["max_clock_Hz"]
    rows = [
        ("time", time, f"bounds {lower} to {upper}; {shares}"),
        ("rate", rate, f"{work} of useful work"),
        ("DRAM", moved, f"{bandwidth}, {row['memory_share']:.0%} of the peak"),
        ("cache", cache, "between the shared cache and the cores"),
        ("clock", clock, f"of {fastest}: what the power limit allows" if slowed else "the highest"),
        ("power", power, f"limit {limit}" + (" (a short burst may exceed it)" if once else "")),
        ("energy", energy, "static power included"),
    ]
    if not row["flop"]:
        del rows[1]
    return card(f"{_asked_text(row, [], once)}: bound by {row['bound_by']}", rows)


def kernels_table(rows: list[dict[str, Any]], varied: list[str], once: bool) -> Any:
    """Several kernels for people, one a line."""
    cells = (
        [f"{row['sizes'][name]:g}" for name in varied]
        + cells_of(row, "time_s:s lower_s:s")
        + [show(row["flop_per_s"], "FLOP/s") if row["flop"] else "-"]
        + cells_of(row, "memory_B:B memory_share:.0% cache_B:B clock_Hz:Hz power_W:W bound_by")
        for row in rows
    )
    head = "".join(f">{name}|" for name in varied)
    head += ">time|>lower|>rate|>DRAM|>of peak|>cache|>clock|>power|bound by"
    below = "of peak: DRAM traffic of the DRAM peak"
    return table(_asked_text(rows[0], varied, once), head, cells, below)


def collective_dicts(cost: CollectiveCost, count: int) -> list[dict[str, Any]]:
    """Collectives for machines: what was asked and what each costs, in SI units."""
    fabric = cost.fabric
    numbers = picked(cost, "bytes ranks stride time_s=time lower_s=lower")
    numbers |= picked(cost, "algorithm_B_per_s=algorithm_bandwidth bus_B_per_s=bus_bandwidth energy_J=energy")
    spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in numbers.items()}
    inside = [np.broadcast_to(np.asarray(s.size, float), (count,)) for s in cost.layouts]
    joined = np.broadcast_to(cost.joined, (count,))
    asked: dict[str, Any] = {"collective": cost.pattern, "fabric": fabric.name}
    asked |= {"sizes": [float(d.size) for d in fabric.dimension]}
    asked |= {"engine": cost.engine or None} | ({"packets": cost.packets} if cost.packets else {})
    rows = []
    for i in range(count):
        row = {**asked, **{name: float(value[i]) for name, value in spread.items()}}
        ways = zip(fabric.dimension, inside, cost.algorithms, strict=True)
        crossed = [
            {"name": d.name, "ranks": float(ranks[i]), "algorithm": str(way[i]) or None}
            for d, ranks, way in ways
        ]
        rows.append(row | {"joined": bool(joined[i]), "dimensions": crossed})
    return rows


def collectives_table(rows: list[dict[str, Any]]) -> Any:
    """Collectives for people, one a line."""
    head = ">ranks|>bytes|>time|>lower|>algorithm bw|>bus bw|>energy/rank|"
    fields = "ranks:g bytes:B time_s:s lower_s:s algorithm_B_per_s:B/s bus_B_per_s:B/s energy_J:J"
    simulated = "ns3_s" in rows[0]
    head += ">in ns-3|>ours|" if simulated else ""
    cells = []
    for row in rows:
        ours = [show(row["ns3_s"], "s"), f"{row['time_s'] / row['ns3_s'] - 1:+.2%}"] if simulated else []
        cells.append([*cells_of(row, fields), *ours, _ways(row)])
    below = "bytes: the whole buffer of one rank; lower: its bytes at the links' peak; bus bw: as "
    below += "nccl-tests counts it, to compare with a link"
    return table(_heading(rows[0]), f"{head}way in each dimension", cells, below)


def _ways(row: dict[str, Any]) -> str:
    """The algorithm of each dimension, or the one that runs over several."""
    crossed = [d for d in row["dimensions"] if d["algorithm"]]
    if len(crossed) > 1 and row["joined"]:
        return f"{_levels(crossed)}: {crossed[0]['algorithm']}"
    return "; ".join(f"{d['name']} {d['ranks']:g}: {d['algorithm']}" for d in crossed)


def _levels(crossed: list[dict[str, Any]]) -> str:
    return " x ".join(f"{d['name']} {d['ranks']:g}" for d in crossed)


def concurrent_dicts(costs: ConcurrentCollectives, count: int) -> list[dict[str, Any]]:
    """Collectives that start together, for machines."""
    rows = []
    for i in range(count):
        of = partial(point_number, i=i)
        each = []
        for c, finish in zip(costs.alone, costs.finish, strict=True):
            alone = picked(c, "bytes ranks stride alone_s=time", of)
            each.append({"collective": c.pattern, **alone, "time_s": of(finish)})
        rows.append({**picked(costs, "time_s=time one_after_the_other_s=one_after_the_other", of)})
        rows[-1]["collectives"] = each
    return rows


def concurrent_table(costs: ConcurrentCollectives, told: list[dict[str, Any]]) -> Any:
    """The same for people."""
    fields, rows = "collective ranks:g bytes:B alone_s:s time_s:s", []
    for one in (one for row in told for one in row["collectives"]):
        rows.append([*cells_of(one, fields), f"{one['time_s'] / one['alone_s']:.2f}x"])
    first = costs.alone[0]
    title = f"{len(costs.alone)} collectives at once on {first.fabric.name}, {_software(first.engine)}"
    last, in_turn = cells_of(told[-1], "time_s:s one_after_the_other_s:s")
    below = f"all done after {last}; one after the other: {in_turn}" if len(told) == 1 else ""
    return table(title, "<collective|>ranks|>bytes|>alone|>at once|>slower", rows, below)


def point_number(value: Any, i: int) -> float:
    """One of many numbers, or the one that stands for all."""
    seen = np.asarray(value, float)
    return float(seen if not seen.ndim else np.broadcast_to(seen, (max(i + 1, seen.size),))[i])


def by_algorithm(cost: CollectiveCost, told: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    """Every legal way in each dimension: for machines and for people."""
    cells = []
    for i, row in enumerate(told):
        shown: list[dict[str, Any]] = []
        for d, ways in zip(row["dimensions"], cost.algorithm_times, strict=True):
            times = {way: point_number(time, i) for way, time in ways.items()} if d["algorithm"] else {}
            ranked = sorted(times.items(), key=lambda item: item[1])
            d["algorithms"] = {way: time for way, time in ranked if np.isfinite(time)}
            shown += [d] if d["algorithms"] else []
        if row["joined"]:
            shown = shown[:1]  # one algorithm over all of them
        for d in shown:
            place = _levels([c for c in row["dimensions"] if c["algorithm"]] if row["joined"] else [d])
            for way, time in d["algorithms"].items():
                slower = f"{time / d['algorithms'][d['algorithm']]:.2f}x"
                mark = "cheapest" if way == d["algorithm"] else slower
                cells.append([*cells_of(row, "ranks:g bytes:B"), place, way, show(time, "s"), mark])
    below = "each dimension with its share of the buffer; a collective takes the sum of what it goes by"
    if any(row["joined"] for row in told):
        below = "several dimensions in a line: one algorithm over all of them at once, the slowest rules"
    return told, table(_heading(told[0]), ">ranks|>bytes|<dimension|<algorithm|>time|<", cells, below)


def _heading(first: dict[str, Any]) -> str:
    sizes = zip(first["sizes"], first["dimensions"], strict=True)
    shape = " x ".join(f"{size:g} {d['name']}" for size, d in sizes)
    apart = f", stride {first['stride']:g}" if first["stride"] > 1 else ""
    sender = f"packets {first['packets']}" if "packets" in first else _software(first["engine"])
    return f"{first['collective']} on {first['fabric']} ({shape}){apart}, {sender}"


def _software(engine: str) -> str:
    return f"engine {engine}" if engine else "links alone"


def draw_collectives(costs: Sequence[CollectiveCost], path: Path) -> Path:
    """Write the picture: a line for each group, priced at many sizes; of a single group its algorithms
    too, where one runs over all dimensions it crosses.
    """
    check_picture(path)
    with picture(path, (7.6, 4.4)) as (_, axes):
        if len(costs) == 1:
            _draw_algorithms(axes, costs[0])
        for i, cost in enumerate(costs):
            rate = np.broadcast_to(cost.bus_bandwidth, np.shape(cost.bytes)) / 1e9
            label = "cheapest" if len(costs) == 1 else f"{float(np.max(cost.ranks)):g} ranks"
            axes.plot(cost.bytes, rate, color=colour_of(i), linewidth=2.2, label=label)
        first = costs[0]
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="bus bandwidth [GB/s]")
        shape = " x ".join(f"{float(np.max(d.size)):g} {d.name}" for d in first.fabric.dimension)
        axes.set_title(f"{first.pattern} on {first.fabric.name} ({shape}), {_software(first.engine)}")
        axes.legend(frameon=False, fontsize=7)
    return path


def _draw_algorithms(axes: Any, cost: CollectiveCost) -> None:
    """Each algorithm's bus bandwidth, thin; one for each dimension does not say what all of them take."""
    crossed = [times for times in cost.algorithm_times if times]
    if cost.packets or not (len(crossed) == 1 or np.all(cost.joined)):
        return
    moved: Array = np.asarray(cost.bytes * bus_factor(cost.pattern, cost.ranks) / 1e9, float)
    for i, (name, time) in enumerate(crossed[0].items()):
        rate = np.where(np.isfinite(time), moved / time, np.nan)
        axes.plot(cost.bytes, rate, color=colour_of(i + 1), linewidth=0.9, label=name)
