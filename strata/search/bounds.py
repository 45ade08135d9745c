"""Bounds on what any design of a box of a space can deliver, from the same equations.

A box gives each relaxed axis a range and fixes all other axes, the number of cores, and the plan. It is
priced with a chip that is better than every chip of the box (`relax`), at prices relaxed so that a better
chip is never slower at any clock (`Structure.for_bounds`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import has_axes, map_leaves
from strata.base.batch import as_float64_box
from strata.case import Case
from strata.evaluate import summarised
from strata.hardware.making import cost_rate
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.pricing.metrics import METRICS, RATE, TIME, Summary
from strata.pricing.power_cap import LEAST, voltage_energy
from strata.pricing.pricers import Structure
from strata.pricing.step import Step
from strata.search.goal import DERIVED_METRICS, GOAL_METRICS, Goal, metric_column
from strata.search.points import Evaluated, groups_by_words, plans_at
from strata.search.power_bounds import (
    POWER_METRICS,
    BoxChips,
    box_heat,
    ceiling_of,
    held_to,
    least_when_slowed,
    longest_refresh,
    power_bounds,
    tied_geometry,
    uncapped_chip,
)
from strata.search.relax import (
    Boxes,
    built_corners,
    dominating_chip,
    dominating_fabric,
    least_idle_power,
    relaxed_axes,
)
from strata.search.space import Space
from strata.software.engine import has_host_time

CHUNK = 8192  # rows priced at once
SLACK = 1.0 + 1e-3  # two halvings of the clock's range: the clock is found to 0.04 % of the highest
# Two half batches beside each other share out what shows by the mean of all layers, which a stage of a
# pipeline need not have.
HALVES_SLACK = 1.0 + 5e-3
RATES = tuple(m.name for m in METRICS.values() if m.kind == RATE)
TIMES = tuple(m.name for m in METRICS.values() if m.kind == TIME)
SPENT = ("energy_per_token", "energy_per_item", "cost_per_mtoken", "cost_per_mitem")
COLUMNS = (*RATES, *TIMES, *SPENT, "memory_used", "die_area")
# metrics that have bounds: those that are priced for boxes, and those that follow from them
BOUNDED = (
    *COLUMNS,
    *POWER_METRICS,
    *(m.name for m in DERIVED_METRICS.values() if all(i in COLUMNS for i in m.inputs)),
)
TINY = 1e-300  # of what less is better, where nothing is known


@dataclass(frozen=True, eq=False)
class BoundsWork:
    """A piece of work: boxes to bound. Done, it is what each row's plan could deliver at best in its box."""

    boxes: Boxes
    goal: Goal | None = None

    def perform(self, space: Space, backend: str) -> Evaluated:
        return bound_columns(space, self.boxes, self.goal)


def optimistic(goal: Goal, bounds: Evaluated) -> np.ndarray:
    """Scores [N, metrics] that no design of the rows' boxes beats; -inf where none of them fits or keeps the
    limits.

    Limits on metrics without a bound rule nothing out: points are held against them when they are evaluated.
    """
    possible = bounds.reason == 0
    for name, (low, high) in goal.limits.items():
        if name in BOUNDED:
            values = metric_column(bounds.columns, name)
            possible &= (values >= low) if GOAL_METRICS[name].higher_is_better else (values <= high)
    scores = np.stack([goal.score(bounds.columns, m) for m in goal.metrics], axis=1)
    possible &= ~np.isnan(scores).any(axis=1)
    return np.where(possible[:, None], scores, -np.inf)


def legal_hull(space: Space, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
    """Boxes with each range cut to what constraints leave of it, and which of them hold a legal point."""
    axes = relaxed_axes(space)
    low, high, some = boxes.low.copy(), boxes.high.copy(), np.all(boxes.low <= boxes.high, axis=1)
    for part in space.joined_parts():
        inside = np.ones((len(low), part.count), bool)
        every = part.digits(np.arange(part.count))
        for k, i in enumerate(part.axes):
            of = every[None, :, k]
            if i in axes:
                inside &= (of >= low[:, axes.index(i), None]) & (of <= high[:, axes.index(i), None])
            else:
                inside &= of == boxes.fixed[:, i, None]
        some &= inside.any(axis=1)
        for k, i in enumerate(part.axes):
            if i in axes:
                at = axes.index(i)
                low[:, at] = np.where(
                    some, np.where(inside, every[None, :, k], len(space.axes[i])).min(axis=1), low[:, at]
                )
                high[:, at] = np.where(some, np.where(inside, every[None, :, k], -1).max(axis=1), high[:, at])
    return replace(boxes, low=low, high=high), some


def core_range(space: Space, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
    """The fewest and the most cores of any design of each box: those of its dearest and its cheapest corner;
    0 where none fits, nan where that corner cannot be built.
    """
    return cores_at(space, boxes, "dear"), cores_at(space, boxes, "cheap")


def cores_at(space: Space, boxes: Boxes, side: str) -> np.ndarray:
    """Cores of the dearest design of each box, its fewest, or of the cheapest, its most."""
    found = np.full(len(boxes.fixed), np.nan)
    # Links and software have words, too, but a chip's cores do not depend on them.
    groups = (
        built_corners(space, boxes, g, (side,)) for g in groups_by_words(space, boxes.fixed, of="chip.")
    )
    for which, (case,) in itertools.chain.from_iterable(groups):
        chip = case.system.chip
        found[which] = np.broadcast_to(
            np.asarray(chip.compute.cores if chip.cores_fit is None else chip.cores_fit, float), len(which)
        )
    return found


def bound_columns(space: Space, boxes: Boxes, goal: Goal | None = None) -> Evaluated:
    """What each row's plan could deliver at best in its box: metrics of `COLUMNS`, those of `POWER_METRICS`
    where a goal names one or none is given, and the rules that no design of it keeps.

    Limits of the goal on power and temperature slow the chip that bounds a box down. Where a corner of a box
    cannot be built, nothing is known of its designs.
    """
    count, limits = len(boxes.owner), {} if goal is None else goal.limits
    powered = goal is None or any(name in POWER_METRICS for name in (*goal.metrics, *limits))
    names = (*COLUMNS, *POWER_METRICS) if powered else COLUMNS
    columns = {n: np.full(count, np.inf if GOAL_METRICS[n].higher_is_better else TINY) for n in names}
    reason = np.zeros(count, np.int64)
    sides = ("rich", "cheap", "poor", "dear") if powered else ("rich", "cheap")
    groups = (built_corners(space, boxes, g, sides) for g in groups_by_words(space, boxes.fixed))
    for which, corners in itertools.chain.from_iterable(groups):
        for rows, found, broken in _bounded_rows(space, boxes, which, corners, limits):
            reason[rows] = broken
            for name, value in found.items():
                columns[name][rows] = value
    return Evaluated(boxes.fixed[boxes.owner], columns, reason)


def _bounded_rows(
    space: Space, boxes: Boxes, which: np.ndarray, corners: tuple[Case, ...], limits: dict[str, Any]
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]]:
    """Rows of boxes that share every word, with their bounds and the rules they break."""
    rich, cheap = corners[0], corners[1].system
    place = np.full(len(boxes.fixed), -1)
    place[which] = np.arange(len(which))
    rows = np.flatnonzero(place[boxes.owner] >= 0)
    one_shape = _one_geometry(space, boxes, which)[place[boxes.owner[rows]]]
    slack = HALVES_SLACK if rich.engine.overlap == "dual_batch" else SLACK
    links = dominating_fabric(space) if boxes.nearest else rich.system.fabric
    if boxes.nearest:
        cheap = replace(cheap, fabric=links)
    for warm in (True, False):
        part = rows[one_shape == warm]
        if not len(part):
            continue
        chips = _box_chips(space, boxes, which, corners, warm, limits, cheap)
        case = replace(rich, system=System(rich.system.name, chips.best, links))
        for start in range(0, len(part), CHUNK):
            some = part[start : start + CHUNK]
            at, plans = place[boxes.owner[some]], boxes.plans[some]
            here = _gathered(chips, at)
            summary, steps = _price_rows(space, _gathered(case, at), plans, for_bounds=True)
            best = _at_best(summary, steps, here.best, here.cheap, rich.economics)
            if len(corners) > 2:
                longest = None if boxes.nearest else _longest(space, _gathered(corners[2], at), plans, slack)
                best |= power_bounds(here, steps, longest, rich.economics)
            found = {name: _eased(name, value, slack) for name, value in best.items()}
            yield some, found, np.broadcast_to(np.asarray(summary.reason), len(some))


def _box_chips(
    space: Space,
    boxes: Boxes,
    which: np.ndarray,
    corners: tuple[Case, ...],
    warm: bool,
    limits: dict[str, Any],
    cheap: System,
) -> BoxChips:
    """The chips that bound boxes of one geometry each (`warm`) or of several; heat for power bounds."""
    rich, chip = corners[0], corners[0].system.chip
    best = dominating_chip(chip, cheap.chip, boxes, warm)
    if len(corners) == 2:
        return BoxChips(best=best, cheap=cheap, heat=None, slowed=0.0)
    heat = chip.heat if warm else box_heat(space, boxes, which, chip)
    best = held_to(ceiling_of(limits, rich, cheap.fabric), best, cheap.chip, heat, warm)
    known = not has_host_time(rich.engine) and (warm or chip.heat is None)
    slowed = least_when_slowed(cheap.chip, corners[3].system.chip) if known else 0.0
    return BoxChips(best=best, cheap=cheap, heat=heat, slowed=slowed)


def _longest(space: Space, poor: Case, plans: np.ndarray, slack: float) -> list[Any]:
    """Times of steps that no design of boxes exceeds at the highest clock: those of their poorest corners."""
    longer, system = longest_refresh(poor.system.chip) * slack, poor.system
    poor = replace(poor, system=replace(system, chip=uncapped_chip(system.chip)))
    return [step.time * longer for step in _price_rows(space, poor, plans, slowest=True)[1]]


def _eased(name: str, value: Any, slack: float) -> np.ndarray:
    """A bound with room for what pricing leaves open; of memory and area nothing is."""
    values = np.asarray(value, float)
    if name in ("memory_used", "die_area"):
        return values
    return values * slack if GOAL_METRICS[name].higher_is_better else values / slack


def _one_geometry(space: Space, boxes: Boxes, which: np.ndarray) -> np.ndarray:
    """Whether all chips of a box have the same stack, and so the same way for heat to leave."""
    shaping = [
        k
        for k, i in enumerate(relaxed_axes(space))
        if any(f.startswith("chip.stack.") for f in space.axes[i].fields)
    ]
    one = np.all(boxes.low[which][:, shaping] == boxes.high[which][:, shaping], axis=1)
    return one & (not tied_geometry(space))


def _gathered(tree: Any, at: np.ndarray) -> Any:
    return map_leaves(lambda v: v[at] if has_axes(v) else v, tree)


def _price_rows(space: Space, case: Case, plans: np.ndarray, **structure: bool) -> tuple[Summary, list[Step]]:
    """Prices of rows, each with its plan, relaxed as a `Structure` says."""
    axis = next((i for i, a in enumerate(space.axes) if a.kind == "plan"), None)
    if axis is not None:
        case = replace(case, plan=plans_at(space, axis, plans))
    case, shape = as_float64_box(case)
    return summarised(case, Structure(case.plan.active(), len(shape), **structure))


def _at_best(
    summary: Summary, steps: list[Step], chip: Any, cheap: System, money: Economics
) -> dict[str, Any]:
    r"""Metrics no design of a box beats.

    Energy is the least a clock can make of it: a design at its limits runs slower than the relaxed one, at
    down to the lowest voltage.

    .. math:: E \ge E_c v(\phi_{min})^2 + E_m + E_n + P_0 T
    """
    m: Any = summary.metrics
    items_per_s = np.maximum(np.asarray(m.items_per_s, float), 1e-300)
    idle, left = least_idle_power(cheap.chip), np.ones(np.shape(items_per_s))
    for step in steps:
        fixed = step.price.memory_bytes * chip.energy.memory + step.price.link_energy
        switching = (step.price.energy - fixed) / voltage_energy(step.clock, chip.energy.voltage_slope)
        lowest = switching * voltage_energy(LEAST, chip.energy.voltage_slope) + fixed + idle * step.time
        left = np.minimum(left, lowest / (step.price.energy + step.static * step.time))
    energy = np.asarray(m.energy_per_item, float) * left
    power = np.where(np.isfinite(energy), energy, 0.0) * items_per_s
    cost = np.asarray(cost_rate(cheap, money, power), float) / items_per_s * 1e6
    return {name: getattr(m, name, np.nan) for name in (*RATES, *TIMES)} | {
        "energy_per_token": energy,
        "energy_per_item": energy,
        "cost_per_mtoken": cost,
        "cost_per_mitem": cost,
        "memory_used": m.memory_used,
        "die_area": cheap.chip.package.die_area,
    }
