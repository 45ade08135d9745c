"""Where names of dots stand in a picture: at the nearest place that covers no other name, dot or line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.arrays import Array

# Of letters in points, by the size of the font: what most fonts without serifs take.
WIDTH, HEIGHT = 0.52, 1.15
GAP = 3.0  # points between a dot and its name
FARTHER = (0.0, 9.0, 18.0, 30.0, 45.0)  # points by which a name may stand off
DIRECTIONS = (
    (1, 0),
    (-1, 0),
    (1, 1),
    (1, -1),
    (-1, 1),
    (-1, -1),
    (0, 1),
    (0, -1),
)  # of the name from the dot
# What a place costs: a square point of another name or dot, a point of a line under it, a point of distance.
COVERED, CROSSED, AWAY = 10.0, 2.0, 1.0
Box = tuple[float, float, float, float]  # left, bottom, right, top, in points


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
    >>> _shared(boxes[0], boxes[1])
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
    covered = sum(_shared(box, other) for other in taken)
    outside = max(frame[0] - box[0], frame[1] - box[1], box[2] - frame[2], box[3] - frame[3], 0.0)
    x, y = lines[:, 0], lines[:, 1]
    crossed = np.count_nonzero((x > box[0]) & (x < box[2]) & (y > box[1]) & (y < box[3]))
    return COVERED * covered + CROSSED * crossed + AWAY * away + 1e3 * outside


def _shared(a: Box, b: Box) -> float:
    """The area that two boxes share."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    return max(wide, 0.0) * max(high, 0.0)
