"""Stages, each greedy, as DeepStack searches: to compare with. Which axes a stage opens is said by `stage` in
the space's file.

Stages 1 to 3 find the plan on the system as it is described, 4 the variant of the cores, 5 what overlaps,
each keeping what went before. Stage 6 tries its axes (the stack) with the plans, keeps the hardware within 5
% of the best and freezes the best plan of each. Stage 7 tries its axes (the fabric) on the three best of
those: a coarse grid, then every choice near the winner. Axes without a stage stay as the system is described.
The plan is not looked at again after stage 6: that is the weakness of the method. Where stack x plans is more
than half of the points that are left, it is cut: to the plans that were best in the first stages, then to a
coarse grid of the stack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from strata.search.samplers._learning import (
    ROUND,
    LearningSampler,
    combinations_in_blocks,
    described,
    penalised_scores,
)

if TYPE_CHECKING:
    from strata.search.axes import DesignAxis
    from strata.search.goal import Goal
    from strata.search.space import Space

PLAN_STAGES, SINGLE_STAGES, STACK, FABRIC = (1, 2, 3), (4, 5), 6, 7
KEPT = 0.05  # hardware this near the best of stage 6 goes on
FINALISTS = 3
FEWEST = 8  # plans that every choice of the stack is tried with, before the stack is cut to a coarse grid
COARSE = 6  # choices of a number on the coarse grid
NEAR = 3  # choices to each side of the winner on the fine grid

Found = tuple[np.ndarray, np.ndarray]  # digits of a stage's points, and their ranks
Rounds = Generator[np.ndarray, None, Found]


class Hierarchical(LearningSampler):
    """One stage after another; the rounds of a stage enumerate it."""

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 300_000):
        super().__init__(space, goal, seed, budget)
        self.base = described(space, self.rng)
        self.start = self.base[None][:0]  # its first round is the system as stated
        self.last: Found = (self.base[None][:0], np.empty(0))
        self.rounds = self._stages()

    def want(self) -> np.ndarray:
        return next(self.rounds, self.base[None][:0])

    def got(self, digits: np.ndarray, scores: np.ndarray, violation: np.ndarray) -> None:
        self.last = (digits, penalised_scores(scores, violation))

    def _of(self, *stages: int) -> list[int]:
        return [i for i, axis in enumerate(self.space.axes) if axis.stage in stages]

    def _stages(self) -> Generator[np.ndarray, None, None]:
        """The rounds of every stage; what came of a stage is looked at before the next begins."""
        plans, stack, fabric = self._of(*PLAN_STAGES), self._of(STACK), self._of(FABRIC)
        digits, ranks = yield from self._grid(self.base, plans)
        known = digits[np.argsort(-ranks, kind="stable")][:, plans]  # plans, the best first
        found = digits[np.argmax(ranks)]
        for stage in SINGLE_STAGES:
            digits, ranks = yield from self._grid(found, self._of(stage))
            found = digits[np.argmax(ranks)]
        digits, ranks = yield from self._stacks(found, stack, plans, known)
        finalists = _hardware(digits, ranks, stack)
        tried = []
        for start in finalists:
            tried.append(
                (yield from self._grid(start, fabric, {i: _coarse(self.space.axes[i]) for i in fabric}))
            )
        digits, ranks = (np.concatenate(parts) for parts in zip(*tried, strict=True))
        winner = digits[np.argmax(ranks)]
        yield from self._grid(winner, fabric, {i: _near(self.space.axes[i], int(winner[i])) for i in fabric})

    def _stacks(self, start: np.ndarray, stack: list[int], plans: list[int], known: np.ndarray) -> Rounds:
        """Stage 6: the stack's choices with as many of the plans as there is room for."""
        room = (self.budget - self.asked) // 2
        lists: list[Sequence[int]] = [range(len(self.space.axes[i])) for i in stack]
        if math.prod(len(c) for c in lists) * min(len(known), FEWEST) > room:
            lists = [_coarse(self.space.axes[i]) for i in stack]
        count = math.prod(len(c) for c in lists)
        kept = known[: max(room // count, 1)]
        yield start[None]
        found = [self.last]
        for block in combinations_in_blocks(itertools.product(*lists), max(ROUND // len(kept), 1)):
            rows = np.repeat(start[None], len(block) * len(kept), axis=0)
            rows[:, stack] = np.repeat(block, len(kept), axis=0)
            rows[:, plans] = np.tile(kept, (len(block), 1))
            found += yield from self._round(rows)
        return _joined(found)

    def _grid(
        self, start: np.ndarray, axes: list[int], choices: dict[int, Sequence[int]] | None = None
    ) -> Rounds:
        """Every legal combination of choices of some axes at a point, in rounds, and what they are worth; the
        point itself is one of them.
        """
        yield start[None]
        found = [self.last]
        for block in combinations_in_blocks(
            itertools.product(*((choices or {}).get(i, range(len(self.space.axes[i]))) for i in axes)), ROUND
        ):
            rows = np.repeat(start[None], len(block), axis=0)
            rows[:, axes] = block
            found += yield from self._round(rows)
        return _joined(found)

    def _round(self, rows: np.ndarray) -> Generator[np.ndarray, None, list[Found]]:
        """The legal ones of some points, and what they are worth."""
        rows = rows[np.asarray(self.space.legal(rows))]
        if not len(rows):
            return []
        yield rows
        return [self.last]


def _joined(found: list[Found]) -> Found:
    return np.concatenate([d for d, _ in found]), np.concatenate([r for _, r in found])


def _hardware(digits: np.ndarray, ranks: np.ndarray, stack: list[int]) -> np.ndarray:
    """The best point of each combination of the stack's choices, of those near the best the three best."""
    order = np.argsort(-ranks, kind="stable")
    _, first = np.unique(digits[order][:, stack], axis=0, return_index=True)
    kept = order[np.sort(first)]
    near = ranks[kept] >= ranks[kept[0]] - KEPT * abs(ranks[kept[0]])
    return digits[kept[near][:FINALISTS]]


def _coarse(axis: DesignAxis) -> Sequence[int]:
    """Choices spread over an axis of numbers; words all."""
    count = len(axis)
    return (
        np.unique(np.rint(np.linspace(0, count - 1, min(COARSE, count)))).astype(int).tolist()
        if axis.ordered
        else range(count)
    )


def _near(axis: DesignAxis, at: int) -> Sequence[int]:
    """Choices around one of an axis of numbers; of words that one."""
    return range(max(at - NEAR, 0), min(at + NEAR + 1, len(axis))) if axis.ordered else [at]
