"""Sweeps: up to three things varied at once, each on its own axis of one box; the plan as told, or the best
for each point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.layout import Layout
from strata.mapping.place import in_every_order
from strata.mapping.plan import Plan, division, layout_degrees, plan_text
from strata.mapping.plan import plan as make_plan
from strata.mapping.plan_layout import active_groups
from strata.pricing.metrics import METRIC_UNITS, METRICS
from strata.result import Result
from strata.search.fields import SIZES, FieldOwners, by_owner, split_field
from strata.search.inputs import changed_system, make_workload, named_inputs, phase_of
from strata.search.plans import best_plans, candidate_plans, closest_plan, plan_at
from strata.search.relative import set_tables
from strata.units import finite_number, parse, show
from strata.workload.model import Model
from strata.workload.tasks import Workload

DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "microbatches", "virtual_stages")
MOST_POINTS = 250_000  # of a sweep, each of which is shown
BEST = "best"  # a plan for each point of a box: the one that is best by the metric shown
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LISTED = re.compile(rf"\s*({_NUMBER}(?:\s*[:,]\s*{_NUMBER})*)\s*([A-Za-zµ°%$/].*)?$")
EXAMPLE = "batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' (from:to:count)"


@dataclass(frozen=True, kw_only=True)
class SweepAxis:
    """One thing that varies: its name, its values in SI and as they are shown."""

    name: str
    values: np.ndarray
    labels: list[str]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A box of results with its axes; where the plan is the best for each point, plans are the box's last
    axis.
    """

    axes: list[SweepAxis]
    result: Result
    metric: str
    plan: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(a.values) for a in self.axes)

    def of(self, values: Any) -> np.ndarray:
        """A quantity of the box over the axes, at the plan that counts."""
        whole = np.broadcast_to(np.asarray(values), self.result.shape)
        if self.picked is None:
            return whole
        return np.take_along_axis(whole, self.picked[..., None], axis=-1)[..., 0]

    @cached_property
    def picked(self) -> np.ndarray | None:
        """Which plan is the best at each point, where there is a choice; one that is out where all are."""
        if self.plan != BEST:
            return None
        values = np.asarray(getattr(self.result.metrics, self.metric), float)
        values = values if METRICS[self.metric].higher_is_better else -values
        known = self.result.fits & ~np.isnan(values)
        return np.argmax(np.where(known, values, -np.inf), axis=-1)

    @property
    def values(self) -> np.ndarray:
        return self.of(np.asarray(getattr(self.result.metrics, self.metric), float))

    @property
    def fits(self) -> np.ndarray:
        return self.of(self.result.fits) & np.isfinite(self.values)

    def plan_of(self, index: tuple[int, ...]) -> str:
        """The plan of one point, as it is typed."""
        if self.picked is None:
            return self.plan
        return plan_text(plan_at(self.result.plan, int(self.picked[index])))

    def best(self) -> Result:
        """The full answer of the best point."""
        return self.result.best(self.metric)

    @property
    def question(self) -> str:
        """What is asked, in words, without what varies."""
        r = self.result
        varied = {a.name for a in self.axes}
        work = r.workload
        size = {"batch": work.batch, "input": work.sequence, "output": work.output}
        size = {"batch": work.batch, "context": work.context} if work.phase == "decode" else size
        if work.phase in ("prefill", "train"):
            size.pop("output")
        moved = varied | ({"context"} if varied & {"input", "output"} else set())
        sizes = "".join(f", {k} {float(np.asarray(v)):g}" for k, v in size.items() if k not in moved)
        plan = f"plan {self.plan}" if self.plan != BEST else "the best plan for each point"
        return f"{r.model.name} on {r.system.name}, {plan}, {work.phase}{sizes}, engine {r.engine.name}"

    def as_dict(self) -> dict[str, Any]:
        """Every metric over the box; lists are flat, the last axis fastest."""
        r = self.result
        told = {
            "question": {
                "model": r.model.name,
                "system": r.system.name,
                "phase": r.workload.phase,
                "plan": self.plan,
                "engine": r.engine.name,
            },
            "axes": [{"name": a.name, "values": a.values.tolist(), "shown": a.labels} for a in self.axes],
            "metrics": {
                k: self.of(np.asarray(getattr(r.metrics, k), float)).ravel().tolist() for k in METRIC_UNITS
            },
            "units": METRIC_UNITS,
            "bound_by": self.of(r.bound_by).ravel().tolist(),
            "reason": self.of(r.reason).ravel().tolist(),
        }
        if self.picked is None:
            return told
        return told | {"plans": [self.plan_of(i) for i in np.ndindex(*self.shape)]}


def parse_axis(text: str, units: dict[str, str], full: dict[str, str]) -> SweepAxis:
    """`batch=1,8,64`, `chip.memory.bandwidth='2:8:7 TB/s'` (from, to, how many) or a list with one unit at
    its end.
    """
    require(isinstance(text, str), f"an axis is written like {EXAMPLE}", vary=text)
    name, equals, values = text.partition("=")
    require(bool(equals and values.strip()), f"an axis is written like {EXAMPLE}", vary=text)
    name = full.get(name.strip(), name.strip())
    if name not in units:
        raise UnknownName(
            "quantity to vary",
            name,
            units,
            f"{', '.join(SIZES)}, plan.tp ..., strata schema chip, strata schema fabric",
        )
    match = _LISTED.match(values)
    try:
        assert match is not None
        typed, many = match.group(1), 1.0
        if ":" in typed:
            start, stop, count = (finite_number(x, name) for x in typed.split(":"))
            assert count >= 1 and count == count // 1
            many = count
            listed = np.linspace(start, stop, int(count) if count <= MOST_POINTS else 2).tolist()
        else:
            listed = [finite_number(x, name) for x in typed.split(",")]
    except (ValueError, AssertionError):
        raise BadValue(f"an axis lists numbers, like {EXAMPLE}, but got '{text}'") from None
    _check_points([many], name)
    unit, si = (match.group(2) or "").strip(), units[name]
    if not unit and si != "1":
        raise BadValue(f"{name} is measured in {si}, but got '{values}' without a unit")
    numbers = np.array([parse(f"{x!r} {unit}" if unit else x, si, name) for x in listed])
    if name in SIZES and not np.all((numbers >= 1) & (numbers == np.floor(numbers))):
        raise BadValue(f"{name} must be positive whole numbers, but got '{text}'")
    return SweepAxis(name=name, values=numbers, labels=[show(v, si) for v in numbers])


def _check_points(sizes: Sequence[float], name: str = "") -> None:
    """Refuse an axis, or a box of axes, with more points than are worth a look one by one."""
    points = math.prod(sizes)
    said = f"axis {name} has" if name else f"axes of {' x '.join(f'{n:g}' for n in sizes)} values have"
    require(points <= MOST_POINTS, f"a sweep has at most {MOST_POINTS} points, but {said} {points:.6g}")


def vary_names(system: System, model: Any, engine: Engine) -> tuple[dict[str, str], dict[str, str]]:
    """Units of everything that can vary, and the whole name of each short one."""
    owners = FieldOwners(chip=system.chip, fabric=system.fabric, engine=engine, model=model)
    degrees = layout_degrees(model) or DEGREES
    units = {k: "1" for k in SIZES} | {f"plan.{k}": "1" for k in degrees} | owners.units()
    return units, owners.short_names()


def sweep(
    system: str,
    model: str,
    vary: Sequence[str],
    *,
    batch: float = 1.0,
    input: float = 1024.0,
    output: float = 1024.0,
    phase: str = "serve",
    plan: str = "",
    engine: str = "ideal",
    weights: str = "",
    kv: str = "",
    changes: Sequence[str] = (),
    metric: str = "",
    where: str = "",
    orders: bool = False,
) -> Sweep:
    """Evaluate a box: each varied thing on its own axis, and plans on one more where each point is to have
    its best (`plan="best"`).

    There `where` keeps some plans, by a condition over their degrees, and `orders` tries each in every order
    on the fabric. `changes` are fields set for all points, as of `--set`.

    >>> swept = sweep("8xh200", "llama-3-70b", ["batch=1,8,64"], phase="decode", plan="tp=8", metric="tpot")
    >>> swept.shape, bool(swept.values[0] < swept.values[2])
    ((3,), True)
    """
    _check_sweep(vary, metric or "items_per_s", plan, where, orders)
    named, program, software = named_inputs(model, system, engine, weights, kv, changes)
    phase, divided = phase_of(program, phase), bool(layout_degrees(program))
    told = not (divided and plan == BEST)
    require(told, f"{program.name} is divided as told, not by the best plan", plan=plan)
    axes = _axes(vary, named, program, software)
    shaped = _shaped(axes, len(axes) + (plan == BEST))
    degrees = {split_field(k)[1]: v for k, v in shaped.items() if k.startswith("plan.")}
    size: dict[str, Any] = {"batch": batch, "input": input, "output": output}
    size |= {k: shaped[k] for k in SIZES if k in shaped}
    chosen: Plan | Layout
    if plan == BEST:
        chosen, said = _every_plan(named, program, phase, software, where, orders, degrees), BEST
    elif divided:
        chosen, said = division(program, plan, **degrees), _told(plan, degrees)
    else:
        middle = make_workload(phase, *(float(np.median(size[k])) for k in SIZES))
        chosen, said = _one_plan(named, program, middle, software, plan, degrees)
    given, varied = set_tables(model, system, engine, changes), by_owner(shaped)
    work = _over_box(make_workload(phase, **size), axes, plan == BEST)
    result = evaluate(
        changed_system(
            system,
            given["chip"] | varied["chip"],
            given["fabric"] | varied["fabric"],
            money=given["economics"],
        ),
        replace(program, **varied["model"]),
        work,
        chosen,
        make_engine(engine, **(given["engine"] | varied["engine"])),
    )
    usual = "items_per_s" if divided else "tokens_per_s"
    return Sweep(axes=axes, result=result, metric=metric or usual, plan=said)


def _axes(vary: Sequence[str], system: System, program: Any, engine: Engine) -> list[SweepAxis]:
    """What varies, each thing once."""
    axes = [parse_axis(text, *vary_names(system, program, engine)) for text in vary]
    names = [a.name for a in axes]
    twice = next((n for n in names if names.count(n) > 1), "")
    require(not twice, "each axis varies something else", vary=twice)
    _check_points([len(a.values) for a in axes])
    return axes


def _shaped(axes: list[SweepAxis], rank: int) -> dict[str, np.ndarray]:
    """Values of each axis, on an axis of their own of a box of so many."""
    return {a.name: a.values.reshape([-1 if i == j else 1 for j in range(rank)]) for i, a in enumerate(axes)}


def _over_box(work: Workload, axes: list[SweepAxis], plans: bool) -> Workload:
    """A workload that has the whole shape of a box, in no memory."""
    shape = (*(len(a.values) for a in axes), *([1] if plans else []))
    return replace(work, skew=np.broadcast_to(0.0, shape))


def _told(plan: str, degrees: dict[str, Any]) -> str:
    """A plan as it was told, with the degrees that vary."""
    return ",".join([*([plan] if plan else []), *(f"{k}=..." for k in degrees)])


def _check_sweep(vary: Sequence[str], metric: str, plan: str, where: str, orders: bool) -> None:
    if metric not in METRICS:
        raise UnknownName("metric", metric, METRICS, ", ".join(METRICS))
    require(1 <= len(vary) <= 3, "vary one to three things at once", vary=len(vary))
    told = plan == BEST or not (where or orders)
    require(told, "a condition on plans, or their orders, go with plan best", plan=plan)


def _every_plan(
    system: System,
    model: Model,
    phase: str,
    engine: Engine,
    where: str,
    orders: bool,
    degrees: dict[str, Any],
) -> Plan:
    """All plans a point may choose from, on the last axis."""
    require(
        not degrees,
        "with the best plan for each point, degrees of a plan cannot be varied",
        vary=", ".join(f"plan.{d}" for d in degrees),
    )
    every = candidate_plans(system, model, Workload(phase, 1.0, 1.0, 1.0), engine, where)
    return in_every_order(every, system.fabric, active_groups(every))[0] if orders else every


def _one_plan(
    system: System, model: Model, middle: Workload, engine: Engine, plan: str, degrees: dict[str, Any]
) -> tuple[Plan, str]:
    """One plan for a whole box, told or the best in its middle, and how it is said; what the degrees leave is
    data parallel.
    """
    if not plan and not degrees:
        best = best_plans(system, model, middle, engine, top=1)
        plan = plan_text(best[0].result.plan if best else closest_plan(system, model, middle, engine).plan)
    typed = dict(item.split("=") for item in plan.split(",") if item.count("=") == 1)
    chosen = make_plan(plan, **degrees)
    said = _told(plan, degrees)
    if degrees and "dp" not in degrees and "dp" not in typed:
        rest = system.devices / (chosen.tp * chosen.cp * chosen.pp)
        filled = np.where(rest == np.floor(rest), rest, 1.0)
        chosen, said = make_plan(plan, **degrees, dp=np.maximum(filled, 1.0)), f"{said},dp=the rest"
    return chosen, said
