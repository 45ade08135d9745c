"""Nodes of branch and bound: boxes of designs with the plans that may still win in them, how they are opened,
cut and counted.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from strata.mapping.place import layout_key
from strata.mapping.plan import Plan
from strata.mapping.shard import active_groups
from strata.search.bounds import core_range, hull, most_cores
from strata.search.fields import PLAN_FIELDS
from strata.search.points import plan_table
from strata.search.relax import Boxes, coarse_axes, relaxed_axes, topology_axis
from strata.search.space import Space

# what a node still covers: variants of cores, topologies and orders, or neither
COARSE, NEAR, WHOLE = 0, 1, 2


@dataclass(eq=False)
class Node:
    """A box: digits that are fixed, cores, ranges of relaxed axes, and the plans left with their bounds
    [rows, metrics].
    """

    stage: int
    fixed: np.ndarray
    cores: float
    low: np.ndarray
    high: np.ndarray
    plans: np.ndarray
    bounds: np.ndarray
    parent: float = np.inf  # bound of the box it was cut from, and the axis that was cut
    cut: int = -1

    @property
    def bound(self) -> float:
        return float(self.bounds[:, 0].max()) if len(self.bounds) else -np.inf

    @property
    def designs(self) -> int:
        """Designs in it for each plan, legal or not."""
        return int(np.prod(self.high - self.low + 1))


class Plans:
    """The plans of a space: rows of its plan axis that are one plan in several orders, and those that lie
    alike on a fabric.
    """

    def __init__(self, space: Space):
        self.space = space
        self.axis = next((i for i, a in enumerate(space.axes) if a.kind == "plan"), None)

    @cached_property
    def table(self) -> np.ndarray:
        return np.zeros((1, len(PLAN_FIELDS))) if self.axis is None else plan_table(self.space, self.axis)

    @cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        degrees = np.delete(self.table, PLAN_FIELDS.index("order"), axis=1)
        _, first, group = np.unique(degrees, axis=0, return_index=True, return_inverse=True)
        return first, group.ravel()

    @property
    def each(self) -> np.ndarray:
        """One row of each plan, whatever its order."""
        return self._groups[0]

    @property
    def group(self) -> np.ndarray:
        """Which plan every row is."""
        return self._groups[1]

    def orders(self, row: int) -> np.ndarray:
        """Rows of the same plan."""
        return np.flatnonzero(self.group == self.group[row])

    @lru_cache(maxsize=16)  # noqa: B019  (a search has one of these)
    def placed(self, topology: int) -> np.ndarray:
        """Rows that lie differently on a topology: of plans that lie alike the first."""
        if self.axis is None:
            return np.zeros(1, np.int64)
        where = topology_axis(self.space)
        name = "" if where is None else str(self.space.axes[where].values[topology])
        whole = Plan(**dict(zip(PLAN_FIELDS, self.table.T, strict=True)))
        mark = layout_key(whole, self.space.question.on(name), active_groups(whole))
        _, first = np.unique(np.stack([self.group, mark], axis=1), axis=0, return_index=True)
        return np.sort(first)

    @property
    def topologies(self) -> int:
        where = topology_axis(self.space)
        return 1 if where is None else len(self.space.axes[where])


def roots(space: Space, plans: Plans) -> list[Node]:
    """Every combination of what is never relaxed, with every number of cores that some design has."""
    axes = relaxed_axes(space)
    later = {*axes, *coarse_axes(space), plans.axis, topology_axis(space)}
    free = [i for i in range(len(space.axes)) if i not in later]
    low, high = np.zeros(len(axes), np.int64), np.array([len(space.axes[i]) - 1 for i in axes], np.int64)
    made = []
    for choice in itertools.product(*(range(len(space.axes[i])) for i in free)):
        fixed = np.zeros(len(space.axes), np.int64)
        fixed[free] = choice
        every = _variants(space, fixed)
        boxes, legal = hull(
            space, boxes_of(every, np.repeat(low[None], len(every), 0), np.repeat(high[None], len(every), 0))
        )
        if legal.any():
            least, most = boxes.low[legal].min(axis=0), boxes.high[legal].max(axis=0)
            cores = core_range(space, boxes_of(boxes.fixed[legal], boxes.low[legal], boxes.high[legal]))
            counts = range(max(int(cores[0].min()), 1), int(cores[1].max()) + 1)
            made += [Node(COARSE, fixed, float(c), least, most, plans.each, np.zeros((0, 1))) for c in counts]
    return made


def _variants(space: Space, fixed: np.ndarray) -> np.ndarray:
    """Digits with every choice of the coarse axes."""
    blurred = list(coarse_axes(space))
    sizes = [len(space.axes[i]) for i in blurred]
    every = (
        np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1)
        if blurred
        else np.empty((1, 0), np.int64)
    )
    rows = np.repeat(fixed[None], len(every), 0)
    rows[:, blurred] = every
    return rows


def children(space: Space, plans: Plans, node: Node, gains: np.ndarray) -> list[Node]:
    """A node opened: to variants of cores, to topologies and orders of plans, or cut in two along the axis
    that promises most.
    """
    if node.stage == COARSE:
        return [replace(node, stage=NEAR, fixed=fixed) for fixed in _variants(space, node.fixed)]
    if node.stage == NEAR:
        where, made = topology_axis(space), []
        for topology in range(plans.topologies):
            fixed = node.fixed.copy()
            if where is not None:
                fixed[where] = topology
            rows = plans.placed(topology)
            made.append(
                replace(
                    node,
                    stage=WHOLE,
                    fixed=fixed,
                    plans=rows[np.isin(plans.group[rows], plans.group[node.plans])],
                )
            )
        return made
    wide = node.high - node.low
    at = int(np.argmax(np.where(wide > 0, gains * np.log1p(wide), -1.0)))
    middle = (node.low[at] + node.high[at]) // 2
    left, right = node.high.copy(), node.low.copy()
    left[at], right[at] = middle, middle + 1
    return [
        replace(node, high=left, parent=node.bound, cut=at),
        replace(node, low=right, parent=node.bound, cut=at),
    ]


def spread(space: Space, plans: Plans, node: Node) -> int:
    """How many rows each plan of a node becomes when it is opened, about."""
    if node.stage == WHOLE:
        return 2
    if node.stage == NEAR:
        return max(1, len(plans.placed(0)) // len(plans.each)) * plans.topologies
    return int(np.prod([len(space.axes[i]) for i in coarse_axes(space)], initial=1))


def inside(space: Space, plans: Plans, node: Node) -> np.ndarray:
    """Every legal design of a node with every plan left in it: digits."""
    axes = list(relaxed_axes(space))
    ranges = [range(int(a), int(b) + 1) for a, b in zip(node.low, node.high, strict=True)]
    inner = np.array(list(itertools.product(*ranges)), np.int64).reshape(-1, len(axes))
    made = np.repeat(np.repeat(node.fixed[None], len(inner), 0), len(node.plans), 0)
    made[:, axes] = np.repeat(inner, len(node.plans), 0)
    if plans.axis is not None:
        made[:, plans.axis] = np.tile(node.plans, len(inner))
    return made[space.legal(made)]


def some_inside(space: Space, plans: Plans, node: Node) -> np.ndarray:
    """Some designs of a node with its most promising plan, to find better ones early."""
    if node.stage != WHOLE:
        return np.empty((0, len(space.axes)), np.int64)
    made = np.repeat(node.fixed[None], 3, 0)
    made[:, list(relaxed_axes(space))] = np.stack([node.low, (node.low + node.high) // 2, node.high])
    if plans.axis is not None:
        made[:, plans.axis] = node.plans[int(node.bounds[:, 0].argmax())]
    return made[space.legal(made)]


# ---------------------------------------------------------------------------------------------------- cutting
# to what is possible


def trimmed(space: Space, nodes: list[Node]) -> list[Node]:
    """Nodes cut to the ranges in which some design has their cores; those without any are gone. Coarse ones
    stay as they are.
    """
    kept = [n for n in nodes if n.stage == COARSE]
    some = _with_cores(space, [n for n in nodes if n.stage != COARSE])
    near = [n for n in some if n.stage == NEAR]
    return kept + near + _with_cores(space, _with_room(space, [n for n in some if n.stage == WHOLE]))


def _with_cores(space: Space, nodes: list[Node]) -> list[Node]:
    """Nodes that hold a legal design of their cores, cut to what constraints leave of them."""
    if not nodes:
        return []
    boxes, legal = hull(space, _of(nodes))
    nodes = [replace(n, low=boxes.low[k], high=boxes.high[k]) for k, n in enumerate(nodes) if legal[k]]
    if not nodes:
        return []
    fewest, most = core_range(space, _of(nodes))
    return [n for n, least, top in zip(nodes, fewest, most, strict=True) if max(least, 1.0) <= n.cores <= top]


def _with_room(space: Space, nodes: list[Node]) -> list[Node]:
    """Nodes with each range cut from above where its end leaves no room for the cores, the other axes at
    their cheapest.
    """
    if not nodes:
        return []
    boxes, axes = _of(nodes), len(relaxed_axes(space))
    owner, which = np.repeat(np.arange(len(nodes)), axes), np.tile(np.arange(axes), len(nodes))
    every = boxes_of(boxes.fixed[owner], boxes.low[owner], boxes.high[owner])
    rows, cores = np.arange(len(owner)), np.array([n.cores for n in nodes])[owner]
    # the highest digit known to leave room, and the highest there is
    fits, end = every.low[rows, which].copy(), every.high[rows, which].copy()
    for _ in range(int((end - fits).max(initial=0)).bit_length()):
        tried = (fits + end + 1) // 2
        low = every.low.copy()
        low[rows, which] = tried
        made, some = hull(space, replace(every, low=low))
        roomy = some & (
            most_cores(space, replace(every, low=np.where(some[:, None], made.low, every.low))) >= cores
        )
        fits, end = np.where(roomy, tried, fits), np.where(roomy, end, np.maximum(tried - 1, fits))
    return [replace(n, high=high) for n, high in zip(nodes, fits.reshape(len(nodes), axes), strict=True)]


def boxes_of(fixed: np.ndarray, low: np.ndarray, high: np.ndarray) -> Boxes:
    """Boxes without rows."""
    none = np.zeros(0, np.int64)
    return Boxes(fixed, low, high, np.ones(len(fixed)), none, none)


def _of(nodes: list[Node]) -> Boxes:
    return boxes_of(*(np.stack([getattr(n, f) for n in nodes]) for f in ("fixed", "low", "high")))


def stacked(nodes: list[Node]) -> Boxes:
    """Nodes of one stage as boxes with rows."""
    made, stage = _of(nodes), nodes[0].stage
    owner = np.repeat(np.arange(len(nodes)), [len(n.plans) for n in nodes])
    rows = np.concatenate([n.plans for n in nodes])
    return Boxes(
        made.fixed,
        made.low,
        made.high,
        np.array([n.cores for n in nodes]),
        owner,
        rows,
        stage == COARSE,
        stage < WHOLE,
    )


# ---------------------------------------------------------------------------------------------------- keeping


def as_arrays(nodes: list[Node]) -> dict[str, np.ndarray]:
    """Nodes as plain arrays, to be kept on disk."""
    if not nodes:
        return {}
    each = {
        f: np.stack([np.asarray(getattr(n, f)) for n in nodes])
        for f in ("stage", "fixed", "cores", "low", "high", "parent", "cut")
    }
    rows = {f: np.concatenate([getattr(n, f) for n in nodes]) for f in ("plans", "bounds")}
    return each | rows | {"rows": np.array([len(n.plans) for n in nodes])}


def from_arrays(kept: dict[str, np.ndarray]) -> list[Node]:
    """The nodes again."""
    if "rows" not in kept:
        return []
    made, end = [], 0
    for k, rows in enumerate(kept["rows"].tolist()):
        at, end = slice(end, end + rows), end + rows
        fixed, low, high = (kept[f][k] for f in ("fixed", "low", "high"))
        made.append(
            Node(
                int(kept["stage"][k]),
                fixed,
                float(kept["cores"][k]),
                low,
                high,
                kept["plans"][at],
                kept["bounds"][at],
            )
        )
        made[-1].parent, made[-1].cut = float(kept["parent"][k]), int(kept["cut"][k])
    return made
