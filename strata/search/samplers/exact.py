"""Branch and bound: the best design of a space, with a proof.

A node is a box of designs with the plans that may still win in it. Coarse nodes cover all variants of a core
and the best links there are; those that may hold something better are opened to the variants, then to
topologies and orders of plans, then cut in halves. Small boxes are evaluated point by point. A plan leaves a
node when its bound there is not better than the best design found, by more than `gap`; when no node is left,
that design is the best within the gap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.errors import BadValue
from strata.base.pareto import non_dominated
from strata.search.bounds import BOUNDED, BoundsWork, optimistic
from strata.search.executors import PointsWork, Work
from strata.search.goal import Goal
from strata.search.nodes import (
    COARSE,
    NEAR,
    WHOLE,
    Node,
    PlanTable,
    as_arrays,
    boxes_with_rows,
    child_nodes,
    from_arrays,
    points_inside,
    root_nodes,
    rows_when_opened,
    some_points_inside,
    trim_nodes,
)
from strata.search.points import Evaluated, concatenate_points
from strata.search.relax import relaxed_axes
from strata.search.samplers import Sampler
from strata.search.space import Space

ROUND = 1 << 14  # rows bounded in a round, about
PIECE = 1 << 12  # rows of a piece of work
NODES = 256  # most nodes opened in a round
SMALL = 256  # designs x plans of a box that are evaluated instead of cut
STARTS = 3  # designs from which a first good one is looked for
DRAWN = 2048  # designs drawn to find them
JOINED = 4096  # most combinations of axes joined by constraints that are all tried around a design
KEPT = ("best", "scores", "passed", "gains", "seen")  # arrays of a saved state
LEARNING = 0.1  # weight of the last cut in what cutting an axis is known to win


class Exact(Sampler):
    """Branch and bound over a space; `bound` and `open` say what is proven so far."""

    gap = 0.01

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 1 << 62):
        for metric in goal.metrics:
            if metric not in BOUNDED:
                raise BadValue(
                    f"an exact search needs a metric with bounds ({', '.join(BOUNDED)}),"
                    f" but got {metric}; other samplers take it"
                )
        fields = [f for axis in space.axes for f in axis.fields] + [tie.field for tie in space.ties]
        made = [f for f in fields if space.scenario.owners[0].regenerates(f)]
        if made:
            raise BadValue(
                f"an exact search has no bounds along what a chip is generated from ({made[0]});"
                " other samplers search it"
            )
        self.space, self.goal, self.seed, self.budget = space, goal, seed, budget
        self.plans = PlanTable(space)
        self.nodes: list[Node] | None = None
        self.best = np.empty((0, len(space.axes)), np.int64)  # designs no other beats, and their scores
        self.scores = np.empty((0, len(goal.metrics)))
        self.passed = np.full(len(goal.metrics), -np.inf)  # the best bound of what was ruled out
        # percent of its bound that cutting along an axis has won so far
        self.gains = np.ones(len(relaxed_axes(space)))
        # designs from which better ones are looked for step by step, the first of them now
        self.walks: np.ndarray | None = None
        self.reached = -np.inf  # score of that walk's design
        self.fresh = False  # whether the best changed in the last round
        self.seen = np.empty(0, np.int64)  # numbers of the points evaluated
        self.bounded = 0  # rows of boxes
        self._pending: list[Node] = []
        self._asked: list[int] = []  # of each piece of work its nodes, 0 for points

    @property
    def evaluated(self) -> int:
        return len(self.seen)

    @property
    def open(self) -> int:  # type: ignore[override]
        return len(self.nodes or [])

    @property
    def complete(self) -> bool:  # type: ignore[override]
        return self.nodes is not None and not self.nodes and self.evaluated < self.budget and not self._asked

    @property
    def bound(self) -> float:  # type: ignore[override]
        """No design has a better score of the first metric; nan where nothing is known of some."""
        if self.nodes is None:
            return float("nan")
        best = max([n.bound for n in self.nodes] + [float(self.passed[0])] + self.scores[:, 0].tolist())
        return best if best < float("inf") else float("nan")

    def ask(self) -> list[Work]:
        if self.evaluated >= self.budget:
            return []
        if self.walks is None:
            return self._works(
                [self.space.random(np.random.default_rng(self.seed), min(DRAWN, self.space.size))], []
            )
        while self.nodes is None and len(self.walks):
            works = self._works([self._around(self.walks[0], plans=True)], [])
            if works:
                return works
            self.walks = self.walks[1:]
        if self.nodes is None:
            self.nodes = []
            return self._works([], root_nodes(self.space, self.plans))
        works = []
        while self.nodes and not works:
            works = self._opened()
        return works

    def _opened(self) -> list[Work]:
        """The most promising nodes, as many as make a round, opened."""
        assert self.nodes is not None
        order = sorted(range(len(self.nodes)), key=lambda k: -self.nodes[k].bound)  # type: ignore[index]
        taken: list[int] = []
        rows = 0
        for k in order[:NODES]:
            more = len(self.nodes[k].plans) * rows_when_opened(self.space, self.plans, self.nodes[k])
            if taken and rows + more > ROUND:
                break
            taken.append(k)
            rows += more
        chosen, gone = [self.nodes[k] for k in taken], set(taken)
        self.nodes = [n for k, n in enumerate(self.nodes) if k not in gone]
        points, boxes = [], []
        for node in chosen:
            if node.stage == WHOLE and (node.designs == 1 or node.designs * len(node.plans) <= SMALL):
                points.append(points_inside(self.space, self.plans, node))
            else:
                boxes += child_nodes(self.space, self.plans, node, self.gains)
                points.append(some_points_inside(self.space, self.plans, node))
        if self.fresh:
            points.append(self._around(self.best[0]))
        return self._works(points, trim_nodes(self.space, boxes))

    def tell(self, done: list[Any]) -> Evaluated | None:
        told = [d for d, nodes in zip(done, self._asked, strict=True) if not nodes]
        found = concatenate_points(told) if told else None
        self.fresh = False
        if found is not None:
            self._keep(found)
            if self.nodes is None:
                self._walk(found)
        at = 0
        for piece, nodes in zip(done, self._asked, strict=True):
            if nodes:
                self._take(piece, self._pending[at : at + nodes])
                at += nodes
        self._asked = []
        if self.nodes is not None:
            self._drop()
        return found

    def _walk(self, found: Evaluated) -> None:
        """From the best designs drawn to the best neighbour while that is better, one after the other."""
        scores = self.goal.scores(found)[:, 0]
        order = np.argsort(-scores, kind="stable")
        if self.walks is None:
            first = order[:STARTS]
            self.walks = found.digits[first][scores[first] > -np.inf]
        elif scores[order[0]] > self.reached:
            self.walks = np.concatenate([found.digits[order[:1]], self.walks[1:]])
            self.reached = float(scores[order[0]])
        else:
            self.walks, self.reached = self.walks[1:], -np.inf

    def _around(self, design: np.ndarray, plans: bool = False) -> np.ndarray:
        """Legal designs that differ in one axis or in joined ones; in the plan by all, each in one order."""
        moves = [
            (np.array([[i]]), np.arange(len(a))[:, None])
            for i, a in enumerate(self.space.axes)
            if i != self.plans.axis
        ]
        for part in self.space.joined_parts():
            if self.plans.axis not in part.axes and part.count <= JOINED:
                moves.append((np.array([part.axes]), part.digits(np.arange(part.count))))
        if plans and self.plans.axis is not None:
            rows = np.union1d(self.plans.each, self.plans.orders(int(design[self.plans.axis])))
            moves.append((np.array([[self.plans.axis]]), rows[:, None]))
        made = [design[None]]
        for axes, digits in moves:
            moved = np.repeat(design[None], len(digits), 0)
            moved[:, axes[0]] = digits
            made.append(moved)
        every = np.unique(np.concatenate(made), axis=0)
        return every[self.space.legal(every)]

    def _keep(self, found: Evaluated) -> None:
        """Hold the designs that no other beats."""
        scores = self.goal.scores(found)
        some = scores[:, 0] > -np.inf
        both = np.concatenate([self.scores, scores[some]])
        designs = np.concatenate([self.best, found.digits[some]])
        on = np.flatnonzero(non_dominated(both))
        on = on[np.argsort(-both[on, 0], kind="stable")]
        self.fresh = len(on) > 0 and (not len(self.scores) or both[on[0], 0] > self.scores[0, 0])
        self.best, self.scores = designs[on], both[on]

    def _works(self, points: list[np.ndarray], boxes: list[Node]) -> list[Work]:
        """A round as pieces of work: points first, then boxes of one stage each."""
        works: list[Work] = []
        self._asked, self._pending = [], []
        every = self._new(np.concatenate(points)) if points else np.empty((0, 0))
        for start in range(0, len(every), PIECE):
            works.append(PointsWork(every[start : start + PIECE]))
            self._asked.append(0)
        for stage in (COARSE, NEAR, WHOLE):
            piece: list[Node] = []
            for node in [*(n for n in boxes if n.stage == stage), None]:
                if piece and (node is None or sum(len(n.plans) for n in piece) + len(node.plans) > PIECE):
                    works.append(BoundsWork(boxes_with_rows(piece), self.goal))
                    self._asked.append(len(piece))
                    self._pending += piece
                    piece = []
                if node is not None:
                    piece.append(node)
        return works

    def _new(self, points: np.ndarray) -> np.ndarray:
        """Points that were not evaluated before, each once, as many as the budget has room for."""
        index, first = np.unique(self.space.index(points), return_index=True)
        first = np.sort(first[np.isin(index, self.seen, invert=True)])[: self.budget - self.evaluated]
        self.seen = np.union1d(self.seen, self.space.index(points[first]))
        return points[first]

    def _take(self, bounds: Evaluated, nodes: list[Node]) -> None:
        """Put the bounds of a piece of work into its nodes, and learn what a cut has won."""
        assert self.nodes is not None
        scores = optimistic(self.goal, bounds)
        self.bounded += len(scores)
        ends = np.cumsum([len(n.plans) for n in nodes])
        for node, end in zip(nodes, ends, strict=True):
            made = replace(node, bounds=scores[end - len(node.plans) : end])
            if node.cut >= 0 and np.isfinite([made.bound, node.parent]).all():
                won = 100.0 * max(node.parent - made.bound, 0.0) / max(abs(node.parent), 1e-300)
                self.gains[node.cut] += LEARNING * (won - self.gains[node.cut])
            self.nodes.append(made)

    def _drop(self) -> None:
        """Rule out plans, and nodes without any, whose bounds are not better than what was found."""
        kept = []
        for node in self.nodes or []:
            alive = self._alive(node.bounds)
            if not alive.all():
                self.passed = np.maximum(self.passed, node.bounds[~alive].max(axis=0))
                node.plans, node.bounds = node.plans[alive], node.bounds[alive]
            if len(node.plans):
                kept.append(node)
        self.nodes = kept

    def _alive(self, bounds: np.ndarray) -> np.ndarray:
        """Where a bound is better than every design found, by more than the gap, in some metric."""
        alive = bounds[:, 0] > -np.inf
        for held in self.scores:
            alive &= np.any(bounds > held + self.gap * np.abs(held), axis=1)
        return alive

    def save(self) -> dict[str, np.ndarray]:
        plain = {name: getattr(self, name) for name in KEPT}
        counts = np.array([self.nodes is not None, self.fresh, self.bounded, self.walks is not None])
        walks = np.empty((0, len(self.space.axes)), np.int64) if self.walks is None else self.walks
        walked = {"counts": counts, "walks": walks, "reached": np.array(self.reached)}
        return plain | walked | as_arrays(self.nodes or [])

    def restore(self, state: dict[str, np.ndarray]) -> None:
        begun, fresh, self.bounded, walked = (int(v) for v in state["counts"])
        for name in KEPT:
            setattr(self, name, np.array(state[name]))
        self.walks, self.reached = (state["walks"] if walked else None), float(state["reached"])
        self.fresh, self.nodes = bool(fresh), from_arrays(state) if begun else None


SAMPLER = Exact
