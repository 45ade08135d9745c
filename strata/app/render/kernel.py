"""Kernels for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.tables import card, picked, table, texts
from strata.units import show


def kernel_dicts(kernel: Any, count: int) -> list[dict[str, Any]]:
    """Kernels for machines: what was asked and what each costs, in SI units."""
    from strata.pricing.price import RESOURCES

    def each(values: dict[str, Any]) -> list[dict[str, float]]:
        spread = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in values.items()}
        return [{name: float(value[i]) for name, value in spread.items()} for i in range(count)]

    price, chip = kernel.price, kernel.chip
    asked = {"chip": chip.name, "kernel": kernel.kind, "op": kernel.run.op, "precision": kernel.precision}
    if not kernel.run.op:
        del asked["op"]
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
    time, lower, upper, power, limit = texts(row, "time_s:s lower_s:s upper_s:s power_W:W power_limit_W:W")
    shares = ", ".join(f"{k} {show(v, 's')}" for k, v in row["resources_s"].items() if v > 0)
    rate, work, moved, bandwidth = texts(row, "flop_per_s:FLOP/s flop:FLOP memory_B:B memory_B_per_s:B/s")
    clock, fastest, cache, energy = texts(row, "clock_Hz:Hz max_clock_Hz:Hz cache_B:B energy_J:J")
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
        + texts(row, "time_s:s lower_s:s")
        + [show(row["flop_per_s"], "FLOP/s") if row["flop"] else "-"]
        + texts(row, "memory_B:B memory_share:.0% cache_B:B clock_Hz:Hz power_W:W bound_by")
        for row in rows
    )
    head = "".join(f">{name}|" for name in varied)
    head += ">time|>lower|>rate|>DRAM|>of peak|>cache|>clock|>power|bound by"
    below = "of peak: DRAM traffic of the DRAM peak"
    return table(_asked_text(rows[0], varied, once), head, cells, below)
