"""The picture of a device mapping: the grid of devices, each with its shard, and the logical edges along
their routes, a colour each dimension, as wide as links are shared.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import prod
from pathlib import Path

from deepflow.device_mapping import Coordinates
from deepflow.link_sharing import DeviceGrid, DeviceMapping
from strata.base.drawing import COLOURS, DARK, GREY, Canvas, Point
from strata.base.errors import require

CELL, DEVICE, GAP, LEFT, TOP = 74.0, 34.0, 22.0, 40.0, 92.0
STROKE, WIDEST, STUB = 1.5, 22.0, 17.0
BOW, BENDS = 21.0, 10
MOST, MOST_PLACES = 1024, 65_536  # devices that a picture can show, and places for them on the grid
FRAME, PALE = "#dfe3e8", "#f6f7f9"


def check_drawn(grid: DeviceGrid, shards: int) -> None:
    """Refuse a grid of which a picture would show nothing, before anything is laid on it."""
    require(shards <= MOST, f"a picture shows at most {MOST} devices", shards=shards)
    places, frames = prod(grid.sizes), prod(grid.sizes[2:])
    require(places <= MOST_PLACES, f"a picture shows a grid of at most {MOST_PLACES} devices", devices=places)
    require(frames <= MOST, f"a picture shows at most {MOST} packages", packages=frames)


def draw_mapping(mapping: DeviceMapping, path: Path) -> Path:
    """A mapping as SVG; axes beyond the second put grids side by side, then below each other."""
    sizes = mapping.grid.sizes
    check_drawn(mapping.grid, len(mapping.places))
    wide, high = _extent(sizes)
    names = [d.name for d in mapping.mesh if d.degree > 1]
    title = f"{' > '.join(mapping.order)} on {mapping.grid.name}, laid by {mapping.laying}"
    canvas = Canvas(max(wide + 2 * LEFT, 9.0 * len(title) + LEFT), high + TOP + 30.0)
    canvas.text((LEFT, 26), title, 14, DARK, bold=True)
    sharing = ", ".join(f"{name} {worst}" for name, worst in mapping.sharing.items() if worst)
    canvas.text((LEFT, 45), f"most edges on a link: {sharing or 'none'}", 11, GREY)
    x = LEFT
    for name in names:
        colour = _colour(mapping, name)
        canvas.line((x, 62), (x + 18, 62), colour, width=4.0, alpha=1.0)
        canvas.text((x + 24, 66), name, 11, colour, bold=True)
        x += 48 + 7.0 * len(name)
    canvas.text((x, 66), f"devices carry ({', '.join(names)})", 10, GREY)
    for corner, size in _frames(sizes):
        canvas.box(corner, size, fill=PALE, edge=FRAME, radius=8.0)
    _draw_links(canvas, mapping)
    _draw_devices(canvas, mapping)
    return canvas.save(path)


def _colour(mapping: DeviceMapping, name: str) -> str:
    return COLOURS[[d.name for d in mapping.mesh].index(name) % len(COLOURS)]


def _pitches(sizes: tuple[int, ...]) -> list[Point]:
    """Shift of one step along each axis: x and y in turn, each block as far as the one before is long."""
    long, found = [CELL, CELL], []
    for axis, size in enumerate(sizes):
        side = axis % 2
        found.append((long[0], 0.0) if side == 0 else (0.0, long[1]))
        if size > 1:
            long[side] = long[side] * size + GAP
    return found


def _extent(sizes: tuple[int, ...]) -> Point:
    far = _at(tuple(size - 1 for size in sizes), sizes)
    return far[0] - LEFT + CELL / 2 + GAP, far[1] - TOP + CELL / 2 + GAP


def _at(place: Coordinates, sizes: tuple[int, ...]) -> Point:
    """The middle of a device."""
    x, y = LEFT + CELL / 2, TOP + CELL / 2
    for step, (dx, dy) in zip(place, _pitches(sizes), strict=True):
        x, y = x + step * dx, y + step * dy
    return x, y


def _frames(sizes: tuple[int, ...]) -> list[tuple[Point, Point]]:
    """Frames around the innermost two axes: a package, or the first grid of a fabric."""
    inner = (*[size - 1 for size in sizes[:2]], *([0] * (len(sizes) - 2)))
    outer: list[Coordinates] = [(0,) * min(2, len(sizes))]
    for copies in sizes[2:]:
        outer = [(*place, k) for place in outer for k in range(copies)]
    far, near = _at(inner, sizes), _at((0,) * len(sizes), sizes)
    size = (far[0] - near[0] + CELL, far[1] - near[1] + CELL)
    corners = [_at(place, sizes) for place in outer]
    return [((x - CELL / 2, y - CELL / 2), size) for x, y in corners]


def _draw_links(canvas: Canvas, mapping: DeviceMapping) -> None:
    """Links as bundles of strokes, one for each dimension that uses them, as wide as its edges there."""
    loads: dict[frozenset[Coordinates], Counter[str]] = {}
    for link, load in mapping.loads.items():
        if link.ends:
            loads.setdefault(frozenset(link.ends), Counter())
            loads[frozenset(link.ends)] |= load  # of its two directions the fuller
    worst = max((load.total() for load in loads.values()), default=1)
    unit = min(STROKE, WIDEST / worst)
    for ends, load in sorted(loads.items(), key=lambda item: sorted(item[0])):
        devices = [_at(place, mapping.grid.sizes) for place in sorted(ends)]
        a, b = devices[0], devices[-1]
        to_switch = (a[0] + STUB, a[1] + STUB)  # which is not drawn
        _bundle(canvas, mapping, (a, to_switch if len(ends) == 1 else b), load, unit)


def _bundle(
    canvas: Canvas, mapping: DeviceMapping, ends: tuple[Point, Point], load: Counter[str], unit: float
) -> None:
    """The strokes of one link side by side: straight to a neighbour, in a bow to a device farther away."""
    (ax, ay), (bx, by) = ends
    length = max(((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5, 1e-9)
    along = ((bx - ax) / length, (by - ay) / length)
    across = (-along[1], along[0])
    offset = -0.5 * unit * load.total()
    for name in (d.name for d in mapping.mesh if load[d.name]):
        width = unit * load[name]
        middle, offset = offset + 0.5 * width, offset + width
        start, end = ((x + across[0] * middle, y + across[1] * middle) for x, y in ((ax, ay), (bx, by)))
        far = length > 1.5 * CELL
        if far and _around(mapping, length):  # the closing link of a ring: a stub at either end
            out = 0.5 * CELL - 3.0
            pieces = [
                (start, (start[0] - along[0] * out, start[1] - along[1] * out)),
                (end, (end[0] + along[0] * out, end[1] + along[1] * out)),
            ]
        else:
            pieces = _bow(start, end, across, BOW if far else 0.0)
        for one, other in pieces:
            canvas.line(one, other, _colour(mapping, name), width=width, alpha=0.35 if far else 0.85)


def _bow(start: Point, end: Point, across: Point, height: float) -> list[tuple[Point, Point]]:
    """A line from one point to another, bent to one side by so much in its middle."""
    if not height:
        return [(start, end)]
    points = []
    for k in range(BENDS + 1):
        t = k / BENDS
        out = 4.0 * t * (1.0 - t) * height
        points.append(
            (
                start[0] + t * (end[0] - start[0]) + out * across[0],
                start[1] + t * (end[1] - start[1]) + out * across[1],
            )
        )
    return list(pairwise(points))


def _around(mapping: DeviceMapping, length: float) -> bool:
    """Whether a long straight link closes a ring: it joins the first and the last device of an axis."""
    steps = [max(dx, dy) for dx, dy in _pitches(mapping.grid.sizes)]
    return any(
        size > 2 and abs(length - (size - 1) * step) < 1e-6
        for size, step in zip(mapping.grid.sizes, steps, strict=True)
    )


def _draw_devices(canvas: Canvas, mapping: DeviceMapping) -> None:
    """Devices with the coordinates of their shard."""
    held = [k for k, d in enumerate(mapping.mesh) if d.degree > 1]
    labels = {place: ",".join(str(shard[k]) for k in held) for shard, place in mapping.places.items()}
    letters = max((len(label) for label in labels.values()), default=1)
    size = min(10.0, 1.6 * DEVICE / letters)
    half = DEVICE / 2
    for place, label in labels.items():
        x, y = _at(place, mapping.grid.sizes)
        canvas.box(
            (x - half, y - half / 1.6),
            (DEVICE, DEVICE / 1.6),
            fill="#fff",
            edge="#555",
            width=0.9,
            radius=4.0,
        )
        canvas.text((x, y + 0.36 * size), label, size, DARK, centred=True)
