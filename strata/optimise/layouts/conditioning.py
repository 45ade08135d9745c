"""Factor graphs too wide to eliminate: a few variables are fixed in turn, the rest is eliminated.

Cutset conditioning (Dechter, Constraint Processing, 2003, sec. 10.1) as branch and bound: messages bound what
each way to fix the first variables can still give, and good choices come from neighbourhoods that are
searched exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from strata.base.arrays import Array
from strata.optimise.layouts.factor_graph import (
    Assignment,
    FactorGraph,
    eliminated,
    elimination_order,
    narrowed,
    neighbours,
    restricted,
)

SLACK = 1e-9  # of the value: what rounding of sums may hide


def consistent(graph: FactorGraph) -> dict[str, Array]:
    """The options of each variable that no factor forbids altogether."""
    alive = {v: np.arange(n) for v, n in graph.domains.items()}
    factors, changed = graph.factors, True
    while changed:
        changed = False
        for v in graph.domains:
            keep = np.ones(len(alive[v]), bool)
            for f in factors:
                if v in f.scope:
                    at = f.scope.index(v)
                    keep &= np.isfinite(f.table).any(tuple(i for i in range(f.table.ndim) if i != at))
            if not keep.all():
                changed = True
                alive[v] = alive[v][keep]
                factors = [narrowed(f, v, np.nonzero(keep)[0]) for f in factors]
    return alive


class Messages:
    """A factor graph whose costs move between variables and factors."""

    def __init__(self, graph: FactorGraph):
        self.most = sum(
            float(np.max(np.abs(f.table[np.isfinite(f.table)]), initial=0.0)) for f in graph.factors
        )
        # a forbidden combination costs more than any choice: sums stay finite
        forbidden = 1e3 * (self.most or 1.0)
        self.own = {v: np.zeros(n) for v, n in graph.domains.items()}
        self.tables: list[Array] = []
        self.scopes: list[tuple[str, ...]] = []
        for f in graph.factors:
            table = np.where(np.isfinite(f.table), f.table, forbidden)
            if len(f.scope) == 1:
                self.own[f.scope[0]] = self.own[f.scope[0]] + table
            else:
                self.tables.append(table.copy())
                self.scopes.append(f.scope)
        self.order = list(graph.domains)
        self.rank = {v: i for i, v in enumerate(self.order)}
        self.near: dict[str, list[int]] = {v: [] for v in self.order}
        for n, scope in enumerate(self.scopes):
            for v in scope:
                self.near[v].append(n)

    def _least(self, number: int, variable: str) -> Array:
        table, at = self.tables[number], self.scopes[number].index(variable)
        least: Array = table.min(tuple(i for i in range(table.ndim) if i != at))
        return least

    def _move(self, number: int, variable: str, costs: Array) -> None:
        at, table = self.scopes[number].index(variable), self.tables[number]
        table += costs.reshape([-1 if i == at else 1 for i in range(table.ndim)])

    def sweep(self) -> None:
        for turn in (1, -1):
            for v in self.order[::turn]:
                near = self.near[v]
                for n in near:
                    least = self._least(n, v)
                    self.own[v] += least
                    self._move(n, v, -least)
                ahead = [
                    n for n in near if any(turn * (self.rank[u] - self.rank[v]) > 0 for u in self.scopes[n])
                ]
                if ahead:
                    behind = sum(
                        any(turn * (self.rank[u] - self.rank[v]) < 0 for u in self.scopes[n]) for n in near
                    )
                    share = self.own[v] / max(len(ahead), behind)
                    for n in ahead:
                        self._move(n, v, share)
                    self.own[v] = self.own[v] - share * len(ahead)

    def bounds(self) -> tuple[float, dict[str, Array]]:
        """The bound, and that of each option of each variable."""
        alone = {v: float(own.min()) for v, own in self.own.items()}
        tables = [float(t.min()) for t in self.tables]
        bound = sum(alone.values()) + sum(tables)
        found = {}
        for v, own in self.own.items():
            here = own + sum((self._least(n, v) for n in self.near[v]), np.zeros(len(own)))
            found[v] = here + (bound - alone[v] - sum(tables[n] for n in self.near[v]))
        return bound, found


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
            return least
        if self._take(alive, LEAF_LIMIT):
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

    def _improve(self, alive: Alive, costs: dict[str, Array]) -> None:
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
        near, random = neighbours(self.graph), np.random.default_rng(0)
        for _ in range(ROUNDS):
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
