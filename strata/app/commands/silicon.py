"""`strata generate`, `strata area`, `strata cost`: a chip from technology, its die, and its costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from strata.app.commands.options import (
    DevicePrice,
    JsonFlag,
    TableFile,
    argument,
    command,
    drawing,
    flag,
    option,
    typed,
    with_price,
)
from strata.app.rows_out import answer, quantity_rows
from strata.app.terminal import names_of, set_items, wrote
from strata.errors import BadValue, require
from strata.units import whole

if TYPE_CHECKING:
    from strata.hardware.chip import Chip
    from strata.hardware.making import SystemCost
    from strata.hardware.silicon.floorplan import Silicon
    from strata.hardware.system import System


@command(
    "generate",
    "A chip from technology, budgets and a template.",
    "strata generate --technology n5 --budget h100 --template gpu --device hbm3e "
    "--set power=500W --out chip.toml",
)
def generate_command(
    technology: str = option(..., "NAME", "node or library, or a TOML path", names_of("technologies")),
    budget: str = option(..., "NAME", "area, power and their split, or a TOML path", names_of("budget")),
    template: str = option(
        "gpu", "NAME", "units, levels of memory and networks, or a TOML path", names_of("template")
    ),
    device: str = option(
        "", "NAME", "memory devices, or a TOML path  [default: the template's]", names_of("device")
    ),
    link: list[str] | None = option(None, "NETWORK=NAME", "links of a network: inter=nvlink5"),
    set: list[str] | None = option(
        None,
        "PATH=VALUE",
        "change a number of budget, template, technology or device: power=500W, area_share.l2=0.2",
    ),
    out: Path | None = option(None, "FILE", "write the chip, and the fabric of its networks beside it"),
    svg: Path | None = drawing("write a picture: area and power by component"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """What fits a die and its package, how fast its power lets it run, what binds, what more would buy."""
    from strata.app.render.generation import draw_generation, generation_dict, generation_tables
    from strata.hardware.generate.recipe import generation, write_chip

    if out is not None:
        require(out.suffix == ".toml", "a chip's file ends in .toml", out=str(out))
    changes: dict[str, Any] = dict(set_items(set, "budget", "power=500W", generation))
    found = generation(
        technology, budget, template, device=device or None, links=typed_links(link), **changes
    )
    if found.infeasible and not json:
        raise BadValue(f"cannot be built: {found.infeasible[0]}")
    answer(lambda: generation_dict(found), lambda: generation_tables(found), json, table, quantity_rows)
    if out:
        for path in write_chip(found, out):
            wrote("file", path)
    if svg:
        wrote("picture", draw_generation(found, svg))


def typed_links(items: list[str] | None) -> dict[str, str]:
    """`--link` items: the links of each network.

    >>> typed_links(["inter=nvlink5"])
    {'inter': 'nvlink5'}
    """
    chosen = {}
    for item in items or []:
        network, _, name = item.partition("=")
        if not (network.strip() and name.strip()):
            raise BadValue(f"--link takes NETWORK=NAME, like inter=nvlink5, but got '{item}'")
        chosen[network.strip()] = name.strip()
    return chosen


DEEPEST = 12  # layers the picture goes to unless told


FloorplanName = Annotated[
    str,
    typed(
        "--floorplan",
        "NAME",
        "how it is made: a name or a TOML path  [default: the chip's own]",
        names_of("floorplans"),
    ),
]


SiliconChanges = Annotated[
    list[str] | None,
    typed(
        "--set",
        "PATH=VALUE",
        "change a number of the chip or its floorplan: stack.layers=8, floorplan.via_pitch='10 um'",
    ),
]


LayerCounts = Annotated[
    str, typed("", "N,N,... or N:N", "compare stacks of so many layers, like 1:12 or 2,4,8")
]


@command("area", "What fits a chip's logic die.", "strata area stack-ref --layers 1:12 --svg area.svg")
def area_command(
    chip: str = argument(..., "CHIP", "chip name, or a TOML path", names_of("floorplans")),
    set: SiliconChanges = None,
    floorplan: FloorplanName = "",
    layers: LayerCounts = "",
    svg: Path | None = drawing("write a picture: area by part over the layers of the stack"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """The parts of a chip's logic die, the cores that fit it, and the network between them."""
    from strata.app.render.silicon import area_dict, area_tables, draw_die_areas, stacks_table
    from strata.hardware.silicon.floorplan import area_of

    counts = layer_counts(layers)
    owner, silicon, stacks = stacked_chips(chip, floorplan, set, counts)
    areas = [area_of(stacked, silicon) for stacked in stacks]

    def told() -> dict[str, Any]:
        each = [area_dict(stacked, silicon, of) for stacked, of in zip(stacks, areas, strict=True)]
        return {"chip": owner.name, **(by_layers(counts, each) if counts else each[0])}

    def tables() -> list[Any]:
        one = [stacks_table(owner.name, counts, areas)] if counts else []
        return one or area_tables(owner, silicon, areas[0])

    answer(told, tables, json, table, "stacks")
    if svg:
        shown = counts or ([float(n) for n in range(1, DEEPEST + 1)] if owner.stack is not None else [])
        drawn = [area_of(stacked, silicon) for stacked in stacked_chips(chip, floorplan, set, shown)[2]]
        wrote("picture", draw_die_areas(owner.name, shown, drawn, svg))


def by_layers(counts: list[float], told: list[dict[str, Any]]) -> dict[str, Any]:
    """What is told of stacks, each with its number of layers."""
    return {"stacks": [{"layers": n, **each} for n, each in zip(counts, told, strict=True)]}


def silicon_changes(items: list[str] | None, floorplan: str) -> dict[str, Any]:
    """`--set` and `--floorplan` as changes of a chip."""
    given = set_items(items, "chip", "floorplan.via_pitch='10 um'")
    return given | ({"floorplan_file": floorplan} if floorplan else {})


def stacked_chips(
    name: str, floorplan: str, items: list[str] | None, layers: list[float]
) -> tuple[Chip, Silicon, list[Chip]]:
    """The chip, how it is made, and the chip with each number of layers (itself where none is asked for).

    `--set` may change either; all layers are connected unless it says how many are.
    """
    from strata.hardware.chip import chip as make_chip
    from strata.hardware.silicon.floorplan import made_of

    given = silicon_changes(items, floorplan)
    owner = make_chip(name, **given)
    if layers and owner.stack is None:
        raise BadValue(
            f"--layers needs a chip with stacked DRAM, but {owner.name} has {owner.memory.kind} beside the "
            "die"
        )
    stacks = [make_chip(name, **{**given, "stack.layers": n}) for n in layers]
    return owner, made_of(owner), stacks or [owner]


def layer_counts(text: str) -> list[float]:
    """Counts of layers: a list, or a range.

    >>> layer_counts("2,4,8"), layer_counts("1:4"), layer_counts("")
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


@command("cost", "What a chip costs to make, or a system of them.", "strata cost stack-ref --layers 2,4,8")
def cost_command(
    chip: str = argument("", "[CHIP]", "chip name, or a TOML path", names_of("floorplans")),
    set: SiliconChanges = None,
    floorplan: FloorplanName = "",
    layers: LayerCounts = "",
    system: str = option(
        "", "NAME", "a system instead of a chip, like 8xh200 or 256xstack-ref", names_of("system")
    ),
    dfmodel: bool = flag(
        "--dfmodel", "with --system: cost and power as DFModel counts chips, memory, links and ports"
    ),
    price: DevicePrice = "",
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """What one packaged chip costs to make, by part, with its yields; or with --system what a whole system
    costs.
    """
    from strata.app.render.silicon import cost_dict, cost_tables
    from strata.hardware.making import cost_of

    if dfmodel and not system:
        raise BadValue(
            "--dfmodel counts a system: give one with --system, like 'strata cost --system 8xh200 --dfmodel'"
        )
    if bool(chip) == bool(system) or (price and chip):
        raise BadValue(
            "cost needs a chip, or --system with a system's name (and its --price), like "
            "'strata cost stack-ref' or 'strata cost --system 8xh200'"
        )
    if system:
        if layers:
            raise BadValue(
                "--layers compares chips, not systems; give a system's layers with --set stack.layers=8"
            )
        return _answer_system(system, floorplan, set, price, dfmodel, json=json, table=table)
    counts = layer_counts(layers)
    owner, silicon, stacks = stacked_chips(chip, floorplan, set, counts)
    costs = [cost_of(stacked, silicon) for stacked in stacks]

    def told() -> dict[str, Any]:
        each = [cost_dict(one) for one in costs]
        asked = {
            "chip": owner.name,
            "technology": silicon.technology,
            "bonding": silicon.bonding,
            "packaging": silicon.packaging,
            "price_USD": None if owner.package.price is None else float(owner.package.price),
        }
        return {**asked, **(by_layers(counts, each) if counts else each[0])}

    answer(told, lambda: cost_tables(owner, silicon, counts, costs), json, table, "stacks")


def _answer_system(
    name: str,
    floorplan: str,
    items: list[str] | None,
    price: str,
    dfmodel: bool,
    *,
    json: bool,
    table: Path | None,
) -> None:
    """What a whole system costs, counted as told."""
    from strata.app.render.silicon import system_cost_dict, system_cost_table

    if dfmodel:
        from strata.hardware.system import system as make_system
        from strata.shipped import needed_model

        owner = make_system(name, **silicon_changes(items, floorplan))
        told, shown = needed_model("system totals", "dfmodel")(owner)
        return answer(lambda: told, lambda: [shown], json, table)
    whole = _whole_system(name, floorplan, with_price(items, price))
    answer(lambda: system_cost_dict(*whole), lambda: [system_cost_table(*whole)], json, table)


def _whole_system(name: str, floorplan: str, items: list[str] | None) -> tuple[System, SystemCost]:
    """A system by name, its chip and what it costs to own changed by `--set`, and what it costs."""
    from dataclasses import replace

    from strata.hardware.making import system_cost
    from strata.hardware.money import economics
    from strata.hardware.system import system as make_system
    from strata.search.fields import parse_changes

    money = [item for item in items or [] if item.strip().startswith("economics.")]
    chip = [item for item in items or [] if item not in money]
    owner = make_system(name, **silicon_changes(chip, floorplan))
    if money:
        owner = replace(owner, economics=economics(**parse_changes(money)["economics"]))
    return owner, system_cost(owner)
