"""Where the boxes of a drawn graph stand: layers by the longest way from a source, few crossings.

Sugiyama, Tagawa and Toda (1981): long edges pass through a point in every layer, layers are ordered by the
mean place of their neighbours, and boxes then move towards these as far as those beside them allow.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

SWEEPS = 8  # over all layers, down and up in turn


@dataclass(frozen=True)
class Drawn:
    """Centres of nodes, layer of each, points that each edge passes, and the size of it all."""

    at: dict[str, tuple[float, float]]
    paths: dict[tuple[str, str], list[tuple[float, float]]]
    width: float
    height: float


def layered(
    nodes: list[str], edges: list[tuple[str, str]], widths: dict[str, float], gap: float, step: float
) -> Drawn:
    """Places of nodes from top to bottom; `gap` between neighbours, `step` between layers. Edges lead forward
    in the order of `nodes`.

    >>> drawn = layered(["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")], {}, 10.0, 50.0)
    >>> [drawn.at[n][1] for n in "abc"], len(drawn.paths["a", "c"])
    ([0.0, 50.0, 100.0], 3)
    """
    rank = _ranks(nodes, edges)
    layers: list[list[str]] = [[] for _ in range(max(rank.values(), default=0) + 1)]
    for node in nodes:
        layers[rank[node]].append(node)
    ways, links = dict[tuple[str, str], list[str]](), list[tuple[str, str]]()
    for source, target in dict.fromkeys(edges):
        way = [source]
        for between in range(rank[source] + 1, rank[target]):
            way.append(f"{source}>{target}@{between}")
            layers[between].append(way[-1])
        way.append(target)
        ways[source, target] = way
        links += list(itertools.pairwise(way))
    up, down = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for above, below in links:
        down[above].append(below)
        up[below].append(above)
    _order(layers, up, down)
    x = _spread(layers, up, down, widths, gap)
    row = {node: i for i, layer in enumerate(layers) for node in layer}
    left = min((x[n] - widths.get(n, 0.0) / 2 for n in x), default=0.0)
    right = max((x[n] + widths.get(n, 0.0) / 2 for n in x), default=0.0)
    place = {node: (x[node] - left, row[node] * step) for node in x}
    return Drawn(
        at={node: place[node] for node in nodes},
        paths={edge: [place[node] for node in way] for edge, way in ways.items()},
        width=right - left,
        height=(len(layers) - 1) * step,
    )


def _ranks(nodes: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Layers by the longest way from a source; sources stand just above their first reader."""
    above, below = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for source, target in edges:
        above[target].append(source)
        below[source].append(target)
    rank: dict[str, int] = {}
    for node in nodes:
        rank[node] = max((rank[source] + 1 for source in above[node]), default=0)
    for node in reversed(nodes):
        if not above[node] and below[node]:
            rank[node] = min(rank[target] for target in below[node]) - 1
    return rank


def _order(layers: list[list[str]], up: dict[str, list[str]], down: dict[str, list[str]]) -> None:
    for sweep in range(SWEEPS):
        beside, order = (up, layers) if sweep % 2 == 0 else (down, layers[::-1])
        place = {node: float(i) for layer in layers for i, node in enumerate(layer)}
        for layer in order:
            wanted = {
                node: sum(place[n] for n in beside[node]) / len(beside[node]) if beside[node] else place[node]
                for node in layer
            }
            layer.sort(key=lambda node: wanted[node])
            place |= {node: float(i) for i, node in enumerate(layer)}


def _spread(
    layers: list[list[str]],
    up: dict[str, list[str]],
    down: dict[str, list[str]],
    widths: dict[str, float],
    gap: float,
) -> dict[str, float]:
    """Centres along a layer: each drawn to its neighbours', none closer than the gap to those beside it."""
    x: dict[str, float] = {}

    def apart(a: str, b: str) -> float:
        return (widths.get(a, 0.0) + widths.get(b, 0.0)) / 2 + gap

    for layer in layers:
        at = 0.0
        for i, node in enumerate(layer):
            at = at + apart(layer[i - 1], node) if i else 0.0
            x[node] = at
        for node in layer:
            x[node] -= at / 2
    for sweep in range(2 * SWEEPS):
        beside, order = (up, layers) if sweep % 2 == 0 else (down, layers[::-1])
        for layer in order:
            wanted = [
                sum(x[n] for n in beside[node]) / len(beside[node]) if beside[node] else x[node]
                for node in layer
            ]
            for node, at in zip(layer, _kept_apart(layer, wanted, apart), strict=True):
                x[node] = at
    return x


def _kept_apart(layer: list[str], wanted: list[float], apart: Callable[[str, str], float]) -> list[float]:
    """Places nearest to those wanted, in this order: those that press on each other move as one."""
    offset = [0.0]
    for a, b in itertools.pairwise(layer):
        offset.append(offset[-1] + apart(a, b))
    groups: list[list[float]] = []  # sum of wanted places, number
    for want, shift in zip(wanted, offset, strict=True):
        groups.append([want - shift, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] >= groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += count
    found: list[float] = []
    for total, count in groups:
        found += [total / count + offset[len(found) + i] for i in range(int(count))]
    return found
