"""A logic die for machines and for people: its parts, network and energies; and a picture over layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.terminal import plain_table, titled
from strata.hardware import noc as equations
from strata.hardware.chip import Chip
from strata.hardware.silicon.area import area_as_stated, why_not_built
from strata.hardware.silicon.energy import EnergyComparison, energies_of
from strata.hardware.silicon.floorplan import Area, connections_that_fit
from strata.hardware.silicon.manufacturing import Silicon, usable_cores
from strata.hardware.technology import bonding
from strata.units import show

MM2 = 1e6  # mm2 a m2


def area_dict(chip: Chip, silicon: Silicon, area: Area) -> dict[str, Any]:
    """A die for machines, in SI units."""

    why = why_not_built(area, area_as_stated(chip, silicon))
    return {
        "die_m2": float(area.die),
        "dies": float(silicon.dies),
        "cores": float(area.cores),
        "cores_stated": float(chip.compute.cores),
        "cores_sold": float(usable_cores(area, silicon)),
        "core_m2": float(area.core),
        "parts_m2": {k: float(v) for k, v in area.parts.items()},
        "vias": float(area.vias),
        "edge_m": float(area.edge),
        "edge_used_m": float(area.edge_used),
        "infeasible": None if why is None else str(why),
        "network": network_dict(chip, silicon, area),
        "energies": energies_dict(chip, silicon),
    }


def energies_dict(chip: Chip, silicon: Silicon) -> dict[str, Any]:
    """Energies that geometry and process give, beside those the chip states: J/B, leakage in W."""

    return {
        e.name.replace(" ", "_"): {
            f"{key}_{_unit(e).replace('/', '_per_')}": None if value is None else float(value)
            for key, value in (("geometry", e.geometry), ("stated", e.stated))
        }
        for e in energies_of(chip, silicon)
    }


def _unit(energy: EnergyComparison) -> str:
    return "W" if energy.name == "leakage" else "J/B"


def energies_table(chip: Chip, silicon: Silicon) -> Any:
    """The same for people."""

    table = plain_table("<energy", ">by geometry", ">stated", "of what")
    for e in energies_of(chip, silicon):
        table.add_row(
            e.name,
            show(float(e.geometry), _unit(e)),
            "-" if e.stated is None else show(float(e.stated), _unit(e)),
            e.what,
        )
    return titled(
        f"{chip.name}: energies by geometry and process ({silicon.technology}, {silicon.bonding}), "
        "beside what the chip states",
        table,
    )


def network_dict(chip: Chip, silicon: Silicon, area: Area) -> dict[str, Any] | None:
    """What the network inside the chip offers, to data spread over all vaults and to data in a core's own."""

    noc, cores = silicon.noc, float(area.cores)
    if noc is None or cores < 1:
        return None
    spread = 1.0 / cores  # the share of a core's own vault when data is anywhere
    return {
        "topology": noc.topology,
        "placement": noc.placement,
        "link_B_per_s": float(equations.link_bandwidth(noc)),
        "bisection_B_per_s": float(equations.noc_bisection(noc, cores)),
        "hops": float(equations.noc_hops(noc, cores)),
        "spread_B_per_s": float(equations.access_bandwidth(noc, cores, chip.memory.bandwidth, spread)),
        "own_B_per_s": float(chip.memory.bandwidth),
        "spread_s": float(equations.access_latency(noc, cores, spread)),
        "spread_J_per_B": float(equations.access_energy(noc, cores, spread)),
        "shared_hops": float(equations.multicast_hops(noc, cores, cores)),
        "shared_unicast_hops": cores * float(equations.noc_hops(noc, cores)),
    }


def area_tables(chip: Chip, silicon: Silicon, area: Area) -> list[Any]:
    """One die for people."""

    table = plain_table("<part", ">mm2", ">share")
    fits, asked = float(usable_cores(area, silicon)), float(chip.compute.cores)
    drawn = area if asked == fits or fits < 1.0 else area_as_stated(chip, silicon)
    for name, value in drawn.parts.items():
        table.add_row(name, f"{float(value) * MM2:.2f}", f"{float(value / area.die):.1%}")
    table.add_row("die", f"{float(area.die) * MM2:.2f}", "100.0%", style="bold")
    built = f"{float(area.cores):g} cores of {float(area.core) * MM2:.2f} mm2 fit" + (
        " each die" if silicon.dies > 1 else ""
    )
    title = (
        f"{chip.name}: {built}"
        + (f", {fits:g} are sold" if fits != float(area.cores) else "")
        + (f", {asked:g} are stated and drawn" if drawn is not area else "")
        + f" ({silicon.technology})"
    )
    edge = f"edge: {area.edge_used * 1e3:.3g} of {area.edge * 1e3:.3g} mm taken by interfaces"
    if float(area.vias) > 0:
        pitch = bonding(silicon.bonding).pitch
        most = f"{float(connections_that_fit(area.die, pitch)):,.0f}"
        edge += f"; {float(area.vias):,.0f} vias, of {most} bonds that a pitch of {show(pitch, 'm')} allows"
    network = network_dict(chip, silicon, area)
    lines = [titled(title, table, edge), *([_network_text(network, float(area.cores))] if network else [])]
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
    table = plain_table(*(f">{column}" for column in ("layers", "cores", *areas[0].parts)))
    for layers, each in zip(counts, areas, strict=True):
        table.add_row(
            f"{layers:g}", f"{float(each.cores):g}", *(f"{float(v) * MM2:.2f}" for v in each.parts.values())
        )
    return titled(f"{name}: area of its logic die by layers of the stack [mm2]", table)


def draw_die_areas(name: str, layers: list[float], areas: list[Area], path: Path) -> Path:
    """Stacked bars of area by part, over the layers of the stack (one bar where there is none), with the
    cores that fit.
    """
    from strata.drawing import COLOURS, STYLE, pyplot_of, save

    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
        places, below = list(range(len(areas))), [0.0] * len(areas)
        for i, part in enumerate(areas[0].parts):
            heights = [max(float(each.parts[part]) * MM2, 0.0) for each in areas]
            faded = {"gaps": "#d9dde2", "unused": "#f1f3f5"}.get(part, COLOURS[i % len(COLOURS)])
            axes.bar(places, heights, 0.8, bottom=below, color=faded, label=part)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        for place, top, each in zip(places, below, areas, strict=True):
            axes.text(place, top, f"{float(each.cores):g}", ha="center", va="bottom", fontsize=8)
        axes.set_xticks(places, [f"{n:g}" for n in layers] or [name])
        axes.set(
            title=f"{name}: its logic die, and the cores that fit",
            ylabel="mm2",
            xlabel="layers of the stack" if layers else "",
        )
        axes.grid(axis="x", visible=False)
        handles, names = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], names[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        return save(pyplot, figure, path)
