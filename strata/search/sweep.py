"""Sweeps: up to three things varied at once, each on its own axis of one box; the plan as told, or the best
for each point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.place import in_every_order
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.mapping.shard import active_groups
from strata.params import leaf_paths
from strata.pricing.metrics import METRIC_UNITS
from strata.result import Result
from strata.search.plans import best_plans, candidates, closest, plan_at
from strata.search.question import build_system, changes_of, dimension_path, make_workload, question
from strata.units import parse, show
from strata.workload.model import Model
from strata.workload.tasks import Workload

WORK = ("batch", "input", "output")
DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "microbatches", "virtual_stages")
BEST = "best"  # a plan for each point of a box: the one that is best by the metric shown
EXAMPLE = "batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' (from:to:count)"


@dataclass(frozen=True)
class Axis:
    """One thing that varies: its name, its values in SI and as they are shown."""

    name: str
    values: np.ndarray
    labels: list[str]


@dataclass(frozen=True)
class Sweep:
    """A box of results with its axes; where the plan is the best for each point, plans are the box's last
    axis.
    """

    axes: list[Axis]
    result: Result
    metric: str
    plan: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(a.values) for a in self.axes)

    def of(self, values: Any) -> np.ndarray:
        """A quantity of the box over the axes, at the plan that counts."""
        whole = np.broadcast_to(np.asarray(values), self.result.shape)
        return (
            whole
            if self.picked is None
            else np.take_along_axis(whole, self.picked[..., None], axis=-1)[..., 0]
        )

    @cached_property
    def picked(self) -> np.ndarray | None:
        """Which plan is the best at each point, where there is a choice; one that is out where all are."""
        if self.plan != BEST:
            return None
        values = np.broadcast_to(
            np.asarray(getattr(self.result.metrics, self.metric), float), self.result.shape
        )
        least = METRIC_UNITS[self.metric] in ("s", "J", "USD", "W", "B")
        score = np.where(
            np.broadcast_to(self.result.fits, self.result.shape), -values if least else values, -np.inf
        )
        return np.argmax(score, axis=-1)

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
        one: Plan = plan_at(self.result.plan, int(self.picked[index]))
        return plan_text(one)

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
        found = {
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
        return (
            found
            if self.picked is None
            else found | {"plans": [self.plan_of(i) for i in np.ndindex(*self.shape)]}
        )


def parse_axis(text: str, units: dict[str, str], full: dict[str, str]) -> Axis:
    """`batch=1,8,64`, `chip.memory.bandwidth='2:8:7 TB/s'` (from, to, how many) or a list with one unit at
    its end.
    """
    name, equals, values = text.partition("=")
    require(bool(equals and values.strip()), f"an axis is written like {EXAMPLE}", vary=text)
    name = full.get(name.strip(), name.strip())
    if name not in units:
        raise UnknownName(
            "quantity to vary",
            name,
            units,
            f"{', '.join(WORK)}, plan.tp ..., strata schema chip, strata schema fabric",
        )
    match = re.match(r"\s*([-+0-9.eE:,\s]+?)\s*([A-Za-zµ%$/].*)?$", values)
    try:
        assert match is not None
        numbers = match.group(1)
        if ":" in numbers:
            start, stop, count = (float(x) for x in numbers.split(":"))
            assert count >= 1 and count == count // 1
            listed = np.linspace(start, stop, int(count)).tolist()
        else:
            listed = [float(x) for x in numbers.split(",")]
    except (ValueError, AssertionError):
        raise BadValue(f"an axis lists numbers, like {EXAMPLE}, but got '{text}'") from None
    unit, si = (match.group(2) or "").strip(), units[name]
    if not unit and si != "1":
        raise BadValue(f"{name} is measured in {si}, but got '{values}' without a unit")
    made = np.array([parse(f"{x!r} {unit}" if unit else x, si, name) for x in listed])
    if name in WORK and not np.all((made >= 1) & (made == np.floor(made))):
        raise BadValue(f"{name} must be positive whole numbers, but got '{text}'")
    return Axis(name, made, [show(v, si) for v in made])


def _known(where: System, by: Engine) -> tuple[dict[str, str], dict[str, str]]:
    """Units of everything that can vary, and the whole name of each short one."""
    units = {k: "1" for k in WORK} | {f"plan.{k}": "1" for k in DEGREES}
    for owner, record in (("chip", where.chip), ("fabric", where.fabric), ("engine", by)):
        units |= {f"{owner}.{path}": meta["unit"] for path, meta in leaf_paths(record).items()}
    full: dict[str, str] = {}
    for name in units:
        owner, _, path = name.partition(".")
        if owner == "fabric":
            _, i, *rest = [*path.split("."), "", ""]
            if i.isdigit():
                short = [f"fabric.{where.fabric.dimension[int(i)].name}.{rest[0]}", f"fabric.{i}.{rest[0]}"]
                short += [f"fabric.{rest[0]}"] if i == "0" else []
                full |= {s: f"fabric.{dimension_path(where, s.partition('.')[2])}" for s in short}
        elif owner == "chip":
            last = path.rsplit(".", 1)[-1]
            if sum(n.startswith("chip.") and n.endswith(f".{last}") for n in units) == 1:
                full[f"chip.{last}"] = name
    return units, full


def run_sweep(
    model: str,
    system: str,
    vary: list[str],
    *,
    batch: float,
    input: float,
    output: float,
    phase: str,
    plan: str,
    engine: str,
    weights: str,
    kv: str,
    changes: list[str],
    metric: str = "tokens_per_s",
    where: str = "",
    orders: bool = False,
) -> Sweep:
    """Evaluate a box: each varied thing on its own axis, and plans on one more where each point is to have
    its best.

    There `where` keeps some plans, by a condition over their degrees, and `orders` tries each in every order
    on the fabric.
    """
    if metric not in METRIC_UNITS:
        raise UnknownName("metric", metric, METRIC_UNITS, ", ".join(METRIC_UNITS))
    require(1 <= len(vary) <= 3, "vary one to three things at once", vary=len(vary))
    require(
        plan == BEST or not (where or orders),
        "a condition on plans, or their orders, go with plan best",
        plan=plan,
    )
    place, what, by = question(model, system, engine, weights, kv, changes)
    axes = [parse_axis(text, *_known(place, by)) for text in vary]
    names = [a.name for a in axes]
    twice = next((n for n in names if names.count(n) > 1), "")
    require(not twice, "each axis varies something else", vary=twice)
    rank = len(axes) + (plan == BEST)
    shaped = {
        a.name: a.values.reshape([-1 if i == j else 1 for j in range(rank)]) for i, a in enumerate(axes)
    }

    def of(owner: str) -> dict[str, Any]:
        return {k.partition(".")[2]: v for k, v in shaped.items() if k.startswith(f"{owner}.")}

    given = changes_of(changes)
    box = build_system(system, given["chip"] | of("chip"), given["fabric"] | of("fabric"))
    size: dict[str, Any] = {"batch": batch, "input": input, "output": output} | {
        k: v for k, v in shaped.items() if k in WORK
    }
    degrees = of("plan")
    if plan == BEST:
        require(
            not degrees,
            "with the best plan for each point, degrees of a plan cannot be varied",
            vary=", ".join(f"plan.{d}" for d in degrees),
        )
        how, said = candidates(place, what, Workload(phase, 1.0, 1.0, 1.0), by, where), BEST
        how = in_every_order(how, place.fabric, active_groups(how))[0] if orders else how
    else:
        middle = make_workload(phase, *(float(np.median(size[k])) for k in WORK))
        how, said = _plan_of(place, what, middle, by, plan, degrees)
    work = make_workload(phase, size["batch"], size["input"], size["output"])
    work = replace(work, skew=np.zeros((*(len(a.values) for a in axes), *([1] if plan == BEST else []))))
    result = evaluate(box, what, work, how, make_engine(engine, **(given["engine"] | of("engine"))))
    return Sweep(axes, result, metric, said)


def _plan_of(
    where: System, what: Model, middle: Workload, by: Engine, plan: str, degrees: dict[str, Any]
) -> tuple[Plan, str]:
    """One plan for a whole box, told or the best in its middle, and how it is said; what the degrees leave is
    data parallel.
    """
    if not plan and not degrees:
        found = best_plans(where, what, middle, by, top=1)
        plan = plan_text(found[0].result.plan if found else closest(where, what, middle, by).plan)
    typed = dict(item.split("=") for item in plan.split(",") if item.count("=") == 1)
    how = make_plan(plan, **degrees)
    said = ",".join([*([plan] if plan else []), *(f"{k}=..." for k in degrees)])
    if degrees and "dp" not in degrees and "dp" not in typed:
        rest = where.devices / (how.tp * how.cp * how.pp)
        filled = np.where(rest == np.floor(rest), rest, 1.0)
        how, said = make_plan(plan, **degrees, dp=np.maximum(filled, 1.0)), f"{said},dp=the rest"
    return how, said
