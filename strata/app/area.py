"""`strata area` and `strata cost`: what fits a chip's logic die, and what the chip costs to make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strata.app.words import names_of, plain_table, print_json, set_items, titled, whole
from strata.errors import BadValue

MM2 = 1e6  # mm2 a m2
DEEPEST = 12  # layers the picture goes to unless told

Chosen = Annotated[
    str,
    typer.Argument(metavar="CHIP", help="chip name, or a TOML path", autocompletion=names_of("floorplans")),
]
Owner = Annotated[
    str,
    typer.Argument(metavar="[CHIP]", help="chip name, or a TOML path", autocompletion=names_of("floorplans")),
]
Whole = Annotated[
    str,
    typer.Option(
        "--system",
        metavar="NAME",
        help="a system instead of a chip, like 8xh200 or 256xstack-ref",
        autocompletion=names_of("system"),
    ),
]
Plan = Annotated[
    str,
    typer.Option(
        "--floorplan",
        metavar="NAME",
        help="how it is made: a name or a TOML path  [default: the chip's own]",
        autocompletion=names_of("floorplans"),
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="change a number of the chip or its floorplan: stack.layers=8, floorplan.via_pitch='10 um'",
    ),
]
Layers = Annotated[
    str, typer.Option(metavar="N,N,... or N:N", help="compare stacks of so many layers, like 1:12 or 2,4,8")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def add_to(app: typer.Typer) -> None:
    """Give an app these commands."""
    app.command(
        short_help="What fits a chip's logic die.",
        epilog="Example: strata area stack-ref --layers 1:12 --svg area.svg",
    )(area)
    app.command(
        short_help="What a chip costs to make, or a system of them.",
        epilog="Example: strata cost stack-ref --layers 2,4,8",
    )(cost)


def area(
    chip: Chosen,
    set: Set = None,
    floorplan: Plan = "",
    layers: Layers = "",
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write a picture: area by part over the layers of the stack"),
    ] = None,
    json: Json = False,
) -> None:
    """The parts of a chip's logic die, the cores that fit it, and the network between them."""
    from strata.app.cli import say, wrote
    from strata.hardware.silicon.manufacturing import area_of

    counts = numbers(layers)
    owner, made, stacks = chosen(chip, floorplan, set, counts)
    found = [area_of(stacked, made) for stacked in stacks]
    if json:
        listed = [area_dict(stacked, made, each) for stacked, each in zip(stacks, found, strict=True)]
        print_json(
            {"chip": owner.name, **listed[0]}
            if not counts
            else {
                "chip": owner.name,
                "stacks": [{"layers": n, **d} for n, d in zip(counts, listed, strict=True)],
            }
        )
    elif counts:
        say(stacks_table(owner.name, counts, found))
    else:
        say(*parts_tables(owner, made, found[0]))
    if svg:
        shown = counts or ([float(n) for n in range(1, DEEPEST + 1)] if owner.stack is not None else [])
        drawn = [area_of(stacked, made) for stacked in chosen(chip, floorplan, set, shown)[2]]
        wrote("picture", picture(owner.name, shown, drawn, svg))


def cost(
    chip: Owner = "",
    set: Set = None,
    floorplan: Plan = "",
    layers: Layers = "",
    system: Whole = "",
    json: Json = False,
) -> None:
    """What one packaged chip costs to make, by part, with its yields; or with --system what a whole system
    costs.
    """
    from strata.app.cli import say
    from strata.hardware.silicon.cost import cost_of

    if bool(chip) == bool(system):
        raise BadValue(
            "cost needs a chip, or --system with a system's name, like 'strata cost stack-ref' or 'strata cost --system 8xh200'"
        )
    if system:
        if layers:
            raise BadValue(
                "--layers compares chips, not systems; give a system's layers with --set stack.layers=8"
            )
        found_of = whole_system(system, floorplan, set)
        print_json(system_dict(*found_of)) if json else say(system_table(*found_of))
        return
    counts = numbers(layers)
    owner, made, stacks = chosen(chip, floorplan, set, counts)
    found = [cost_of(stacked, made) for stacked in stacks]
    if json:
        listed = [cost_dict(each) for each in found]
        price = None if owner.package.price is None else float(owner.package.price)
        rest = (
            listed[0]
            if not counts
            else {"stacks": [{"layers": n, **d} for n, d in zip(counts, listed, strict=True)]}
        )
        print_json(
            {
                "chip": owner.name,
                "technology": made.technology,
                "bonding": made.bonding,
                "packaging": made.packaging,
                "price_USD": price,
                **rest,
            }
        )
    else:
        say(*cost_tables(owner, made, counts, found))


# ---------------------------------------------------------------------------------------------- what was
# asked


def chosen(
    name: str, floorplan: str, items: list[str] | None, layers: list[float]
) -> tuple[Any, Any, list[Any]]:
    """The chip, how it is made, and the chip with each number of layers (itself where none is asked for).

    `--set` may change either; all layers are connected unless it says how many are.
    """
    from strata.hardware.chip import chip as make_chip
    from strata.hardware.silicon.manufacturing import made_of

    given = set_items(items, "chip", "floorplan.via_pitch='10 um'") | (
        {"floorplan_file": floorplan} if floorplan else {}
    )
    owner = make_chip(name, **given)
    if layers and owner.stack is None:
        raise BadValue(
            f"--layers needs a chip with stacked DRAM, but {owner.name} has {owner.memory.kind} beside the die"
        )
    return owner, made_of(owner), [make_chip(name, **{**given, "stack.layers": n}) for n in layers] or [owner]


def numbers(text: str) -> list[float]:
    """Counts of layers: a list, or a range.

    >>> numbers("2,4,8"), numbers("1:4"), numbers("")
    ([2.0, 4.0, 8.0], [1.0, 2.0, 3.0, 4.0], [])
    """
    if not text:
        return []
    first, colon, last = text.partition(":")
    if colon:
        low, high = whole(first, "--layers"), whole(last, "--layers")
        if not low <= high <= low + 99:
            raise BadValue(f"--layers FROM:TO goes up, over at most 100 numbers, but got '{text}'")
        return [low + i for i in range(int(high - low) + 1)]
    return [whole(item, "--layers") for item in text.split(",")]


# --------------------------------------------------------------------------------------------- what is
# answered


def area_dict(owner: Any, made: Any, found: Any) -> dict[str, Any]:
    """A die for machines, in SI units."""
    from strata.hardware.silicon.area import why_no_core
    from strata.hardware.silicon.manufacturing import usable_cores

    why = why_no_core(found)
    return {
        "die_m2": float(found.die),
        "dies": float(made.dies),
        "cores": float(found.cores),
        "cores_sold": float(usable_cores(found, made)),
        "core_m2": float(found.core),
        "parts_m2": {k: float(v) for k, v in found.parts.items()},
        "vias": float(found.vias),
        "edge_m": float(found.edge),
        "edge_used_m": float(found.edge_used),
        "infeasible": None if why is None else str(why),
        "network": network_dict(owner, made, found),
        "energies": energies_dict(owner, made),
    }


def energies_dict(owner: Any, made: Any) -> dict[str, Any]:
    """Energies that geometry and process give, beside those the chip states: J/B, leakage in W."""
    from strata.hardware.silicon.energy import energies_of

    return {
        e.name.replace(" ", "_"): {
            f"{key}_{unit_of(e).replace('/', '_per_')}": None if value is None else float(value)
            for key, value in (("geometry", e.geometry), ("stated", e.stated))
        }
        for e in energies_of(owner, made)
    }


def unit_of(energy: Any) -> str:
    return "W" if energy.name == "leakage" else "J/B"


def energies_table(owner: Any, made: Any) -> Any:
    """The same for people."""
    from strata.hardware.silicon.energy import energies_of
    from strata.units import show

    table = plain_table()
    table.add_column("energy", no_wrap=True)
    for name in ("by geometry", "stated"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of what")
    for e in energies_of(owner, made):
        table.add_row(
            e.name,
            show(float(e.geometry), unit_of(e)),
            "-" if e.stated is None else show(float(e.stated), unit_of(e)),
            e.what,
        )
    return titled(
        f"{owner.name}: energies by geometry and process ({made.technology}, {made.bonding}), beside what the chip states",
        table,
    )


def network_dict(owner: Any, made: Any, found: Any) -> dict[str, Any] | None:
    """What the network inside the chip offers, for data spread over all vaults and for data in a core's own."""
    from strata.hardware import noc as equations

    noc, cores = made.noc, float(found.cores)
    if noc is None or cores < 1:
        return None
    spread = 1.0 / cores  # the share of a core's own vault when data is anywhere
    return {
        "topology": noc.topology,
        "placement": noc.placement,
        "link_B_per_s": float(equations.link_bandwidth(noc)),
        "bisection_B_per_s": float(equations.noc_bisection(noc, cores)),
        "hops": float(equations.noc_hops(noc, cores)),
        "spread_B_per_s": float(equations.access_bandwidth(noc, cores, owner.memory.bandwidth, spread)),
        "own_B_per_s": float(owner.memory.bandwidth),
        "spread_s": float(equations.access_latency(noc, cores, spread)),
        "spread_J_per_B": float(equations.access_energy(noc, cores, spread)),
        "shared_hops": float(equations.multicast_hops(noc, cores, cores)),
        "shared_unicast_hops": cores * float(equations.noc_hops(noc, cores)),
    }


def parts_tables(owner: Any, made: Any, found: Any) -> list[Any]:
    """One die for people."""
    from strata.hardware.silicon.area import why_no_core
    from strata.hardware.silicon.floorplan import connections_that_fit
    from strata.hardware.silicon.manufacturing import usable_cores
    from strata.hardware.technology import bonding
    from strata.units import show

    table = plain_table()
    table.add_column("part", no_wrap=True)
    for name in ("mm2", "share"):
        table.add_column(name, justify="right")
    for name, value in found.parts.items():
        table.add_row(name, f"{float(value) * MM2:.2f}", f"{float(value / found.die):.1%}")
    table.add_row("die", f"{float(found.die) * MM2:.2f}", "100.0%", style="bold")
    sold = float(usable_cores(found, made))
    built = f"{float(found.cores):g} cores of {float(found.core) * MM2:.2f} mm2 fit" + (
        " each die" if made.dies > 1 else ""
    )
    title = (
        f"{owner.name}: {built}"
        + (f", {sold:g} are sold" if sold != float(found.cores) else "")
        + f" ({made.technology})"
    )
    edge = f"edge: {found.edge_used * 1e3:.3g} of {found.edge * 1e3:.3g} mm taken by interfaces"
    told = network_dict(owner, made, found)
    if float(found.vias) > 0:
        pitch = bonding(made.bonding).pitch
        edge += f"; {float(found.vias):,.0f} vias, of {float(connections_that_fit(found.die, pitch)):,.0f} bonds that a pitch of {show(pitch, 'm')} allows"
    lines = [titled(title, table, edge)]
    if told:
        where = "in the logic die" if told["placement"] == "logic" else "in the stack"
        lines.append(
            f"network: {told['topology']} {where}, {show(told['link_B_per_s'], 'B/s')} a core; data spread over all vaults: {show(told['spread_B_per_s'], 'B/s')} of "
            f"{show(told['own_B_per_s'], 'B/s')}, +{show(told['spread_s'], 's')}, +{show(told['spread_J_per_B'], 'J/B')}; an operand for all {float(found.cores):g} cores crosses {told['shared_hops']:.3g} links, {told['shared_unicast_hops']:.3g} if routers did not copy it"
        )
    why = why_no_core(found)
    return [*lines, *([f"no core fits: {why}"] if why else []), energies_table(owner, made)]


def stacks_table(name: str, counts: list[float], found: list[Any]) -> Any:
    """Dies under stacks of different depth, a line each."""
    table = plain_table()
    for column in ("layers", "cores", *found[0].parts):
        table.add_column(column, justify="right", no_wrap=True)
    for layers, each in zip(counts, found, strict=True):
        table.add_row(
            f"{layers:g}", f"{float(each.cores):g}", *(f"{float(v) * MM2:.2f}" for v in each.parts.values())
        )
    return titled(f"{name}: area of its logic die by layers of the stack [mm2]", table)


def cost_dict(found: Any) -> dict[str, Any]:
    yields = {f"{k}_yield": float(getattr(found, f"{k}_yield")) for k in ("die", "stacking", "package")}
    return {
        "made_USD": float(found.made),
        "parts_USD": {k: float(v) for k, v in found.parts.items()},
        **yields,
    }


def cost_tables(owner: Any, made: Any, counts: list[float], found: list[Any]) -> list[Any]:
    """Costs for people: a column for each stack."""
    from strata.hardware.system import economics
    from strata.units import show

    table = plain_table()
    table.add_column("part", no_wrap=True)
    for head in [f"{n:g} layers" for n in counts] or ["USD"]:
        table.add_column(head, justify="right", no_wrap=True)
    for name in found[0].parts:
        table.add_row(name, *(f"{float(each.parts[name]):,.2f}" for each in found))
    table.add_row("made", *(f"{float(each.made):,.2f}" for each in found), style="bold")
    for name, what in (
        ("die", "dies that work"),
        ("stacking", "stacks that work"),
        ("package", "packages that work"),
    ):
        table.add_row(what, *(f"{float(getattr(each, f'{name}_yield')):.1%}" for each in found))
    markup = economics().markup
    priced = (
        f"no price of its own: {markup:g} times that where one is needed"
        if owner.package.price is None
        else ""
    )
    bought = priced or f"it is bought for {show(owner.package.price, 'USD')}"
    below = f"{made.technology}, {made.bonding}, {made.packaging}; without margin, masks and design; {bought}"
    return [titled(f"{owner.name}: what one packaged chip costs to make [USD]", table, below)]


def whole_system(name: str, floorplan: str, items: list[str] | None) -> tuple[Any, Any]:
    """A system by name, its chip changed by `--set`, and what it costs."""
    from strata.hardware.silicon.system_cost import system_cost
    from strata.hardware.system import system

    owner = system(
        name,
        **(
            set_items(items, "chip", "floorplan.via_pitch='10 um'")
            | ({"floorplan_file": floorplan} if floorplan else {})
        ),
    )
    return owner, system_cost(owner)


def system_dict(owner: Any, found: Any) -> dict[str, Any]:
    """Costs of a system for machines."""
    told = {k: getattr(found, k) for k in ("made", "bought", "fabric", "linear")}
    return {
        "system": owner.name,
        "chip": owner.chip.name,
        "devices": float(found.devices),
        **{f"{k}_USD": None if v is None else float(v) for k, v in told.items()},
        "linear_parts_USD": {k: float(v) for k, v in found.parts.items()},
    }


def system_table(owner: Any, found: Any) -> Any:
    """Costs of a system for people."""
    table = plain_table()
    table.add_column("part", no_wrap=True)
    for name in ("USD", "a device"):
        table.add_column(name, justify="right", no_wrap=True)

    def row(name: str, value: Any, **style: Any) -> None:
        shown = (
            ("unknown", "")
            if value is None
            else (f"{float(value):,.0f}", f"{float(value / found.devices):,.2f}")
        )
        table.add_row(name, *shown, **style)

    for name, value in (
        ("chips, to make", found.made),
        ("chips, to buy", found.bought),
        ("fabric, as priced", found.fabric),
    ):
        row(name, value)
    for name, value in found.parts.items():
        row(f"DFModel: {name}", value)
    row("DFModel: linear cost", found.linear, style="bold")
    return titled(
        f"{owner.name}: what its {float(found.devices):g} devices cost",
        table,
        "DFModel: chips as bought, DRAM, links and switch ports by bandwidth",
    )


def picture(name: str, layers: list[float], found: list[Any], path: Path) -> Path:
    """Stacked bars of area by part, over the layers of the stack (one bar where there is none), with the
    cores that fit.
    """
    from strata.drawing import COLOURS, STYLE, pyplot_of, save

    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
        places, below = list(range(len(found))), [0.0] * len(found)
        for i, part in enumerate(found[0].parts):
            heights = [max(float(each.parts[part]) * MM2, 0.0) for each in found]
            faded = {"gaps": "#d9dde2", "unused": "#f1f3f5"}.get(part, COLOURS[i % len(COLOURS)])
            axes.bar(places, heights, 0.8, bottom=below, color=faded, label=part)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        for place, top, each in zip(places, below, found, strict=True):
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
