"""Prices over one or two variables, drawn as lines between nodes that were priced; and sums of them."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

SMALL_TILES = (16.0, 17.0, 32.0, 33.0)
TILES = ((1024.0, 64.0), (4096.0, 128.0), (float("inf"), 512.0))  # up to so many rows, tiles of so many


def axis_nodes(most: float, ratio: float, start: float = 1.0) -> list[float]:
    """Whole numbers from `start` to `most`, each at most `ratio` times the one before.

    >>> axis_nodes(20, 2.0)
    [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    """
    nodes = [float(start)]
    while nodes[-1] < most:
        nodes.append(float(min(max(nodes[-1] + 1.0, np.floor(nodes[-1] * ratio)), most)))
    return nodes


def tile_nodes(most: float) -> list[float]:
    """Whole numbers up to `most` with both sides of every step that products make where a tile of rows is
    full and the next begins.

    >>> [n for n in tile_nodes(200) if n > 60]
    [63.0, 64.0, 65.0, 78.0, 97.0, 121.0, 128.0, 129.0, 151.0, 188.0, 192.0, 193.0, 200.0]
    """
    nodes, at = {*axis_nodes(most, 1.25), *SMALL_TILES}, 0.0
    for end, tile in TILES:
        while at + tile < min(most, end + tile):
            at += tile
            nodes |= {at, at + 1.0}
    return sorted(n for n in nodes if n <= most)


def place_on(nodes: list[float], x: float) -> tuple[int, float]:
    """The node before a point, and which share of the way to the next it has gone; less than 0 or more than 1
    beyond the ends.

    >>> place_on([0.0, 1.0, 3.0], 2.0), place_on([0.0, 1.0], 2.0), place_on([5.0], 9.0)
    ((1, 0.5), (0, 2.0), (0, 0.0))
    """
    if len(nodes) == 1:
        return 0, 0.0
    i = bisect_right(nodes, x, 1, len(nodes) - 1) - 1
    return i, (x - nodes[i]) / (nodes[i + 1] - nodes[i])


def line_at(nodes: list[float], values: list[float], x: float) -> float:
    """A value on the line between two nodes; beyond the ends as the last line goes on.

    >>> line_at([0.0, 1.0, 3.0], [0.0, 2.0, 2.0], 0.25), line_at([0.0, 1.0], [0.0, 2.0], 2.0)
    (0.5, 4.0)
    """
    i, share = place_on(nodes, x)
    return values[i] + share * (values[i + 1] - values[i]) if len(nodes) > 1 else values[0]


def line_sums(
    nodes: list[float], lines: tuple[list[float], ...], x: float, growth: float, steps: int
) -> list[float]:
    r"""Sums of lines at points after one another.

    .. math:: \Sigma_q = \sum_{j=0}^{k-1} f_q(x + g j)

    of `steps` k points, `growth` g apart: an arithmetic series between every two nodes.

    >>> line_sums([0.0, 2.0, 9.0], ([0.0, 2.0, 2.0],), 0.5, 1.0, 4)
    [6.0]
    """
    last = len(nodes) - 2
    i = bisect_right(nodes, x, 1, last + 1) - 1
    if i == last or x + growth * (steps - 1) <= nodes[i + 1]:  # most often: all on one line
        share = (x + 0.5 * growth * (steps - 1) - nodes[i]) / (nodes[i + 1] - nodes[i])
        return [steps * (v[i] + share * (v[i + 1] - v[i])) for v in lines]
    totals = [0.0] * len(lines)
    while steps > 0:
        here = steps
        if i < last:
            here = min(max(int((nodes[i + 1] - x) / growth) + 1, 1), steps)
        share = (x + 0.5 * growth * (here - 1) - nodes[i]) / (nodes[i + 1] - nodes[i])
        for q, v in enumerate(lines):
            totals[q] += here * (v[i] + share * (v[i + 1] - v[i]))
        x, steps = x + growth * here, steps - here
        while i < last and x > nodes[i + 1]:
            i += 1
    return totals


class Surface:
    """Quantities over two variables; lines along the second are kept for every value of the first.

    >>> surface = Surface([1.0, 2.0], [0.0, 10.0], [[[1.0, 2.0], [3.0, 4.0]]])
    >>> surface.at(1.5, 5.0), surface.lines(1.5)
    ([2.5], ([2.0, 3.0],))
    """

    __slots__ = ("_kept", "_rows", "x", "y")

    def __init__(self, x: list[float], y: list[float], values: Any) -> None:
        """`values`: several quantities, each an array [x, y]."""
        self.x, self.y = x, y
        shape = (len(x), len(y))
        self._rows = [np.broadcast_to(np.asarray(v, float), shape).tolist() for v in values]
        self._kept: dict[float, tuple[list[float], ...]] = {}

    def lines(self, x: float) -> tuple[list[float], ...]:
        """Every quantity along the second variable; for few values of the first, since all are kept."""
        found = self._kept.get(x)
        if found is None:
            i, share = place_on(self.x, x)
            j = min(i + 1, len(self.x) - 1)
            found = tuple(
                [low + share * (high - low) for low, high in zip(v[i], v[j], strict=True)] for v in self._rows
            )
            self._kept[x] = found
        return found

    def at(self, x: float, y: float) -> list[float]:
        (i, u), (j, w) = place_on(self.x, x), place_on(self.y, y)
        k, m, found = min(i + 1, len(self.x) - 1), min(j + 1, len(self.y) - 1), []
        for v in self._rows:
            a, b = v[i], v[k]
            low, high = a[j] + w * (a[m] - a[j]), b[j] + w * (b[m] - b[j])
            found.append(low + u * (high - low))
        return found
