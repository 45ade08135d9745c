"""`strata dram`: what a memory's banks leave of its interface for a stream of accesses, which bound tells,
and a picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from strata.app.words import names_of, plain_table, print_json, set_items, titled, whole
from strata.errors import BadValue
from strata.units import parse, show

SHORTEST = 16.0  # bytes of a visit the picture starts from


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="What banks and timings leave of a memory's bandwidth.",
        epilog="Example: strata dram hbm3 --run 32,256,1KiB --read-share 0.67",
    )(dram)


def dram(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="memory name, or a TOML path", autocompletion=names_of("memory")),
    ],
    run: Annotated[
        str,
        typer.Option(
            metavar="SIZE,...",
            help="bytes in a row at each visit to a bank; a list makes a table  [default: up to a row]",
        ),
    ] = "",
    read_share: Annotated[str, typer.Option(metavar="0..1", help="share of the visits that read")] = "1",
    banks: Annotated[
        str, typer.Option(metavar="N", help="banks it spreads over  [default: all of the channel]")
    ] = "",
    outstanding: Annotated[
        str, typer.Option(metavar="SIZE", help="bytes asked for and not yet there  [default: no limit]")
    ] = "",
    latency: Annotated[
        str, typer.Option(metavar="TIME", help="of a request, for --outstanding  [default: the row's own]")
    ] = "",
    hot: Annotated[bool, typer.Option("--hot", help="above 85 degC: refreshed twice as often")] = False,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="change a number of it: timing.faw='20 ns'"),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write a picture: every memory's share of its peak over the run"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
) -> None:
    """Bandwidth of one channel for a stream of accesses: each bound on it, and the one that tells."""
    from strata.app.cli import say, wrote
    from strata.hardware.dram.channel import Stream, interface_peak, sustained_channel
    from strata.hardware.dram.channel import dram_channel as memory

    made = memory(name, **set_items(set, "memory", "timing.faw='20 ns'"))
    share = fraction(read_share)
    limits: dict[str, Any] = {"banks": whole(banks, "--banks") if banks else None}
    limits["outstanding"] = parse(outstanding, "B", "--outstanding") if outstanding else None
    limits["latency"] = parse(latency, "s", "--latency") if latency else None
    runs = [length(item) for item in run.split(",")] if run else doubled(float(made.burst), float(made.row))
    found = [sustained_channel(made, Stream(run=r, read_share=share, **limits), float(hot)) for r in runs]
    peak = float(interface_peak(made))
    rows = [
        {
            "run_B": r,
            "bandwidth_B_per_s": float(f.bandwidth),
            "share": float(f.bandwidth) / peak,
            "binds": f.binding,
            "bounds_B_per_s": {k: float(v) for k, v in f.bounds.items()},
        }
        for r, f in zip(runs, found, strict=True)
    ]
    told = {
        "memory": made.name,
        "title": made.title,
        "peak_B_per_s": peak,
        "refresh_leaves": float(found[0].refresh),
        "read_share": share,
        "runs": rows,
    }
    if json:
        print_json(told)
    else:
        say(table(told))
    if svg:
        picture(svg, share, limits, float(hot))
        wrote("picture", svg)


def fraction(text: str) -> float:
    """A share as typed.

    >>> fraction("0.67")
    0.67
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value <= 1.0:
        raise BadValue(f"--read-share must be a number from 0 to 1, but got '{text}'")
    return value


def length(text: str) -> float:
    """Bytes as typed, with or without a unit.

    >>> length("256"), length("1KiB")
    (256.0, 1024.0)
    """
    bare = text.strip()
    value = float(parse(f"{bare} B" if bare.replace(".", "", 1).isdigit() else bare, "B", "--run"))
    if not value > 0:
        raise BadValue(f"--run must be positive, but got '{text}'")
    return value


def doubled(first: float, last: float) -> list[float]:
    """Runs from one burst to a whole row.

    >>> doubled(32.0, 128.0)
    [32.0, 64.0, 128.0]
    """
    runs = [first]
    while runs[-1] * 2 <= last:
        runs.append(runs[-1] * 2)
    return runs


def table(told: dict[str, Any]) -> Any:
    """Bandwidth by run, its bounds beside it."""
    shown = plain_table()
    bounds = list(told["runs"][0]["bounds_B_per_s"])
    for head in ("run", "bandwidth", "of peak", "binds", *bounds):
        shown.add_column(head, justify="left" if head == "binds" else "right")
    for row in told["runs"]:
        each = [show(row["bounds_B_per_s"][b], "B/s") for b in bounds]
        shown.add_row(
            f"{row['run_B']:g} B",
            show(row["bandwidth_B_per_s"], "B/s"),
            f"{row['share']:.1%}",
            row["binds"],
            *each,
        )
    below = f"peak {show(told['peak_B_per_s'], 'B/s')} a channel; refresh leaves {told['refresh_leaves']:.1%}; {told['read_share']:.0%} of the visits read"
    return titled(f"{told['memory']}: {told['title']}", shown, below)


def picture(path: Path, share: float, limits: dict[str, Any], hot: float) -> None:
    """Every shipped memory's share of its peak over the run."""
    from strata.drawing import COLOURS, STYLE, pyplot_of, save
    from strata.hardware.dram.channel import Stream, dram_channel, interface_peak, sustained_channel
    from strata.params import names

    pyplot = pyplot_of()
    runs = SHORTEST * 2.0 ** np.arange(0, 8.01, 0.25)
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(6.6, 3.8), layout="constrained")
        for i, name in enumerate(names("memory")):
            made = dram_channel(name)
            found = sustained_channel(
                made, Stream(run=runs, read_share=share, **limits), hot
            ).bandwidth / interface_peak(made)
            axes.plot(
                runs,
                100 * np.asarray(found),
                linewidth=1.5,
                color=COLOURS[i % len(COLOURS)],
                linestyle="-" if i < len(COLOURS) else "--",
                label=name,
            )
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 100)
        axes.set_xlabel("bytes in a row at each visit to a bank")
        axes.set_ylabel("% of the interface's peak")
        axes.set_title(f"What banks leave of the interface, {share:.0%} reads")
        axes.legend(frameon=False, fontsize=8)
        save(pyplot, figure, path)
