"""Factor graphs: choose one option per variable so that a sum of tables is least, exactly.

Bucket elimination: variables are eliminated one by one, each into the table of what its neighbours leave it;
time and memory grow with the induced width of the order, not with the number of variables. Dechter, Bucket
elimination: a unifying framework for reasoning, Artificial Intelligence 113 (1999), sec. 3. Options that
another one of the same variable never loses against are dropped first (Goldstein, Efficient rotamer
elimination, Biophysical Journal 66 (1994), eq. 2: dead-end elimination).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from strata.base.arrays import Array

HUGE = 1e30  # stands for a forbidden combination inside of differences
PRUNING_LIMIT = 3_000_000  # the same while options are compared
ENTRIES_LIMIT = 30_000_000  # entries of the largest table that elimination may build


@dataclass(frozen=True, eq=False)
class Factor:
    """A cost for every combination of the options of a few variables; infinity forbids one."""

    scope: tuple[str, ...]
    table: Array


@dataclass(frozen=True, eq=False)
class FactorGraph:
    """Variables with the number of their options, and the tables whose sum is to be least.

    >>> chain = FactorGraph({"a": 2, "b": 2}, [Factor(("a",), np.array([0.0, 3.0])),
    ...                                        Factor(("a", "b"), np.array([[5.0, 4.0], [0.0, 9.0]]))])
    >>> eliminated(chain)
    Assignment(choice={'a': 1, 'b': 0}, value=3.0, width=1, entries=4)
    """

    domains: dict[str, int]
    factors: list[Factor] = field(default_factory=list)


@dataclass(frozen=True)
class Assignment:
    """A best choice, its value, and what finding it took: induced width and the largest table."""

    choice: dict[str, int]
    value: float
    width: int = 0
    entries: int = 0


def neighbours(graph: FactorGraph) -> dict[str, set[str]]:
    """The variables that share a table with each."""
    near: dict[str, set[str]] = {v: set() for v in graph.domains}
    for factor in graph.factors:
        for v in factor.scope:
            near[v].update(other for other in factor.scope if other != v)
    return near


def elimination_order(graph: FactorGraph) -> tuple[list[str], int, int]:
    """Variables, that with the smallest table next; the induced width; entries of the largest table."""
    near = neighbours(graph)
    order: list[str] = []
    width = entries = 0

    def size(v: str) -> int:
        made = graph.domains[v]
        for other in near[v]:
            made *= graph.domains[other]
        return made

    while near:
        first = min(near, key=size)
        width, entries = max(width, len(near[first])), max(entries, size(first))
        around = near.pop(first)
        for v in around:
            near[v] |= around
            near[v] -= {v, first}
        order.append(first)
    return order, width, entries


def eliminated(graph: FactorGraph, limit: int = ENTRIES_LIMIT) -> Assignment | None:
    """The best choice by bucket elimination; None where a table would exceed `limit` entries."""
    order, width, entries = elimination_order(graph)
    if entries > limit:
        return None
    left = list(graph.factors)
    steps: list[tuple[str, tuple[str, ...], Array]] = []
    value = 0.0
    for variable in order:
        rest, table, left = _bucket(left, variable, graph.domains)
        best = table.argmin(-1)
        steps.append((variable, rest, best))
        if rest:
            left.append(Factor(rest, table.min(-1)))
        else:
            value += float(table.min())
    value += float(sum(float(f.table) for f in left))  # factors of no variable
    choice: dict[str, int] = {}
    for variable, rest, best in reversed(steps):
        choice[variable] = int(best[tuple(choice[v] for v in rest)])
    return Assignment({v: choice[v] for v in graph.domains}, value, width, entries)


def _bucket(
    factors: list[Factor], variable: str, domains: dict[str, int]
) -> tuple[tuple[str, ...], Array, list[Factor]]:
    """The other variables of a variable's factors, their sum with it as the last axis, and what is left."""
    own = [f for f in factors if variable in f.scope]
    rest = tuple(dict.fromkeys(v for f in own for v in f.scope if v != variable))
    table = np.zeros([domains[v] for v in (*rest, variable)])
    for f in own:
        table += aligned(f, (*rest, variable))
    return rest, table, [f for f in factors if variable not in f.scope]


def aligned(factor: Factor, scope: tuple[str, ...]) -> Array:
    """A factor's table with the axes of a wider scope, of size 1 where it has none."""
    kept = [v for v in scope if v in factor.scope]
    table = factor.table.transpose([factor.scope.index(v) for v in kept])
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if v in factor.scope else 1 for v in scope])


def min_marginals(factors: list[Factor], domains: dict[str, int], variable: str) -> Array:
    """The least sum of a few factors for each option of a variable."""
    names = dict.fromkeys(v for f in factors for v in f.scope)
    graph = FactorGraph({v: domains[v] for v in names}, factors)
    left = list(factors)
    for v in elimination_order(graph)[0]:
        if v == variable:
            continue
        rest, table, left = _bucket(left, v, domains)
        left.append(Factor(rest, table.min(-1)))
    total = np.zeros(domains[variable])
    for f in left:
        total = total + f.table
    return total


def surviving(graph: FactorGraph, states: Iterable[str] = ()) -> dict[str, Array]:
    """The options that dead-end elimination leaves each variable.

    An option goes where another one is no worse whatever the other variables take; of equals the first stays.
    `states` are variables that follow from others: factors that share them are compared as one, by the least
    and the most that they can be.
    """
    hidden = set(states)
    alive = {v: np.arange(n) for v, n in graph.domains.items()}
    factors = list(graph.factors)
    parts = _components(factors, hidden)
    changed = True
    while changed:
        changed = False
        for v in graph.domains:
            if v in hidden or len(alive[v]) < 2:
                continue
            keep = _kept(v, factors, parts, {name: len(found) for name, found in alive.items()})
            if not keep.all():
                alive[v] = alive[v][keep]
                factors = [narrowed(f, v, np.nonzero(keep)[0]) for f in factors]
                changed = True
    return alive


def _components(factors: list[Factor], hidden: set[str]) -> list[list[int]]:
    """Factors by number that hang together by states; each of the others alone."""
    owner: dict[str, int] = {}
    parts: dict[int, list[int]] = {}
    for number, f in enumerate(factors):
        met = {owner[v] for v in f.scope if v in owner}
        first = min(met, default=number)
        joined = [number]
        for other in met:
            joined += parts.pop(other)
        parts[first] = joined
        for n in joined:
            owner.update(dict.fromkeys((v for v in factors[n].scope if v in hidden), first))
    return list(parts.values())


def _kept(variable: str, factors: list[Factor], parts: list[list[int]], domains: dict[str, int]) -> Array:
    size = domains[variable]
    gain = np.zeros((size, size))  # what option a costs over option b at least
    for part in parts:
        own = [factors[n] for n in part]
        if any(variable in f.scope for f in own):
            gain += _alone(own[0], variable) if len(own) == 1 else _together(own, domains, variable)
    lower = np.tril(np.ones((size, size), bool), -1)  # of equals the first stays
    beaten = (gain > 1e-12 * np.abs(gain).max(initial=0.0)) | ((gain >= 0) & lower)
    np.fill_diagonal(beaten, False)
    keep = np.ones(size, bool)
    for a in range(size):
        keep[a] = not (beaten[a] & keep).any()
    return keep


def _together(factors: list[Factor], domains: dict[str, int], variable: str) -> Array:
    names = dict.fromkeys(v for f in factors for v in f.scope)
    if elimination_order(FactorGraph({v: domains[v] for v in names}, factors))[2] > PRUNING_LIMIT:
        return np.full((domains[variable], domains[variable]), -HUGE)  # too large to compare: all stay
    least = min_marginals(factors, domains, variable)
    turned = [Factor(f.scope, np.where(np.isfinite(f.table), -f.table, np.inf)) for f in factors]
    most = -min_marginals(turned, domains, variable)
    # an option that is forbidden altogether costs everything, whichever side it stands on
    gap: Array = np.where(np.isfinite(least), least, HUGE)[:, None] - np.where(np.isfinite(least), most, HUGE)
    return gap


def _alone(factor: Factor, variable: str) -> Array:
    finite = np.where(np.isfinite(factor.table), factor.table, HUGE)
    flat = np.moveaxis(finite, factor.scope.index(variable), 0).reshape(
        finite.shape[factor.scope.index(variable)], -1
    )
    return np.stack([(row[None, :] - flat).min(-1) for row in flat])


def narrowed(factor: Factor, variable: str, keep: Array) -> Factor:
    if variable not in factor.scope:
        return factor
    return Factor(factor.scope, factor.table.take(keep, factor.scope.index(variable)))


def restricted(graph: FactorGraph, alive: dict[str, Array]) -> FactorGraph:
    """The graph with some options of its variables only."""
    factors = graph.factors
    for v, keep in alive.items():
        if len(keep) < graph.domains[v]:
            factors = [narrowed(f, v, keep) for f in factors]
    return FactorGraph({v: len(keep) for v, keep in alive.items()}, factors)
