"""`strata heat`: how warm a chip and the DRAM on it become, what heat passes on its way, what binds; and its
picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strata.app.words import choices, names_of, plain_table, print_json, set_items, titled, whole
from strata.drawing import keep

SHOWN_TIMES = 8  # rows of temperatures in time


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="Temperatures of a chip and the DRAM on it.",
        epilog="Example: strata heat stack-ref --layers 8 --power 60 --svg heat.svg",
    )(heat)


def heat(
    name: Annotated[
        str, typer.Argument(metavar="CHIP", help="chip name, or a TOML path", autocompletion=names_of("chip"))
    ],
    power: Annotated[
        str, typer.Option(metavar="W", help="power of the logic die  [default: what the chip's limit leaves]")
    ] = "",
    dram_power: Annotated[
        str,
        typer.Option(
            metavar="W", help="power of each DRAM layer  [default: sustained bandwidth, shared out]"
        ),
    ] = "",
    layers: Annotated[str, typer.Option(metavar="N", help="DRAM layers  [default: the chip's]")] = "",
    map: Annotated[
        str,
        typer.Option(
            metavar="MAP",
            help="power on the logic die: uniform, hotspot or a CSV file with a square of numbers",
            autocompletion=choices("uniform", "hotspot"),
        ),
    ] = "hotspot",
    cooling: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="air, liquid or a TOML path  [default: the chip's own, else liquid]",
            autocompletion=names_of("cooling"),
        ),
    ] = "",
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="change a number of the cooling, as often as needed: bond_thickness='5 um'",
        ),
    ] = None,
    transient: Annotated[
        str, typer.Option(metavar="TIME", help="temperatures in time after power is switched on, like 2s")
    ] = "",
    svg: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="write a picture: a section through the stack, and a map of each die"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
) -> None:
    """Temperatures of a chip and the DRAM on it, layer by layer; what heat passes on its way to the coolant;
    what binds.
    """
    from strata.app.cli import say, wrote
    from strata.app.heat_picture import picture
    from strata.hardware.thermal.report import heat as solve
    from strata.units import parse

    changes: dict[str, Any] = set_items(set, "cooling", "bond_thickness='5 um'")
    found = solve(
        name,
        watts(power, "--power"),
        watts(dram_power, "--dram-power"),
        layers=int(whole(layers, "--layers")) if layers else None,
        map=map,
        cooled=cooling or None,
        duration=parse(transient, "s", "--transient") if transient else None,
        **changes,
    )
    if json:
        print_json(as_dict(found))
    else:
        say(*tables(found))
    if svg:
        wrote("picture", keep(svg, picture(found)))


def watts(text: str, what: str) -> float | None:
    """A power as typed, with or without its unit; None where nothing was.

    >>> watts("60", "--power"), watts("0.5 kW", "--power"), watts("", "--power")
    (60.0, 500.0, None)
    """
    from strata.units import parse

    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return parse(text, "W", what)


def as_dict(found: Any) -> dict[str, Any]:
    """Temperatures for machines, in SI units."""
    die, why = found.binding, found.infeasible
    made: dict[str, Any] = {
        "chip": found.chip.name,
        "cooling": found.cooling.title,
        "arrangement": found.cooling.arrangement,
        "power_W": found.power,
        "heat_out_W": found.field.heat_out,
        "ambient_K": float(found.cooling.ambient),
        "fits": why is None,
        "why": None if why is None else str(why),
        "binding": die.name,
        "highest_power_W": found.highest_power,
        "dies": [
            {
                "name": d.name,
                "power_W": d.power,
                "max_K": d.hottest,
                "mean_K": d.mean,
                "min_K": d.coolest,
                "limit_K": d.limit,
            }
            for d in found.dies
        ],
        "path": [
            {"name": p.name, "resistance_K_per_W": p.resistance, "power_W": p.power, "rise_K": p.rise}
            for p in found.path
        ],
    }
    if found.history is not None:
        shown = {d.name: found.history.hottest[d.name] for d in found.dies}
        made["history"] = {"time_s": found.history.times, "max_K": shown}
    return made


def tables(found: Any) -> list[Any]:
    """Temperatures for people."""
    from strata.units import show

    dies = plain_table()
    dies.add_column("die", no_wrap=True)
    for name in ("power", "hottest", "mean", "coolest", "limit", "left"):
        dies.add_column(name, justify="right", no_wrap=True)
    for d in found.dies:
        dies.add_row(
            d.name,
            show(d.power, "W"),
            *(degrees(t) for t in (d.hottest, d.mean, d.coolest, d.limit)),
            f"{d.limit - d.hottest:.1f} K",
            style="bold" if d is found.binding else "",
        )
    way = plain_table()
    way.add_column("way to the coolant", no_wrap=True)
    for name in ("resistance", "power", "rise"):
        way.add_column(name, justify="right", no_wrap=True)
    for p in found.path:
        way.add_row(p.name, f"{p.resistance:.4f} K/W", show(p.power, "W"), f"{p.rise:.1f} K")
    how = found.cooling
    title = f"{found.chip.name}: {show(found.power, 'W')}, coolant {degrees(how.ambient)}, {how.arrangement.replace('_', ' ')}\n{how.title}"
    die, why = found.binding, found.infeasible
    said = f"{die.name} binds: it reaches {degrees(die.limit)} at {show(found.highest_power, 'W')} shared out like this"
    ends = [said if why is None else f"{said}\ntoo hot: {why}"]
    below = "from the coolant down; the last line is what is not straight through: spreading into the lid, and uneven power"
    return [titled(title, dies), titled("", way, below), *in_time(found), *ends]


def in_time(found: Any) -> list[Any]:
    """A few of the temperatures after power is switched on."""
    from strata.units import show

    if found.history is None:
        return []
    made = plain_table()
    made.add_column("after", justify="right", no_wrap=True)
    memory = [d.name for d in found.dies if d.name != "logic"]
    for name in ("logic", *(["hottest DRAM"] if memory else [])):
        made.add_column(name, justify="right", no_wrap=True)
    history, last = found.history, len(found.history.times) - 1
    for i in sorted({round(last / 2**k) for k in range(SHOWN_TIMES)}):
        warmest = [degrees(max(history.hottest[n][i] for n in memory))] if memory else []
        made.add_row(show(history.times[i], "s"), degrees(history.hottest["logic"][i]), *warmest)
    return [titled("", made, "power switched on at the coolant's temperature")]


def degrees(kelvin: float) -> str:
    """A temperature in degrees Celsius.

    >>> degrees(358.15)
    '85.0 °C'
    """
    return f"{kelvin - 273.15:.1f} °C"
