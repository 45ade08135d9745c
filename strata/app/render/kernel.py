"""Kernels for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.units import show


def kernel_dicts(kernel: Any, count: int) -> list[dict[str, Any]]:
    """Kernels for machines: what was asked and what each costs, in SI units."""
    from strata.pricing.price import RESOURCES

    def each(values: dict[str, Any]) -> list[dict[str, float]]:
        spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in values.items()}
        return [{name: float(value[i]) for name, value in spread.items()} for i in range(count)]

    price, chip = kernel.price, kernel.chip
    asked = (
        {"chip": chip.name, "kernel": kernel.kind}
        | ({"op": kernel.run.op} if kernel.run.op else {})
        | {"precision": kernel.precision}
    )
    sizes, shares = (
        each(kernel.sizes),
        each({name: getattr(price, name) for name in RESOURCES if name != "network" or kernel.run.fabric}),
    )
    times = each({"time_s": price.time, "lower_s": price.lower, "upper_s": price.upper})
    spent = each(
        {
            "flop": price.flop,
            "flop_per_s": kernel.flop_per_s,
            "memory_B": price.memory_bytes,
            "memory_B_per_s": kernel.memory_bandwidth,
            "until_end_B": kernel.bytes_until_end,
            "memory_share": kernel.memory_bandwidth / chip.memory.bandwidth,
            "cache_B": price.cache_bytes,
            "energy_J": price.energy + chip.energy.static_power * price.time,
            "clock_Hz": kernel.clock,
            "max_clock_Hz": chip.compute.max_clock,
            "power_W": kernel.power,
            "power_limit_W": chip.energy.power_limit,
        }
    )
    bound = np.broadcast_to(np.asarray(kernel.bound_by), (count,))
    return [
        {
            **asked,
            "sizes": sizes[i],
            **times[i],
            "bound_by": str(bound[i]),
            "resources_s": shares[i],
            **spent[i],
        }
        for i in range(count)
    ]


def _asked_text(row: dict[str, Any], varied: list[str], once: bool) -> str:
    """What was asked, in words."""
    from strata.pricing.kernel_kinds import KINDS
    from strata.pricing.kernel_request import SIZES

    usual = {name: value for name, value in KINDS[row["kernel"]].usual.items() if SIZES[name].unit}
    sizes = " ".join(
        f"{name}={value:g}"
        for name, value in row["sizes"].items()
        if name not in varied and usual.get(name) != value
    )
    asked = " ".join(filter(None, (row["kernel"], row.get("op", ""), sizes)))
    return f"{asked}, {row['precision']} on {row['chip']}, {'once' if once else 'repeated'}"


def kernel_card(row: dict[str, Any], once: bool) -> Any:
    """One kernel for people."""
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    shares = ", ".join(f"{k} {show(v, 's')}" for k, v in row["resources_s"].items() if v > 0)
    table.add_row(
        "time",
        show(row["time_s"], "s"),
        f"bounds {show(row['lower_s'], 's')} to {show(row['upper_s'], 's')}; {shares}",
    )
    if row["flop"]:
        table.add_row(
            "rate", show(row["flop_per_s"], "FLOP/s"), f"{show(row['flop'], 'FLOP')} of useful work"
        )
    table.add_row(
        "DRAM",
        show(row["memory_B"], "B"),
        f"{show(row['memory_B_per_s'], 'B/s')}, {row['memory_share']:.0%} of the peak",
    )
    table.add_row("cache", show(row["cache_B"], "B"), "between the shared cache and the cores")
    slowed = row["clock_Hz"] < row["max_clock_Hz"]
    beside = f"of {show(row['max_clock_Hz'], 'Hz')}: what the power limit allows" if slowed else "the highest"
    table.add_row("clock", show(row["clock_Hz"], "Hz"), beside)
    table.add_row(
        "power",
        show(row["power_W"], "W"),
        f"limit {show(row['power_limit_W'], 'W')}" + (" (a short burst may exceed it)" if once else ""),
    )
    table.add_row("energy", show(row["energy_J"], "J"), "static power included")
    return titled(f"{_asked_text(row, [], once)}: bound by {row['bound_by']}", table)


def kernels_table(rows: list[dict[str, Any]], varied: list[str], once: bool) -> Any:
    """Several kernels for people, one a line."""
    table = plain_table()
    for name in (*varied, "time", "lower", "rate", "DRAM", "of peak", "cache", "clock", "power"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by")
    for row in rows:
        cells = (
            *(f"{row['sizes'][name]:g}" for name in varied),
            show(row["time_s"], "s"),
            show(row["lower_s"], "s"),
            show(row["flop_per_s"], "FLOP/s") if row["flop"] else "-",
            show(row["memory_B"], "B"),
            f"{row['memory_share']:.0%}",
            show(row["cache_B"], "B"),
            show(row["clock_Hz"], "Hz"),
            show(row["power_W"], "W"),
            row["bound_by"],
        )
        table.add_row(*cells)
    return titled(_asked_text(rows[0], varied, once), table, "of peak: DRAM traffic of the DRAM peak")
