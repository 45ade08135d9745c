"""A fabric for machines, for people, and as a picture: one panel a level, innermost first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from strata.app.render.figures import colour_of
from strata.app.render.tables import cells_of, floats, picked, table
from strata.base.drawing import DARK, GREY, Canvas, Point
from strata.base.units import show
from strata.hardware.fabric import Dimension
from strata.hardware.topology import Measures, Topology

UNITS = {"latency": "s", "energy": "J_per_B", "price": "USD"}
UNITS |= dict.fromkeys(("bandwidth", "bisection", "all_reduce", "all_to_all"), "B_per_s")
WIRED = "<dimension|<kind|>size|>port|>when all send|>step|>energy/step|>networks|>links"
OFFERED = "<|>bandwidth|>bisection|>diameter|>mean hops|>farthest|>energy|>all-reduce|>all-to-all|>price"
PALE, FRAME = "#f6f7f9", "#dfe3e8"
SIDE, GAP, LEFT, TOP, FOOT = 300.0, 46.0, 24.0, 66.0, 96.0  # of a panel's square, and the room around it
AROUND, ALONG, DEEP = 16, 8, 4  # members shown of a circle, of an axis of a grid, and of a cube
LETTER = 0.56  # width of a letter of the captions, of its size


def topology_dict(topology: Topology) -> dict[str, Any]:
    """A topology for machines, in SI units; None where a bound does not exist."""

    def measured(of: Any) -> dict[str, Any]:
        values = ((f.name, getattr(of, f.name)) for f in fields(of))
        named = {f"{k}_{UNITS[k]}" if k in UNITS else k: v for k, v in values}
        return {k: v if isinstance(v, str) or v is None else float(v) for k, v in named.items()}

    def stated(d: Any) -> dict[str, Any]:
        usual = {"oversubscription": 1.0, "reduction": 0.0}
        own = {name: value for name, value in floats(d, " ".join(usual)).items() if value is not None}
        return floats(d, "port_B_per_s=bandwidth step_s=latency step_J_per_B=energy") | usual | own

    fabric = topology.fabric
    each = [{**measured(of), **stated(d)} for of, d in zip(topology.dimension, fabric.dimension, strict=True)]
    return {
        **picked(fabric, "fabric=name title note"),
        "open": list(topology.opened),
        "dimensions": each,
        "whole": measured(topology.whole),
    }


def topology_tables(topology: Topology) -> list[Any]:
    """A topology for people: what each dimension is, and what it and the whole offer."""
    fabric, whole = topology.fabric, topology.whole
    wired = (_wired(d, measures) for d, measures in zip(fabric.dimension, topology.dimension, strict=True))
    offered = [(measures.name, *_offered(measures)) for measures in topology.dimension]
    offered.append(("whole fabric", *_offered(whole)))
    below = "bandwidth of a device, one direction; farthest: latency of the steps; energy of a byte to a "
    below += "device at random; bounds: no algorithm is faster"
    title = f"{fabric.name}: {shape_text(topology)}, {whole.size:,.0f} devices\n{fabric.title}"
    opened = f"the size of {', '.join(topology.opened)} is open; shown with 4: give --sizes"
    styles = [*[""] * len(topology.dimension), "bold"]
    tables = [table(title, WIRED, wired), table("", OFFERED, offered, below, styles)]
    return [*tables, *([opened] if topology.opened else [])]


def _wired(dimension: Dimension, measures: Measures) -> list[str]:
    """How a dimension is wired."""
    kind, tapered = dimension.kind, dimension.oversubscription
    kind += ", reduces" if dimension.reduction is not None and dimension.reduction > 0 else ""
    kind += f", {tapered:.4g}:1" if tapered is not None and tapered > 1 else ""
    sizes = [f"{measures.size:g}", show(dimension.bandwidth, "B/s"), show(measures.bandwidth, "B/s")]
    step = cells_of(dimension, "latency:s energy:J/B")
    return [dimension.name, kind, *sizes, *step, *cells_of(measures, "networks:,.0f links:,.0f")]


def _offered(measures: Measures) -> list[str]:
    """What a dimension, or all of them, offer."""
    bounds = (measures.all_reduce, measures.all_to_all)
    fields_shown = "bandwidth:B/s bisection:B/s diameter:g mean_hops:.3g latency:s energy:J/B"
    return [
        *cells_of(measures, fields_shown),
        *("-" if bound == float("inf") else show(bound, "B/s") for bound in bounds),
        "-" if measures.price is None else show(measures.price, "USD"),
    ]


def shape_text(topology: Topology) -> str:
    """Sizes and kinds in words.

    >>> import strata as st
    >>> shape_text(st.hardware.topology("hgx-h200", (8, 4)))
    'switch of 8 × switch of 4'
    """
    parts = (f"{d.kind} of {d.size:g}" for d in topology.fabric.dimension if d.size > 1)
    return " × ".join(parts) or "one device"


@dataclass(frozen=True)
class Panel:
    """One level of a fabric: where it is drawn, its dimensions, and the devices that a member stands for."""

    canvas: Canvas
    left: float
    dimensions: list[Dimension]
    colour: str
    below: float

    @property
    def centre(self) -> Point:
        return self.left + SIDE / 2, TOP + SIDE / 2

    @property
    def size(self) -> float:
        """How large a member is drawn: smaller the more there are."""
        most = max(float(d.size) for d in self.dimensions)
        if self.below > 1:
            return 44.0 if most <= 6 else 34.0 if most <= 10 else 27.0
        return 24.0 if most <= 8 else 17.0

    def draw(self) -> None:
        """Its members and their links."""
        if len(self.dimensions) > 1 or self.dimensions[0].kind == "chain":
            draw_grid(self)
        elif self.dimensions[0].kind == "switch":
            draw_star(self)
        else:
            draw_circle(self)

    def member(self, at: Point, size: float, alpha: float = 1.0) -> None:
        """A device as a dot, or a block of devices as a box with their number."""
        x, y = at
        if self.below == 1:
            if alpha < 1.0:  # links end at a faint dot, too
                self.canvas.circle(at, size / 2, fill=PALE, edge="none", width=0.0)
            self.canvas.circle(at, size / 2, fill=self.colour, edge="#fff", width=1.5, alpha=alpha)
            return
        half, count = size / 2, f"{self.below:,.0f}" if self.below < 10_000 else f"{self.below / 1000:,.0f}k"
        corner, square = (x - half, y - half), (size, size)
        self.canvas.box(corner, square, fill="#fff", edge=self.colour, width=1.8, radius=5.0, alpha=alpha)
        letters = min(size * 0.38, size * 1.5 / len(count))
        place = (x, y + size * 0.13)
        self.canvas.text(place, count, letters, self.colour, bold=True, centred=True, alpha=alpha)

    def members(self, places: list[tuple[int | None, Point]]) -> None:
        """Members at their places, dots where some are left out."""
        for i, (x, y) in places:
            if i is None:
                self.canvas.circle((x, y), 13.0, fill=PALE, edge="none", width=0.0)
                self.canvas.text((x, y + 5), "…", 20, GREY, centred=True)
            else:
                self.member((x, y), self.size)


def draw_fabric(topology: Topology, path: Path) -> Path:
    """A fabric's topology as SVG."""
    levels, fabric, whole = list(panels_of(topology)), topology.fabric, topology.whole
    title = f"{fabric.name}: {shape_text(topology)}"
    facts = f"{whole.size:,.0f} devices · bisection {show(whole.bisection, 'B/s')} · "
    facts += f"diameter {whole.diameter:g} steps · mean {whole.mean_hops:.3g}"
    blocks = [math.prod(float(fabric.dimension[i].size) for i in level) for level in levels]
    belows = [math.prod(blocks[:place]) for place in range(len(levels))]
    captions = [caption(topology, level, below) for level, below in zip(levels, belows, strict=True)]
    longest = (max(LETTER * size * len(said) for said, size in lines) for lines in captions)
    steps = [max(SIDE + GAP, 24.0 + wide) for wide in longest]
    lefts = [LEFT + sum(steps[:place]) for place in range(len(levels))]
    width = max(sum(steps), 0.62 * 15 * len(title), LETTER * 12 * len(facts)) + LEFT
    canvas = Canvas(math.ceil(width), TOP + SIDE + FOOT)
    canvas.text((LEFT, 26), title, 15, DARK, bold=True)
    canvas.text((LEFT, 46), facts, 12, GREY)
    for place, (level, left) in enumerate(zip(levels, lefts, strict=True)):
        colour = colour_of(level[0])
        canvas.box((left, TOP), (SIDE, SIDE), fill=PALE, edge=FRAME, radius=10.0)
        if place + 1 < len(levels):
            x, middle = left + SIDE + 8, TOP + SIDE / 2
            canvas.polygon([(x, middle - 26), (lefts[place + 1] - 10, middle), (x, middle + 26)], FRAME)
        Panel(canvas, left, [fabric.dimension[i] for i in level], colour, belows[place]).draw()
        tinted = zip(captions[place], (colour, DARK, GREY, GREY), strict=True)
        for line, ((said, size), tint) in enumerate(tinted):
            y = TOP + SIDE + (20 if line == 0 else 22 + 16 * line)
            canvas.text((left + 4, y), said, size, tint, bold=line == 0)
    return canvas.save(path)


def panels_of(topology: Topology) -> Iterator[list[int]]:
    """Dimensions that share a panel; those with one member are left out."""
    shared: list[int] = []
    for i, dimension in enumerate(topology.fabric.dimension):
        if dimension.size <= 1:
            continue
        if dimension.kind not in ("ring", "chain"):
            yield from ([shared] if shared else [])
            yield [i]
            shared = []
        elif len(shared) == 3 or (
            shared and dimension.bandwidth != topology.fabric.dimension[shared[0]].bandwidth
        ):
            yield shared
            shared = [i]
        else:
            shared.append(i)
    yield from ([shared] if shared else [])


def caption(topology: Topology, level: list[int], below: float) -> list[tuple[str, float]]:
    """What a level is called and offers: lines with the size of their letters."""
    dimensions = [topology.fabric.dimension[i] for i in level]
    offers = [topology.dimension[i] for i in level]
    several = {"ring": "torus", "chain": "mesh", "mixed": "torus and mesh"}
    alike = len({d.kind for d in dimensions}) == 1
    kind = dimensions[0].kind if len(level) == 1 else several[dimensions[0].kind if alike else "mixed"]
    sizes = " × ".join(f"{d.size:g}" for d in dimensions)
    first, each = dimensions[0], " in each" if len(level) > 1 else ""
    tapered = first.oversubscription is not None and first.oversubscription > 1
    share = f", {show(offers[0].bandwidth, 'B/s')} when all send" if tapered else ""
    bisection = show(min(o.bisection for o in offers), "B/s")
    member = "a dot is a device" if below == 1 else f"a box is {below:,.0f} devices, the panel before"
    alone = offers[0].networks > 1 and len(level) == 1
    networks = f"{offers[0].networks:,.0f} such networks; " if alone else ""
    open_ends = len(level) > 1 and any(d.kind == "ring" and d.size > 2 for d in dimensions)
    return [
        (f"{', '.join(d.name for d in dimensions)}: {kind} of {sizes}", 13),
        (f"{show(first.bandwidth, 'B/s')} a device and direction{each}{share}", 11),
        (f"{show(first.latency, 's')} and {show(first.energy, 'J/B')} a step; bisection {bisection}", 11),
        (f"{networks}{member}{'; open ends meet' if open_ends else ''}", 11),
    ]


def shown_of(size: float, most: int) -> list[int | None]:
    """Members to draw of so many, None where some are left out.

    >>> shown_of(4, 8), shown_of(74, 6)
    ([0, 1, 2, 3], [0, 1, 2, 3, None, 73])
    """
    count = int(size)
    return list(range(count)) if count <= most else [*range(most - 2), None, count - 1]


def around(panel: Panel) -> list[tuple[int | None, Point]]:
    """Members on a circle, the first one above."""
    listed = shown_of(float(panel.dimensions[0].size), AROUND)
    radius, (x, y) = SIDE / 2 - 18 - panel.size / 2, panel.centre
    turns = (2 * math.pi * k / len(listed) - math.pi / 2 for k in range(len(listed)))
    places = ((x + radius * math.cos(t), y + radius * math.sin(t)) for t in turns)
    return list(zip(listed, places, strict=True))


def draw_star(panel: Panel) -> None:
    """Members around a switch, which says by how much it is oversubscribed."""
    canvas, centre, places = panel.canvas, panel.centre, around(panel)
    for i, at in places:
        if i is not None:
            canvas.line(centre, at, panel.colour, width=2.2)
    panel.members(places)
    taper = panel.dimensions[0].oversubscription
    label = "switch" if taper is None or taper == 1 else f"{taper:.3g} : 1"
    canvas.box((centre[0] - 32, centre[1] - 15), (64.0, 30.0), fill=DARK, radius=6.0)
    canvas.text((centre[0], centre[1] + 4.5), label, 12, "#fff", bold=True, centred=True)


def draw_circle(panel: Panel) -> None:
    """Members on a circle: neighbours joined in a ring, all pairs where each has a link to each; groups of a
    dragonfly by their routers.
    """
    canvas, colour, kind, places = panel.canvas, panel.colour, panel.dimensions[0].kind, around(panel)
    if kind == "ring":
        for (a, start), (b, end) in itertools.pairwise([*places, places[0]]):
            canvas.line(start, end, colour, width=2.2, dashed=a is None or b is None)
        panel.members(places)
        return
    x, y = panel.centre
    routers = [(i, ((at[0] - x) * 0.72 + x, (at[1] - y) * 0.72 + y)) for i, at in places]
    ends = routers if kind == "dragonfly" else places
    for (_, start), (_, end) in itertools.combinations([e for e in ends if e[0] is not None], 2):
        canvas.line(start, end, colour, width=1.3, alpha=0.55)
    if kind == "dragonfly":
        for (i, near), (_, far) in zip(routers, places, strict=True):
            if i is not None:
                canvas.line(near, far, DARK, width=2.2)
                canvas.box((near[0] - 5, near[1] - 5), (10.0, 10.0), fill=DARK, radius=2.0)
    panel.members(places)


def draw_grid(panel: Panel) -> None:
    """One to three axes of rings and chains, the third one drawn backwards; a ring's closing link leaves at
    both of its ends.
    """
    axes = len(panel.dimensions)
    counts = [min(int(d.size), DEEP if axes > 2 else ALONG) for d in panel.dimensions] + [1] * (3 - axes)
    back = 26.0 if counts[2] > 1 else 0.0
    room = SIDE - 84.0 - back * (counts[2] - 1)
    step = min(room / max(counts[0] - 1, counts[1] - 1, 1), 150.0)
    wide, high = (step * (count - 1) + back * (counts[2] - 1) for count in counts[:2])
    size = min(panel.size, step * 0.55, 17.0 if counts[2] > 1 and panel.below == 1 else panel.size)
    origin = panel.left + (SIDE - wide) / 2, TOP + (SIDE + high) / 2

    def at(x: float, y: float, z: float) -> Point:
        return origin[0] + step * x + back * z, origin[1] - step * y - back * z

    for z in reversed(range(counts[2])):
        alpha = 1.0 - 0.6 * z / max(counts[2] - 1, 1)
        layer = list(itertools.product(range(counts[0]), range(counts[1])))
        for (x, y), axis in itertools.product(layer, range(axes)):
            # Of a cube, the closing links of its front and of its outline are enough to be seen.
            outline = z == 0 if axis < 2 else x in (0, counts[0] - 1) or y in (0, counts[1] - 1)
            closing = axes < 3 or outline
            axis_links(panel, (x, y, z), axis, counts[axis], at, alpha=alpha, closing=closing)
        for x, y in layer:
            panel.member(at(x, y, z), size, alpha)


def axis_links(
    panel: Panel,
    here: tuple[int, int, int],
    axis: int,
    count: int,
    at: Callable[[float, float, float], Point],
    *,
    alpha: float,
    closing: bool,
) -> None:
    """The link to the next member on an axis, dashed where members are left out, and the two ends of a ring's
    closing link.
    """
    canvas, colour, dimension = panel.canvas, panel.colour, panel.dimensions[axis]

    def moved(by: float) -> Point:
        place = [float(c) for c in here]
        place[axis] += by
        return at(*place)

    first, last = here[axis] == 0, here[axis] == count - 1
    if not last:
        dashed = bool(dimension.size > count) and here[axis] == count - 2
        canvas.line(at(*here), moved(1), colour, width=2.0, alpha=0.7 * alpha, dashed=dashed)
    if closing and dimension.kind == "ring" and dimension.size > 2:
        reach = min(0.42, 0.42 * 72 / max(math.dist(at(0, 0, 0), at(1, 0, 0)), 1)) if axis < 2 else 0.6
        for end, by in ((first, -reach), (last, reach)):
            if end:
                canvas.line(at(*here), moved(by), colour, width=2.0, alpha=0.7 * alpha)
                canvas.circle(moved(by), 2.4, fill="#fff", edge=colour, width=1.4, alpha=alpha)
