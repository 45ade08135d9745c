"""Collectives for machines and for people: alone, at once, by each algorithm, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.arrays import Array
from strata.drawing import COLOURS, STYLE, check_picture, pyplot_of, save
from strata.pricing.network.collective_cost import CollectiveCost, bus_factor
from strata.pricing.network.concurrent import ConcurrentCollectives
from strata.units import show


def collective_dicts(cost: CollectiveCost, count: int) -> list[dict[str, Any]]:
    """Collectives for machines: what was asked and what each costs, in SI units."""
    fabric = cost.fabric
    numbers = {
        "bytes": cost.bytes,
        "ranks": cost.ranks,
        "stride": cost.stride,
        "time_s": cost.time,
        "lower_s": cost.lower,
        "algorithm_B_per_s": cost.algorithm_bandwidth,
        "bus_B_per_s": cost.bus_bandwidth,
        "energy_J": cost.energy,
    }
    spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in numbers.items()}
    inside = [np.broadcast_to(np.asarray(s.size, float), (count,)) for s in cost.layouts]
    ways = cost.algorithms
    joined = np.broadcast_to(cost.joined, (count,))
    asked = {
        "collective": cost.pattern,
        "fabric": fabric.name,
        "sizes": [float(d.size) for d in fabric.dimension],
        "engine": cost.engine or None,
    }
    if cost.packets:
        asked["packets"] = cost.packets
    return [
        {
            **asked,
            **{name: float(value[i]) for name, value in spread.items()},
            "joined": bool(joined[i]),
            "dimensions": [
                {"name": d.name, "ranks": float(inside[j][i]), "algorithm": str(ways[j][i]) or None}
                for j, d in enumerate(fabric.dimension)
            ],
        }
        for i in range(count)
    ]


def collectives_table(rows: list[dict[str, Any]]) -> Any:
    """Collectives for people, one a line."""
    table = plain_table(">ranks", ">bytes", ">time", ">lower", ">algorithm bw", ">bus bw", ">energy/rank")
    if "ns3_s" in rows[0]:
        table.add_column("in ns-3", justify="right", no_wrap=True)
        table.add_column("ours", justify="right", no_wrap=True)
    table.add_column("way in each dimension")
    for row in rows:
        simulated = (
            [show(row["ns3_s"], "s"), f"{row['time_s'] / row['ns3_s'] - 1:+.2%}"] if "ns3_s" in row else []
        )
        cells = (
            f"{row['ranks']:g}",
            show(row["bytes"], "B"),
            show(row["time_s"], "s"),
            show(row["lower_s"], "s"),
            show(row["algorithm_B_per_s"], "B/s"),
            show(row["bus_B_per_s"], "B/s"),
            show(row["energy_J"], "J"),
            *simulated,
            _ways(row),
        )
        table.add_row(*cells)
    below = (
        "bytes: the whole buffer of one rank; lower: its bytes at the links' peak; bus bw: as "
        "nccl-tests counts it, to compare with a link"
    )
    return titled(_heading(rows[0]), table, below)


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
    finish = [np.broadcast_to(time, (count,)) for time in costs.finish]
    alone = [np.broadcast_to(c.time, (count,)) for c in costs.alone]
    last = np.broadcast_to(costs.time, (count,))
    in_turn = np.broadcast_to(costs.one_after_the_other, (count,))
    return [
        {
            "time_s": float(last[i]),
            "one_after_the_other_s": float(in_turn[i]),
            "collectives": [
                {
                    "collective": c.pattern,
                    "bytes": point_number(c.bytes, i),
                    "ranks": point_number(c.ranks, i),
                    "stride": point_number(c.stride, i),
                    "alone_s": float(alone[j][i]),
                    "time_s": float(finish[j][i]),
                }
                for j, c in enumerate(costs.alone)
            ],
        }
        for i in range(count)
    ]


def concurrent_table(costs: ConcurrentCollectives, told: list[dict[str, Any]]) -> Any:
    """The same for people."""
    table = plain_table("<collective", ">ranks", ">bytes", ">alone", ">at once", ">slower")
    for row in told:
        for one in row["collectives"]:
            table.add_row(
                one["collective"],
                f"{one['ranks']:g}",
                show(one["bytes"], "B"),
                show(one["alone_s"], "s"),
                show(one["time_s"], "s"),
                f"{one['time_s'] / one['alone_s']:.2f}x",
            )
    first = costs.alone[0]
    title = f"{len(costs.alone)} collectives at once on {first.fabric.name}, {_software(first.engine)}"
    last, in_turn = (show(told[-1][key], "s") for key in ("time_s", "one_after_the_other_s"))
    below = f"all done after {last}; one after the other: {in_turn}" if len(told) == 1 else ""
    return titled(title, table, below)


def point_number(value: Any, i: int) -> float:
    """One of many numbers, or the one that stands for all."""
    seen = np.asarray(value, float)
    return float(seen if not seen.ndim else np.broadcast_to(seen, (max(i + 1, seen.size),))[i])


def by_algorithm(cost: CollectiveCost, told: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    """Every legal way in each dimension: for machines and for people."""
    table = plain_table(">ranks", ">bytes", "<dimension", "<algorithm", ">time", "<")
    for i, row in enumerate(told):
        shown: list[dict[str, Any]] = []
        for d, ways in zip(row["dimensions"], cost.algorithm_times, strict=True):
            times = {way: point_number(time, i) for way, time in ways.items()} if d["algorithm"] else {}
            d["algorithms"] = {
                way: time
                for way, time in sorted(times.items(), key=lambda item: item[1])
                if np.isfinite(time)
            }
            shown += [d] if d["algorithms"] else []
        if row["joined"]:
            shown = shown[:1]  # one algorithm over all of them
        for d in shown:
            place = _levels([c for c in row["dimensions"] if c["algorithm"]] if row["joined"] else [d])
            for way, time in d["algorithms"].items():
                mark = (
                    "cheapest" if way == d["algorithm"] else f"{time / d['algorithms'][d['algorithm']]:.2f}x"
                )
                table.add_row(f"{row['ranks']:g}", show(row["bytes"], "B"), place, way, show(time, "s"), mark)
    return told, titled(
        _heading(told[0]),
        table,
        "several dimensions in a line: one algorithm over all of them at once, the slowest rules"
        if any(row["joined"] for row in told)
        else "each dimension with its share of the buffer; a collective takes the sum of what it goes by",
    )


def _heading(first: dict[str, Any]) -> str:
    shape = " x ".join(
        f"{size:g} {d['name']}" for size, d in zip(first["sizes"], first["dimensions"], strict=True)
    )
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
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.6, 4.4), layout="constrained")
        if len(costs) == 1:
            _draw_algorithms(axes, costs[0])
        for i, cost in enumerate(costs):
            rate = np.broadcast_to(cost.bus_bandwidth, np.shape(cost.bytes)) / 1e9
            label = "cheapest" if len(costs) == 1 else f"{float(np.max(cost.ranks)):g} ranks"
            axes.plot(cost.bytes, rate, color=COLOURS[i % len(COLOURS)], linewidth=2.2, label=label)
        first = costs[0]
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="bus bandwidth [GB/s]")
        shape = " x ".join(f"{float(np.max(d.size)):g} {d.name}" for d in first.fabric.dimension)
        software = f"engine {first.engine}" if first.engine else "links alone"
        axes.set_title(f"{first.pattern} on {first.fabric.name} ({shape}), {software}")
        axes.legend(frameon=False, fontsize=7)
        return save(pyplot, figure, path)


def _draw_algorithms(axes: Any, cost: CollectiveCost) -> None:
    """Each algorithm's bus bandwidth, thin; one for each dimension does not say what all of them take."""
    crossed = [times for times in cost.algorithm_times if times]
    if cost.packets or not (len(crossed) == 1 or np.all(cost.joined)):
        return
    moved: Array = np.asarray(cost.bytes * bus_factor(cost.pattern, cost.ranks) / 1e9, float)
    for i, (name, time) in enumerate(crossed[0].items()):
        rate = np.where(np.isfinite(time), moved / time, np.nan)
        axes.plot(cost.bytes, rate, color=COLOURS[(i + 1) % len(COLOURS)], linewidth=0.9, label=name)
