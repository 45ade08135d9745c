"""Tree-structured Parzen estimator (Bergstra et al., NIPS 2011) by optuna: one metric; learns most from few
points, and thinks longest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.shipped import extra_package
from strata.search.goal import Goal
from strata.search.samplers._learning import Genes, LearningSampler, penalised_scores, repair_points
from strata.search.space import Space

BATCH = 64  # trials asked for at once; those under way count as bad, so that they are told apart
STARTUP = 64  # random points before the first estimate
TIRED = 2  # batches in a row with hardly a new point, after which a study begins that knows nothing
# trials of a study: each costs time in every later one, so a full study hands its best on to the next
FULL = 1024
HANDED_ON = 256


class Tpe(LearningSampler):
    """Trials of an optuna study, all axes in one joint estimate.

    A trial that is no legal point (a constraint, degrees that no plan has) is dropped, and one near it is
    tried and told in its place.
    """

    def __init__(self, space: Space, goal: Goal, seed: int = 0, budget: int = 2_000):
        super().__init__(space, goal, seed, budget)
        self.genes = Genes(space)
        self.distributions = _distributions(self.genes)
        self.starts = self.tired = self.told = 0
        self.study = self._fresh()
        self.trials: list[Any] = []
        # genes of the trials, before they became legal points
        self.meant = np.empty((0, len(self.genes)), np.int64)

    def _fresh(self) -> Any:
        """A study that knows nothing."""
        import optuna

        self.starts, self.told = self.starts + 1, 0
        sampler = optuna.samplers.TPESampler(
            seed=self.seed * 1000 + self.starts,
            multivariate=True,
            n_startup_trials=STARTUP,
            constant_liar=True,
        )
        return optuna.create_study(direction="maximize", sampler=sampler)

    def want(self) -> np.ndarray:
        if not len(self.genes):
            return self.space.digits([0])[: int(not len(self.known))]
        if self.tired >= TIRED:
            self.study, self.tired = self._fresh(), 0
        elif self.told >= FULL:
            self.study = self._fresh()
            self._hand_on()
        self.trials = [
            self.study.ask(self.distributions) for _ in range(min(BATCH, self.budget - self.asked))
        ]
        self.meant = np.array(
            [[trial.params[f"{k}"] for k in range(len(self.genes))] for trial in self.trials], np.int64
        )
        digits = repair_points(self.space, self.genes.digits(self.meant), self.rng)
        self.tired = self.tired + 1 if self.settled(digits) else 0
        return digits

    def got(self, digits: np.ndarray, scores: np.ndarray, violation: np.ndarray) -> None:
        if not len(self.genes):
            return
        import optuna

        values = penalised_scores(scores, violation)
        genes = self.genes.of(digits)
        moved = (genes != self.meant).any(axis=1)
        for place, trial in enumerate(self.trials):
            if moved[place]:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
                self.study.add_trial(self._trial(genes[place], float(values[place])))
            else:
                self.study.tell(trial, float(values[place]))
        self.told += len(digits) + int(moved.sum())

    def _hand_on(self) -> None:
        """What is known of the best points, for a study that knows nothing."""
        values = penalised_scores(self.scores, self.violation)
        best = np.argsort(-values, kind="stable")[:HANDED_ON]
        for genes, value in zip(
            self.genes.of(self.space.digits(self.known[best])), values[best], strict=True
        ):
            self.study.add_trial(self._trial(genes, float(value)))

    def _trial(self, genes: np.ndarray, value: float) -> Any:
        import optuna

        params = {f"{k}": int(gene) for k, gene in enumerate(genes)}
        return optuna.trial.create_trial(params=params, distributions=self.distributions, value=value)


def _distributions(genes: Genes) -> dict[str, Any]:
    """Genes as optuna knows them: by their order, or as categories."""
    optuna = extra_package("optuna", "tpe", "search")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    whole, words = optuna.distributions.IntDistribution, optuna.distributions.CategoricalDistribution
    return {
        f"{k}": whole(0, gene.count - 1) if gene.ordered else words(list(range(gene.count)))
        for k, gene in enumerate(genes.genes)
    }


SAMPLER = Tpe
