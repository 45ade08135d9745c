"""Every link of a fabric, walked and cut: what the closed forms of topology are checked against."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strata.hardware.fabric import Dimension, Fabric, peak_link


@dataclass(frozen=True, slots=True)
class Edge:
    """A link between two nodes, both directions alike: bandwidth of one [B/s], and the part of a step it
    makes.
    """

    first: int
    second: int
    dimension: int
    bandwidth: float
    hops: float


@dataclass(frozen=True)
class Graph:
    """Devices 0 .. devices - 1, innermost coordinate fastest, then switches and routers up to nodes - 1; and
    their links.
    """

    devices: int
    nodes: int
    edges: tuple[Edge, ...]


def graph(fabric: Fabric) -> Graph:
    """Every link of a fabric."""
    sizes = [int(d.size) for d in fabric.dimension]
    devices = int(np.prod(sizes))
    edges: list[Edge] = []
    nodes, stride = devices, 1
    for place, (dimension, size) in enumerate(zip(fabric.dimension, sizes, strict=True)):
        for start in range(devices if size > 1 else 0):
            if start // stride % size == 0:
                members = [start + i * stride for i in range(size)]
                edges += _network(dimension, members, nodes, place)
                nodes += {"switch": 1, "dragonfly": size}.get(dimension.kind, 0)
        stride *= size
    return Graph(devices, nodes, tuple(edges))


def _network(dimension: Dimension, members: list[int], spare: int, place: int) -> Iterator[Edge]:
    """The links of one network; `spare` is the first number for its switch or routers."""
    peak, own = float(peak_link(dimension)), float(dimension.bandwidth)
    if dimension.kind == "switch":
        yield from (Edge(m, spare, place, peak, 0.5) for m in members)
    elif dimension.kind == "dragonfly":
        # Member, router of its group, router of the other group, member: one step.
        yield from (Edge(m, spare + i, place, own, 1 / 3) for i, m in enumerate(members))
        for a, b in itertools.combinations(range(len(members)), 2):
            yield Edge(spare + a, spare + b, place, peak / (len(members) - 1), 1 / 3)
    elif dimension.kind == "full":
        yield from (
            Edge(a, b, place, peak / (len(members) - 1), 1.0) for a, b in itertools.combinations(members, 2)
        )
    else:
        closing = [members[0]] if dimension.kind == "ring" else []
        yield from (Edge(a, b, place, peak / 2.0, 1.0) for a, b in itertools.pairwise(members + closing))


def distances(found: Graph) -> np.ndarray:
    """Steps between all devices: Dijkstra from each."""
    near = [[] for _ in range(found.nodes)]
    for e in found.edges:
        near[e.first].append((e.second, e.hops))
        near[e.second].append((e.first, e.hops))
    table = np.full((found.devices, found.nodes), np.inf)
    for start in range(found.devices):
        table[start, start] = 0.0
        heap = [(0.0, start)]
        while heap:
            far, node = heapq.heappop(heap)
            for other, hops in near[node]:
                if far + hops < table[start, other] - 1e-12:
                    table[start, other] = far + hops
                    heapq.heappush(heap, (far + hops, other))
    return table[:, : found.devices]


def max_flow(found: Graph, left: frozenset[int]) -> float:
    """Bandwidth from some devices to all others, through switches as it pleases: augmenting paths, shortest
    first.
    """
    source, sink = found.nodes, found.nodes + 1
    room: dict[int, dict[int, float]] = {n: {} for n in range(found.nodes + 2)}
    for e in found.edges:
        room[e.first][e.second] = room[e.first].get(e.second, 0.0) + e.bandwidth
        room[e.second][e.first] = room[e.second].get(e.first, 0.0) + e.bandwidth
    for d in range(found.devices):
        a, b = (source, d) if d in left else (d, sink)
        room[a][b], room[b][a] = np.inf, 0.0
    total = 0.0
    while True:
        before, queue = {source: source}, [source]
        for node in queue:
            for other, free in room[node].items():
                if free > 1.0 and other not in before:
                    before[other] = node
                    queue.append(other)
        if sink not in before:
            return total
        path, node = [], sink
        while node != source:
            path.append((before[node], node))
            node = before[node]
        push = min(room[a][b] for a, b in path)
        for a, b in path:
            room[a][b] -= push
            room[b][a] += push
        total += push


def narrowest(found: Graph, share: int) -> float:
    """The least bandwidth between so many devices and the others, over every choice of them that holds device
    0 or not.
    """
    return min(
        max_flow(found, frozenset(chosen)) for chosen in itertools.combinations(range(found.devices), share)
    )
