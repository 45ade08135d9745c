"""`strata cost`: what a chip costs to make, or a system of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.commands.area import (
    FloorplanName,
    LayerCounts,
    SiliconChanges,
    by_layers,
    layer_counts,
    silicon_changes,
    stacked_chips,
)
from strata.app.commands.options import DevicePrice, JsonFlag, TableFile, command, flag, typed, with_price
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
)
from strata.errors import BadValue

if TYPE_CHECKING:
    from strata.hardware.silicon.system_cost import SystemCost
    from strata.hardware.system import System


OptionalChip = Annotated[
    str,
    typer.Argument(metavar="[CHIP]", help="chip name, or a TOML path", autocompletion=names_of("floorplans")),
]


WholeSystem = Annotated[
    str,
    typed("--system", "NAME", "a system instead of a chip, like 8xh200 or 256xstack-ref", names_of("system")),
]


DfmodelFlag = Annotated[
    bool, flag("--dfmodel", "with --system: cost and power as DFModel counts chips, memory, links and ports")
]


@command("cost", "What a chip costs to make, or a system of them.", "strata cost stack-ref --layers 2,4,8")
def cost_command(
    chip: OptionalChip = "",
    set: SiliconChanges = None,
    floorplan: FloorplanName = "",
    layers: LayerCounts = "",
    system: WholeSystem = "",
    dfmodel: DfmodelFlag = False,
    price: DevicePrice = "",
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """What one packaged chip costs to make, by part, with its yields; or with --system what a whole system
    costs.
    """
    from strata.app.render.silicon import cost_dict, cost_tables
    from strata.hardware.silicon.cost import cost_of

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

    from strata.hardware.money import economics
    from strata.hardware.silicon.system_cost import system_cost
    from strata.hardware.system import system as make_system
    from strata.search.fields import parse_changes

    money = [item for item in items or [] if item.strip().startswith("economics.")]
    chip = [item for item in items or [] if item not in money]
    owner = make_system(name, **silicon_changes(chip, floorplan))
    if money:
        owner = replace(owner, economics=economics(**parse_changes(money)["economics"]))
    return owner, system_cost(owner)
