"""What a little more of each resource buys: the same question asked again with one quantity changed at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from strata.errors import BadValue
from strata.evaluate import evaluate
from strata.result import Result
from strata.search.axes import DesignAxis
from strata.search.derived_metrics import known_metric
from strata.search.fields import FieldOwners
from strata.search.points import Evaluated, evaluate_points

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.space import Space

# What an architect can buy more of, and the quantities that grow with it (or shrink, where less is better).
RESOURCES: dict[str, tuple[str, ...]] = {
    "matrix rate": ("chip.compute.matrix_rate.*",),
    "DRAM bandwidth": ("chip.memory.bandwidth",),
    "cache bandwidth": ("chip.cache.bandwidth",),
    "vector and special rates": ("chip.compute.vector_rate", "chip.compute.special_rate"),
    "network bandwidth": ("fabric.dimension.*.bandwidth",),
    "network latency (less)": ("fabric.dimension.*.latency",),
    "kernel floor (less)": ("chip.overhead.kernel",),
}


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A resource, and how much better the answer gets with so much more of it."""

    resource: str
    more: float
    speedup: float
    note: str = ""  # why there is no answer, where the changed point is out


def sensitivity(result: Result, more: float = 0.1, metric: str = "") -> list[Gain]:
    """What so much more of each resource buys in a metric (or loses, negative), one at a time, largest first.

    Without a metric it is speed: of a served batch its tokens/s, else the time of a step.

    >>> import strata as st
    >>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=8, context=2048), "tp=8")
    >>> sensitivity(r)[0].resource
    'DRAM bandwidth'
    """
    phase = result.workload.phase
    declared = known_metric(metric or ("tokens_per_s" if phase == "serve" else "step_time"), phase)
    before, gains = float(np.asarray(getattr(result.metrics, declared.name))), []
    owners = FieldOwners(
        chip=result.system.chip, fabric=result.system.fabric, engine=result.engine, model=result.model
    )
    for resource, patterns in RESOURCES.items():
        scale = 1.0 / (1.0 + more) if resource.endswith("(less)") else 1.0 + more
        names = [name for pattern in patterns for name in owners.matching(pattern)]
        changed = owners.overridden({name: owners.value(name) * scale for name in names})
        system = replace(result.system, chip=changed.chip, fabric=changed.fabric)
        again = evaluate(
            system, result.model, result.workload, result.plan, result.engine, economics=result.economics
        )
        after = float(np.asarray(getattr(again.metrics, declared.name)))
        better = after / before if declared.higher_is_better else before / after
        gains.append(Gain(resource=resource, more=more, speedup=better - 1.0))
    return sorted(gains, key=lambda g: -g.speedup)


def axis_gains(space: Space, goal: Goal, point: Evaluated, more: float = 0.1) -> list[Gain]:
    """How much better one metric gets with so much more of each numeric axis of a point, one at a time, ties
    followed; best first.

    Counts (layers, sequences) grow by one at least. The changed point need not be a choice of its space: it
    may lie past the end of an axis.
    """
    here = [axis.keep([int(d)]) for axis, d in zip(space.axes, point.digits[0], strict=True)]
    start, base = np.zeros((1, len(here)), np.int64), float(goal.scores(point)[0, 0])
    gains = []
    for i, axis in enumerate(here):
        if not axis.ordered:
            continue
        grown = _grown(space.axes[i], axis.values[0], more)
        moved = replace(
            space, axes=tuple(replace(a, values=(grown,)) if k == i else a for k, a in enumerate(here))
        )
        gain, note = float("nan"), "breaks a constraint of the space"
        if _legal(moved):
            after = evaluate_points(moved, start)
            score, note = float(goal.scores(after)[0, 0]), str(goal.reasons(after)[0])
            if not note:
                gain = (score / base if goal.higher_is_better[0] else base / score) - 1.0
        share = grown / axis.values[0] - 1.0
        gains.append(Gain(resource=f"{axis.name}, now {axis.labels[0]}", more=share, speedup=gain, note=note))
    return sorted(gains, key=lambda g: -g.speedup if np.isfinite(g.speedup) else np.inf)


def _grown(axis: DesignAxis, value: float, more: float) -> float:
    """So much more of a number; of a count the next whole one at least."""
    counted = axis.kind == "number" and axis.unit == "1" and all(float(v).is_integer() for v in axis.values)
    return max(value + 1.0, float(round(value * (1.0 + more)))) if counted else value * (1.0 + more)


def _legal(single: Space) -> bool:
    """Whether a space of one point has that point: constraints that leave nothing are refused."""
    try:
        return single.size == 1
    except BadValue:
        return False
