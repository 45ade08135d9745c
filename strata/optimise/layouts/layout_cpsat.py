"""Factor graphs by CP-SAT: where tables of bucket elimination would be too large, and under limits.

Costs become integers: each is rounded to `STEPS` steps of the range of costs, so that the value of a proof
is exact within half a step for each factor; the answer's value is summed up again from the tables themselves.
Limits are kept within a step for each variable.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.optimise.layouts.factor_graph import Factor, FactorGraph
from strata.shipped import extra_package

STEPS = 1e9
Limit = tuple[dict[str, Array], float]  # what each option of some variables takes, and how much there is


@dataclass(frozen=True)
class CpsatAnswer:
    """A choice, its value, the bound below which none can be, and whether the two meet (within rounding)."""

    choice: dict[str, int]
    value: float
    bound: float
    proved: bool


def cpsat_assignment(
    graph: FactorGraph, *, limits: Sequence[Limit] = (), time_limit: float = 60.0, workers: int = 1
) -> CpsatAnswer | None:
    """The best choice of a factor graph by CP-SAT; None where no choice keeps the limits.

    >>> chain = FactorGraph({"a": 2, "b": 2}, [Factor(("a", "b"), np.array([[5.0, 4.0], [0.0, 9.0]]))])
    >>> cpsat_assignment(chain)
    CpsatAnswer(choice={'a': 1, 'b': 0}, value=0.0, bound=0.0, proved=True)
    """
    cp_model = extra_package("ortools.sat.python.cp_model", "a proof by CP-SAT", "map")
    model: Any = cp_model.CpModel()
    takes = {v: [model.new_bool_var(f"{v}={k}") for k in range(n)] for v, n in graph.domains.items()}
    for own in takes.values():
        model.add_exactly_one(own)
    most = sum(float(np.max(f.table[np.isfinite(f.table)], initial=0.0)) for f in graph.factors)
    scale = STEPS / most if most > 0 else 1.0
    terms = []
    for factor in graph.factors:
        terms += _factor_terms(model, factor, takes, scale)
    for held, capacity in limits:
        room = STEPS / capacity
        used = [round(float(held[v][k]) * room) * takes[v][k] for v in held for k in range(graph.domains[v])]
        model.add(sum(used) <= int(STEPS) + len(held))
    model.minimize(sum(terms))
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = workers
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    choice = {
        v: next(k for k, taken in enumerate(own) if solver.boolean_value(taken)) for v, own in takes.items()
    }
    value = graph.value(choice)
    rounding = 0.5 * len(graph.factors) / scale
    proved = status == cp_model.OPTIMAL
    bound = value if proved else max(solver.best_objective_bound / scale - rounding, 0.0)
    return CpsatAnswer(choice, value, bound, proved)


def _factor_terms(model: Any, factor: Factor, takes: dict[str, list[Any]], scale: float) -> list[Any]:
    """Integer terms of one factor: options with equal rows are one class; each combination of classes has a
    variable, and those of a class add up to it (the local polytope, which is tight on trees).
    """
    if not factor.scope:
        return []
    table = factor.table
    members: list[list[Any]] = []
    for axis, v in enumerate(factor.scope):
        rows = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        kind = inverse.reshape(-1)
        table = table.take(first, axis)
        members.append(
            [_any_of(model, [takes[v][k] for k in np.nonzero(kind == c)[0]]) for c in range(len(first))]
        )
    if len(members) == 1:
        return _single(model, table, members[0], scale)
    sums: list[dict[int, list[Any]]] = [{} for _ in members]
    terms = []
    for place in itertools.product(*(range(len(m)) for m in members)):
        cost = float(table[place])
        if not np.isfinite(cost):
            continue
        both = model.new_bool_var("")
        for axis, k in enumerate(place):
            sums[axis].setdefault(k, []).append(both)
        if cost:
            terms.append(round(cost * scale) * both)
    for axis, own in enumerate(members):
        for k, chosen in enumerate(own):
            model.add(sum(sums[axis].get(k, [])) == chosen)
    return terms


def _single(model: Any, table: Array, members: list[Any], scale: float) -> list[Any]:
    terms = []
    for cost, chosen in zip(table, members, strict=True):
        if np.isfinite(cost):
            terms.append(round(float(cost) * scale) * chosen)
        else:
            model.add(chosen == 0)
    return terms


def _any_of(model: Any, options: list[Any]) -> Any:
    if len(options) == 1:
        return options[0]
    made = model.new_bool_var("")
    model.add(sum(options) == made)
    return made
