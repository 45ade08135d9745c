"""`strata heat`: how warm a chip and the DRAM on it become, what heat passes on its way, what binds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.commands.options import ChipName, JsonFlag, TableFile, command, option, picture
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
    one_of,
    set_items,
    wrote,
)
from strata.units import typed_quantity, whole


@command(
    "heat",
    "Temperatures of a chip and the DRAM on it.",
    "strata heat stack-ref --layers 8 --power 60 --svg heat.svg",
)
def heat_command(
    name: ChipName,
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
    svg: Path | None = picture("write a picture: a section through the stack, and a map of each die"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Temperatures of a chip and the DRAM on it, layer by layer; what heat passes on its way to the coolant;
    what binds.
    """
    from strata.app.render.heat import temperature_rows, temperatures_dict, temperatures_tables
    from strata.hardware.thermal.report import heat
    from strata.units import parse

    changes: dict[str, Any] = set_items(set, "cooling", "bond_thickness='5 um'", heat)
    temperatures = heat(
        name,
        typed_quantity(power, "W", "--power") if power else None,
        typed_quantity(dram_power, "W", "--dram-power") if dram_power else None,
        layers=int(whole(layers, "--layers")) if layers else None,
        map=map,
        cooled=cooling or None,
        duration=parse(transient, "s", "--transient") if transient else None,
        **changes,
    )
    answer(
        lambda: temperatures_dict(temperatures),
        lambda: temperatures_tables(temperatures),
        json,
        table,
        temperature_rows,
    )
    if svg:
        from strata.app.render.heat import draw_temperatures

        wrote("picture", draw_temperatures(temperatures, svg))
