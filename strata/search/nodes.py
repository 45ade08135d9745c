"""Nodes of branch and bound: boxes of designs with the plans that may still win in them, how they are opened,
cut and counted.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from strata.base.errors import BadValue
from strata.mapping.place import layout_key
from strata.mapping.plan import Plan
from strata.mapping.plan_layout import active_groups
from strata.search.bounds import core_range, cores_at, legal_hull
from strata.search.fields import PLAN_FIELDS
from strata.search.points import plan_table
from strata.search.relax import Boxes, case_at_corner, coarse_axes, relaxed_axes, topology_axis
from strata.search.space import Space

# what a node still covers: variants of cores, topologies and orders, or neither
COARSE, NEAR, WHOLE = 0, 1, 2
CORNERS = 8  # axes of a box of which all corners are looked at


@dataclass(eq=False, kw_only=True)
class Node:
    """A box: fixed digits, cores, ranges of relaxed axes; plans left with bounds [rows, metrics]."""

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


class PlanTable:
    """The plans of a space: rows that are one plan in several orders, and those that lie alike."""

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
        axis = topology_axis(self.space)
        name = "" if axis is None else str(self.space.axes[axis].values[topology])
        every = Plan(**dict(zip(PLAN_FIELDS, self.table.T, strict=True)))
        mark = layout_key(every, self.space.scenario.fabric_named(name), active_groups(every))
        _, first = np.unique(np.stack([self.group, mark], axis=1), axis=0, return_index=True)
        return np.sort(first)

    @property
    def topologies(self) -> int:
        axis = topology_axis(self.space)
        return 1 if axis is None else len(self.space.axes[axis])


def root_nodes(space: Space, plans: PlanTable) -> list[Node]:
    """Every combination of what is never relaxed, with every number of cores that some design has."""
    axes = relaxed_axes(space)
    later = {*axes, *coarse_axes(space), plans.axis, topology_axis(space)}
    free = [i for i in range(len(space.axes)) if i not in later]
    low, high = np.zeros(len(axes), np.int64), np.array([len(space.axes[i]) - 1 for i in axes], np.int64)
    nodes = []
    for choice in itertools.product(*(range(len(space.axes[i])) for i in free)):
        fixed = np.zeros(len(space.axes), np.int64)
        fixed[free] = choice
        for least, most, counts in _built_parts(space, _variants(space, fixed), low, high):
            common: dict[str, Any] = {"fixed": fixed, "low": least, "high": most, "plans": plans.each}
            nodes += [Node(stage=COARSE, cores=float(c), bounds=np.zeros((0, 1)), **common) for c in counts]
    return nodes


def _built_parts(
    space: Space, every: np.ndarray, low: np.ndarray, high: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, range]]:
    """Ranges of relaxed axes in which some variant is legal and the corners of each can be built, with the
    cores they have.

    Ranges with a corner that cannot be built are cut; single designs of that kind are out, and so are ranges
    all of whose corners are refused for one reason with the same numbers: it does not depend on their axes.
    """
    fixed = np.repeat(low[None], len(every), 0), np.repeat(high[None], len(every), 0)
    boxes, legal = legal_hull(space, boxes_of(every, *fixed))
    if not legal.any():
        return []
    boxes = boxes_of(boxes.fixed[legal], boxes.low[legal], boxes.high[legal])
    least, most = boxes.low.min(axis=0), boxes.high.max(axis=0)
    fewest, top = core_range(space, boxes)
    built = ~np.isnan(fewest + top)
    if not built.all() and (most > least).any():
        hopeless = np.array([not ok and _never_built(space, boxes, k) for k, ok in enumerate(built)])
        if not (built | hopeless).all():
            at = _helpful_cut(space, boxes, int(np.flatnonzero(~built & ~hopeless)[0]))
            below, above = most.copy(), least.copy()
            below[at] = (least[at] + most[at]) // 2
            above[at] = below[at] + 1
            left = boxes.fixed[~hopeless]
            return _built_parts(space, left, least, below) + _built_parts(space, left, above, most)
    if not built.any():
        return []
    kept = boxes.low[built].min(axis=0), boxes.high[built].max(axis=0)
    return [(*kept, range(max(int(fewest[built].min()), 1), int(top[built].max()) + 1))]


def _never_built(space: Space, boxes: Boxes, k: int) -> bool:
    """Whether all corners of a box are refused alike."""
    wide = np.flatnonzero(boxes.high[k] > boxes.low[k])
    if len(wide) > CORNERS:
        return False
    reasons = {_refusal(space, boxes, k, ends, wide) for ends in itertools.product((0, 1), repeat=len(wide))}
    return len(reasons) == 1 and "" not in reasons


def _helpful_cut(space: Space, boxes: Boxes, k: int) -> int:
    """The axis along which to cut a box that cannot be built: one whose other end can, or the widest."""
    wide = np.flatnonzero(boxes.high[k] > boxes.low[k])
    if len(wide):
        for end in (0, 1):
            corner = np.full(len(wide), end)
            if not _refusal(space, boxes, k, corner, wide):
                continue
            for j, at in enumerate(wide):
                moved = np.where(np.arange(len(wide)) == j, 1 - end, corner)
                if not _refusal(space, boxes, k, moved, wide):
                    return int(at)
    span = boxes.high.max(axis=0) - boxes.low.min(axis=0)
    return int(np.argmax(span if not len(wide) else boxes.high[k] - boxes.low[k]))


def _refusal(space: Space, boxes: Boxes, k: int, ends: Any, wide: np.ndarray) -> str:
    """Why the design at a corner of a box cannot be built; "" where it can."""
    place = boxes.low[k].copy()
    place[wide] = np.where(np.asarray(ends) > 0, boxes.high[k][wide], place[wide])
    one = boxes_of(boxes.fixed[k][None], place[None], place[None])
    try:
        case_at_corner(space, one, np.zeros(1, np.int64), "cheap")
    except BadValue as error:
        return str(error) or "refused"
    return ""


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


def child_nodes(space: Space, plans: PlanTable, node: Node, gains: np.ndarray) -> list[Node]:
    """A node opened: to core variants, to topologies and orders, or cut along the most promising axis."""
    if node.stage == COARSE:
        return [replace(node, stage=NEAR, fixed=fixed) for fixed in _variants(space, node.fixed)]
    if node.stage == NEAR:
        axis, opened = topology_axis(space), []
        for topology in range(plans.topologies):
            fixed = node.fixed.copy()
            if axis is not None:
                fixed[axis] = topology
            rows = plans.placed(topology)
            left = rows[np.isin(plans.group[rows], plans.group[node.plans])]
            opened.append(replace(node, stage=WHOLE, fixed=fixed, plans=left))
        return opened
    wide = node.high - node.low
    at = int(np.argmax(np.where(wide > 0, gains * np.log1p(wide), -1.0)))
    middle = (node.low[at] + node.high[at]) // 2
    top, bottom = node.high.copy(), node.low.copy()
    top[at], bottom[at] = middle, middle + 1
    return [
        replace(node, high=top, parent=node.bound, cut=at),
        replace(node, low=bottom, parent=node.bound, cut=at),
    ]


def rows_when_opened(space: Space, plans: PlanTable, node: Node) -> int:
    """How many rows each plan of a node becomes when it is opened, about."""
    if node.stage == WHOLE:
        return 2
    if node.stage == NEAR:
        return max(1, len(plans.placed(0)) // len(plans.each)) * plans.topologies
    return int(np.prod([len(space.axes[i]) for i in coarse_axes(space)], initial=1))


def points_inside(space: Space, plans: PlanTable, node: Node) -> np.ndarray:
    """Every legal design of a node with every plan left in it: digits."""
    axes = list(relaxed_axes(space))
    ranges = [range(int(a), int(b) + 1) for a, b in zip(node.low, node.high, strict=True)]
    inner = np.array(list(itertools.product(*ranges)), np.int64)
    inner = inner.reshape(math.prod(len(r) for r in ranges), len(axes))  # one of nothing, without such axes
    digits = np.repeat(np.repeat(node.fixed[None], len(inner), 0), len(node.plans), 0)
    digits[:, axes] = np.repeat(inner, len(node.plans), 0)
    if plans.axis is not None:
        digits[:, plans.axis] = np.tile(node.plans, len(inner))
    return digits[space.legal(digits)]


def some_points_inside(space: Space, plans: PlanTable, node: Node) -> np.ndarray:
    """Some designs of a node with its most promising plan, to find better ones early."""
    if node.stage != WHOLE:
        return np.empty((0, len(space.axes)), np.int64)
    digits = np.repeat(node.fixed[None], 3, 0)
    digits[:, list(relaxed_axes(space))] = np.stack([node.low, (node.low + node.high) // 2, node.high])
    if plans.axis is not None:
        digits[:, plans.axis] = node.plans[int(node.bounds[:, 0].argmax())]
    return digits[space.legal(digits)]


def trim_nodes(space: Space, nodes: list[Node]) -> list[Node]:
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
    boxes, legal = legal_hull(space, _of(nodes))
    nodes = [replace(n, low=boxes.low[k], high=boxes.high[k]) for k, n in enumerate(nodes) if legal[k]]
    if not nodes:
        return []
    fewest, most = core_range(space, _of(nodes))
    # where a corner cannot be built, nobody knows
    fewest, most = np.nan_to_num(fewest), np.nan_to_num(most, nan=np.inf)
    return [n for n, least, top in zip(nodes, fewest, most, strict=True) if max(least, 1.0) <= n.cores <= top]


def _with_room(space: Space, nodes: list[Node]) -> list[Node]:
    """Nodes with ranges cut where their end leaves no room for the cores, others at their cheapest."""
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
        cut, some = legal_hull(space, replace(every, low=low))
        most = cores_at(space, replace(every, low=np.where(some[:, None], cut.low, every.low)), "cheap")
        roomy = some & ~(most < cores)
        fits, end = np.where(roomy, tried, fits), np.where(roomy, end, np.maximum(tried - 1, fits))
    return [replace(n, high=high) for n, high in zip(nodes, fits.reshape(len(nodes), axes), strict=True)]


def boxes_of(fixed: np.ndarray, low: np.ndarray, high: np.ndarray) -> Boxes:
    """Boxes without rows."""
    none = np.zeros(0, np.int64)
    return Boxes(fixed=fixed, low=low, high=high, cores=np.ones(len(fixed)), owner=none, plans=none)


def _of(nodes: list[Node]) -> Boxes:
    return boxes_of(*(np.stack([getattr(n, f) for n in nodes]) for f in ("fixed", "low", "high")))


def boxes_with_rows(nodes: list[Node]) -> Boxes:
    """Nodes of one stage as boxes with rows."""
    stage = nodes[0].stage
    owner = np.repeat(np.arange(len(nodes)), [len(n.plans) for n in nodes])
    rows = np.concatenate([n.plans for n in nodes])
    return replace(
        _of(nodes),
        cores=np.array([n.cores for n in nodes]),
        owner=owner,
        plans=rows,
        coarse=stage == COARSE,
        nearest=stage < WHOLE,
    )


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
    nodes, end = [], 0
    for k, rows in enumerate(kept["rows"].tolist()):
        at, end = slice(end, end + rows), end + rows
        own: dict[str, Any] = {f: kept[f][k] for f in ("fixed", "low", "high")}
        own |= {f: kept[f][k].item() for f in ("stage", "cores", "parent", "cut")}
        nodes.append(Node(plans=kept["plans"][at], bounds=kept["bounds"][at], **own))
    return nodes
