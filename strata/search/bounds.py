"""Bounds on what any design of a box of a space can deliver, from the same equations.

A box gives each relaxed axis a range and fixes all other axes, the number of cores, and the plan. It is
priced with a chip that is better than every chip of the box (`relax`), at prices relaxed so that a better
chip is never slower at any clock (`Structure.for_bounds`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.arrays import map_leaves
from strata.batch import as_float64_box
from strata.case import Case
from strata.evaluate import summarised
from strata.hardware.system import System, economics
from strata.mapping.plan import Plan
from strata.pricing.power_cap import LEAST, voltage_energy
from strata.pricing.step import Step, Structure
from strata.pricing.summary import Summary, cost_rate
from strata.search.goal import LARGER, Goal, column
from strata.search.points import Evaluated, alike, plans_at
from strata.search.relax import Boxes, best_links, better_chip, corner, least_at_rest, relaxed_axes
from strata.search.space import Space

CHUNK = 8192  # rows priced at once
SLACK = 1.0 + 1e-3  # two halvings of the clock's range: the clock is found to 0.04 % of the highest
# Two half batches beside each other share out what shows by the mean of all layers, which a stage of a
# pipeline need not have.
HALVES_SLACK = 1.0 + 5e-3
RATES = ("tokens_per_s", "tokens_per_s_per_user", "tokens_per_s_per_device")
TIMES = ("step_time", "tpot", "ttft")
# metrics that have bounds
BOUNDED = (*RATES, *TIMES, "energy_per_token", "cost_per_mtoken", "memory_used", "die_area")
FOLLOW = ("tokens_per_joule", "tokens_per_s_per_mm2", "train_days")  # and those that goals make of them


@dataclass(frozen=True, eq=False)
class Bounds:
    """A piece of work: boxes to bound. Done, it is what each row's plan could deliver at best in its box."""

    boxes: Boxes

    def perform(self, space: Space, backend: str) -> Evaluated:
        return bound_columns(space, self.boxes)


def optimistic(goal: Goal, bounds: Evaluated) -> np.ndarray:
    """Scores [N, metrics] that no design of the rows' boxes beats; -inf where none of them fits or keeps the
    limits.

    Limits on metrics without a bound rule nothing out: points are held against them when they are evaluated.
    """
    kept = {name: both for name, both in goal.limits.items() if name in (*BOUNDED, *FOLLOW)}
    held = bounds.reason == 0
    for name, (low, high) in kept.items():
        values = column(bounds.columns, name)
        larger = name in LARGER
        held = held & ((values >= low) if larger else (values <= high))
    open_to = [
        column(bounds.columns, m) * (1.0 if up else -1.0)
        for m, up in zip(goal.metrics, goal.larger, strict=True)
    ]
    return np.where(held[:, None], np.stack(open_to, axis=1), -np.inf)


def hull(space: Space, boxes: Boxes) -> tuple[Boxes, np.ndarray]:
    """Boxes with each range cut to what constraints leave of it, and which of them hold a legal point at all."""
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
    0 where none fits.
    """
    return _cores_at(space, boxes, "dear"), most_cores(space, boxes)


def most_cores(space: Space, boxes: Boxes) -> np.ndarray:
    """The most cores of any design of each box."""
    return _cores_at(space, boxes, "cheap")


def _cores_at(space: Space, boxes: Boxes, side: str) -> np.ndarray:
    found = np.empty(len(boxes.fixed))
    # Links and software have words, too, but a chip's cores do not depend on them.
    for which in alike(space, boxes.fixed, of="chip."):
        chip = corner(space, boxes, which, side)[0].chip
        found[which] = np.broadcast_to(
            np.asarray(chip.compute.cores if chip.cores_fit is None else chip.cores_fit, float), len(which)
        )
    return found


def bound_columns(space: Space, boxes: Boxes) -> Evaluated:
    """What each row's plan could deliver at best in its box: metrics of `BOUNDED`, and the rules that no
    design of it keeps.
    """
    count = len(boxes.owner)
    columns = {name: np.empty(count) for name in BOUNDED}
    reason = np.zeros(count, np.int64)
    for which in alike(space, boxes.fixed):
        rich, cheap = corner(space, boxes, which, "rich"), corner(space, boxes, which, "cheap")[0]
        place = np.full(len(boxes.fixed), -1)
        place[which] = np.arange(len(which))
        rows = np.flatnonzero(place[boxes.owner] >= 0)
        one_shape = _one_geometry(space, boxes, which)[place[boxes.owner[rows]]]
        for warm in (True, False):
            part = rows[one_shape == warm]
            if not len(part):
                continue
            chip = better_chip(rich[0].chip, cheap.chip, boxes, warm)
            system = System(rich[0].name, chip, best_links(space) if boxes.nearest else rich[0].fabric)
            for start in range(0, len(part), CHUNK):
                some = part[start : start + CHUNK]
                at = place[boxes.owner[some]]
                found, steps = _priced(space, (system, *rich[1:]), at, boxes.plans[some])
                reason[some] = np.broadcast_to(np.asarray(found.reason), len(some))
                slack = HALVES_SLACK if rich[-1].overlap == "dual_batch" else SLACK
                for name, value in _at_best(
                    found, steps, _gathered(chip, at), _gathered(cheap, at), slack
                ).items():
                    columns[name][some] = value
    return Evaluated(boxes.fixed[boxes.owner], columns, reason)


def _one_geometry(space: Space, boxes: Boxes, which: np.ndarray) -> np.ndarray:
    """Whether all chips of a box have the same stack, and so the same way for heat to leave."""
    shaping = [
        k
        for k, i in enumerate(relaxed_axes(space))
        if any(f.startswith("chip.stack.") for f in space.axes[i].fields)
    ]
    return np.all(boxes.low[which][:, shaping] == boxes.high[which][:, shaping], axis=1)


def _gathered(tree: Any, at: np.ndarray) -> Any:
    return map_leaves(lambda v: v[at] if np.ndim(v) else v, tree)


def _priced(
    space: Space, inputs: tuple[Any, ...], at: np.ndarray, plans: np.ndarray
) -> tuple[Summary, list[Step]]:
    """Relaxed prices of rows: box `at[l]` of the inputs with plan `plans[l]`."""
    system, model, work, _, engine = (_gathered(tree, at) for tree in inputs)
    where = next((i for i, a in enumerate(space.axes) if a.kind == "plan"), None)
    plan = Plan() if where is None else plans_at(space, where, plans)
    given = Case(system=system, program=model, workload=work, plan=plan, engine=engine, economics=_money())
    case, shape = as_float64_box(given)
    return summarised(case, Structure(case.plan.active(), len(shape), for_bounds=True))


def _at_best(found: Summary, steps: list[Step], chip: Any, cheap: System, slack: float) -> dict[str, Any]:
    r"""Metrics no design of a box beats.

    Energy is the least a clock can make of it: a design at its limits runs slower than the relaxed one, at
    down to the lowest voltage.

    .. math:: E \ge E_c v(\phi_{min})^2 + E_m + E_n + P_0 T
    """
    m = found.metrics
    best = {name: np.asarray(getattr(m, name), float) * slack for name in RATES} | {
        n: np.asarray(getattr(m, n), float) / slack for n in TIMES
    }
    tokens_a_second = np.maximum(np.asarray(m.tokens_per_s, float), 1e-300)
    rest, left = least_at_rest(cheap.chip), np.ones(np.shape(tokens_a_second))
    for step in steps:
        fixed = step.price.memory_bytes * chip.energy.memory + step.price.link_energy
        switching = (step.price.energy - fixed) / voltage_energy(step.clock, chip.energy.voltage_slope)
        lowest = switching * voltage_energy(LEAST, chip.energy.voltage_slope) + fixed + rest * step.time
        left = np.minimum(left, lowest / (step.price.energy + step.static * step.time))
    spent = np.asarray(m.energy_per_token, float) * left
    power = np.where(np.isfinite(spent), spent, 0.0) * tokens_a_second
    cost = np.asarray(cost_rate(cheap, _money(), power), float) / tokens_a_second * 1e6
    others = {
        "energy_per_token": spent / slack,
        "cost_per_mtoken": cost / slack,
        "memory_used": m.memory_used,
        "die_area": cheap.chip.package.die_area,
    }
    return best | others


@lru_cache(maxsize=1)
def _money() -> Any:
    return economics()
