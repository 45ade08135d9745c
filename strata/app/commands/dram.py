"""`strata dram`: what a memory's banks leave of its interface for a stream of accesses, and which bound
tells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strata.app.commands.options import JsonFlag, TableFile, command, picture, typed
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
    set_items,
    typed_bytes,
    wrote,
)
from strata.errors import BadValue
from strata.units import whole

MemoriesPicture = Annotated[
    Path | None, picture("write a picture: every memory's share of its peak over the run")
]


@command(
    "dram",
    "What banks and timings leave of a memory's bandwidth.",
    "strata dram hbm3 --run 32,256,1KiB --read-share 0.67",
)
def dram_command(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="memory name, or a TOML path", autocompletion=names_of("memory")),
    ],
    run: Annotated[
        str,
        typed(
            "",
            "SIZE,...",
            "bytes in a row at each visit to a bank; a list makes a table  [default: up to a row]",
        ),
    ] = "",
    read_share: Annotated[str, typed("", "0..1", "share of the visits that read")] = "1",
    banks: Annotated[str, typed("", "N", "banks it spreads over  [default: all of the channel]")] = "",
    outstanding: Annotated[
        str, typed("", "SIZE", "bytes asked for and not yet there  [default: no limit]")
    ] = "",
    latency: Annotated[
        str, typed("", "TIME", "of a request, for --outstanding  [default: the row's own]")
    ] = "",
    hot: Annotated[bool, typer.Option("--hot", help="above 85 degC: refreshed twice as often")] = False,
    set: Annotated[
        list[str] | None, typed("--set", "PATH=VALUE", "change a number of it: timing.faw='20 ns'")
    ] = None,
    svg: MemoriesPicture = None,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Bandwidth of one channel for a stream of accesses: each bound on it, and the one that tells."""
    from strata.app.render.silicon import channel_dict, channel_table
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
        from strata.app.render.silicon import draw_memories

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
