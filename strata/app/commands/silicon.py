"""`strata generate`, `strata area`, `strata cost`, `strata dram`, `strata heat`: a chip from technology, its
die, its costs, what banks leave of a bandwidth, and temperatures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from strata.app.commands import options
from strata.app.commands.options import argument, command, drawing, flag, option, typed, with_price
from strata.app.rows_out import quantity_rows
from strata.app.terminal import names_of, one_of, set_items, typed_bytes, typed_pairs, wrote
from strata.base.errors import BadValue, require
from strata.base.units import parse, typed_quantity, whole

if TYPE_CHECKING:
    from strata.hardware.chip import Chip
    from strata.hardware.making import SystemCost
    from strata.hardware.silicon.floorplan import Silicon
    from strata.hardware.system import System

LAYERS = (100, "FROM:TO goes up, over at most 100 numbers")
DEEPEST = 12  # layers the picture goes to unless told
FloorplanName = Annotated[
    str,
    typed(
        "--floorplan NAME",
        "how it is made: a name or a TOML path  [default: the chip's own]",
        names_of("floorplans"),
    ),
]
SiliconChanges = Annotated[
    list[str] | None,
    typed(
        "--set PATH=VALUE",
        "change a number of the chip or its floorplan: stack.layers=8, floorplan.via_pitch='10 um'",
    ),
]
LayerCounts = Annotated[str, typed("N,N,... or N:N", "compare stacks of so many layers, like 1:12 or 2,4,8")]


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
    form: options.AnswerForm = options.FORM,
) -> None:
    """What fits a die and its package, how fast its power lets it run, what binds, what more would buy."""
    from strata.app.render.generation import draw_generation, generation_dict, generation_tables
    from strata.hardware.generate.recipe import generation, write_chip

    if out is not None:
        require(out.suffix == ".toml", "a chip's file ends in .toml", out=str(out))
    changes: dict[str, Any] = dict(set_items(set, "budget", "power=500W", generation))
    links = typed_pairs(link, "--link", "NETWORK=NAME, like inter=nvlink5")
    found = generation(technology, budget, template, device=device or None, links=links, **changes)
    if found.infeasible and not form.json:
        raise BadValue(f"cannot be built: {found.infeasible[0]}")
    form.answer(generation_dict, generation_tables, quantity_rows, of=[found])
    if out:
        for path in write_chip(found, out):
            wrote("file", path)
    options.write("picture", svg, draw_generation, found)


@command("area", "What fits a chip's logic die.", "strata area stack-ref --layers 1:12 --svg area.svg")
def area_command(
    chip: str = argument(..., "CHIP", "chip name, or a TOML path", names_of("floorplans")),
    set: SiliconChanges = None,
    floorplan: FloorplanName = "",
    layers: LayerCounts = "",
    svg: Path | None = drawing("write a picture: area by part over the layers of the stack"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """The parts of a chip's logic die, the cores that fit it, and the network between them."""
    from strata.app.render.silicon import area_dict, area_tables, draw_die_areas, stacks_table
    from strata.hardware.silicon.floorplan import area_of

    counts = options.typed_counts(layers, "--layers", *LAYERS)
    owner, silicon, stacks = stacked_chips(chip, floorplan, set, counts)
    areas = [area_of(stacked, silicon) for stacked in stacks]

    def told() -> dict[str, Any]:
        each = [area_dict(stacked, silicon, of) for stacked, of in zip(stacks, areas, strict=True)]
        return {"chip": owner.name, **by_layers(counts, each)}

    def tables() -> list[Any]:
        one = [stacks_table(owner.name, counts, areas)] if counts else []
        return one or area_tables(owner, silicon, areas[0])

    form.answer(told, tables, "stacks")
    if svg:
        shown = counts or ([float(n) for n in range(1, DEEPEST + 1)] if owner.stack is not None else [])
        drawn = [area_of(stacked, silicon) for stacked in stacked_chips(chip, floorplan, set, shown)[2]]
        wrote("picture", draw_die_areas(owner.name, shown, drawn, svg))


def by_layers(counts: list[float], told: list[dict[str, Any]]) -> dict[str, Any]:
    """What is told of stacks, each with its number of layers; of the chip itself where none is asked for."""
    if not counts:
        return told[0]
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
    price: options.DevicePrice = "",
    form: options.AnswerForm = options.FORM,
) -> None:
    """What one packaged chip costs to make, by part, with its yields; or with --system what a whole system
    costs.
    """
    from strata.app.render.silicon import cost_dict, cost_tables
    from strata.app.render.tables import floats, picked
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
        return _answer_system(system, floorplan, set, price, dfmodel, form)
    counts = options.typed_counts(layers, "--layers", *LAYERS)
    owner, silicon, stacks = stacked_chips(chip, floorplan, set, counts)
    costs = [cost_of(stacked, silicon) for stacked in stacks]

    def told() -> dict[str, Any]:
        asked = {"chip": owner.name, **picked(silicon, "technology bonding packaging")}
        asked |= floats(owner.package, "price_USD=price")
        return asked | by_layers(counts, [cost_dict(one) for one in costs])

    form.answer(told, lambda: cost_tables(owner, silicon, counts, costs), "stacks")


def _answer_system(
    name: str, floorplan: str, items: list[str] | None, price: str, dfmodel: bool, form: options.AnswerForm
) -> None:
    """What a whole system costs, counted as told."""
    from strata.app.render.silicon import system_cost_dict, system_cost_table

    if dfmodel:
        from strata.base.shipped import needed_model
        from strata.hardware.system import system as make_system

        owner = make_system(name, **silicon_changes(items, floorplan))
        told, shown = needed_model("system totals", "dfmodel")(owner)
        return form.answer(told, [shown])
    whole = _whole_system(name, floorplan, with_price(items, price))
    form.answer(system_cost_dict(*whole), [system_cost_table(*whole)])


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


@command(
    "dram",
    "What banks and timings leave of a memory's bandwidth.",
    "strata dram hbm3 --run 32,256,1KiB --read-share 0.67",
)
def dram_command(
    name: str = argument(..., "NAME", "memory name, or a TOML path", names_of("memory")),
    run: str = option(
        "", "SIZE,...", "bytes in a row at each visit to a bank; a list makes a table  [default: up to a row]"
    ),
    read_share: str = option("1", "0..1", "share of the visits that read"),
    banks: str = option("", "N", "banks it spreads over  [default: all of the channel]"),
    outstanding: str = option("", "SIZE", "bytes asked for and not yet there  [default: no limit]"),
    latency: str = option("", "TIME", "of a request, for --outstanding  [default: the row's own]"),
    hot: bool = flag("--hot", "above 85 degC: refreshed twice as often"),
    set: list[str] | None = option(None, "PATH=VALUE", "change a number of it: timing.faw='20 ns'"),
    svg: Path | None = drawing("write a picture: every memory's share of its peak over the run"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """Bandwidth of one channel for a stream of accesses: each bound on it, and the one that tells."""
    from strata.app.render.silicon import channel_dict, channel_table, draw_memories
    from strata.hardware.dram.channel import Stream, dram_channel, sustained_channel

    memory = dram_channel(name, **set_items(set, "memory", "timing.faw='20 ns'"))
    share = _fraction(read_share)
    limits: dict[str, Any] = {"banks": whole(banks, "--banks") if banks else None}
    limits["outstanding"] = parse(outstanding, "B", "--outstanding") if outstanding else None
    limits["latency"] = parse(latency, "s", "--latency") if latency else None
    runs = [typed_bytes(item, "--run") for item in run.split(",")] if run else []
    burst = float(memory.burst)  # a run is one burst to a whole row
    runs = runs or [burst * 2.0**i for i in range(int(float(memory.row) / burst).bit_length())]
    streams = (Stream(run=r, read_share=share, **limits) for r in runs)
    channels = [sustained_channel(memory, stream, float(hot)) for stream in streams]
    told = channel_dict(memory, share, runs, channels)
    form.answer(told, [channel_table(told)], "runs")
    options.write("picture", svg, draw_memories, share, limits, float(hot))


def _fraction(text: str) -> float:
    """A share as typed.

    >>> _fraction("0.67")
    0.67
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value <= 1.0:
        raise BadValue(f"--read-share must be a number from 0 to 1, but got '{text}'")
    return value


@command(
    "heat",
    "Temperatures of a chip and the DRAM on it.",
    "strata heat stack-ref --layers 8 --power 60 --svg heat.svg",
)
def heat_command(
    name: options.ChipName,
    power: str = option("", "W", "power of the logic die  [default: what the chip's limit leaves]"),
    dram_power: str = option("", "W", "power of each DRAM layer  [default: sustained bandwidth, shared out]"),
    layers: str = option("", "N", "DRAM layers  [default: the chip's]"),
    map: str = option(
        "hotspot",
        "MAP",
        "power on the logic die: uniform, hotspot or a CSV file with a square of numbers",
        one_of("uniform", "hotspot"),
    ),
    cooling: str = option(
        "", "NAME", "air, liquid or a TOML path  [default: the chip's own, else liquid]", names_of("cooling")
    ),
    set: list[str] | None = option(
        None, "PATH=VALUE", "change a number of the cooling, as often as needed: bond_thickness='5 um'"
    ),
    transient: str = option("", "TIME", "temperatures in time after power is switched on, like 2s"),
    svg: Path | None = drawing("write a picture: a section through the stack, and a map of each die"),
    form: options.AnswerForm = options.FORM,
) -> None:
    """Temperatures of a chip and the DRAM on it, layer by layer; what heat passes on its way to the coolant;
    what binds.
    """
    from strata.app.render import heat as render
    from strata.hardware.temperatures import heat

    changes: dict[str, Any] = set_items(set, "cooling", "bond_thickness='5 um'", heat)
    powers = {"--power": power, "--dram-power": dram_power}
    watts = (typed_quantity(text, "W", flag) if text else None for flag, text in powers.items())
    changes |= {"layers": int(whole(layers, "--layers")) if layers else None, "map": map}
    changes |= {"duration": parse(transient, "s", "--transient") if transient else None}
    temperatures = heat(name, *watts, cooled=cooling or None, **changes)
    of = [temperatures]
    form.answer(render.temperatures_dict, render.temperatures_tables, render.temperature_rows, of)
    options.write("picture", svg, render.draw_temperatures, temperatures)
