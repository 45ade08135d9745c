"""Mappings under two roofs: operations for every byte of DRAM and of network, at the rate each reaches.

After DFModel (2024), figure 18: a mapping is two points at one height.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from strata.drawing import COLOURS, DARK, GREY, STYLE, pyplot_of, save
from strata.errors import BadValue
from strata.hardware.system import System
from strata.optimise.joint import ProgramMapping
from strata.optimise.mappings.joint_compare import ComparedMapping, links_bandwidth, mapping_points
from strata.units import show


def svg_name(path: Path | None) -> None:
    """Refuse a name that is not an SVG's, before anything is searched."""
    if path is not None and path.suffix != ".svg":
        raise BadValue(f"--roofline writes an SVG picture: give a name that ends in .svg, but got '{path}'")


def draw_map_roofline(
    found: ProgramMapping, others: Sequence[ComparedMapping], system: System, name: str, path: Path
) -> Path:
    """Write the picture as SVG."""
    svg_name(path)
    assert found.best is not None
    shown = [each for each in others if not each.name.startswith("number")]
    points = mapping_points(found.best, shown, system)
    chip = found.best.layer.blocks[0].problem.problem.chip
    roofs = [("DRAM", chip.dram_bandwidth, "memory"), ("network", links_bandwidth(system), "network")]
    if not any(np.isfinite(p.network) for p in points):
        del roofs[1]  # nothing is sent
    peak = chip.peak
    at = [getattr(p, kind) for p in points for _, _, kind in roofs if np.isfinite(getattr(p, kind))]
    low, high = 0.3 * min([*at, peak / roofs[0][1]]), 5.0 * max([*at, peak / roofs[-1][1]])
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(9.2, 5.4))
        for place, (roof, bandwidth, _) in enumerate(roofs):
            ridge = peak / bandwidth
            line = "-" if place == 0 else "--"
            axes.plot(
                [low, ridge],
                [low * bandwidth, peak],
                line,
                color=GREY,
                label=f"{roof} {show(bandwidth, 'B/s')}",
            )
        axes.plot([low, high], [peak, peak], color=DARK, label=f"peak {show(peak, 'FLOP/s')}")
        for number, point in enumerate(points):
            colour = COLOURS[number % len(COLOURS)]
            finite = [x for x in (point.memory, point.network) if np.isfinite(x)]
            axes.plot(finite, [point.rate] * len(finite), color=colour, linewidth=1.0, zorder=3)
            axes.scatter(
                [point.memory], [point.rate], color=colour, marker="o", s=55, zorder=4, label=point.name
            )
            if np.isfinite(point.network):
                axes.scatter([point.network], [point.rate], color=colour, marker="s", s=55, zorder=4)
        axes.set(xscale="log", yscale="log", xlim=(low, high))
        axes.set_ylim(0.3 * min(p.rate for p in points), 2.5 * peak)
        axes.set_xlabel("operations for each byte: of DRAM (round), of the network (square) [FLOP/B]")
        axes.set_ylabel("rate of one chip [FLOP/s]")
        axes.set_title(f"Mappings of {name} on {system.name}")
        axes.legend(loc="lower right", fontsize=8, frameon=False)
        figure.tight_layout()
        return save(pyplot, figure, path)
