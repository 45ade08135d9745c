"""A mapping as a picture: the graph with its partitions, bars of what each of them takes, its roofline."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.map import partition_rows
from strata.drawing import COLOURS, DARK, GREY, STYLE, check_picture, keep, pyplot_of, save
from strata.hardware.system import System
from strata.optimise.fuse import MappingIntensity
from strata.optimise.joint import ProgramMapping
from strata.optimise.mappings.joint_compare import ComparedMapping, links_bandwidth, mapping_points
from strata.units import show
from strata.workload.graph import Graph
from strata.workload.graph_picture import graph_svg

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


WIDE, ROW, BAR = 460.0, 74.0, 12.0  # of the bars' column, of a partition, of a bar
PARTS = (("compute", "#4c78a8"), ("memory", "#f58518"), ("network", "#54a24b"))


def draw_map(found: ProgramMapping, graph: Graph, title: str, path: Path) -> Path:
    """Write the picture as SVG: the undivided graph on the left, bars of one rank on the right."""
    rows = partition_rows(found)
    groups = [[f"{block.block.partition('/')[0]}:{name}" for name in p.kernels] for block, _, p in rows]
    picture = graph_svg(graph, groups, title=title)
    size = re.search(r'width="(\d+)" height="(\d+)"', picture)
    assert size is not None
    width, height = float(size[1]), float(size[2])
    tall = max(height, 90.0 + ROW * len(rows))
    body = picture[picture.index(">") + 1 :].rsplit("</svg>", 1)[0]
    whole = width + WIDE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="{tall:.0f}" '
        f'viewBox="0 0 {whole:.0f} {tall:.0f}" font-family="sans-serif">'
    )
    ground = f'<rect width="{whole:.0f}" height="{tall:.0f}" fill="#ffffff"/>'
    return keep(path, "\n".join([head, ground, body, *_bars(found, width), "</svg>"]) + "\n")


def _bars(found: ProgramMapping, x: float) -> list[str]:
    rows = partition_rows(found)
    best = found.best
    assert best is not None
    longest = max(max(p.compute, p.memory, p.network) for _, _, p in rows)
    said = f"step {show(best.step, 's')}, " + ("proved optimal" if found.optimal else f"gap {found.gap:.2%}")
    lines = [_text(x, 30.0, said, 13.0, "#333333", bold=True)]
    at = x
    for name, colour in PARTS:
        lines.append(f'<rect x="{at:.0f}" y="42" width="11" height="11" rx="2" fill="{colour}"/>')
        lines.append(_text(at + 16.0, 51.5, name, 10.0, "#555555"))
        at += 86.0
    y = 74.0
    for block, number, p in rows:
        colour = COLOURS[(number - 1) % len(COLOURS)]
        lines.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="7" height="{ROW - 14:.0f}" rx="3" fill="{colour}"/>'
        )
        names = f"{number}: {' '.join(p.kernels)}"
        short = names if len(names) < 58 else f"{names[:56]}…"
        short += f"  x {block.times:g}" if block.times != 1 else ""
        lines.append(_text(x + 14.0, y + 9.0, short, 10.0, "#333333", bold=True))
        for place, (name, own) in enumerate(PARTS):
            value = getattr(p, name)
            top = y + 15.0 + place * (BAR + 1.0)
            long = 250.0 * value / longest
            lines.append(
                f'<rect x="{x + 14:.0f}" y="{top:.1f}" width="{max(long, 0.5):.1f}" height="{BAR:.0f}"'
                f' fill="{own}"'
                f' fill-opacity="{1.0 if name == p.binds else 0.45}"/>'
            )
            label = show(value, "s") + (" binds" if name == p.binds else "") if value else "none"
            lines.append(_text(x + 20.0 + long, top + 9.5, label, 9.0, "#555555"))
        note = f"{p.tiles} tile{'s' if p.tiles > 1 else ''}, {show(p.sram, 'B')}"
        lines.append(_text(x + WIDE - 16.0, y + 32.0, note, 9.0, "#777777", end=True))
        y += ROW
    return lines


def _text(
    x: float, y: float, said: str, size: float, colour: str, *, bold: bool = False, end: bool = False
) -> str:
    look = (' font-weight="bold"' if bold else "") + (' text-anchor="end"' if end else "")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{look}>{html.escape(said)}</text>'
    )


def svg_name(path: Path | None) -> None:
    """Refuse a name that is not a picture's, before anything is searched."""
    if path is not None:
        check_picture(path, "--roofline")


def draw_map_roofline(
    found: ProgramMapping, others: Sequence[ComparedMapping], system: System, name: str, path: Path
) -> Path:
    """Write the picture."""
    svg_name(path)
    assert found.best is not None
    shown = [each for each in others if not each.name.startswith("number")]
    points = mapping_points(found.best, shown, system)
    chip = found.best.layer.blocks[0].problem.chip
    memory, network = ("DRAM", chip.dram_bandwidth), ("network", links_bandwidth(system))
    return draw_mapping_roofline(
        points, memory, network, chip.peak, f"Mappings of {name} on {system.name}", path
    )
