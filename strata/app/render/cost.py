"""What a chip or a system costs, for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.prediction import finite
from strata.app.terminal import plain_table, titled
from strata.hardware.chip import Chip
from strata.hardware.money import economics
from strata.hardware.silicon.cost import Cost, SystemCost
from strata.hardware.silicon.manufacturing import Silicon
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
    told = {k: getattr(cost, k) for k in ("made", "bought", "fabric", "hosts")}
    at_rest, at_limit = (finite(each) for each in cost.device_hour)
    return {
        "system": system.name,
        "chip": system.chip.name,
        "devices": float(cost.devices),
        **{f"{k}_USD": None if v is None else float(v) for k, v in told.items()},
        "device_hour_USD": {"at_rest": at_rest, "at_power_limit": at_limit},
    }


def system_cost_table(system: System, cost: SystemCost) -> Any:
    """Costs of a system for people."""
    table = plain_table("<part", ">USD", ">a device")
    for name, value in (
        ("chips, to make", cost.made),
        ("chips, to buy", cost.bought),
        ("fabric, as priced", cost.fabric),
        ("hosts", cost.hosts),
    ):
        if value is None:
            table.add_row(name, "unknown", "")
        else:
            table.add_row(name, f"{float(value):,.0f}", f"{float(value / cost.devices):,.2f}")
    for name, hourly in zip(("at rest", "at its power limit"), cost.device_hour, strict=True):
        table.add_row(f"a device-hour {name}", "", "unknown" if np.isnan(hourly) else f"{float(hourly):,.2f}")
    return titled(f"{system.name}: what its {float(cost.devices):g} devices cost", table)
