"""Points as learners see them: small genes that each mean something, a gene an axis, and a gene for each
degree of a plan.

A plan axis may have tens of thousands of choices, of which each is seen once or never; its degrees (tensor,
expert, pipeline parallel, ...) have a few choices each, and what is learned of them holds for every plan that
has them.

What samplers that learn share: no point is asked for twice, illegal points are mended, points that are out
still rank, and the system as its files have it is where they begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.errors import BadValue
from strata.search.axes import DesignAxis
from strata.search.goal import Goal
from strata.search.points import Evaluated
from strata.search.samplers import PointSampler
from strata.search.scenario import Scenario
from strata.search.space import Space

# choices without order up to which each is learned for itself; longer lists are searched along their order
CATEGORIES = 64
# how far apart two plans are that differ in a word, where degrees at both ends of their range are 1 apart
UNLIKE = 0.5


@dataclass(frozen=True)
class Gene:
    """One thing to choose: how many choices, and whether they have an order."""

    axis: int
    count: int
    ordered: bool


class Genes:
    """Between digits [N, axes] and genes [N, G]; axes without a choice have no gene."""

    def __init__(self, space: Space):
        self.space = space
        self.fixed = np.zeros(len(space.axes), np.int64)
        self.genes: list[Gene] = []
        # axis: its genes, codes of its plans, tree, scale
        self.plans: dict[int, tuple[list[int], np.ndarray, Any, np.ndarray]] = {}
        for i, axis in enumerate(space.axes):
            if len(axis) > 1 and axis.kind == "plan":
                self._split(i, np.array(axis.values, float))
            elif len(axis) > 1:
                self.genes.append(Gene(i, len(axis), axis.ordered or len(axis) > CATEGORIES))

    def _split(self, i: int, table: np.ndarray) -> None:
        """Genes of a plan axis: its fields that vary; those that start at 1 are degrees and have an order."""
        from scipy.spatial import cKDTree

        columns = [np.unique(column, return_inverse=True) for column in table.T]
        # a field that follows another tells nothing new
        first = {codes.tobytes(): k for k, (_, codes) in reversed(list(enumerate(columns)))}
        varied = [
            (values, codes)
            for k, (values, codes) in enumerate(columns)
            if len(values) > 1 and first[codes.tobytes()] == k
        ]
        own = list(range(len(self.genes), len(self.genes) + len(varied)))
        ordered = [float(values.min()) >= 1.0 or len(values) > CATEGORIES for values, _ in varied]
        self.genes += [Gene(i, len(values), o) for (values, _), o in zip(varied, ordered, strict=True)]
        codes = np.stack([c for _, c in varied], axis=1)
        scale = np.array(
            [
                (1.0 if o else UNLIKE) / (len(values) - 1)
                for (values, _), o in zip(varied, ordered, strict=True)
            ]
        )
        self.plans[i] = (own, codes, cKDTree(codes * scale), scale)

    def __len__(self) -> int:
        return len(self.genes)

    def digits(self, genes: np.ndarray) -> np.ndarray:
        """The points of some genes; degrees that no plan has become those of the nearest plan."""
        made = np.repeat(self.fixed[None], len(genes), axis=0)
        for place, gene in enumerate(self.genes):
            if gene.axis not in self.plans:
                made[:, gene.axis] = genes[:, place]
        for axis, (own, _, tree, scale) in self.plans.items():
            made[:, axis] = tree.query(genes[:, own] * scale)[1]
        return made

    def of(self, digits: np.ndarray) -> np.ndarray:
        """The genes of some points."""
        made = np.empty((len(digits), len(self.genes)), np.int64)
        for place, gene in enumerate(self.genes):
            if gene.axis not in self.plans:
                made[:, place] = digits[:, gene.axis]
        for axis, (own, codes, _, _) in self.plans.items():
            made[:, own] = codes[digits[:, axis]]
        return made


# wanted rounds without a new point after which a sampler is finished: it moves among what it knows
STALE = 25
ROUND = 1 << 15  # combinations of choices that are looked at together
STARTS = 64  # plans that are tried with the system as it is stated
SETTLED = 0.8  # share of known points in what a sampler wants, above which it learns no more
# rank of a point that breaks one rule: below every score, and far enough from the end of doubles to add rules
# up
OUT = -1e300


class LearningSampler(PointSampler):
    """Base of samplers that come back to points they know: those are answered from memory, only new ones are
    asked for.

    A sampler says what it wants (`want`) and is given scores and violation for all of it (`got`).
    """

    several = False  # whether it can search for several metrics at once

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 100_000):
        super().__init__(space, goal, seed, budget)
        if len(goal.metrics) > 1 and not self.several:
            raise BadValue(
                f"this sampler searches for one metric, but got {', '.join(goal.metrics)};"
                " for several use nsga2, random or exact"
            )
        self.known = np.empty(0, np.int64)  # sorted indices of points seen
        self.scores = np.empty((0, len(goal.metrics)))
        self.violation = np.empty(0)
        self.wanted = np.empty((0, len(space.axes)), np.int64)
        self.start: np.ndarray | None = None  # designs as the system has them, asked for first

    def want(self) -> np.ndarray:
        """Digits [N, axes] of legal points whose scores are needed, known ones too; none when finished."""
        raise NotImplementedError

    def got(self, digits: np.ndarray, scores: np.ndarray, violation: np.ndarray) -> None:
        """Scores [N, metrics] and violation [N] (see `Goal.violation`) of the points just wanted."""
        raise NotImplementedError

    def propose(self) -> np.ndarray:
        if self.start is None:  # before anything is learned: an answer is never worse than what is there
            self.start = stated_points(self.space, self.rng, max(1, min(STARTS, self.budget // 8)))
            if len(self.start):
                return self.start
        for _ in range(STALE):
            self.wanted = self.want() if len(self.known) < self.space.size else self.wanted[:0]
            if not len(self.wanted):
                break
            index, first = np.unique(self.space.index(self.wanted), return_index=True)
            new = np.sort(first[~np.isin(index, self.known, assume_unique=True)])
            if len(new):
                return self.wanted[new]
            self._answer()
        return self.wanted[:0]

    def learn(self, evaluated: Evaluated) -> None:
        index = np.concatenate([self.known, self.space.index(evaluated.digits)])
        order = np.argsort(index, kind="stable")
        self.known = index[order]
        self.scores = np.concatenate([self.scores, self.goal.scores(evaluated)])[order]
        self.violation = np.concatenate([self.violation, self.goal.violation(evaluated)])[order]
        # else this was the last round, and it may lack what the budget had no room for
        if self.asked < self.budget and len(self.wanted):
            self._answer()

    def settled(self, digits: np.ndarray) -> bool:
        """Whether hardly any of these points is new: whoever proposed them may begin anew."""
        return bool(np.isin(self.space.index(digits), self.known).mean() > SETTLED)

    def _answer(self) -> None:
        place = np.searchsorted(self.known, self.space.index(self.wanted))
        self.got(self.wanted, self.scores[place], self.violation[place])


def penalised_scores(scores: np.ndarray, violation: np.ndarray) -> np.ndarray:
    """One number a point that orders all of them: the score where it is in, and below every score the less
    the further it is out.

    >>> penalised_scores(np.array([[-np.inf], [-3.0]]), np.array([2.0, 0.0])).tolist()
    [-3e+300, -3.0]
    """
    return np.where(scores[:, 0] > -np.inf, scores[:, 0], OUT * (1.0 + np.minimum(violation, 1e6)))


def repair_points(space: Space, digits: np.ndarray, rng: np.random.Generator, tries: int = 8) -> np.ndarray:
    """Legal points near the given ones: illegal ones take ever more digits of random legal points."""
    made = np.array(digits, np.int64)
    for attempt in range(1, tries + 1):
        bad = np.flatnonzero(~np.asarray(space.legal(made)))
        if not len(bad):
            break
        taken = rng.random((len(bad), made.shape[1])) < attempt / tries
        made[bad] = np.where(taken, space.random(rng, len(bad)), digits[bad])
    return made


def stated_points(space: Space, rng: np.random.Generator, count: int) -> np.ndarray:
    """The system as described, with at most so many of its plans drawn at random: legal points, each once."""
    if space.scenario is None:  # a grid that stands for no system
        return np.empty((0, len(space.axes)), np.int64)
    rows = np.repeat(described(space, rng)[None], count, axis=0)
    for i, axis in enumerate(space.axes):
        if axis.kind == "plan":
            rows[1:, i] = rng.integers(0, len(axis), count - 1)
    legal = rows[np.asarray(space.legal(rows))]
    return legal[np.sort(np.unique(space.index(legal), return_index=True)[1])]


def described(space: Space, rng: np.random.Generator) -> np.ndarray:
    """The legal point nearest to the system as its file has it: numbers nearest to its own, its words, the
    variant that changes nothing.

    A quantity that the file leaves open is not limited there: it takes its highest choice that is legal with
    the others.
    """
    own = [_own(axis, space.scenario) for axis in space.axes]
    lists = [
        range(len(axis) - 1, -1, -1) if k is None else [k] for axis, k in zip(space.axes, own, strict=True)
    ]
    for block in combinations_in_blocks(itertools.product(*lists), ROUND):
        legal = block[np.asarray(space.legal(block))]
        if len(legal):
            return np.asarray(legal[0])
    drawn, wanted = space.random(rng, 4096), np.array([c[0] for c in lists])
    return np.asarray(drawn[np.argmin((drawn != wanted).sum(axis=1))])


def _own(axis: DesignAxis, scenario: Scenario) -> int | None:
    """The choice of an axis nearest to what its first field is in the scenario; None where it is open."""
    if axis.kind == "times":
        return int(np.argmin(np.abs(np.array(axis.values, float) - 1.0)))
    if axis.kind == "plan":
        return 0
    if axis.kind == "variant":
        return next((k for k, own in enumerate(axis.values) if not own), 0)
    own = scenario.base_value(axis.fields[0])
    if axis.kind == "word":
        return axis.values.index(own) if own in axis.values else 0
    return None if own is None else int(np.argmin(np.abs(np.array(axis.values, float) - float(own))))


def combinations_in_blocks(combinations: Iterator[tuple[int, ...]], size: int) -> Iterator[np.ndarray]:
    """Combinations of choices, some at a time, a row each."""
    while block := list(itertools.islice(combinations, size)):
        yield np.array(block, np.int64).reshape(len(block), -1)
