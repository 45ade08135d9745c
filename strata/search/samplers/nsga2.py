"""NSGA-II (Deb et al., IEEE Trans. Evol. Comput. 6 (2002)) by pymoo: one metric or several, points that break
limits ranked by how far.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.shipped import extra_package
from strata.search.goal import Goal
from strata.search.samplers._learning import Genes, LearningSampler, repair_points
from strata.search.space import Space

POPULATION = 512
LEAST = 32  # with a small budget; others get twenty generations or more
# how near to their parents children are; pymoo's usual 15 to 20 would round back to the parent on axes of a
# few choices
SPREAD = 3.0
# genes that change in a child that is known already, on average, in one try after another
CHANGED = (1.0, 2.0, 4.0)


class Nsga2(LearningSampler):
    """A population that mates and mutates: numbers and degrees move along choices, words are swapped."""

    several = True

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 100_000):
        super().__init__(space, goal, seed, budget)
        self.genes = Genes(space)
        size = int(np.clip(budget // 20, LEAST, POPULATION))
        self.genetic: Any = _algorithm(self.genes, len(goal.metrics), size, seed) if len(self.genes) else None
        self.asked_for: Any = None
        self.first = space.random(self.rng, size)

    def want(self) -> np.ndarray:
        if self.genetic is None:
            return self.first[: int(not len(self.known))]
        fresh = not self.genetic.is_initialized
        self.asked_for = self.genetic.ask()
        if self.asked_for is None or not len(self.asked_for):
            return self.first[:0]
        genes = np.array([_row(individual) for individual in self.asked_for], np.int64)
        digits = self._first(len(genes)) if fresh else self._new(genes)
        for own, individual in zip(self.genes.of(digits), self.asked_for, strict=True):
            individual.X = {f"{k}": int(gene) for k, gene in enumerate(own)}
        return digits

    def _first(self, size: int) -> np.ndarray:
        """A first population: designs as stated, those that keep the limits first, and random ones."""
        order = np.lexsort((-self.scores[:, 0], self.violation))[: size // 4]
        return np.concatenate([self.space.digits(self.known[order]), self.first])[:size]

    def _new(self, genes: np.ndarray) -> np.ndarray:
        """Legal points of some genes; in those that are known, more and more genes change."""
        digits = repair_points(self.space, self.genes.digits(genes), self.rng)
        counts = np.array([gene.count for gene in self.genes.genes])
        for changed in CHANGED:
            old = np.flatnonzero(np.isin(self.space.index(digits), self.known))
            other = (self.rng.random((len(old), len(counts))) * counts).astype(np.int64)
            moved = np.where(
                self.rng.random(other.shape) < changed / len(counts), other, self.genes.of(digits[old])
            )
            digits[old] = repair_points(self.space, self.genes.digits(moved), self.rng)
        return digits

    def got(self, digits: np.ndarray, scores: np.ndarray, violation: np.ndarray) -> None:
        if self.genetic is None:
            return
        inside: np.ndarray = np.isfinite(scores).all(axis=1)
        self.asked_for.set("F", np.where(inside[:, None], -scores, 0.0))
        self.asked_for.set("G", np.where(inside, 0.0, 1.0 + violation)[:, None])
        for individual in self.asked_for:
            individual.evaluated.update(("F", "G"))
        self.genetic.tell(infills=self.asked_for)


def _row(individual: Any) -> tuple[int, ...]:
    """Genes in their own order; pymoo keeps them by name, those of a kind together."""
    return tuple(int(individual.X[f"{k}"]) for k in range(len(individual.X)))


def _algorithm(genes: Genes, goals: int, size: int, seed: int) -> Any:
    """pymoo's NSGA-II over genes."""
    extra_package("pymoo", "nsga2", "search")
    from pymoo.algorithms.moo.nsga2 import NSGA2, binary_tournament
    from pymoo.core.duplicate import DuplicateElimination
    from pymoo.core.mixed import MixedVariableMating, MixedVariableSampling
    from pymoo.core.problem import Problem
    from pymoo.core.termination import NoTermination
    from pymoo.core.variable import Choice, Integer
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.crossover.ux import UX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.mutation.rm import ChoiceRandomMutation
    from pymoo.operators.repair.rounding import RoundingRepair
    from pymoo.operators.selection.tournament import TournamentSelection

    class Same(DuplicateElimination):
        """Equal digits, by hashing: pymoo's own compares every pair."""

        def _do(self, pop: Any, other: Any, is_duplicate: np.ndarray) -> np.ndarray:
            seen = set() if other is None else {_row(i) for i in other}
            for place, individual in enumerate(pop):
                key = _row(individual)
                is_duplicate[place] = key in seen
                if other is None:
                    seen.add(key)
            return is_duplicate

    choices = {
        f"{k}": Integer(bounds=(0, gene.count - 1))
        if gene.ordered
        else Choice(options=list(range(gene.count)))
        for k, gene in enumerate(genes.genes)
    }
    problem = Problem(vars=choices, n_obj=goals, n_ieq_constr=1)
    # pymoo's mating of mixed variables draws parents evenly, unless told
    fitter = TournamentSelection(func_comp=binary_tournament)
    mating = MixedVariableMating(
        selection=fitter,
        crossover={Integer: SBX(eta=SPREAD, vtype=float, repair=RoundingRepair()), Choice: UX()},
        mutation={
            Integer: PM(eta=SPREAD, vtype=float, repair=RoundingRepair()),
            Choice: ChoiceRandomMutation(),
        },
        eliminate_duplicates=Same(),
        n_max_iterations=10,
    )
    made = NSGA2(pop_size=size, sampling=MixedVariableSampling(), mating=mating, eliminate_duplicates=Same())
    return made.setup(problem, termination=NoTermination(), seed=seed)


SAMPLER = Nsga2
