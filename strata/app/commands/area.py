"""`strata area`: what fits a chip's logic die."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.commands.options import JsonFlag, TableFile, command, picture, typed
from strata.app.rows_out import answer
from strata.app.terminal import names_of, set_items, wrote
from strata.errors import BadValue
from strata.units import whole

if TYPE_CHECKING:
    from strata.hardware.chip import Chip
    from strata.hardware.silicon.manufacturing import Silicon


DEEPEST = 12  # layers the picture goes to unless told


SiliconChip = Annotated[
    str,
    typer.Argument(metavar="CHIP", help="chip name, or a TOML path", autocompletion=names_of("floorplans")),
]


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
    chip: SiliconChip,
    set: SiliconChanges = None,
    floorplan: FloorplanName = "",
    layers: LayerCounts = "",
    svg: Annotated[Path | None, picture("write a picture: area by part over the layers of the stack")] = None,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """The parts of a chip's logic die, the cores that fit it, and the network between them."""
    from strata.app.render.silicon import area_dict, area_tables, draw_die_areas, stacks_table
    from strata.hardware.silicon.manufacturing import area_of

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
    from strata.hardware.silicon.manufacturing import made_of

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
