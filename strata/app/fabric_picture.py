"""The picture of a fabric: one panel a level, innermost first, each level's members being the whole level
before it.

Consecutive rings and chains share a panel, up to three of them: a torus or a mesh. Written as SVG by hand: no
library is needed, and the same fabric gives the same bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from html import escape

from strata.hardware.fabric import Dimension
from strata.hardware.topology import Topology
from strata.units import show

COLOURS = ("#3b6fb6", "#dd8452", "#3f9b63", "#c44e52", "#8172b3", "#7d6250")
DARK, GREY, PALE = "#333", "#777", "#f6f7f9"
SIDE, GAP, TOP, FOOT = 300.0, 46.0, 66.0, 96.0  # of a panel's square, between panels, above and below
AROUND, ALONG, DEEP = 16, 8, 4  # members shown of a circle, of an axis of a grid, and of a cube
Point = tuple[float, float]


def picture(found: Topology) -> str:
    """A fabric's topology as SVG."""
    levels = list(grouped(found))
    height = TOP + SIDE + FOOT
    whole, made = found.whole, found.fabric
    facts = f"{whole.size:,.0f} devices · bisection {show(whole.bisection, 'B/s')} · diameter {whole.diameter:g} steps · mean {whole.mean_hops:.3g}"
    title = f"{made.name}: {shape(found)}"
    panels = len(levels) * SIDE + (len(levels) - 1) * GAP
    width = math.ceil(48.0 + max(panels, 8.4 * len(title), 6.4 * len(facts)))
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" font-family="sans-serif">',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        text((24, 26), title, 15, DARK, weight="bold"),
        text((24, 46), facts, 12, GREY),
    ]
    below = 1.0
    for place, level in enumerate(levels):
        left = 24.0 + place * (SIDE + GAP)
        drawn += panel(found, level, left, below, last=place == len(levels) - 1)
        below *= math.prod(float(made.dimension[i].size) for i in level)
    return "\n".join([*drawn, "</svg>", ""])


def shape(found: Topology) -> str:
    """Sizes and kinds in words.

    >>> from strata.hardware.topology import topology
    >>> shape(topology("hgx-h200", (8, 4)))
    'switch of 8 × switch of 4'
    """
    return " × ".join(f"{d.kind} of {d.size:g}" for d in found.fabric.dimension if d.size > 1) or "one device"


def grouped(found: Topology) -> Iterator[list[int]]:
    """Dimensions that share a panel; those with one member are left out."""
    run: list[int] = []
    for i, dimension in enumerate(found.fabric.dimension):
        if dimension.size <= 1:
            continue
        if dimension.kind not in ("ring", "chain"):
            yield from ([run] if run else [])
            yield [i]
            run = []
        elif len(run) == 3 or (run and dimension.bandwidth != found.fabric.dimension[run[0]].bandwidth):
            yield run
            run = [i]
        else:
            run.append(i)
    yield from ([run] if run else [])


# ------------------------------------------------------------------------------------------------------
# panels


def panel(found: Topology, level: list[int], left: float, below: float, last: bool) -> Iterator[str]:
    """One level: its frame, its drawing, what it is called and offers, and the wedge to the level it is a
    member of.
    """
    dimensions = [found.fabric.dimension[i] for i in level]
    colour = COLOURS[level[0] % len(COLOURS)]
    yield f'<rect x="{left:g}" y="{TOP:g}" width="{SIDE:g}" height="{SIDE:g}" rx="10" fill="{PALE}" stroke="#dfe3e8"/>'
    if not last:
        middle = TOP + SIDE / 2
        yield f'<path d="M{left + SIDE + 8:g} {middle - 26:g}l{GAP - 18:g} 26l-{GAP - 18:g} 26z" fill="#dfe3e8"/>'
    most = max(float(d.size) for d in dimensions)
    size = (
        (44.0 if most <= 6 else 34.0 if most <= 10 else 27.0) if below > 1 else (24.0 if most <= 8 else 17.0)
    )
    if len(dimensions) > 1:
        yield from grid((left, TOP), dimensions, colour, size, below)
    else:
        draw = {"switch": star, "chain": grid, "ring": circle, "full": circle, "dragonfly": circle}[
            dimensions[0].kind
        ]
        yield from draw((left, TOP), dimensions, colour, size, below)
    yield from caption(found, level, (left, TOP + SIDE), below)


def caption(found: Topology, level: list[int], corner: Point, below: float) -> Iterator[str]:
    dimensions, of = [found.fabric.dimension[i] for i in level], [found.dimension[i] for i in level]
    several = {"ring": "torus", "chain": "mesh", "mixed": "torus and mesh"}
    alike = len({d.kind for d in dimensions}) == 1
    kind = dimensions[0].kind if len(level) == 1 else several[dimensions[0].kind if alike else "mixed"]
    sizes = " × ".join(f"{d.size:g}" for d in dimensions)
    first, x, y = dimensions[0], corner[0] + 4, corner[1] + 20
    yield text(
        (x, y),
        f"{', '.join(d.name for d in dimensions)}: {kind} of {sizes}",
        13,
        COLOURS[level[0] % len(COLOURS)],
        weight="bold",
    )
    share = (
        f", {show(of[0].bandwidth, 'B/s')} when all send"
        if first.oversubscription is not None and first.oversubscription > 1
        else ""
    )
    each = " in each" if len(level) > 1 else ""
    yield text((x, y + 18), f"{show(first.bandwidth, 'B/s')} a device and direction{each}{share}", 11, DARK)
    yield text(
        (x, y + 34),
        f"{show(first.latency, 's')} and {show(first.energy, 'J/B')} a step; bisection {show(min(m.bisection for m in of), 'B/s')}",
        11,
        GREY,
    )
    member = "a dot is a device" if below == 1 else f"a box is {below:,.0f} devices, the panel before"
    networks = f"{of[0].networks:,.0f} such networks; " if of[0].networks > 1 and len(level) == 1 else ""
    closing = (
        "; open ends meet"
        if len(level) > 1 and any(d.kind == "ring" and d.size > 2 for d in dimensions)
        else ""
    )
    yield text((x, y + 50), f"{networks}{member}{closing}", 11, GREY)


def member(at: Point, size: float, below: float, colour: str, faded: float = 1.0) -> str:
    """A device as a dot, or a block of devices as a box with their number."""
    x, y = at
    if below == 1:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size / 2:.1f}" fill="{colour}" fill-opacity="{faded:g}" stroke="#fff" stroke-width="1.5"/>'
    half, count = size / 2, f"{below:,.0f}" if below < 10_000 else f"{below / 1000:,.0f}k"
    box = f'<rect x="{x - half:.1f}" y="{y - half:.1f}" width="{size:.1f}" height="{size:.1f}" rx="5" fill="#fff" stroke="{colour}" stroke-width="1.8"/>'
    inside = text(
        (x, y + size * 0.13),
        count,
        min(size * 0.38, size * 1.5 / len(count)),
        colour,
        weight="bold",
        anchor="middle",
    )
    return f'<g opacity="{faded:g}">{box}{inside}</g>'


def line(
    a: Point, b: Point, colour: str, width: float = 1.6, opacity: float = 0.75, dashed: bool = False
) -> str:
    dash = ' stroke-dasharray="3 4"' if dashed else ""
    return f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{colour}" stroke-width="{width:g}" stroke-opacity="{opacity:g}"{dash}/>'


def text(
    at: Point, said: str, size: float, colour: str, weight: str = "normal", anchor: str = "start"
) -> str:
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" font-size="{size:g}" fill="{colour}" font-weight="{weight}" text-anchor="{anchor}">{escape(said)}</text>'


def shown_of(size: float, most: int) -> list[int | None]:
    """Members to draw of so many, None where some are left out.

    >>> shown_of(4, 8), shown_of(74, 6)
    ([0, 1, 2, 3], [0, 1, 2, 3, None, 73])
    """
    count = int(size)
    return list(range(count)) if count <= most else [*range(most - 2), None, count - 1]


def star(corner: Point, dimensions: list[Dimension], colour: str, size: float, below: float) -> Iterator[str]:
    """Members around a switch; fewer spokes leave it upwards where it is oversubscribed."""
    dimension = dimensions[0]
    centre = corner[0] + SIDE / 2, corner[1] + SIDE / 2
    places = around(centre, dimension, size)
    for i, at in places:
        if i is not None:
            yield line(centre, at, colour, 2.2)
    yield from members(places, size, below, colour)
    taper = dimension.oversubscription
    label = "switch" if taper is None or taper == 1 else f"{taper:.3g} : 1"
    yield f'<rect x="{centre[0] - 32:.1f}" y="{centre[1] - 15:.1f}" width="64" height="30" rx="6" fill="{DARK}"/>'
    yield text((centre[0], centre[1] + 4.5), label, 12, "#fff", weight="bold", anchor="middle")


def circle(
    corner: Point, dimensions: list[Dimension], colour: str, size: float, below: float
) -> Iterator[str]:
    """Members on a circle: neighbours joined in a ring, all pairs where each has a link to each; groups of a
    dragonfly by their routers.
    """
    dimension = dimensions[0]
    centre = corner[0] + SIDE / 2, corner[1] + SIDE / 2
    places = around(centre, dimension, size)
    if dimension.kind == "ring":
        for (a, start), (b, end) in itertools.pairwise([*places, places[0]]):
            yield line(start, end, colour, 2.2, dashed=a is None or b is None)
        yield from members(places, size, below, colour)
        return
    inner = [
        (i, ((at[0] - centre[0]) * 0.72 + centre[0], (at[1] - centre[1]) * 0.72 + centre[1]))
        for i, at in places
    ]
    ends = inner if dimension.kind == "dragonfly" else places
    for (_, start), (_, end) in itertools.combinations([e for e in ends if e[0] is not None], 2):
        yield line(start, end, colour, 1.3, 0.55)
    if dimension.kind == "dragonfly":
        for (i, near), (_, far) in zip(inner, places, strict=True):
            if i is not None:
                yield line(near, far, DARK, 2.2)
                yield f'<rect x="{near[0] - 5:.1f}" y="{near[1] - 5:.1f}" width="10" height="10" rx="2" fill="{DARK}"/>'
    yield from members(places, size, below, colour)


def around(centre: Point, dimension: Dimension, size: float) -> list[tuple[int | None, Point]]:
    listed = shown_of(dimension.size, AROUND)
    radius = SIDE / 2 - 18 - size / 2
    turn = [2 * math.pi * k / len(listed) - math.pi / 2 for k in range(len(listed))]
    return [
        (i, (centre[0] + radius * math.cos(t), centre[1] + radius * math.sin(t)))
        for i, t in zip(listed, turn, strict=True)
    ]


def members(places: list[tuple[int | None, Point]], size: float, below: float, colour: str) -> Iterator[str]:
    for i, at in places:
        if i is None:
            yield f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="13" fill="{PALE}"/>' + text(
                (at[0], at[1] + 5), "…", 20, GREY, anchor="middle"
            )
        else:
            yield member(at, size, below, colour)


def grid(corner: Point, dimensions: list[Dimension], colour: str, size: float, below: float) -> Iterator[str]:
    """One to three axes of rings and chains, the third one drawn backwards; a ring's closing link leaves at
    both of its ends.
    """
    counts = [min(int(d.size), DEEP if len(dimensions) > 2 else ALONG) for d in dimensions]
    counts += [1] * (3 - len(counts))
    back = 26.0 if counts[2] > 1 else 0.0
    room = SIDE - 84.0 - back * (counts[2] - 1)
    step = min(room / max(counts[0] - 1, counts[1] - 1, 1), 150.0)
    wide, high = (
        step * (counts[0] - 1) + back * (counts[2] - 1),
        step * (counts[1] - 1) + back * (counts[2] - 1),
    )
    size = min(size, step * 0.55, 17.0 if counts[2] > 1 and below == 1 else size)
    origin = corner[0] + (SIDE - wide) / 2, corner[1] + (SIDE + high) / 2

    def at(x: float, y: float, z: float) -> Point:
        return origin[0] + step * x + back * z, origin[1] - step * y - back * z

    axes = len(dimensions)
    for z in reversed(range(counts[2])):
        faded = 1.0 - 0.6 * z / max(counts[2] - 1, 1)
        for x, y in itertools.product(range(counts[0]), range(counts[1])):
            here = (x, y, z)
            for axis in range(axes):
                # Of a cube, the closing links of its front and of its outline are enough to be seen.
                outline = z == 0 if axis < 2 else x in (0, counts[0] - 1) or y in (0, counts[1] - 1)
                yield from axis_links(
                    here, axis, counts[axis], dimensions[axis], at, colour, faded, closing=axes < 3 or outline
                )
        yield from (
            member(at(x, y, z), size, below, colour, faded)
            for x, y in itertools.product(range(counts[0]), range(counts[1]))
        )


def axis_links(
    here: tuple[int, int, int],
    axis: int,
    count: int,
    dimension: Dimension,
    at: Callable[[float, float, float], Point],
    colour: str,
    faded: float,
    closing: bool,
) -> Iterator[str]:
    """The link to the next member on an axis, the two ends of a ring's closing link, and dots where members
    are left out.
    """

    def moved(by: float) -> Point:
        place = [float(c) for c in here]
        place[axis] += by
        return at(*place)

    first, last = here[axis] == 0, here[axis] == count - 1
    if not last:
        yield line(
            at(*here),
            moved(1),
            colour,
            2.0,
            0.7 * faded,
            dashed=dimension.size > count and here[axis] == count - 2,
        )
    if closing and dimension.kind == "ring" and dimension.size > 2:
        reach = min(0.42, 0.42 * 72 / max(math.dist(at(0, 0, 0), at(1, 0, 0)), 1)) if axis < 2 else 0.6
        for end, by in ((first, -reach), (last, reach)):
            if end:
                yield line(at(*here), moved(by), colour, 2.0, 0.7 * faded)
                tip = moved(by)
                yield f'<circle cx="{tip[0]:.1f}" cy="{tip[1]:.1f}" r="2.4" fill="#fff" stroke="{colour}" stroke-opacity="{faded:g}" stroke-width="1.4"/>'
