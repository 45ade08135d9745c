"""Mappings of programs as tables, JSON and pictures: partitions, layouts, the proof, and what others lose."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import colour_of, note, quantity_axis
from strata.app.render.tables import picked, rows_table
from strata.app.terminal import titled
from strata.base.drawing import COLOURS, DARK, GREY, STYLE, check_picture, keep, pyplot_of, save
from strata.base.units import show
from strata.hardware.system import System
from strata.optimise.fuse import FusedPartition, MappingIntensity
from strata.optimise.joint import ProgramMapping
from strata.optimise.mappings.joint_compare import ComparedMapping, links_bandwidth, mapping_points
from strata.optimise.mappings.joint_problem import MappedBlock
from strata.workload.graph import Graph
from strata.workload.graph_picture import graph_svg

LOOKS = ((COLOURS[0], "o"), (COLOURS[1], "s"))  # of memory and network
Roof = tuple[str, float]  # its name and B/s
WIDE, ROW, BAR = 460.0, 74.0, 12.0  # of the bars' column, of a partition, of a bar
PARTS = (("compute", "#4c78a8"), ("memory", "#f58518"), ("network", "#54a24b"))


def partition_rows(found: ProgramMapping) -> list[tuple[MappedBlock, int, FusedPartition]]:
    """Partitions of all blocks with their numbers."""
    assert found.best is not None
    blocks = found.best.layer.blocks
    every = [(block, partition) for block in blocks for partition in block.fusion.partitions]
    return [(block, number, partition) for number, (block, partition) in enumerate(every, 1)]


def map_notes(found: ProgramMapping, system: System, layouts: str) -> list[str]:
    """What a reader should know of how this was found."""
    given = (
        f"layouts are those of the plan {found.given} (routed experts and uneven divisions are not searched; "
        "--plan names another); partitions are proved best under them"
    )
    one_by_one = f"{system.chip.name} runs kernels one by one: a fused partition is what one kernel with its "
    one_by_one += "tensors kept on the chip could reach"
    notes = [given] if found.given and layouts != "given" else []
    return notes + ([one_by_one] if system.chip.execution != "dataflow" else [])


def map_dict(
    found: ProgramMapping, others: Sequence[ComparedMapping], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """A mapping for machines, in SI units."""
    best, space = found.best, found.space
    assert best is not None
    own = "tiles time compute memory network sram traffic passes binds"
    return {
        "step": best.step,
        **picked(found, "bound gap optimal proof stopped seconds"),
        **picked(best, "mesh=candidate.mesh microbatches=candidate.microbatches stage send gradients memory"),
        "plan": found.given,
        "notes": list(notes),
        "layouts": {module: list(axes) for module, axes in best.layer.options.items()},
        "partitions": [
            {**picked(block, "block times"), "kernels": list(p.kernels), **picked(p, own)}
            for block, _, p in partition_rows(found)
        ],
        "collectives": [
            {**picked(op, "tensor=output pattern group"), "payload": float(op.payload)}
            for op in found.collectives
        ],
        "compared": [picked(c, "name time loss partitions reason") for c in others],
        **picked(found, "candidates bounded nodes layouts_fused=layouts"),
        "space": space
        and {**picked(space, "candidates"), **picked(space, "layouts fusions mappings", str)}
        | picked(space, "counts"),
    }


def map_tables(
    found: ProgramMapping, others: Sequence[ComparedMapping], title: str, notes: Sequence[str] = ()
) -> list[Any]:
    """What `strata map` prints."""
    parts: list[Any] = [*headline(found, title), *notes, "", titled("Partitions", partition_table(found)), ""]
    layouts = layout_lines(found)
    parts += [*layouts, ""] if layouts else []
    assert found.best is not None
    several = found.best.candidate.microbatches > 1 or found.best.candidate.stages > 1
    what = " (all layers, one micro-batch)" if several else ""
    parts.append(titled(f"Other mappings of the same layouts{what}", losses_table(others)))
    if found.space is not None:
        parts += ["", f"space: {big(found.space.mappings)} mappings ({found.space.counts})"]
    return parts


def headline(found: ProgramMapping, title: str) -> list[str]:
    """The step, its parts and its proof."""
    best = found.best
    assert best is not None
    degrees = ",".join(f"{d}={n:g}" for d, n in best.candidate.mesh.items() if n > 1)
    mesh = found.given or degrees or "one device"
    after = {"hand-over": best.send, "gradients": best.gradients}
    parts = [f"stage {show(best.stage, 's')}", *(f"{k} {show(v, 's')}" for k, v in after.items() if v)]
    stopped = "; the search ended early" if found.stopped and not found.optimal else ""
    proof = f"{found.proof}{stopped}, {found.seconds:.1f} s"
    return [
        f"{title}: {mesh}, {counted(best.candidate.microbatches, 'micro-batch', 'micro-batches')}",
        f"step {show(best.step, 's')} ({', '.join(parts)}), {show(best.memory, 'B')} a device",
        f"no mapping is below {show(found.bound, 's')}: {proof}",
    ]


def counted(number: float, one: str, more: str) -> str:
    """A number with its noun.

    >>> counted(1.0, "tile", "tiles"), counted(8.0, "tile", "tiles")
    ('1 tile', '8 tiles')
    """
    return f"{number:g} {one if number == 1 else more}"


def partition_table(found: ProgramMapping) -> Any:
    rows, last = [], ""
    for block, number, p in partition_rows(found):
        repeated = f" x {block.times:g}" if block.times != 1 else ""
        name = "" if block.block == last else block.block + repeated
        last = block.block
        times = (show(v, "s") if v else "" for v in (p.compute, p.memory, p.network, p.time))
        kernels = (" ".join(p.kernels), str(p.tiles))
        rows.append((str(number), name, *kernels, *times, show(p.sram, "B"), p.binds))
    return rows_table("~|block~|kernels~|>tiles|>compute|>memory|>network|>time|>SRAM|bound by", rows)


def layout_lines(found: ProgramMapping) -> list[str]:
    """Modules by what is divided, dimension by dimension."""
    best = found.best
    assert best is not None
    dimensions = [d for d, n in best.candidate.inner.items() if n > 1 and not found.given]
    lines = [f"layouts: those of {found.given}"] if found.given else []
    for place, dimension in enumerate(dimensions):
        by_axis: dict[str, list[str]] = {}
        for module, axes in best.layer.options.items():
            by_axis.setdefault(axes[place] or "whole", []).append(module)
        said = "; ".join(f"{axis}: {', '.join(modules)}" for axis, modules in by_axis.items())
        lines.append(f"layouts on {dimension}: {said}")
    sent = [f"{op.output} {op.pattern.replace('_', '-')}" for op in found.collectives]
    return [*lines, f"collectives: {', '.join(sent)}"] if sent else lines


def losses_table(others: Sequence[ComparedMapping]) -> Any:
    rows = []
    for each in others:
        loss = "" if each.loss == 0 else f"{each.loss:.2%}" if each.loss < 1 else f"{1 + each.loss:.2f} x"
        fits = (each.name, str(each.partitions), show(each.time, "s"), loss)
        rows.append((each.name, "", "does not fit", each.reason) if each.reason else fits)
    return rows_table("mapping|>partitions|>time|>slower by", rows)


def big(number: int) -> str:
    """A large integer in few digits.

    >>> big(120), big(12345678901234567890)
    ('120', '1.23e19')
    """
    text = str(number)
    return text if len(text) < 7 else f"{text[0]}.{text[1:3]}e{len(text) - 1}"


def mapping_roofline(
    pyplot: Any, points: Sequence[MappingIntensity], roofs: tuple[Roof, Roof], peak: float, title: str
) -> Any:
    """The figure: roofs of memory and network under one peak, and for each mapping two dots at its rate, one
    under each roof; a dot on its roof is bound by it. What moves nothing has no dot there.
    """
    figure, axes = pyplot.subplots(figsize=(7.6, 4.6), layout="constrained")
    dots = [i for p in points for i in (p.memory, p.network) if np.isfinite(i) and i > 0]
    ridges = [peak / speed for _, speed in roofs]
    low, high = 0.35 * min(dots + ridges), 5.0 * max(dots + ridges)
    bottom, top = 0.5 * min(p.rate for p in points), 2.0 * peak
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    quantity_axis(axes.yaxis, "FLOP/s", log=True)
    axes.plot([min(ridges), high], [peak, peak], color=DARK, linewidth=1.5)
    said = {"ha": "right", "fontsize": 8}
    note(axes, f"peak {show(peak, 'FLOP/s')}", (high, peak), (-4, 4), color=DARK, **said)
    for (name, speed), (colour, _), ridge in zip(roofs, LOOKS, ridges, strict=True):
        axes.plot([low, ridge], [low * speed, peak], color=colour, linewidth=1.5)
        at = max(low, np.sqrt(bottom * peak) / speed)
        note(axes, f"{name} {show(speed, 'B/s')}", (at, at * speed), (-7, 0), color=colour, **said)
    _dots(axes, points)
    for (name, _), (colour, marker) in zip(roofs, LOOKS, strict=True):
        axes.plot([], [], marker, color=colour, markersize=6, label=f"for each byte of {name}")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set(xlabel="operational intensity [FLOP/B]", ylabel="rate of a chip", title=title)
    return figure


def _dots(axes: Any, points: Sequence[MappingIntensity]) -> None:
    """Two dots a mapping, its name to the right of them."""
    for point in points:
        pair = [i for i in (point.memory, point.network) if np.isfinite(i)]
        axes.plot(pair, [point.rate] * len(pair), color=GREY, linewidth=0.8, linestyle=":")
        for at, (colour, marker) in zip((point.memory, point.network), LOOKS, strict=True):
            if np.isfinite(at):
                axes.plot([at], [point.rate], marker, color=colour, markersize=6, zorder=4)
        note(axes, point.name, (max(pair), point.rate), (8, -3), fontsize=8, color=DARK, zorder=5)


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
    rows, best = partition_rows(found), found.best
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
        colour, tall = colour_of(number - 1), ROW - 14
        lines.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="7" height="{tall:.0f}" rx="3" fill="{colour}"/>')
        names = f"{number}: {' '.join(p.kernels)}"
        short = names if len(names) < 58 else f"{names[:56]}…"
        short += f"  x {block.times:g}" if block.times != 1 else ""
        lines.append(_text(x + 14.0, y + 9.0, short, 10.0, "#333333", bold=True))
        for place, (name, own) in enumerate(PARTS):
            value, top = getattr(p, name), y + 15.0 + place * (BAR + 1.0)
            long, opacity = 250.0 * value / longest, 1.0 if name == p.binds else 0.45
            lines.append(
                f'<rect x="{x + 14:.0f}" y="{top:.1f}" width="{max(long, 0.5):.1f}" height="{BAR:.0f}"'
                f' fill="{own}" fill-opacity="{opacity}"/>'
            )
            label = show(value, "s") + (" binds" if name == p.binds else "") if value else "none"
            lines.append(_text(x + 20.0 + long, top + 9.5, label, 9.0, "#555555"))
        tiles = f"{p.tiles} tile{'s' if p.tiles > 1 else ''}, {show(p.sram, 'B')}"
        lines.append(_text(x + WIDE - 16.0, y + 32.0, tiles, 9.0, "#777777", end=True))
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
    pyplot, title = pyplot_of(), f"Mappings of {name} on {system.name}"
    with pyplot.rc_context(STYLE):
        return save(pyplot, mapping_roofline(pyplot, points, (memory, network), chip.peak, title), path)
