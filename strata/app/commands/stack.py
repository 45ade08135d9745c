"""`strata dram`, `strata heat`: what banks leave of a memory's bandwidth; temperatures of chip and DRAM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.commands.options import (
    ChipName,
    JsonFlag,
    TableFile,
    argument,
    command,
    drawing,
    flag,
    option,
)
from strata.app.rows_out import answer
from strata.app.terminal import names_of, one_of, set_items, typed_bytes, wrote
from strata.errors import BadValue
from strata.units import typed_quantity, whole


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
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Bandwidth of one channel for a stream of accesses: each bound on it, and the one that tells."""
    from strata.app.render.silicon import channel_dict, channel_table, draw_memories
    from strata.hardware.dram.channel import Stream, dram_channel, sustained_channel
    from strata.units import parse

    memory = dram_channel(name, **set_items(set, "memory", "timing.faw='20 ns'"))
    share = _fraction(read_share)
    limits: dict[str, Any] = {"banks": whole(banks, "--banks") if banks else None}
    limits["outstanding"] = parse(outstanding, "B", "--outstanding") if outstanding else None
    limits["latency"] = parse(latency, "s", "--latency") if latency else None
    runs = [typed_bytes(item, "--run") for item in run.split(",")] if run else []
    runs = runs or _doubled(float(memory.burst), float(memory.row))
    channels = [
        sustained_channel(memory, Stream(run=r, read_share=share, **limits), float(hot)) for r in runs
    ]
    told = channel_dict(memory, share, runs, channels)
    answer(lambda: told, lambda: [channel_table(told)], json, table, "runs")
    if svg:
        wrote("picture", draw_memories(svg, share, limits, float(hot)))


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


def _doubled(first: float, last: float) -> list[float]:
    """Runs from one burst to a whole row.

    >>> _doubled(32.0, 128.0)
    [32.0, 64.0, 128.0]
    """
    runs = [first]
    while runs[-1] * 2 <= last:
        runs.append(runs[-1] * 2)
    return runs


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
    svg: Path | None = drawing("write a picture: a section through the stack, and a map of each die"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Temperatures of a chip and the DRAM on it, layer by layer; what heat passes on its way to the coolant;
    what binds.
    """
    from strata.app.render.heat import (
        draw_temperatures,
        temperature_rows,
        temperatures_dict,
        temperatures_tables,
    )
    from strata.hardware.temperatures import heat
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
    answer(temperatures_dict, temperatures_tables, json, table, temperature_rows, of=[temperatures])
    if svg:
        wrote("picture", draw_temperatures(temperatures, svg))
