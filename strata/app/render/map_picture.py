"""A mapping as a picture: the graph with its partitions, and bars of what each of them takes."""

from __future__ import annotations

import html
import re
from pathlib import Path

from strata.app.render.map import partition_rows
from strata.drawing import COLOURS, keep
from strata.optimise.joint import ProgramMapping
from strata.units import show
from strata.workload.graph import Graph
from strata.workload.graph_picture import graph_svg

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
