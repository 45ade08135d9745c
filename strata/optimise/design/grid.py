"""The same freedom as a space of `strata search`: levels of each share and number, and the choices.

Levels of shares are weights: where those of a class add up to more than its total, all are cut alike. So
every point of the grid is a design within the budget, and no constraint joins the axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.arrays import Array
from strata.optimise.design.ledger import Ledger, Spent
from strata.optimise.design.variables import DesignVariables
from strata.search.axes import DesignAxis
from strata.search.goal import Goal
from strata.search.points import Evaluated
from strata.search.samplers import sampler_class
from strata.search.space import Space
from strata.search.work import PointsWork

LEVELS = 24  # most of a share or number, evenly along the logarithm
NUMBERED = 2.0**61  # points that a space can number
LEAST_LEVEL, MOST_LEVEL = 0.002, 0.9  # of a share
# samplers that propose points; exact and hierarchical bound a space by its own scenario, which this has not
POINT_SAMPLERS = ("random", "gradient", "nsga2", "tpe", "cmaes")


def level_count(variables: DesignVariables) -> int:
    """Levels of each share and number, so that all points can be numbered.

    >>> from strata.optimise.design.variables import ShareClass
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


def run_sampler(ledger: Ledger, name: str, seed: int) -> None:
    """Let a sampler of `strata search` spend the budget."""
    space = design_space(ledger.variables)
    sampler = sampler_class(name)(space, Goal(("step_time",)), seed, budget=ledger.budget)
    try:
        while works := sampler.ask():
            sampler.tell([_evaluated(ledger, space, w) for w in works if isinstance(w, PointsWork)])
    except Spent:
        return


def _evaluated(ledger: Ledger, space: Space, work: PointsWork) -> Evaluated:
    designs = designs_of_points(ledger.variables, space, work.digits)
    values, violation = ledger.values(designs)
    out = (violation > 0.0) | ~np.isfinite(values)
    return Evaluated(work.digits, {"step_time": values}, out.astype(np.int64))
