"""Projected gradient, as DeepFlow searches: finite differences over all numeric axes at once, momentum, many
starts.

Numeric axes are relaxed to real positions along their choices. Each step prices the nearest point of the
space and its neighbours on every numeric axis (of all climbers in one batch), moves along the normalised
gradient with momentum, and projects the position onto the box of the axes. Words, variants and plans have no
gradient: they come from the starts, the best of a random draw; half of a later draw keeps the best numbers so
far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from strata.search.samplers._learning import LearningSampler, penalised_scores, repair_points

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.space import Space

ROUND = 1024  # points of a round: climbers x (2 x numeric axes + 1)
MOMENTUM = 0.5  # share of the last move that is kept
SHRINK = 0.5  # of the stride, after a move that gained nothing
LONGEST = 0.25  # of an axis: the first stride


@dataclass
class Climber:
    """One start: the best point it has stood at, where that leads, and the point it tries next."""

    trial: np.ndarray  # digits it asks for
    position: np.ndarray  # the trial on the numeric axes, real, in choices
    move: np.ndarray  # the direction it has kept so far, largest part 1
    stride: float = LONGEST
    rank: float = -np.inf  # of the best point
    home: np.ndarray | None = None  # that point's position
    next: np.ndarray | None = None  # the best neighbour of that point, where it is better


class Gradient(LearningSampler):
    """Waves of climbers: a random draw, the best of it climb until no neighbour is better, then the next
    wave.
    """

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 100_000):
        super().__init__(space, goal, seed, budget)
        self.numeric = [i for i, axis in enumerate(space.axes) if axis.ordered and len(axis) > 1]
        self.top = np.array([len(space.axes[i]) - 1 for i in self.numeric], float)
        size = min(ROUND, max(budget // 4, 1))
        self.count = max(size // (2 * len(self.numeric) + 1), 1)
        self.draw = size
        self.climbers: list[Climber] = []
        self.drawing = True

    def want(self) -> np.ndarray:
        self.drawing = not self.climbers
        if self.drawing:
            return self._drawn()
        return np.concatenate([self._around(c.trial) for c in self.climbers])

    def _drawn(self) -> np.ndarray:
        """Where a wave may start: random points, and after the first wave half of them with the numbers of
        the best point so far.
        """
        drawn = self.space.random(self.rng, self.draw)
        if len(self.known) and self.numeric:
            best = self.space.digits(self.known[[np.argmax(penalised_scores(self.scores, self.violation))]])[
                0
            ]
            drawn[::2, self.numeric] = best[self.numeric]
            drawn = repair_points(self.space, drawn, self.rng)
        return drawn

    def _around(self, digits: np.ndarray) -> np.ndarray:
        """A point and its legal neighbours, one choice down and up each numeric axis; where there is none,
        the point itself.
        """
        rows = np.repeat(digits[None], 2 * len(self.numeric) + 1, axis=0)
        for k, i in enumerate(self.numeric):
            rows[1 + 2 * k, i] = max(digits[i] - 1, 0)
            rows[2 + 2 * k, i] = min(digits[i] + 1, len(self.space.axes[i]) - 1)
        return np.where(np.asarray(self.space.legal(rows))[:, None], rows, digits)

    def got(self, digits: np.ndarray, scores: np.ndarray, violation: np.ndarray) -> None:
        ranks = penalised_scores(scores, violation)
        if self.drawing:
            chosen: list[int] = (
                np.argsort(-ranks, kind="stable")[: self.count].tolist() if self.numeric else []
            )
            self.climbers = [
                Climber(digits[c], digits[c, self.numeric].astype(float), np.zeros(len(self.numeric)))
                for c in chosen
            ]
            return
        span = 2 * len(self.numeric) + 1
        parts = [slice(k * span, (k + 1) * span) for k in range(len(self.climbers))]
        self.climbers = [
            c
            for c, p in zip(self.climbers, parts, strict=True)
            if self._step(c, digits[p], ranks[p], violation[p])
        ]

    def _step(self, climber: Climber, rows: np.ndarray, ranks: np.ndarray, violation: np.ndarray) -> bool:
        """What a climber tries next, from its trial and the neighbours of that; False when it stands on a
        top.
        """
        if climber.home is not None and ranks[0] <= climber.rank:
            climber.stride *= SHRINK
        else:
            climber.rank, climber.home = float(ranks[0]), climber.position
            climber.next = rows[np.argmax(ranks)] if ranks.max() > ranks[0] else None
            slope = _slope(rows[:, self.numeric], ranks, violation)
            mixed = MOMENTUM * climber.move + (1.0 - MOMENTUM) * slope / max(np.abs(slope).max(), 1e-300)
            climber.move = mixed / max(np.abs(mixed).max(), 1e-300)
        while climber.stride * self.top.max() >= 0.5 and climber.next is not None:
            climber.position = np.clip(climber.home + climber.stride * self.top * climber.move, 0.0, self.top)
            target = climber.trial.copy()
            target[self.numeric] = np.rint(climber.position).astype(np.int64)
            if np.any(np.rint(climber.home) != target[self.numeric]) and self.space.legal(target[None])[0]:
                climber.trial = target
                return True
            climber.stride *= SHRINK
        if climber.next is None:
            return False
        # No stride gains anything: the best neighbour does, and from there strides begin anew.
        climber.trial, climber.position, climber.stride = (
            climber.next,
            climber.next[self.numeric].astype(float),
            LONGEST,
        )
        climber.move = climber.move * 0.0
        return True


def _slope(rows: np.ndarray, ranks: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """Central differences of the score, relative to the point's own; of what is broken where the point itself
    is out.

    A neighbour that is out is a wall: no slope leads to it.
    """
    inside = violation == 0.0
    height = ranks / max(abs(ranks[0]), 1e-300) if inside[0] else -violation
    down, up = height[1::2], height[2::2]
    if inside[0]:
        down, up = np.where(inside[1::2], down, height[0]), np.where(inside[2::2], up, height[0])
    steps = np.abs(rows[2::2] - rows[1::2]).sum(axis=1)
    slope = (up - down) / np.maximum(steps, 1)
    walled = ((slope > 0) & (up <= height[0])) | ((slope < 0) & (down <= height[0]))
    return np.where(walled, 0.0, slope)
