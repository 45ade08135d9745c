"""Factor graphs too wide to eliminate: a few variables are fixed in turn, the rest is eliminated.

Cutset conditioning (Dechter, Constraint Processing, 2003, sec. 10.1) as branch and bound: messages bound what
each way to fix the first variables can still give, and good choices come from neighbourhoods that are
searched exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from strata.arrays import Array
from strata.optimise.layouts.factor_graph import (
    Assignment,
    FactorGraph,
    eliminated,
    elimination_order,
    restricted,
)
from strata.optimise.layouts.message_passing import SLACK, Messages, consistent

LEAF_LIMIT = 4_000_000  # entries of the largest table of one elimination
FIRST_SWEEPS, ROUNDS = 48, 32  # of messages at the start; neighbourhoods that are searched
NEAR_LIMIT = 300_000  # the same of one neighbourhood
Alive = dict[str, Array]


@dataclass(eq=False)
class ConditionedSearch:
    """Branch and bound over the options of a few variables; `best` and `bound` hold whenever it stops."""

    graph: FactorGraph
    choices: list[str]  # variables that are chosen; the others follow from them
    deadline: float
    best: Assignment | None = None
    bound: float = 0.0
    leaves: int = 0
    pruned: int = 0
    stopped: bool = False

    @property
    def proved(self) -> bool:
        return self.best is not None and not self.stopped

    def run(self) -> ConditionedSearch:
        """Search until the best choice is proved or time is out."""
        alive = self.settled({v: np.arange(n) for v, n in self.graph.domains.items()})
        least, costs = self._bounded(alive, FIRST_SWEEPS)
        self.bound = least
        self._improve(alive, costs)
        alive = self._narrowed(alive, costs)
        self.bound = self._branch(alive, least)
        if self.proved and self.best is not None:
            self.bound = self.best.value
        return self

    def settled(self, alive: Alive) -> Alive:
        """Options without those that the others forbid."""
        inner = consistent(restricted(self.graph, alive))
        return {v: found[inner[v]] for v, found in alive.items()}

    def _bounded(self, alive: Alive, sweeps: int) -> tuple[float, dict[str, Array]]:
        messages = Messages(restricted(self.graph, alive))
        for _ in range(sweeps):
            messages.sweep()
        return messages.bounds()

    def _narrowed(self, alive: Alive, costs: dict[str, Array]) -> Alive:
        if self.best is None:
            return alive
        kept = {v: found[costs[v] < self.best.value * (1.0 - SLACK)] for v, found in alive.items()}
        return self.settled(kept) if all(len(k) for k in kept.values()) else kept

    def _take(self, alive: Alive, limit: int) -> bool:
        """Eliminate what is alive, if it is small enough, and keep what is better."""
        answer = eliminated(restricted(self.graph, alive), limit)
        if answer is None:
            return False
        if np.isfinite(answer.value) and (self.best is None or answer.value < self.best.value):
            choice = {v: int(alive[v][k]) for v, k in answer.choice.items()}
            self.best = Assignment(choice, answer.value, answer.width, answer.entries)
        return True

    def _met(self, bound: float) -> bool:
        """Whether nothing above a bound can be better than the best choice."""
        return self.best is not None and bound >= self.best.value * (1.0 - SLACK)

    def _branch(self, alive: Alive, least: float) -> float:
        """The bound of what is alive after it was searched."""
        if any(len(found) == 0 for found in alive.values()):
            return np.inf
        if self._met(least):
            self.pruned += 1
            return least
        if self._take(alive, LEAF_LIMIT):
            self.leaves += 1
            return np.inf
        if time.perf_counter() > self.deadline:
            self.stopped = True
            return least
        variable = self._widest(alive)
        branches = []
        for k in range(len(alive[variable])):
            part = self.settled({**alive, variable: alive[variable][k : k + 1]})
            if all(len(found) for found in part.values()):
                below, costs = self._bounded(part, 6)
                branches.append((max(below, least), k, part, costs))
        found = np.inf
        for below, _, part, costs in sorted(branches, key=lambda b: b[:2]):
            found = min(found, self._branch(self._narrowed(part, costs), below))
        return found

    def _widest(self, alive: Alive) -> str:
        """The variable that leaves the smallest tables when it is fixed."""
        small = restricted(self.graph, alive)
        several = [v for v in self.choices if small.domains[v] > 1]

        def left(v: str) -> float:
            fixed = FactorGraph({**small.domains, v: 1}, small.factors)
            return elimination_order(fixed)[2] * small.domains[v] ** 0.5

        return min(several, key=left)

    def _improve(self, alive: Alive, costs: dict[str, Array], rounds: int = ROUNDS) -> None:
        """Choices from neighbourhoods: some variables free, the others as in the best choice so far."""
        for few in (4, 3, 2, 1):
            part = {
                v: found[np.sort(np.argsort(costs[v], kind="stable")[:few])] if v in self.choices else found
                for v, found in alive.items()
            }
            part = self.settled(part)
            if all(len(found) for found in part.values()) and self._take(part, LEAF_LIMIT):
                break
        if self.best is None:
            return
        near: dict[str, set[str]] = {v: set() for v in self.graph.domains}
        for f in self.graph.factors:
            for v in f.scope:
                near[v].update(f.scope)
        random = np.random.default_rng(0)
        for _ in range(rounds):
            if time.perf_counter() > self.deadline or self._met(self.bound):
                return
            self._neighbourhood(alive, near, random)

    def _neighbourhood(self, alive: Alive, near: dict[str, set[str]], random: np.random.Generator) -> None:
        assert self.best is not None
        ring = [str(random.choice(self.choices))]
        for v in ring:  # grows while it is walked
            ring += [u for u in sorted(near[v]) if u not in ring]
        wanted = [v for v in ring if v in self.choices]
        for size in (16, 10, 6, 3):
            free = set(wanted[:size])
            part = {
                v: found if v in free or v not in self.choices else found[found == self.best.choice[v]]
                for v, found in alive.items()
            }
            if self._take(self.settled(part), NEAR_LIMIT):
                return
