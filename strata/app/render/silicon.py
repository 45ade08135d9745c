"""A logic die's parts, network and energies; cost of chips and systems; a memory channel's bandwidth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import colour_of, picture
from strata.app.render.prediction import finite
from strata.app.render.tables import cells_of, floats, picked, table
from strata.base.drawing import COLOURS
from strata.base.units import show
from strata.hardware import noc as equations
from strata.hardware.chip import Chip
from strata.hardware.dram import channel as banks
from strata.hardware.dram.channel import Dram, Sustained, interface_peak
from strata.hardware.making import Cost, SystemCost, area_as_stated, why_not_built
from strata.hardware.money import economics
from strata.hardware.silicon.energy import EnergyComparison, energies_of
from strata.hardware.silicon.floorplan import Area, Silicon, connections_that_fit, usable_cores
from strata.hardware.system import System
from strata.hardware.technology import bonding

MM2 = 1e6  # mm2 a m2
SHORTEST = 16.0  # bytes of a visit the picture starts from


def area_dict(chip: Chip, silicon: Silicon, area: Area) -> dict[str, Any]:
    """A die for machines, in SI units."""
    why = why_not_built(area, area_as_stated(chip, silicon))
    return {
        **floats(area, "die_m2=die") | floats(silicon, "dies") | floats(area, "cores"),
        **floats(chip, "cores_stated=compute.cores"),
        "cores_sold": float(usable_cores(area, silicon)),
        **floats(area, "core_m2=core"),
        "parts_m2": {k: float(v) for k, v in area.parts.items()},
        **floats(area, "vias edge_m=edge edge_used_m=edge_used"),
        "infeasible": None if why is None else str(why),
        "network": network_dict(chip, silicon, area),
        "energies": energies_dict(chip, silicon),
    }


def energies_dict(chip: Chip, silicon: Silicon) -> dict[str, Any]:
    """Energies that geometry and process give, beside those the chip states: J/B, leakage in W."""
    told = {}
    for e in energies_of(chip, silicon):
        unit = _unit(e).replace("/", "_per_")
        told[e.name.replace(" ", "_")] = floats(e, f"geometry_{unit}=geometry stated_{unit}=stated")
    return told


def _unit(energy: EnergyComparison) -> str:
    return "W" if energy.name == "leakage" else "J/B"


def energies_table(chip: Chip, silicon: Silicon) -> Any:
    """The same for people."""
    rows = (
        (e.name, *("-" if v is None else show(float(v), _unit(e)) for v in (e.geometry, e.stated)), e.what)
        for e in energies_of(chip, silicon)
    )
    title = f"{chip.name}: energies by geometry and process ({silicon.technology}, {silicon.bonding})"
    return table(f"{title}, beside what the chip states", "<energy|>by geometry|>stated|of what", rows)


def network_dict(chip: Chip, silicon: Silicon, area: Area) -> dict[str, Any] | None:
    """What the network inside the chip offers, to data spread over all vaults and to data in a core's own."""
    noc, cores = silicon.noc, float(area.cores)
    if noc is None or cores < 1:
        return None
    spread = 1.0 / cores  # the share of a core's own vault when data is anywhere
    own, hops = chip.memory.bandwidth, equations.noc_hops(noc, cores)
    return picked(noc, "topology placement") | {
        "link_B_per_s": float(equations.link_bandwidth(noc)),
        "bisection_B_per_s": float(equations.noc_bisection(noc, cores)),
        "hops": float(hops),
        "spread_B_per_s": float(equations.access_bandwidth(noc, cores, own, spread)),
        "own_B_per_s": float(own),
        "spread_s": float(equations.access_latency(noc, cores, spread)),
        "spread_J_per_B": float(equations.access_energy(noc, cores, spread)),
        "shared_hops": float(equations.multicast_hops(noc, cores, cores)),
        "shared_unicast_hops": cores * float(hops),
    }


def area_tables(chip: Chip, silicon: Silicon, area: Area) -> list[Any]:
    """One die for people."""
    fits, asked = float(usable_cores(area, silicon)), float(chip.compute.cores)
    drawn = area if asked == fits or fits < 1.0 else area_as_stated(chip, silicon)
    rows = [
        (name, f"{float(value) * MM2:.2f}", f"{float(value / area.die):.1%}")
        for name, value in [*drawn.parts.items(), ("die", area.die)]
    ]
    title = f"{chip.name}: {float(area.cores):g} cores of {float(area.core) * MM2:.2f} mm2 fit"
    title += " each die" if silicon.dies > 1 else ""
    title += f", {fits:g} are sold" if fits != float(area.cores) else ""
    title += f", {asked:g} are stated and drawn" if drawn is not area else ""
    edge = f"edge: {area.edge_used * 1e3:.3g} of {area.edge * 1e3:.3g} mm taken by interfaces"
    if float(area.vias) > 0:
        pitch = bonding(silicon.bonding).pitch
        most = f"{float(connections_that_fit(area.die, pitch)):,.0f}"
        edge += f"; {float(area.vias):,.0f} vias, of {most} bonds that a pitch of {show(pitch, 'm')} allows"
    styles = [*[""] * len(drawn.parts), "bold"]
    lines = [table(f"{title} ({silicon.technology})", "<part|>mm2|>share", rows, edge, styles)]
    network = network_dict(chip, silicon, area)
    lines += [_network_text(network, float(area.cores))] if network else []
    why = why_not_built(area, area_as_stated(chip, silicon))
    return [*lines, *([f"cannot be built: {why}"] if why else []), energies_table(chip, silicon)]


def _network_text(told: dict[str, Any], cores: float) -> str:
    """What the network inside a chip offers, in a sentence."""
    place = "in the logic die" if told["placement"] == "logic" else "in the stack"
    spread, own = show(told["spread_B_per_s"], "B/s"), show(told["own_B_per_s"], "B/s")
    return (
        f"network: {told['topology']} {place}, {show(told['link_B_per_s'], 'B/s')} a core; "
        f"data spread over all vaults: {spread} of {own}, +{show(told['spread_s'], 's')}, "
        f"+{show(told['spread_J_per_B'], 'J/B')}; an operand for all {cores:g} cores crosses "
        f"{told['shared_hops']:.3g} links, {told['shared_unicast_hops']:.3g} if routers did not copy it"
    )


def stacks_table(name: str, counts: list[float], areas: list[Area]) -> Any:
    """Dies under stacks of different depth, a line each."""
    rows = (
        (f"{layers:g}", f"{float(each.cores):g}", *(f"{float(v) * MM2:.2f}" for v in each.parts.values()))
        for layers, each in zip(counts, areas, strict=True)
    )
    head = [f">{column}" for column in ("layers", "cores", *areas[0].parts)]
    return table(f"{name}: area of its logic die by layers of the stack [mm2]", head, rows)


def draw_die_areas(name: str, layers: list[float], areas: list[Area], path: Path) -> Path:
    """Stacked bars of area by part, over the layers of the stack (one bar where there is none), with the
    cores that fit.
    """
    with picture(path, (7.2, 4.2)) as (_, axes):
        places, below = list(range(len(areas))), [0.0] * len(areas)
        for i, part in enumerate(areas[0].parts):
            heights = [max(float(each.parts[part]) * MM2, 0.0) for each in areas]
            faded = {"gaps": "#d9dde2", "unused": "#f1f3f5"}.get(part, colour_of(i))
            axes.bar(places, heights, 0.8, bottom=below, color=faded, label=part)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        for place, top, each in zip(places, below, areas, strict=True):
            axes.text(place, top, f"{float(each.cores):g}", ha="center", va="bottom", fontsize=8)
        axes.set_xticks(places, [f"{n:g}" for n in layers] or [name])
        axes.set(title=f"{name}: its logic die, and the cores that fit", ylabel="mm2")
        axes.set_xlabel("layers of the stack" if layers else "")
        axes.grid(axis="x", visible=False)
        handles, names = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return path


def cost_dict(cost: Cost) -> dict[str, Any]:
    """What a chip costs to make, for machines."""
    parts = {"made_USD": float(cost.made), "parts_USD": {k: float(v) for k, v in cost.parts.items()}}
    return parts | floats(cost, "die_yield stacking_yield package_yield")


def cost_tables(chip: Chip, silicon: Silicon, counts: list[float], costs: list[Cost]) -> list[Any]:
    """Costs for people: a column for each stack."""
    rows = [(name, *(f"{float(each.parts[name]):,.2f}" for each in costs)) for name in costs[0].parts]
    styles = [*[""] * len(rows), "bold"]
    rows.append(("made", *(f"{float(each.made):,.2f}" for each in costs)))
    rows += [
        (f"{what}s that work", *(f"{float(getattr(each, f'{name}_yield')):.1%}" for each in costs))
        for name, what in (("die", "die"), ("stacking", "stack"), ("package", "package"))
    ]
    price = chip.package.price
    own = f"no price of its own: {economics().markup:g} times that where one is needed"
    bought = own if price is None else f"it is bought for {show(price, 'USD')}"
    made = ", ".join((silicon.technology, silicon.bonding, silicon.packaging))
    below = f"{made}; without margin, masks and design; "
    head = ["<part", *(f">{each}" for each in [f"{n:g} layers" for n in counts] or ["USD"])]
    title = f"{chip.name}: what one packaged chip costs to make [USD]"
    return [table(title, head, rows, below + bought, styles)]


def system_cost_dict(system: System, cost: SystemCost) -> dict[str, Any]:
    """Costs of a system for machines."""
    at_rest, at_limit = (finite(each) for each in cost.device_hour)
    return {
        "system": system.name,
        "chip": system.chip.name,
        "devices": float(cost.devices),
        **floats(cost, "made_USD=made bought_USD=bought fabric_USD=fabric hosts_USD=hosts"),
        "device_hour_USD": {"at_rest": at_rest, "at_power_limit": at_limit},
    }


def system_cost_table(system: System, cost: SystemCost) -> Any:
    """Costs of a system for people."""
    parts = {"chips, to make": cost.made, "chips, to buy": cost.bought}
    parts |= {"fabric, as priced": cost.fabric, "hosts": cost.hosts}
    rows = []
    for name, value in parts.items():
        each = ("unknown", "")
        if value is not None:
            each = (f"{float(value):,.0f}", f"{float(value / cost.devices):,.2f}")
        rows.append((name, *each))
    for name, hourly in zip(("at rest", "at its power limit"), cost.device_hour, strict=True):
        price = "unknown" if np.isnan(hourly) else f"{float(hourly):,.2f}"
        rows.append((f"a device-hour {name}", "", price))
    title = f"{system.name}: what its {float(cost.devices):g} devices cost"
    return table(title, "<part|>USD|>a device", rows)


def channel_dict(
    memory: Dram, read_share: float, runs: list[float], channels: list[Sustained]
) -> dict[str, Any]:
    """Bandwidth of a channel by the bytes of a visit, for machines."""
    peak = float(interface_peak(memory))
    rows = []
    for run, channel in zip(runs, channels, strict=True):
        row = {"run_B": run, **floats(channel, "bandwidth_B_per_s=bandwidth")}
        row |= {"share": float(channel.bandwidth) / peak, "binds": channel.binding}
        rows.append(row | {"bounds_B_per_s": {k: float(v) for k, v in channel.bounds.items()}})
    return {
        **picked(memory, "memory=name title"),
        "peak_B_per_s": peak,
        "refresh_leaves": float(channels[0].refresh),
        "read_share": read_share,
        "runs": rows,
    }


def channel_table(told: dict[str, Any]) -> Any:
    """Bandwidth by run, its bounds beside it."""
    bounds = list(told["runs"][0]["bounds_B_per_s"])
    fields = " ".join(f"{name}:B/s" for name in bounds)
    rows = []
    for row in told["runs"]:
        reached = cells_of(row, "bandwidth_B_per_s:B/s share:.1% binds")
        rows.append((f"{row['run_B']:g} B", *reached, *cells_of(row["bounds_B_per_s"], fields)))
    peak, leaves = cells_of(told, "peak_B_per_s:B/s refresh_leaves:.1%")
    below = f"peak {peak} a channel; refresh leaves {leaves}; {told['read_share']:.0%} of the visits read"
    head = [")run", ")bandwidth", ")of peak", "binds", *(f"){name}" for name in bounds)]
    return table(f"{told['memory']}: {told['title']}", head, rows, below)


def draw_memories(share: float, limits: dict[str, Any], hot: float, path: Path) -> Path:
    """Every dram_channel memory's share of its peak over the run."""
    from strata.params import names

    runs = SHORTEST * 2.0 ** np.arange(0, 8.01, 0.25)
    with picture(path, (6.6, 3.8)) as (_, axes):
        for i, name in enumerate(names("memory")):
            memory = banks.dram_channel(name)
            visits = banks.Stream(run=runs, read_share=share, **limits)
            channel = banks.sustained_channel(memory, visits, hot)
            reached = 100 * np.asarray(channel.bandwidth / interface_peak(memory))
            style = "-" if i < len(COLOURS) else "--"
            axes.plot(runs, reached, linewidth=1.5, color=colour_of(i), linestyle=style, label=name)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="bytes in a row at each visit to a bank", ylabel="% of the interface's peak")
        axes.set(ylim=(0, 100), title=f"What banks leave of the interface, {share:.0%} reads")
        axes.legend(frameon=False, fontsize=8)
    return path
