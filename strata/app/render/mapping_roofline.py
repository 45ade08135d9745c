"""The hierarchical roofline of mappings: each at one rate, with an intensity of memory and one of network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.drawing import COLOURS, DARK, GREY, STYLE, pyplot_of, save
from strata.optimise.fuse import MappingIntensity
from strata.units import show

LOOKS = ((COLOURS[0], "o"), (COLOURS[1], "s"))  # of memory and network
Roof = tuple[str, float]  # its name and B/s


def draw_mapping_roofline(
    points: Sequence[MappingIntensity], memory: Roof, network: Roof, peak: float, title: str, path: Path
) -> Path:
    """Write the picture as SVG."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        return save(pyplot, mapping_roofline(pyplot, points, (memory, network), peak, title), path)


def mapping_roofline(
    pyplot: Any, points: Sequence[MappingIntensity], roofs: tuple[Roof, Roof], peak: float, title: str
) -> Any:
    """The figure: roofs of memory and network under one peak, and for each mapping two dots at its rate, one
    under each roof; a dot on its roof is bound by it. What moves nothing has no dot there.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure, axes = pyplot.subplots(figsize=(7.6, 4.6), layout="constrained")
    dots = [i for p in points for i in (p.memory, p.network) if np.isfinite(i) and i > 0]
    ridges = [peak / speed for _, speed in roofs]
    low, high = 0.35 * min(dots + ridges), 5.0 * max(dots + ridges)
    bottom, top = 0.5 * min(p.rate for p in points), 2.0 * peak
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: show(rate, "FLOP/s")))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.plot([min(ridges), high], [peak, peak], color=DARK, linewidth=1.5)
    axes.annotate(f"peak {show(peak, 'FLOP/s')}", (high, peak), (-4, 4), textcoords="offset points",
                  ha="right", fontsize=8, color=DARK)  # fmt: skip
    for (name, speed), (colour, _), ridge in zip(roofs, LOOKS, ridges, strict=True):
        axes.plot([low, ridge], [low * speed, peak], color=colour, linewidth=1.5)
        at = max(low, np.sqrt(bottom * peak) / speed)
        axes.annotate(f"{name} {show(speed, 'B/s')}", (at, at * speed), (-7, 0), textcoords="offset points",
                      ha="right", fontsize=8, color=colour)  # fmt: skip
    _dots(axes, points)
    for (name, _), (colour, marker) in zip(roofs, LOOKS, strict=True):
        axes.plot([], [], marker, color=colour, markersize=6, label=f"for each byte of {name}")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_xlabel("operational intensity [FLOP/B]")
    axes.set_ylabel("rate of a chip")
    axes.set_title(title)
    return figure


def _dots(axes: Any, points: Sequence[MappingIntensity]) -> None:
    """Two dots a mapping, its name to the right of them."""
    for point in points:
        pair = [i for i in (point.memory, point.network) if np.isfinite(i)]
        axes.plot(pair, [point.rate] * len(pair), color=GREY, linewidth=0.8, linestyle=":")
        for at, (colour, marker) in zip((point.memory, point.network), LOOKS, strict=True):
            if np.isfinite(at):
                axes.plot([at], [point.rate], marker, color=colour, markersize=6, zorder=4)
        axes.annotate(point.name, (max(pair), point.rate), (8, -3), textcoords="offset points",
                      fontsize=8, color=DARK, zorder=5)  # fmt: skip
