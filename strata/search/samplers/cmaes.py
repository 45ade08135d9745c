"""CatCMA with margin (Hamano et al., arXiv 2504.07884) by the cmaes library: CMA-ES for numbers and
categories together; one metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.shipped import extra_package
from strata.search.goal import Goal
from strata.search.samplers._learning import Genes, LearningSampler, penalised_scores, repair_points
from strata.search.space import Space

POPULATION = 512
LEAST = 32  # a small budget still gets a dozen generations
TIRED = 2  # generations in a row with hardly a new point, after which it begins anew


class Cmaes(LearningSampler):
    """A distribution over choices that moves towards better ones: normal along numbers, a share for each
    word.

    A point that breaks a constraint is worth what a legal point near it is.
    """

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 20_000):
        super().__init__(space, goal, seed, budget)
        self.genes = Genes(space)
        # The library advises categories for what has two choices.
        self.numbers = [k for k, gene in enumerate(self.genes.genes) if gene.ordered and gene.count > 2]
        self.words = [k for k in range(len(self.genes)) if k not in self.numbers]
        self.size = int(np.clip(budget // 12, LEAST, POPULATION))
        self.starts = self.tired = 0
        self.strategy = self._fresh()
        self.solutions: list[Any] = []

    def _fresh(self) -> Any:
        """A distribution that knows nothing; None where no axis has a choice."""
        library = extra_package("cmaes", "cmaes", "search")
        self.starts += 1
        if not self.numbers and not self.words:
            return None
        lines = [np.linspace(0.0, 1.0, self.genes.genes[k].count).tolist() for k in self.numbers]
        counts = [self.genes.genes[k].count for k in self.words]
        return library.CatCMAwM(
            z_space=lines or None,
            c_space=counts or None,
            population_size=self.size,
            sigma=0.3,
            seed=(self.seed * 1000 + self.starts) % 2**32,
        )

    def want(self) -> np.ndarray:
        if self.strategy is None:
            return self.space.digits([0])[: int(not len(self.known))]
        if self.tired >= TIRED:
            self.strategy, self.tired = self._fresh(), 0
        self.solutions = [self.strategy.ask() for _ in range(self.size)]
        genes = np.empty((self.size, len(self.genes)), np.int64)
        if self.numbers:
            top = np.array([self.genes.genes[k].count - 1 for k in self.numbers])
            genes[:, self.numbers] = np.rint(np.stack([s.z for s in self.solutions]) * top).astype(np.int64)
        if self.words:
            genes[:, self.words] = np.stack([np.argmax(s.c, axis=1) for s in self.solutions])
        digits = repair_points(self.space, self.genes.digits(genes), self.rng)
        self.tired = self.tired + 1 if self.settled(digits) else 0
        return digits

    def got(self, digits: np.ndarray, scores: np.ndarray, violation: np.ndarray) -> None:
        if self.strategy is not None:
            self.strategy.tell(
                [
                    (s, -float(v))
                    for s, v in zip(self.solutions, penalised_scores(scores, violation), strict=True)
                ]
            )


SAMPLER = Cmaes
