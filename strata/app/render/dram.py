"""Bandwidth of a memory channel for people: a table, and a picture of every memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.hardware.dram.channel import (
    Dram,
    Stream,
    Sustained,
    dram_channel,
    interface_peak,
    sustained_channel,
)
from strata.units import show

SHORTEST = 16.0  # bytes of a visit the picture starts from


def channel_dict(
    memory: Dram, read_share: float, runs: list[float], channels: list[Sustained]
) -> dict[str, Any]:
    """Bandwidth of a channel by the bytes of a visit, for machines."""
    peak = float(interface_peak(memory))
    return {
        "memory": memory.name,
        "title": memory.title,
        "peak_B_per_s": peak,
        "refresh_leaves": float(channels[0].refresh),
        "read_share": read_share,
        "runs": [
            {
                "run_B": run,
                "bandwidth_B_per_s": float(channel.bandwidth),
                "share": float(channel.bandwidth) / peak,
                "binds": channel.binding,
                "bounds_B_per_s": {k: float(v) for k, v in channel.bounds.items()},
            }
            for run, channel in zip(runs, channels, strict=True)
        ],
    }


def channel_table(told: dict[str, Any]) -> Any:
    """Bandwidth by run, its bounds beside it."""
    table = plain_table()
    bounds = list(told["runs"][0]["bounds_B_per_s"])
    for head in ("run", "bandwidth", "of peak", "binds", *bounds):
        table.add_column(head, justify="left" if head == "binds" else "right")
    for row in told["runs"]:
        each = [show(row["bounds_B_per_s"][b], "B/s") for b in bounds]
        table.add_row(
            f"{row['run_B']:g} B",
            show(row["bandwidth_B_per_s"], "B/s"),
            f"{row['share']:.1%}",
            row["binds"],
            *each,
        )
    below = (
        f"peak {show(told['peak_B_per_s'], 'B/s')} a channel; refresh leaves {told['refresh_leaves']:.1%}; "
    )
    below += f"{told['read_share']:.0%} of the visits read"
    return titled(f"{told['memory']}: {told['title']}", table, below)


def draw_memories(path: Path, share: float, limits: dict[str, Any], hot: float) -> Path:
    """Every dram_channel memory's share of its peak over the run."""
    from strata.drawing import COLOURS, STYLE, pyplot_of, save
    from strata.params import names

    pyplot = pyplot_of()
    runs = SHORTEST * 2.0 ** np.arange(0, 8.01, 0.25)
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(6.6, 3.8), layout="constrained")
        for i, name in enumerate(names("memory")):
            memory = dram_channel(name)
            channel = sustained_channel(memory, Stream(run=runs, read_share=share, **limits), hot)
            reached = channel.bandwidth / interface_peak(memory)
            axes.plot(
                runs,
                100 * np.asarray(reached),
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
        return save(pyplot, figure, path)
