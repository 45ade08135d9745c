"""What a little more of each resource buys: the same question asked again with one quantity changed at a
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import BadValue, StrataError
from strata.base.units import show
from strata.evaluate import evaluate
from strata.mapping.plan import Plan
from strata.pricing.metrics import Metric, known_metric
from strata.result import Result
from strata.search.axes import DesignAxis
from strata.search.fields import FieldOwners
from strata.search.goal import Goal
from strata.search.levers import LEVERS, Lever, moved, moved_design, quantities_behind
from strata.search.points import Evaluated, evaluate_points
from strata.search.space import Space

BINDS = 0.01  # share of the time from which a bound's first lever is told even if it does nothing
HELD = "changes nothing by itself: another limit holds"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A resource, and how much better the answer gets with so much more of it."""

    resource: str
    more: float
    speedup: float
    note: str = ""  # why there is no answer, where the changed point is out
    moved: str = ""  # the stated quantity that was changed, from and to
    bounds: tuple[str, ...] = ()  # rows of a step's time that it shortens


def sensitivity(result: Result, more: float = 0.1, metric: str = "") -> list[Gain]:
    """What so much more of each resource buys in a metric (or loses, negative), one at a time, largest first.

    What is moved is stated, and all that follows from it moves too. Resources that the design does not have,
    or on which the metric does not depend at all, are left out. Without a metric it is speed: of a served
    batch its tokens/s, else the time of a step.

    >>> import strata as st
    >>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=8, context=2048), "tp=8")
    >>> first = sensitivity(r)[0]
    >>> first.resource, first.moved
    ('DRAM bandwidth', 'chip.memory.bandwidth 4.8 to 5.28 TB/s')
    """
    phase = result.workload.phase
    declared = known_metric(metric or ("tokens_per_s" if phase == "serve" else "step_time"), phase)
    owners = FieldOwners.of(result.system, result.model, result.engine)
    gains = []
    for lever in LEVERS:
        behind = quantities_behind(lever, owners, result.system)
        if behind:
            gains.append(_pulled(result, lever, behind, owners, more, declared))
    gains += _pipeline_gains(result, declared)
    told = [g for g in gains if g is not None]
    return sorted(told, key=lambda g: -g.speedup if np.isfinite(g.speedup) else np.inf)


def _pulled(
    result: Result,
    lever: Lever,
    behind: dict[str, dict[str, float]],
    owners: FieldOwners,
    more: float,
    metric: Metric,
) -> Gain | None:
    """What a lever gains; None where the metric does not depend on it at all, and nothing it could shorten
    takes time.
    """
    held = {name: value for each in behind.values() for name, value in each.items()}
    changes = moved(lever, held, more)
    first = next(iter(held))
    share = changes[first] / held[first]
    told: dict[str, Any] = {
        "resource": lever.resource,
        "more": (1.0 / share if lever.less else share) - 1.0,
        "moved": _moved_text(behind, changes, owners, lever.counted),
        "bounds": lever.bounds,
    }
    try:
        system, engine = moved_design(owners, result.system, changes)
    except StrataError as error:  # there is no such design: its parts contradict each other
        return Gain(**told, speedup=float("nan"), note=str(error))
    again = evaluate(system, result.model, result.workload, result.plan, engine, economics=result.economics)
    found = _compared(result, again, told, metric)
    main = next(one for one in LEVERS if one.bounds[0] == lever.bounds[0])
    if found is None and lever is main and bound_share(result, lever.bounds[:1]) > BINDS:
        return Gain(**told, speedup=0.0, note=HELD)
    return found


def bound_share(result: Result, bounds: tuple[str, ...]) -> float:
    """The share of a result's time that some bounds take."""
    rows = {name: float(np.asarray(time)) for name, time in result.summary.resources.items()}
    return sum(rows[name] for name in bounds) / sum(rows.values())


def _compared(before: Result, after: Result, told: dict[str, Any], metric: Metric) -> Gain | None:
    """The gain between two results; None where they are the same."""
    old, new = (float(np.asarray(getattr(r.metrics, metric.name))) for r in (before, after))
    if not after.fits:
        why = "; ".join(f.what for f in after.infeasible)
        return Gain(**told, speedup=float("nan"), note=why)
    if abs(new - old) <= 1e-9 * abs(old):  # the chip is worked out anew: last bits differ
        return None
    return Gain(**told, speedup=(new / old if metric.higher_is_better else old / new) - 1.0)


def _pipeline_gains(result: Result, metric: Metric) -> list[Gain | None]:
    """What other schedules of a pipeline gain: twice the micro-batches, half the stages."""
    if float(result.summary.resources["bubble"]) <= 0.0:
        return []
    plan, bounds = result.plan, ("bubble",)
    if not isinstance(plan, Plan):
        note = "another layout of the program: strata map"
        return [Gain(resource="pipeline", more=1.0, speedup=float("nan"), note=note, bounds=bounds)]
    pieces, stages = float(np.asarray(result.steps[-1].microbatches)), float(np.asarray(plan.pp))
    twice, half = replace(plan, microbatches=2.0 * pieces), replace(plan, pp=stages / 2, dp=plan.dp * 2)
    tried = (
        ("micro-batches", twice, f"plan.microbatches {pieces:g} to {2 * pieces:g}"),
        ("pipeline stages (less)", half, f"plan.pp {stages:g} to {stages / 2:g}, plan.dp doubled"),
    )
    gains = []
    for name, other, text in tried:
        again = evaluate(
            result.system, result.model, result.workload, other, result.engine, economics=result.economics
        )
        told = {"resource": name, "more": 1.0, "moved": text, "bounds": bounds}
        gains.append(_compared(result, again, told, metric))
    return gains


def _moved_text(
    behind: dict[str, dict[str, float]], changes: dict[str, float], owners: FieldOwners, counted: bool
) -> str:
    """What was moved, in words: one quantity from and to, of several what they are called."""
    (pattern, held), *others = behind.items()
    name, many = next(iter(held)), sum(len(each) for each in behind.values())
    unit = owners.units().get(name, "1")
    old, new = (show(value, unit) for value in (held[name], changes[name]))
    number, _, end = old.partition(" ")
    one = f"{name} {number if end and new.endswith(f' {end}') else old} to {new}"
    if counted and many > 1:  # whole numbers: it may be far more than was asked for
        return f"{one} and what goes with it, {many} in all"
    if many > 1:
        beside = f", {others[0][0]}" if len(others) == 1 else ""
        return f"{pattern}{beside}" + (f" and what goes with it, {many} in all" if len(others) > 1 else "")
    return one


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
