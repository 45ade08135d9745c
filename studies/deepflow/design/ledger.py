"""What a method spends and finds: evaluations counted, the best design after each, the end of the budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from deepflow.design.variables import DesignVariables
from strata.base.arrays import Array
from strata.base.errors import require

OUT = 50.0  # merit of a design that is out, above the logarithm of any time
# evaluations that a slope by JAX is counted as: value and reverse pass cost a small multiple of the function,
# three to four times in operations (Griewank & Walther, Evaluating Derivatives, 2nd ed., 2008, ch. 4)
SLOPE_COST = 5


class Objective(Protocol):
    """Designs [N, columns] in; what is to be least, > 0, and how far each is out (0: it fits), both [N]."""

    def __call__(self, designs: Array) -> tuple[Array, Array]: ...


class Spent(Exception):
    """The budget of evaluations is used up."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MethodTrace:
    """What a method found: its best design, and the best value after so many evaluations."""

    method: str
    design: Array
    value: float
    evaluations: int
    counts: Array  # evaluations after which the best changed
    values: Array  # the best then
    seconds: float  # by the clock on the wall
    cpu_seconds: float  # of this process

    def best_after(self, evaluations: int) -> float:
        """The best value that so many evaluations had found; inf where none of them fits."""
        place = int(np.searchsorted(self.counts, evaluations, side="right")) - 1
        return float(self.values[place]) if place >= 0 else float("inf")


def merit(values: Array, violation: Array) -> Array:
    """One finite number that orders designs: the logarithm of the value, above all of these what is out, the
    further the more.

    >>> merit(np.array([1.0, np.inf]), np.array([0.0, 1.0])).round(3).tolist()
    [0.0, 56.931]
    """
    inside = (violation == 0.0) & np.isfinite(values)
    far = np.where(np.isfinite(violation), violation, 1e6)
    return np.where(inside, np.log(np.where(inside, values, 1.0)), OUT + 10.0 * np.log1p(far))


class Ledger:
    """An objective with a budget: every evaluation is counted, and the best design kept."""

    def __init__(self, objective: Objective, variables: DesignVariables, budget: int):
        require(budget >= 1, "a search needs a budget of at least one evaluation", evaluations=budget)
        self.objective, self.variables, self.budget = objective, variables, budget
        self.used = 0
        self.best_merit, self.best = float("inf"), np.full(len(variables.names), np.nan)
        self.value = float("inf")
        self._counts: list[int] = []
        self._values: list[float] = []
        self.started, self.cpu_started = time.perf_counter(), time.process_time()
        self.on_progress: Callable[[Ledger], None] | None = None

    @property
    def left(self) -> int:
        return self.budget - self.used

    def values(self, designs: Array) -> tuple[Array, Array]:
        """Values and violations of designs, all in one batch; raises Spent when the budget has room for some
        only.
        """
        some = designs[: self.left]
        if len(some):
            values, violation = (np.asarray(part, float) for part in self.objective(some))
            self._note(some, values, violation)
        if len(some) < len(designs) or not len(some):
            raise Spent
        return values, violation

    def merits(self, designs: Array) -> Array:
        """One finite number for each design that orders them (`merit`)."""
        return merit(*self.values(designs))

    def _note(self, designs: Array, values: Array, violation: Array) -> None:
        # a probe beyond the budget tells a slope, but it is no design
        ranked = np.where(self.variables.within_budgets(designs), merit(values, violation), np.inf)
        running = np.minimum.accumulate(np.minimum(ranked, self.best_merit))
        news = np.flatnonzero(running < np.concatenate([[self.best_merit], running[:-1]]))
        for k in news:
            if ranked[k] < OUT:
                self._counts.append(self.used + int(k) + 1)
                self._values.append(float(values[k]))
        if len(news):
            last = int(news[-1])
            self.best_merit, self.best = float(ranked[last]), np.array(designs[last])
            self.value = float(values[last]) if ranked[last] < OUT else float("inf")
        self.used += len(designs)
        if self.on_progress is not None:
            self.on_progress(self)

    def slopes(self, designs: Array) -> Array:
        """Slopes of the logarithm by the objective's own derivative; counted as `SLOPE_COST` evaluations."""
        if len(designs) * SLOPE_COST > self.left:
            self.used = self.budget
            raise Spent
        self.used += len(designs) * SLOPE_COST
        found: Array = self.objective.slope(designs)  # type: ignore[attr-defined]
        return np.where(np.isfinite(found), found, 0.0)

    def trace(self, method: str) -> MethodTrace:
        return MethodTrace(
            method=method,
            design=self.best,
            value=self.value,
            evaluations=self.used,
            counts=np.array(self._counts, int),
            values=np.array(self._values),
            seconds=time.perf_counter() - self.started,
            cpu_seconds=time.process_time() - self.cpu_started,
        )
