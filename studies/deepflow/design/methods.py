"""Every way to search a design, by name: projected gradients, line search, SciPy's, samplers on a grid."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from deepflow.design.descent import DEEPFLOW_RULE, PAPER_RULE, DescentRule, projected_gradient
from deepflow.design.ledger import Ledger, MethodTrace, Objective, Spent
from deepflow.design.line_search import LineSearchRule, line_search
from deepflow.design.variables import DesignVariables
from strata.base.arrays import Array
from strata.base.errors import StrataError, UnknownName, require
from strata.search.axes import DesignAxis
from strata.search.executors import PointsWork
from strata.search.goal import Goal
from strata.search.points import Evaluated
from strata.search.samplers import sampler_class
from strata.search.space import Space

LEVELS = 24  # most of a share or number, evenly along the logarithm
NUMBERED = 2.0**61  # points that a space can number
LEAST_LEVEL, MOST_LEVEL = 0.002, 0.9  # of a share
# samplers that propose points; exact and hierarchical bound a space by its own scenario, which this has not
POINT_SAMPLERS = ("random", "gradient", "nsga2", "tpe", "cmaes")


def level_count(variables: DesignVariables) -> int:
    """Levels of each share and number, so that all points can be numbered.

    >>> from deepflow.design.variables import ShareClass
    >>> level_count(DesignVariables(shares=(ShareClass(name="area", members=tuple("abcdefghijklmno")),)))
    16
    """
    each = (NUMBERED / variables.combinations) ** (1.0 / max(variables.smooth_count, 1))
    return max(min(LEVELS, int(each)), 2)


def levels_of(low: float, high: float, count: int) -> tuple[float, ...]:
    """Numbers evenly along the logarithm, to four digits.

    >>> levels_of(0.1, 10.0, 3)
    (0.1, 1.0, 10.0)
    """
    return tuple(float(f"{v:.4g}") for v in np.geomspace(low, high, count))


def design_axes(variables: DesignVariables) -> tuple[DesignAxis, ...]:
    """An axis for every column."""
    count = level_count(variables)

    def numbers(name: str, low: float, high: float) -> DesignAxis:
        values = levels_of(low, high, count)
        labels = tuple(f"{v:g}" for v in values)
        return DesignAxis(name=name, fields=(name,), values=values, labels=labels, kind="number")

    shares = [
        numbers(f"{c.name}.{m}", max(c.floor, LEAST_LEVEL), MOST_LEVEL)
        for c in variables.shares
        for m in c.members
    ]
    reals = [numbers(r.name, r.low, r.high) for r in variables.reals]
    choices = [
        DesignAxis(name=c.name, fields=(c.name,), values=c.labels, labels=c.labels, kind="word")
        for c in variables.choices
    ]
    return (*shares, *reals, *choices)


def design_space(variables: DesignVariables, name: str = "codesign") -> Space:
    """A space whose points are designs."""
    nowhere: Any = None  # points are evaluated by the problem, not by a scenario
    return Space(name=name, title="", note="", scenario=nowhere, axes=design_axes(variables))


def designs_of_points(variables: DesignVariables, space: Space, digits: Array) -> Array:
    """Designs [N, columns] of points of that space."""
    made = np.empty((len(digits), len(variables.names)))
    for k, axis in enumerate(space.axes):
        made[:, k] = np.array(axis.values, float)[digits[:, k]] if axis.ordered else digits[:, k]
    for own, block in zip(variables.shares, variables.blocks, strict=True):
        made[:, block] *= own.total / np.maximum(made[:, block].sum(axis=1, keepdims=True), own.total)
    return made


def _evaluated(ledger: Ledger, space: Space, work: PointsWork) -> Evaluated:
    designs = designs_of_points(ledger.variables, space, work.digits)
    values, violation = ledger.values(designs)
    out = (violation > 0.0) | ~np.isfinite(values)
    return Evaluated(work.digits, {"step_time": values}, out.astype(np.int64))


PROBE = 0.02  # width of SciPy's differences along the logarithm: wider than a bank or a unit
Rng = np.random.Generator
Method = Callable[[Ledger, Rng, Array | None, int], None]  # each ends by itself, or when all is spent


def _projected(rule: DescentRule, ledger: Ledger, rng: Rng, start: Array | None, seed: int) -> None:
    memory = next((n for n in ledger.variables.names if n == "area.memory"), "")
    projected_gradient(ledger, rng, replace(rule, grows_when_full=memory), start)


def _line(rule: LineSearchRule, ledger: Ledger, rng: Rng, start: Array | None, seed: int) -> None:
    if rule.slope == "jax" and getattr(ledger.objective, "slope", None) is None:
        raise StrataError("this objective has no slope by JAX; take the method gradient")
    line_search(ledger, rng, rule, start)


def _scipy(name: str, ledger: Ledger, rng: Rng, start: Array | None, seed: int) -> None:
    while True:
        _minimised(ledger, name, ledger.variables.random(rng, 1)[0] if start is None else start)
        start = None


def _minimised(ledger: Ledger, name: str, start: Array) -> None:
    """One run of a SciPy method along free coordinates; its probes are one batch."""
    from scipy.optimize import minimize

    variables, columns = ledger.variables, ledger.variables.smooth_count
    require(columns > 0, f"{name} needs a free share or number")
    choices = start[columns:]

    def both(free: Array) -> tuple[float, Array]:
        probes = np.concatenate([free[None], free + PROBE * np.eye(columns)])
        found = ledger.merits(variables.from_free(probes, np.repeat(choices[None], len(probes), axis=0)))
        return float(found[0]), (found[1:] - found[0]) / PROBE

    before = ledger.used
    minimize(both, variables.to_free(start[None])[0], jac=True, method=name, options={"maxiter": 60})
    require(ledger.used > before, f"{name} asked for nothing")


def _sampled(name: str, ledger: Ledger, rng: Rng, start: Array | None, seed: int) -> None:
    """Let a sampler of `strata search` spend the budget."""
    space = design_space(ledger.variables)
    sampler = sampler_class(name)(space, Goal(("step_time",)), seed, budget=ledger.budget)
    while works := sampler.ask():
        sampler.tell([_evaluated(ledger, space, w) for w in works if isinstance(w, PointsWork)])


def _drawn(ledger: Ledger, rng: Rng, start: Array | None, seed: int) -> None:
    ledger.merits(ledger.variables.random(rng, ledger.left))


METHODS: dict[str, Method] = {
    "gradient": partial(_line, LineSearchRule()),
    "jax": partial(_line, LineSearchRule(slope="jax")),
    "projected": partial(_projected, DescentRule()),
    "paper": partial(_projected, PAPER_RULE),
    "deepflow": partial(_projected, DEEPFLOW_RULE),
    "l-bfgs-b": partial(_scipy, "L-BFGS-B"),
    "slsqp": partial(_scipy, "SLSQP"),
    "random": _drawn,
    **{f"search-{name}": partial(_sampled, name) for name in POINT_SAMPLERS},
}


def optimise(
    objective: Objective,
    variables: DesignVariables,
    *,
    method: str = "gradient",
    evaluations: int = 5000,
    seed: int = 0,
    start: Array | None = None,
    on_progress: Callable[[Ledger], Any] | None = None,
) -> MethodTrace:
    """The best design that a method finds within so many evaluations.

    >>> from deepflow.design.variables import ShareClass
    >>> split = DesignVariables(shares=(ShareClass(name="power", members=("compute", "memory")),))
    >>> def time(w):  # work over what each part gets, the slower rules
    ...     return np.maximum(3.0 / w[:, 0], 1.0 / w[:, 1]), np.zeros(len(w))
    >>> found = optimise(time, split, evaluations=600)
    >>> found.design.round(2).tolist(), round(found.value, 2)
    ([0.75, 0.25], 4.0)
    """
    if method not in METHODS:
        raise UnknownName("method", method, METHODS, ", ".join(METHODS))
    ledger = Ledger(objective, variables, evaluations)
    ledger.on_progress = on_progress
    with suppress(Spent):
        METHODS[method](ledger, np.random.default_rng(seed), start, seed)
    return ledger.trace(method)


def exhaust(objective: Objective, variables: DesignVariables) -> MethodTrace:
    """Every combination of choices, where nothing else is free: the best is proven."""
    require(
        variables.smooth_count == 0,
        "only choices can be gone through one by one; shares and numbers are free too",
        free=", ".join(variables.names[: variables.smooth_count]),
    )
    ledger = Ledger(objective, variables, variables.combinations)
    ledger.merits(variables.combination(np.arange(variables.combinations)))
    return ledger.trace("exhaustive")
