"""Lower bounds of factor graphs by passing messages, and the options that they rule out.

Costs are moved between a variable and its factors so that the sum of all the separate minima, a bound below
which no choice can be, never falls: Kolmogorov, A new look at reweighted message passing, IEEE PAMI 37
(2015), sec. 4. An option whose own bound lies above the value of a known choice cannot be part of a better
one.
"""

from __future__ import annotations

import numpy as np

from strata.arrays import Array
from strata.optimise.layouts.factor_graph import Factor, FactorGraph

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
                factors = [
                    Factor(f.scope, f.table.take(np.nonzero(keep)[0], f.scope.index(v)))
                    if v in f.scope
                    else f
                    for f in factors
                ]
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
