"""The roofline as a picture: one roof a memory level, one ceiling a kind of arithmetic, and each op a dot
under the roof that binds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import note, picture
from strata.base.arrays import Array
from strata.base.drawing import COLOURS, DARK, GREY
from strata.base.units import show
from strata.roofline import Roofline, RooflinePoint

# Of letters in points, by the size of the font: what most fonts without serifs take.
WIDTH, HEIGHT = 0.52, 1.15
GAP = 3.0  # points between a dot and its name
FARTHER = (0.0, 9.0, 18.0, 30.0, 45.0)  # points by which a name may stand off
DIRECTIONS = ((1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1))  # of a name from its dot
# What a place costs: a square point of another name or dot, a point of a line under it, a point of distance.
COVERED, CROSSED, AWAY = 10.0, 2.0, 1.0
Box = tuple[float, float, float, float]  # left, bottom, right, top, in points
FONT = 7.5  # points
NAMED = 8  # dots that are named: those that take most time
LEAST_SHARE = 0.005  # of the time, of a dot with a name
NEAR = (0.4, 0.2)  # decades of intensity and of rate, within which dots share a name
BOUND = {"compute": COLOURS[3], "cache": COLOURS[1], "memory": COLOURS[0], "overhead": COLOURS[7]}


@dataclass(frozen=True)
class DotLabel:
    """A name, the dot it belongs to, and the radius of that, in points."""

    text: str
    x: float
    y: float
    radius: float


def text_size(text: str, font: float) -> tuple[float, float]:
    """Width and height of a line of text [points], nearly.

    >>> text_size("ten digits", 10.0)
    (52.0, 11.5)
    """
    return WIDTH * font * len(text), HEIGHT * font


def place_names(
    labels: Sequence[DotLabel], dots: Sequence[Box], lines: Array, frame: Box, font: float
) -> list[Box]:
    """The box of each name, the first ones first: the cheapest of places around its dot, inside the frame.

    `dots` are what no name should cover, `lines` points that lie on lines, some points apart.

    >>> two = [DotLabel("a", 50.0, 50.0, 3.0), DotLabel("b", 52.0, 50.0, 3.0)]
    >>> boxes = place_names(two, [], np.zeros((0, 2)), (0.0, 0.0, 100.0, 100.0), 8.0)
    >>> shared_area(boxes[0], boxes[1])
    0.0
    """
    taken, found = list(dots), []
    for label in labels:
        places = _around(label, text_size(label.text, font))
        costs = [_cost(box, away, taken, lines, frame) for box, away in places]
        box = places[int(np.argmin(costs))][0]
        found.append(box)
        taken.append(box)
    return found


def _around(label: DotLabel, size: tuple[float, float]) -> list[tuple[Box, float]]:
    width, height = size
    found = []
    for farther in FARTHER:
        for right, up in DIRECTIONS:
            off = (label.radius + GAP + farther) * (0.75 if right and up else 1.0)
            x = label.x + right * off - (0.0 if right > 0 else width if right < 0 else width / 2)
            y = label.y + up * off - (0.0 if up > 0 else height if up < 0 else height / 2)
            found.append(((x, y, x + width, y + height), farther))
    return found


def _cost(box: Box, away: float, taken: Sequence[Box], lines: Array, frame: Box) -> float:
    covered = sum(shared_area(box, other) for other in taken)
    outside = max(frame[0] - box[0], frame[1] - box[1], box[2] - frame[2], box[3] - frame[3], 0.0)
    x, y = lines[:, 0], lines[:, 1]
    crossed = np.count_nonzero((x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3]))
    return COVERED * covered + CROSSED * crossed + AWAY * away + 1e3 * outside


def shared_area(a: Box, b: Box) -> float:
    """The area that two boxes share."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return max(wide, 0.0) * max(high, 0.0)


def draw_roofline(roofline: Roofline, question: str, path: Path) -> Path:
    """Write the picture as SVG."""
    with picture(path, (9.6, 5.6), layout=None) as (figure, axes):
        ridge = roofline.ceilings[0].peak / roofline.roofs[-1].bandwidth  # of the slowest level
        seen = [ridge, *(p.intensity for p in roofline.points)]
        low, high = 0.3 * min(0.5, *seen), 6.0 * max(seen)
        axes.set(xscale="log", yscale="log", xlim=(low, high))
        least = min([p.rate for p in roofline.points] + [roofline.roofs[-1].bandwidth * low])
        axes.set_ylim(0.4 * least, 3.0 * roofline.ceilings[0].peak)
        look = {"alpha": 0.7, "edgecolors": "white", "linewidths": 0.8, "zorder": 4}
        for p in reversed(roofline.points):
            axes.scatter([p.intensity], [p.rate], s=_area(p), color=BOUND[p.bound_by], **look)
        _explain(axes, roofline)
        axes.set(xlabel="operations for each byte of the level that binds [FLOP/B]", ylabel="rate [FLOP/s]")
        axes.set_title(f"Roofline of {roofline.chip}: {question}")
        figure.tight_layout()  # where things are on the page is known from here on
        said = _draw_roofs(axes, roofline, low, high)
        _name_points(axes, roofline, said, _lines(axes, roofline, low, high))
    return path


def _area(point: RooflinePoint) -> float:
    return 30.0 + 1400.0 * point.share


def _on_page(axes: Any, x: Any, y: Any) -> Array:
    """Places of values on the page [points]."""
    at: Array = axes.transData.transform(np.column_stack(np.broadcast_arrays(x, y)))
    return at * 72.0 / float(axes.figure.dpi)


def _lines(axes: Any, roofline: Roofline, low: float, high: float) -> Array:
    """Points on all roofs and ceilings, close together, on the page."""
    at, peak, fastest = np.geomspace(low, high, 400), roofline.ceilings[0].peak, roofline.roofs[0].bandwidth
    lines = [_on_page(axes, at, np.minimum(at * r.bandwidth, peak)) for r in roofline.roofs]
    for ceiling in roofline.ceilings:
        over = at[at > ceiling.peak / fastest]
        lines += [_on_page(axes, over, ceiling.peak)] if len(over) else []
    return np.concatenate(lines)


def _draw_roofs(axes: Any, roofline: Roofline, low: float, high: float) -> list[Box]:
    """Roofs and ceilings with their names, those of roofs at the left end, where no ceiling crosses them; the
    boxes that the names of ceilings take.
    """
    peak, boxes = roofline.ceilings[0].peak, []
    start, end = _on_page(axes, [low, 10.0 * low], [1.0, 10.0])
    slope = float(np.degrees(np.arctan2(end[1] - start[1], end[0] - start[0])))
    along, up = np.cos(np.radians(slope)), np.sin(np.radians(slope))
    above, room = np.inf, 0.0
    # from DRAM inwards: the slowest is darkest
    shades = np.linspace(60, 165, len(roofline.roofs)).astype(int)
    colours = [f"#{v:02x}{v:02x}{v + 12:02x}" for v in shades][::-1]
    for roof, colour in zip(roofline.roofs, colours, strict=True):
        begin = (low, low * roof.bandwidth)
        axes.plot([low, peak / roof.bandwidth], [begin[1], peak], color=colour, linewidth=1.5, zorder=2)
        said, left = f"{roof.name} {show(roof.bandwidth, 'B/s')}", _on_page(axes, *begin)[0]
        # a name that would touch the roof above begins where the name of that one ends
        room = room if (above - left[1]) * along < 1.6 * FONT else 0.0
        above = left[1]
        look = {"rotation": slope, "rotation_mode": "anchor", "fontsize": FONT, "color": colour}
        note(axes, said, begin, (4 + room * along, 5 + room * up), **look)
        room += text_size(said, FONT)[0] + 6.0
    for ceiling in roofline.ceilings:
        first = max(ceiling.peak / roofline.roofs[0].bandwidth, low)
        axes.plot([first, high], [ceiling.peak] * 2, color=DARK, linewidth=1.5, zorder=2)
        said = f"{ceiling.name} {show(ceiling.peak, 'FLOP/s')}"
        note(axes, said, (high, ceiling.peak), (-4, 4), fontsize=FONT, color=DARK, ha="right")
        (x, y), (width, height) = _on_page(axes, high, ceiling.peak)[0], text_size(said, FONT)
        boxes.append((x - 4 - width, y + 3, x, y + 4 + height))
    return boxes


def _name_points(axes: Any, roofline: Roofline, said: list[Box], lines: Array) -> None:
    """Names stand beside their dots, where there is room; one that stands off has a line to its dot."""
    groups, labels = named_groups(roofline), []
    for together in groups:
        names = ", ".join(dict.fromkeys(point.op for point in together[:3]))
        more = f" and {len(together) - 3} more" if len(together) > 3 else ""
        text = f"{names}{more} {sum(point.share for point in together):.0%}"
        labels.append(DotLabel(text, *_dot(axes, together[0])))
    dots = (_dot(axes, point) for point in roofline.points)
    boxes = [*said, *((x - r, y - r, x + r, y + r) for x, y, r in dots)]
    seen, points = axes.get_window_extent(), 72.0 / float(axes.figure.dpi)
    frame = (seen.x0 * points, seen.y0 * points, seen.x1 * points, seen.y1 * points)
    places = place_names(labels, boxes, lines, frame, FONT)
    for label, box, together in zip(labels, places, groups, strict=True):
        off = np.hypot(*(np.clip((label.x, label.y), box[:2], box[2:]) - (label.x, label.y)))
        arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": label.radius}
        look = {"color": DARK, "zorder": 5, "arrowprops": arrow if off > label.radius + 8.0 else None}
        away = (box[0] - label.x, box[1] - label.y + 0.2 * FONT)
        note(axes, label.text, (together[0].intensity, together[0].rate), away, fontsize=FONT, **look)


def _dot(axes: Any, point: RooflinePoint) -> tuple[float, float, float]:
    """Where a dot is on the page and its radius [points]."""
    x, y = _on_page(axes, point.intensity, point.rate)[0]
    return float(x), float(y), float(np.sqrt(_area(point) / np.pi))


def named_groups(roofline: Roofline) -> list[list[RooflinePoint]]:
    """Dots that get a name, those of nearly the same place together: the ones that take most time."""
    groups: list[list[RooflinePoint]] = []

    def near(a: RooflinePoint, b: RooflinePoint) -> bool:
        wide, high = abs(np.log10(a.intensity / b.intensity)), abs(np.log10(a.rate / b.rate))
        return bool(wide < NEAR[0] and high < NEAR[1])

    for point in roofline.points:
        group = next((group for group in groups if near(point, group[0])), None)
        if group is None:
            groups.append([point])
        else:
            group.append(point)
    shares = [(sum(point.share for point in group), group) for group in groups]
    largest = sorted(shares, key=lambda pair: -pair[0])[:NAMED]
    return [group for share, group in largest if share >= LEAST_SHARE]


def _explain(axes: Any, roofline: Roofline) -> None:
    for name in dict.fromkeys(p.bound_by for p in roofline.points):
        axes.scatter([], [], s=40.0, color=BOUND[name], alpha=0.7, label=f"bound by {name}")
    if roofline.points:
        axes.legend(loc="lower right", fontsize=7.5, frameon=False, labelcolor=GREY)
    said = f"size of a dot: its share of the step's time; {roofline.hidden:.0%} is communication and moves"
    axes.annotate(said, (0.0, -0.13), xycoords="axes fraction", fontsize=7.0, color=GREY)
