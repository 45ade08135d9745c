"""Samplers: who says which points come next. A file in this folder is a sampler, and its name is the file's;
papers may add others.

A sampler is asked for a round of work, and told what came of it, until it asks for nothing. What it asks
depends on its seed and on what it was told, never on time or on the number of workers; so every executor
gives the same rows, and a study is resumed by telling the sampler its stored rows again. Most samplers are a
`PointSampler` with `propose` and, where they learn, `learn`::

    class Mine(PointSampler):
        def propose(self) -> np.ndarray:              # digits [N, axes] of legal points; none when finished
            return self.space.random(self.rng, 1000)

        def learn(self, evaluated: Evaluated) -> None:
            scores = self.goal.scores(evaluated)      # [N, metrics], larger is better

    SAMPLER = Mine
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from strata.base.errors import UnknownName, require
from strata.base.shipped import paper_model, paper_offers
from strata.search.executors import PointsWork, Work
from strata.search.goal import Goal
from strata.search.points import Evaluated, chooses_words, concatenate_points
from strata.search.space import Space

CHUNK = 4096  # most points in a piece of work: a second or so, so that little is lost with a worker


class Sampler:
    """What the loop needs of a sampler. One that does not save is resumed by replay, and then every piece of
    its work must be `PointsWork`.
    """

    budget: int
    gap = 0.0  # set before the first round: how near the bound is near enough
    bound: float | None = None  # no legal point has a better score; nan where nothing is proven yet
    bounded = 0  # rows of boxes that were bounded
    open = 0  # regions that may still hold a better one
    complete = False  # whether every region was ruled out or evaluated

    @property
    def saves(self) -> bool:
        """Whether it has `save` and `restore` of its own."""
        return type(self).save is not Sampler.save

    def ask(self) -> list[Work]:
        """The work of the next round; nothing when the sampler is finished."""
        raise NotImplementedError

    def tell(self, done: list[Any]) -> Evaluated | None:
        """What came of it, in the order asked; returns the points worth a row (all, for a replay)."""
        raise NotImplementedError

    def save(self) -> dict[str, np.ndarray]:
        """All that the next round depends on."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from what was saved."""


class PointSampler(Sampler):
    """Base of samplers that propose points: keeps to the budget and cuts rounds into pieces of work."""

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 100_000):
        require(budget >= 1, "a search needs a budget of at least one point", budget=budget)
        self.space, self.goal, self.seed, self.budget = space, goal, seed, budget
        self.rng = np.random.default_rng(seed)
        self.asked = 0
        self._order = np.empty(0, int)

    def propose(self) -> np.ndarray:
        """Digits [N, axes] of the legal points to try next; none when there is nothing left to try."""
        raise NotImplementedError

    def learn(self, evaluated: Evaluated) -> None:
        """What became of the points proposed, in order; of the last, as many as the budget had room for."""

    def ask(self) -> list[Work]:
        left = self.budget - self.asked
        digits = self.propose()[:left] if left > 0 else np.empty((0, len(self.space.axes)), int)
        self.asked += len(digits)
        # Points that share their words are priced in one call, so they go into the same piece of work.
        worded = [digits[:, i] for i in range(len(self.space.axes)) if chooses_words(self.space, i)]
        self._order = np.lexsort(worded) if worded else np.arange(len(digits))
        together = digits[self._order]
        return [PointsWork(together[start : start + CHUNK]) for start in range(0, len(together), CHUNK)]

    def tell(self, done: list[Any]) -> Evaluated | None:
        evaluated = concatenate_points(done)
        self.learn(evaluated.take(np.argsort(self._order)))
        return evaluated


def sampler_names() -> list[str]:
    """Every sampler there is."""
    own = (file.name for file in pkgutil.iter_modules(__path__) if not file.name.startswith("_"))
    return sorted([*own, *paper_offers("samplers")])


def sampler_class(name: str) -> Callable[..., Sampler]:
    """What makes a sampler of that name: called with a space, a goal, a seed and, where the caller has one, a
    budget.

    >>> sampler_class("randon")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.UnknownName: no sampler called 'randon'; nearest: random...
    """
    if name not in sampler_names():
        raise UnknownName("sampler", name, sampler_names(), ", ".join(sampler_names()))
    added = paper_model("samplers", name)
    maker: Callable[..., Sampler] = added or import_module(f"{__name__}.{name}").SAMPLER
    return maker
