"""Cost and power of a system by DFModel's counts, for machines and for people: `strata cost --dfmodel`."""

from __future__ import annotations

from typing import Any

from dfmodel.power import LinearTotals, linear_totals
from strata.app.terminal import plain_table, titled
from strata.hardware.system import System


def shown_totals(system: System) -> tuple[dict[str, Any], Any]:
    """What DFModel counts of a system: as a dictionary, and as a table."""
    totals = linear_totals(system)
    return linear_totals_dict(system, totals), linear_totals_table(system, totals)


def linear_totals_dict(system: System, totals: LinearTotals) -> dict[str, Any]:
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


def linear_totals_table(system: System, totals: LinearTotals) -> Any:
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
