"""What a little more of each resource buys: the same question asked again with one quantity changed at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.errors import BadValue
from strata.evaluate import evaluate
from strata.params import leaf_paths, override, value_at
from strata.result import Result
from strata.search.points import evaluate_points

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.space import Space

# What an architect can buy more of, and the quantities that grow with it.
RESOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "matrix rate": (("chip", "compute.matrix_rate.*"),),
    "DRAM bandwidth": (("chip", "memory.bandwidth"),),
    "cache bandwidth": (("chip", "cache.bandwidth"),),
    "vector and special rates": (("chip", "compute.vector_rate"), ("chip", "compute.special_rate")),
    "network bandwidth": (("fabric", "dimension.*.bandwidth"),),
    "network latency (less)": (("fabric", "dimension.*.latency"),),
    "kernel floor (less)": (("chip", "overhead.kernel"),),
}


@dataclass(frozen=True)
class Gain:
    """A resource, and how much faster the answer gets with so much more of it."""

    resource: str
    more: float
    speedup: float
    note: str = ""  # why there is no answer, where the changed point is out


def sensitivity(result: Result, more: float = 0.1) -> list[Gain]:
    """Speed-up (or loss, negative) from so much more of each resource, one at a time, largest first.

    >>> import strata as st
    >>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=8, context=2048), "tp=8")
    >>> sensitivity(r)[0].resource
    'DRAM bandwidth'
    """
    gains = []
    base = _time(result)
    for name, changes in RESOURCES.items():
        scale = 1.0 / (1.0 + more) if name.endswith("(less)") else 1.0 + more
        chip, fabric = result.system.chip, result.system.fabric
        for owner, path in changes:
            if owner == "chip":
                chip, _ = override(chip, {p: v * scale for p, v in _matching(chip, path).items()}, "chip")
            else:
                fabric, _ = override(
                    fabric, {p: v * scale for p, v in _matching(fabric, path).items()}, "fabric"
                )
        system = replace(result.system, chip=chip, fabric=fabric)
        again = evaluate(
            system, result.model, result.workload, result.plan, result.engine, economics=result.economics
        )
        gains.append(Gain(name, more, base / _time(again) - 1.0))
    return sorted(gains, key=lambda g: -g.speedup)


def axis_gains(space: Space, goal: Goal, digits: np.ndarray, more: float = 0.1) -> list[Gain]:
    """How much better one metric gets with so much more of each numeric axis of a point, one at a time, ties
    followed; best first.

    Counts (layers, sequences) grow by one at least. The changed point need not be a choice of its space: it
    may lie past the end of an axis.
    """
    here = [
        replace(a, values=(a.values[int(d)],), labels=(a.labels[int(d)],))
        for a, d in zip(space.axes, digits, strict=True)
    ]
    start = np.zeros((1, len(here)), np.int64)
    base = float(goal.scores(evaluate_points(replace(space, axes=tuple(here)), start))[0, 0])
    gains = []
    for i, axis in enumerate(here):
        if not axis.ordered:
            continue
        value = axis.values[0]
        counted = (
            axis.kind == "number"
            and axis.unit == "1"
            and all(float(v).is_integer() for v in space.axes[i].values)
        )
        grown = max(value + 1.0, float(round(value * (1.0 + more)))) if counted else value * (1.0 + more)
        moved = replace(
            space, axes=tuple(replace(a, values=(grown,)) if k == i else a for k, a in enumerate(here))
        )
        name, share = f"{axis.name}, now {axis.labels[0]}", grown / value - 1.0
        if not _legal(moved):
            gains.append(Gain(name, share, float("nan"), "breaks a constraint of the space"))
            continue
        after = evaluate_points(moved, start)
        score, why = float(goal.scores(after)[0, 0]), str(goal.reasons(after)[0])
        gains.append(
            Gain(
                name,
                share,
                float("nan") if why else (score / base if goal.larger[0] else base / score) - 1.0,
                why,
            )
        )
    return sorted(gains, key=lambda g: -g.speedup if np.isfinite(g.speedup) else np.inf)


def _legal(single: Space) -> bool:
    """Whether a space of one point has that point: constraints that leave nothing are refused."""
    try:
        return single.size == 1
    except BadValue:
        return False


def _time(result: Result) -> float:
    metrics = result.metrics
    return (
        float(np.asarray(metrics.step_time))
        if result.workload.phase != "serve"
        else 1.0 / float(np.asarray(metrics.tokens_per_s))
    )


def _matching(record: Any, pattern: str) -> dict[str, float]:
    """Quantities of a record whose path matches, with their values."""
    return {path: value_at(record, path) for path in leaf_paths(record) if fnmatchcase(path, pattern)}
