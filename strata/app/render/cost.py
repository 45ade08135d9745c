"""What a chip or a system costs, for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.prediction import finite
from strata.app.terminal import plain_table, titled
from strata.hardware.chip import Chip
from strata.hardware.money import economics
from strata.hardware.silicon.cost import Cost
from strata.hardware.silicon.manufacturing import Silicon
from strata.hardware.silicon.system_cost import SystemCost
from strata.hardware.system import System
from strata.units import show


def cost_dict(cost: Cost) -> dict[str, Any]:
    """What a chip costs to make, for machines."""
    yields = {f"{k}_yield": float(getattr(cost, f"{k}_yield")) for k in ("die", "stacking", "package")}
    return {
        "made_USD": float(cost.made),
        "parts_USD": {k: float(v) for k, v in cost.parts.items()},
        **yields,
    }


def cost_tables(chip: Chip, silicon: Silicon, counts: list[float], costs: list[Cost]) -> list[Any]:
    """Costs for people: a column for each stack."""
    table = plain_table("<part", *(f">{head}" for head in [f"{n:g} layers" for n in counts] or ["USD"]))
    for name in costs[0].parts:
        table.add_row(name, *(f"{float(each.parts[name]):,.2f}" for each in costs))
    table.add_row("made", *(f"{float(each.made):,.2f}" for each in costs), style="bold")
    for name, what in (
        ("die", "dies that work"),
        ("stacking", "stacks that work"),
        ("package", "packages that work"),
    ):
        table.add_row(what, *(f"{float(getattr(each, f'{name}_yield')):.1%}" for each in costs))
    markup = economics().markup
    price = chip.package.price
    bought = (
        f"no price of its own: {markup:g} times that where one is needed"
        if price is None
        else f"it is bought for {show(price, 'USD')}"
    )
    below = (
        f"{silicon.technology}, {silicon.bonding}, {silicon.packaging}; without margin, masks and "
        f"design; {bought}"
    )
    return [titled(f"{chip.name}: what one packaged chip costs to make [USD]", table, below)]


def system_cost_dict(system: System, cost: SystemCost) -> dict[str, Any]:
    """Costs of a system for machines."""
    told = {k: getattr(cost, k) for k in ("made", "bought", "fabric", "hosts", "linear")}
    at_rest, at_limit = (finite(each) for each in cost.device_hour)
    return {
        "system": system.name,
        "chip": system.chip.name,
        "devices": float(cost.devices),
        **{f"{k}_USD": None if v is None else float(v) for k, v in told.items()},
        "device_hour_USD": {"at_rest": at_rest, "at_power_limit": at_limit},
        "linear_parts_USD": {k: float(v) for k, v in cost.parts.items()},
    }


def system_cost_table(system: System, cost: SystemCost) -> Any:
    """Costs of a system for people."""
    table = plain_table("<part", ">USD", ">a device")

    def row(name: str, value: Any, **style: Any) -> None:
        shown = (
            ("unknown", "")
            if value is None
            else (f"{float(value):,.0f}", f"{float(value / cost.devices):,.2f}")
        )
        table.add_row(name, *shown, **style)

    for name, value in (
        ("chips, to make", cost.made),
        ("chips, to buy", cost.bought),
        ("fabric, as priced", cost.fabric),
        ("hosts", cost.hosts),
    ):
        row(name, value)
    for name, each in zip(("at rest", "at its power limit"), cost.device_hour, strict=True):
        table.add_row(f"a device-hour {name}", "", "unknown" if np.isnan(each) else f"{float(each):,.2f}")
    for name, value in cost.parts.items():
        row(f"DFModel: {name}", value)
    row("DFModel: linear cost", cost.linear, style="bold")
    return titled(
        f"{system.name}: what its {float(cost.devices):g} devices cost",
        table,
        "DFModel: chips as bought, DRAM, links and switch ports by bandwidth",
    )


def linear_totals_dict(system: System, totals: Any) -> dict[str, Any]:
    """Cost and power by DFModel's counts, for machines."""
    cost, power = ({k: float(v) for k, v in part.items()} for part in (totals.cost, totals.power))
    return {
        "system": system.name,
        "devices": float(totals.devices),
        "cost_USD": sum(cost.values()) if "chips" in cost else None,
        "power_W": sum(power.values()),
        "cost_parts_USD": cost,
        "power_parts_W": power,
    }


def linear_totals_table(system: System, totals: Any) -> Any:
    """Cost and power by DFModel's counts, for people."""
    table = plain_table("<part", ">USD", ">W")
    for name, power in totals.power.items():
        cost = totals.cost.get(name)
        table.add_row(name, "unknown" if cost is None else f"{float(cost):,.0f}", f"{float(power):,.0f}")
    told = linear_totals_dict(system, totals)
    whole = "unknown" if told["cost_USD"] is None else f"{told['cost_USD']:,.0f}"
    table.add_row("all", whole, f"{told['power_W']:,.0f}", style="bold")
    return titled(
        f"{system.name}: cost and power of its {float(totals.devices):g} devices by DFModel's counts",
        table,
        "chips draw their static power; memory, links and ports count at full bandwidth",
    )
