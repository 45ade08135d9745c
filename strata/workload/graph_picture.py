"""Pictures of graphs: kernels as boxes, tensors as edges with their bytes, as SVG or as text for graphviz."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strata.base.drawing import COLOURS, DARK, GREY
from strata.base.units import show
from strata.workload.graph import Block, Graph, Op
from strata.workload.graph_layers import Drawn, layered

BOX, WIDEST, HIGH, GAP, STEP = 148.0, 216.0, 44.0, 22.0, 84.0  # of boxes, and what lies between them
MARGIN, TITLE, BESIDE = 24.0, 46.0, 56.0
KIND_COLOURS = {
    "matmul": COLOURS[0],
    "vector": COLOURS[2],
    "attention": COLOURS[4],
    "experts": COLOURS[1],
    "gather": COLOURS[8],
    "fft": COLOURS[9],
    "scan": COLOURS[6],
    "sort": COLOURS[5],
    "collective": COLOURS[3],
}
OTHER = COLOURS[7]
Partitions = Sequence[Sequence[str]]


def op_work(op: Op) -> float:
    """All operations of an op, on matrix or vector units."""
    return float(op.flop()) or float(op.vector_flop())


def held_weight(op: Op) -> float:
    """Bytes of weights that an op reads: its own, or those that another op stores."""
    read = op.read_weight()
    return float(op.weight_bytes()) + (0.0 if read is None else float(read.bytes()))


@dataclass(frozen=True)
class _Panel:
    """A block as it is drawn: its nodes by name (None: a tensor from outside), its edges, their places."""

    block: Block
    ops: dict[str, Op | None]
    edges: list[tuple[str, str]]
    drawn: Drawn
    box: float  # width of its boxes

    @property
    def size(self) -> tuple[float, float]:
        return self.drawn.width, self.drawn.height + HIGH + TITLE


def _panel(block: Block) -> _Panel:
    """Ops with the tensors that come from outside as pills above their readers; what a backward block reads
    of the forward pass is left out.
    """
    made: dict[str, str] = {}
    ops: dict[str, Op | None] = {}
    edges: list[tuple[str, str]] = []
    for op in block.ops:
        for tensor in op.inputs:
            if ":" in tensor:  # a tensor that the forward pass left
                continue
            source = made.get(tensor, f"in:{tensor}")
            if tensor not in made:
                ops.setdefault(source, None)
            edges.append((source, op.name))
        ops[op.name] = op
        made[op.output] = op.name
    outside = [name for name, op in ops.items() if op is None]
    nodes = [*outside, *(name for name, op in ops.items() if op is not None)]
    box = min(max(BOX, 7.2 * max(len(op.name) for op in block.ops) + 18.0), WIDEST)
    drawn = layered(nodes, edges, dict.fromkeys(nodes, box), GAP, STEP)
    return _Panel(block, ops, list(dict.fromkeys(edges)), drawn, box)


def graph_places(graph: Graph) -> list[dict[str, Any]]:
    """Where the boxes and edges of a drawn graph stand, block by block, for whoever draws it: ops with their
    work and bytes, tensors from outside as nodes without a kind.

    >>> import strata as st
    >>> (layer,) = graph_places(st.program("gpt3-layer").trace(st.forward(1.0)))
    >>> layer["block"], len(layer["nodes"]), layer["nodes"][1]["name"]
    ('layer', 15, 'norm_1')
    """
    return [_placed(_panel(block)) for block in graph.blocks]


def _placed(panel: _Panel) -> dict[str, Any]:
    def node(name: str, op: Op | None) -> dict[str, Any]:
        x, y = panel.drawn.at[name]
        told: dict[str, Any] = {"name": name.removeprefix("in:"), "x": x, "y": y, "kind": op and op.kind}
        if op is not None:
            told |= {"flop": op_work(op), "weights": held_weight(op), "bytes": float(op.output_bytes())}
        return told

    return {
        "block": panel.block.name,
        "times": float(panel.block.times),
        "backward": panel.block.direction == "backward",
        "width": panel.drawn.width,
        "height": panel.drawn.height,
        "box": panel.box,
        "nodes": [node(name, op) for name, op in panel.ops.items()],
        "edges": [
            {"from": a.removeprefix("in:"), "to": b, "points": panel.drawn.paths[a, b]}
            for a, b in panel.edges
        ],
    }


def graph_svg(graph: Graph, partitions: Partitions | None = None, title: str = "") -> str:
    """A graph as SVG, forward blocks on the left and backward ones beside them; the kernels of a partition
    stand on ground of one colour. The same graph gives the same text.

    >>> import strata as st
    >>> graph = st.program("gpt3-layer").trace(st.forward(1.0))
    >>> graph_svg(graph, [["q", "k", "v"]]).count("<rect") > len(graph.blocks[0].ops)
    True
    """
    columns = [[b for b in graph.blocks if b.direction == way] for way in ("forward", "backward")]
    parts: list[str] = []
    x, bottom = MARGIN, 0.0
    top = MARGIN + (34.0 if title else 8.0)
    for column in (c for c in columns if c):
        panels = [_panel(block) for block in column]
        wide = max(*(panel.size[0] for panel in panels), BOX)
        y = top
        for panel in panels:
            left = x + (wide - panel.size[0]) / 2
            parts += _block_svg(panel, left, y, partitions or ())
            y += panel.size[1] + GAP
        x, bottom = x + wide + BESIDE, max(bottom, y)
    width = max(x - BESIDE + MARGIN, 460.0)
    kinds = dict.fromkeys(op.kind for _, op in graph.ops())
    legend, rows = _legend(list(kinds), partitions or (), bottom, width)
    height = bottom + rows * 20.0 + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">'
    )
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
    above = [_text(MARGIN, MARGIN + 6.0, title, 14.0, DARK, bold=True)] if title else []
    work = sum(float(b.times) * op_work(op) for b, op in graph.ops())
    weight = sum(float(b.count) * float(op.weight_bytes()) for b, op in graph.ops())
    said = f"{show(work, 'FLOP')}, weights {show(weight, 'B')}"
    above += [_text(MARGIN, MARGIN + 22.0, said, 10.0, GREY)] if title else []
    return "\n".join([head, ground, *above, *parts, *legend, "</svg>"]) + "\n"


def _block_svg(panel: _Panel, x: float, y: float, partitions: Partitions) -> Iterator[str]:
    times = float(panel.block.times)
    name = panel.block.name + (f" x {times:g}" if times != 1.0 else "")
    wide = max(panel.size[0], BOX)
    frame = f'fill="#fafafa" stroke="#dddddd" rx="10" x="{x - 12:.1f}" y="{y - 4:.1f}"'
    yield f'<rect {frame} width="{wide + 24:.1f}" height="{panel.size[1] + 8:.1f}"/>'
    yield _text(x, y + 14.0, name, 11.0, GREY, bold=True)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return x + point[0], y + TITLE + point[1] + HIGH / 2 - 12.0

    ways = {edge: [place(point) for point in panel.drawn.paths[edge]] for edge in panel.edges}
    yield from _grounds(panel, ways, place, partitions)
    for (source, _), way in ways.items():
        op = panel.ops[source]
        size = 0.0 if op is None else float(op.output_bytes())
        wide = 1.0 + 0.35 * max(math.log10(max(size, 1.0)) - 4.0, 0.0)
        yield f'<path d="{_curve(way)}" fill="none" stroke="#9aa4b0" stroke-width="{wide:.2f}"/>'
        (ax, _ay), (bx, by) = way[-2:]
        tip = by - HIGH / 2
        lean = 1.2 if bx > ax else -1.2 if bx < ax else 0.0
        yield (
            f'<path d="M{bx - 3.5 - lean:.1f} {tip - 7:.1f} L{bx:.1f} {tip:.1f} L{bx + 3.5 - lean:.1f} '
            f'{tip - 7:.1f} Z" fill="#7f8894"/>'
        )
    read = {source for source, _ in panel.edges}
    for node, op in panel.ops.items():
        yield from _node(node, op, place(panel.drawn.at[node]), panel.box, node in read)


def _grounds(
    panel: _Panel,
    ways: dict[tuple[str, str], list[tuple[float, float]]],
    place: Callable[[tuple[float, float]], tuple[float, float]],
    partitions: Partitions,
) -> Iterator[str]:
    """Coloured ground behind the kernels of each partition and the edges inside it; a kernel whose name
    other blocks have too may be named with its block, as block:kernel.
    """
    for number, names in enumerate(partitions):
        own = [name.removeprefix(f"{panel.block.name}:") for name in names]
        inside = [name for name in own if panel.ops.get(name) is not None]
        colour = COLOURS[number % len(COLOURS)]
        if inside:
            yield '<g opacity="0.25">'  # of the group: where its parts overlap the colour does not add up
        for name in inside:
            cx, cy = place(panel.drawn.at[name])
            corner = f'x="{cx - panel.box / 2 - 9:.1f}" y="{cy - HIGH / 2 - 9:.1f}" rx="12"'
            size = f'width="{panel.box + 18:.1f}" height="{HIGH + 18:.1f}"'
            yield f'<rect {corner} {size} fill="{colour}"/>'
        for edge, way in ways.items():
            if edge[0] in inside and edge[1] in inside:
                yield f'<path d="{_curve(way)}" fill="none" stroke="{colour}" stroke-width="18"/>'
        if inside:
            yield "</g>"


def _curve(points: list[tuple[float, float]]) -> str:
    """A smooth way down through points."""
    found = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (ax, ay), (bx, by) in itertools.pairwise(points):
        middle = (ay + by) / 2
        found.append(f"C{ax:.1f} {middle:.1f} {bx:.1f} {middle:.1f} {bx:.1f} {by:.1f}")
    return " ".join(found)


def _node(node: str, op: Op | None, at: tuple[float, float], wide: float, read: bool) -> Iterator[str]:
    x, y = at
    if op is None:
        name = node.removeprefix("in:")
        look = 'height="24" fill="#ffffff" stroke="#9aa4b0" stroke-dasharray="3 3" rx="12"'
        yield f'<rect x="{x - wide / 2 + 14:.1f}" y="{y - 12:.1f}" width="{wide - 28:.1f}" {look}/>'
        yield _text(x, y + 3.5, _short(name, 19), 10.0, GREY, middle=True)
        return
    colour, corner = KIND_COLOURS.get(op.kind, OTHER), (x - wide / 2, y - HIGH / 2)
    box = f'x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{wide:.1f}" height="{HIGH:.1f}" rx="6"'
    yield f'<rect {box} fill="#ffffff"/>'
    yield f'<rect {box} fill="{colour}" fill-opacity="0.16" stroke="{colour}" stroke-width="1.3"/>'
    strip = f'width="5" height="{HIGH:.1f}" rx="2" fill="{colour}"'
    yield f'<rect x="{corner[0]:.1f}" y="{corner[1]:.1f}" {strip}/>'
    yield _text(x + 2.0, y - 4.0, _short(op.name, 28), 10.5, DARK, bold=True, middle=True)
    work, weight = op_work(op), held_weight(op)
    said = [op.kind if not work else show(work, "FLOP")] + ([f"w {show(weight, 'B')}"] if weight else [])
    yield _text(x + 2.0, y + 11.0, " · ".join(said), 9.0, "#555555", middle=True)
    if float(op.output_bytes()):
        shown = show(float(op.output_bytes()), "B")
        look = GREY if read else "#aaaaaa"
        yield _text(x + 5.0, y + HIGH / 2 + 10.5, shown, 8.0, look, halo=True)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(
    x: float,
    y: float,
    said: str,
    size: float,
    colour: str,
    *,
    bold: bool = False,
    middle: bool = False,
    halo: bool = False,
) -> str:
    look = ' font-weight="bold"' if bold else ""
    look += ' paint-order="stroke" stroke="#fafafa" stroke-width="3"' if halo else ""
    look += ' text-anchor="middle"' if middle else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{look}>{html.escape(said)}</text>'
    )


def _legend(kinds: list[str], partitions: Partitions, y: float, width: float) -> tuple[list[str], int]:
    """What colours mean, in rows of one width."""
    entries = [(kind, KIND_COLOURS.get(kind, OTHER), 1.0) for kind in kinds]
    entries += [(f"partition {i + 1}", COLOURS[i % len(COLOURS)], 0.22) for i in range(len(partitions))]
    found, x, row = [], MARGIN, 0
    for said, colour, strength in entries:
        if x > width - 90.0:
            x, row = MARGIN, row + 1
        at = y + 8.0 + 20.0 * row
        look = f'width="11" height="11" rx="2" fill="{colour}" fill-opacity="{strength}"'
        found.append(f'<rect x="{x:.1f}" y="{at:.1f}" {look}/>')
        found.append(_text(x + 16.0, at + 9.5, said, 10.0, DARK))
        x += 30.0 + 5.8 * len(said)
    return found, row + 1


def graph_dot(graph: Graph, partitions: Partitions | None = None, title: str = "") -> str:
    """A graph as text for graphviz: `dot -Tsvg`.

    >>> import strata as st
    >>> graph_dot(st.program("gpt3-layer").trace(st.forward(1.0))).splitlines()[0]
    'digraph "graph" {'
    """
    colours = {name: COLOURS[i % len(COLOURS)] for i, names in enumerate(partitions or ()) for name in names}
    lines = [f'digraph "{title or "graph"}" {{', "  node [shape=box, style=filled, fontname=sans];"]
    for block in graph.blocks:
        lines += [
            f'  subgraph "cluster_{block.name}" {{',
            f'    label="{block.name} x {float(block.times):g}";',
        ]
        panel = _panel(block)
        for node, op in panel.ops.items():
            if op is None:
                lines.append(f'    "{block.name}/{node}" [label="{node[3:]}", shape=ellipse, style=dashed];')
                continue
            weight = held_weight(op)
            said = f"{op.name}\\n{show(op_work(op), 'FLOP')}" + (
                f"\\nw {show(weight, 'B')}" if weight else ""
            )
            edge = f', color="{colours[op.name]}", penwidth=3' if op.name in colours else ""
            fill = f'fillcolor="{KIND_COLOURS.get(op.kind, OTHER)}33"'
            lines.append(f'    "{block.name}/{op.name}" [label="{said}", {fill}{edge}];')
        lines.append("  }")
        for source, target in panel.edges:
            made = panel.ops[source]
            label = "" if made is None else f' [label="{show(float(made.output_bytes()), "B")}"]'
            lines.append(f'  "{block.name}/{source}" -> "{block.name}/{target}"{label};')
    return "\n".join([*lines, "}"]) + "\n"
