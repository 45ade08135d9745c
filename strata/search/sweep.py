"""Sweeps: several things varied at once. Numbers are axes of one box; words (systems, engines, precisions,
models) make groups, each a box over the same numbers; the plan as told, or the best for each point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import UnknownName, require
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.layout import Layout
from strata.mapping.place import in_every_order
from strata.mapping.plan import Plan, division, layout_degrees, plan_text
from strata.mapping.plan import plan as make_plan
from strata.mapping.plan_layout import active_groups
from strata.mapping.plans import candidate_plans
from strata.pricing.metrics import METRICS
from strata.search.fields import SIZES, FieldOwners, by_owner, split_field
from strata.search.inputs import changed_system, make_workload, named_inputs, phase_of, set_tables
from strata.search.plans import best_plans, closest_plan
from strata.search.sweep_axes import (
    MOST_AXES,
    NAMED,
    SweepAxis,
    check_axes,
    is_grouped,
    parse_axis,
    split_axis,
    vary_names,
    word_axis,
    words_in_order,
)
from strata.search.swept import BEST, Sweep, SweepGroup
from strata.software.engine import Engine
from strata.software.engine import engine as make_engine
from strata.workload.model import Model
from strata.workload.tasks import Workload


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
    fabric: str = "",
    changes: Sequence[str] = (),
    metric: str = "",
    where: str = "",
    orders: bool = False,
) -> Sweep:
    """Evaluate what varies: each quantity on its own axis of a box, and plans on one more where each point is
    to have its best (`plan="best"`). Words (`system=8xh200,8xb200`, `engine=`, `model=`, `fabric=`,
    `weights=`, `kv=`, `plan=`, `phase=`, words of chips and engines) and fields of a language model make
    groups, each a box of its own.

    There `where` keeps some plans, by a condition over their degrees, and `orders` tries each in every order
    on the fabric. `changes` are fields set for all points, as of `--set`.

    >>> swept = sweep("8xh200", "llama-3-70b", ["batch=1,8,64"], phase="decode", plan="tp=8", metric="tpot")
    >>> swept.shape, bool(swept.values[0] < swept.values[2])
    ((3,), True)
    >>> words = sweep("", "llama-3-8b", ["system=1xh100,1xh200", "batch=1,8"], phase="decode", metric="tpot")
    >>> words.shape, bool(words.values[0, 0] > words.values[1, 0])
    ((2, 2), True)
    """
    if metric and metric not in METRICS:
        raise UnknownName("metric", metric, METRICS, ", ".join(METRICS))
    require(1 <= len(vary) <= MOST_AXES, f"vary one to {MOST_AXES} things at once", vary=len(vary))
    texts = {split_axis(text)[0]: text for text in vary}
    told = {"system": system, "model": model, "engine": engine, "fabric": fabric, "weights": weights}
    told |= {"kv": kv, "plan": plan, "phase": phase}
    for name in ("system", "model"):
        require(
            bool(told[name]) or name in texts, f"a sweep needs a {name}, told or varied", vary=list(texts)
        )
    axes = _axes(vary, told, changes)
    size = {"batch": batch, "input": input, "output": output}
    asked = _Asked(told=told, size=size, changes=changes, metric=metric, where=where, orders=orders)
    quantities = [text for text, axis in zip(vary, axes, strict=True) if not axis.grouped]
    groups = [_group(asked, words, quantities) for words in words_in_order(axes)]
    return Sweep(axes=axes, groups=groups, metric=groups[0].metric)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a sweep asks of every group."""

    told: Mapping[str, str]
    size: Mapping[str, float]
    changes: Sequence[str]
    metric: str
    where: str
    orders: bool


def _named(told: Mapping[str, str], changes: Sequence[str]) -> tuple[System, Any, Engine]:
    return named_inputs(
        told["model"], told["system"], told["engine"], told["weights"], told["kv"], changes, told["fabric"]
    )


def _axes(vary: Sequence[str], told: Mapping[str, str], changes: Sequence[str]) -> list[SweepAxis]:
    """What varies, each thing once; names are those of the first group."""
    named = {name: word_axis(text) for text in vary if (name := split_axis(text)[0]) in NAMED}
    first = {**told, **{name: axis.labels[0] for name, axis in named.items()}}
    owners = FieldOwners.of(*_named(first, changes))
    units, full = vary_names(owners)
    axes = []
    for text in vary:
        name = split_axis(text)[0]
        if name in named:
            axes.append(named[name])
        elif full.get(name, name) not in units and (
            (name.startswith("model.") and isinstance(owners.model, Model)) or is_grouped(name, owners)
        ):
            axes.append(word_axis(text, numbers=name.startswith("model.")))
        else:
            axes.append(parse_axis(text, units, full))
    check_axes(axes)
    return axes


def _group(asked: _Asked, words: Mapping[str, str], vary: Sequence[str]) -> SweepGroup:
    """The box of one combination of words."""
    told = {**asked.told, **{k: v for k, v in words.items() if k in NAMED}}
    changes = [*asked.changes, *(f"{k}={v}" for k, v in words.items() if k not in NAMED)]
    named, program, software = _named(told, changes)
    plan, divided = told["plan"], bool(layout_degrees(program))
    phase = phase_of(program, told["phase"])
    require(plan == BEST or not (asked.where or asked.orders), _CONDITIONS, plan=plan)
    require(
        not (divided and plan == BEST), f"{program.name} is divided as told, not by the best plan", plan=plan
    )
    axes = [parse_axis(text, *vary_names(FieldOwners.of(named, program, software))) for text in vary]
    shaped = _shaped(axes, len(axes) + (plan == BEST))
    degrees = {split_field(k)[1]: v for k, v in shaped.items() if k.startswith("plan.")}
    size: dict[str, Any] = dict(asked.size) | {k: shaped[k] for k in SIZES if k in shaped}
    chosen: Plan | Layout
    if plan == BEST:
        chosen, said = _every_plan(named, program, phase, software, asked, degrees), BEST
    elif divided:
        chosen, said = division(program, plan, **degrees), _told(plan, degrees)
    else:
        middle = make_workload(phase, *(float(np.median(size[k])) for k in SIZES))
        chosen, said = _one_plan(named, program, middle, software, plan, degrees)
    given = set_tables(told["model"], told["system"], told["engine"], changes, told["fabric"])
    varied = by_owner(shaped)
    whole = make_workload(phase, **size)
    # the whole shape of the box, in no memory
    shape = (*(len(a.values) for a in axes), *([1] if plan == BEST else []))
    result = evaluate(
        changed_system(
            told["system"],
            given["chip"] | varied["chip"],
            given["fabric"] | varied["fabric"],
            told["fabric"],
            given["economics"],
        ),
        replace(program, **varied["model"]),
        replace(whole, skew=np.broadcast_to(whole.skew, shape)),
        chosen,
        make_engine(told["engine"], **(given["engine"] | varied["engine"])),
    )
    usual = "items_per_s" if divided else "tokens_per_s"
    return SweepGroup(words=words, result=result, metric=asked.metric or usual, plan=said)


_CONDITIONS = "a condition on plans, or their orders, go with plan best"


def _shaped(axes: list[SweepAxis], rank: int) -> dict[str, np.ndarray]:
    """Values of each axis, on an axis of their own of a box of so many."""
    return {a.name: a.values.reshape([-1 if i == j else 1 for j in range(rank)]) for i, a in enumerate(axes)}


def _told(plan: str, degrees: dict[str, Any]) -> str:
    """A plan as it was told, with the degrees that vary."""
    return ",".join([*([plan] if plan else []), *(f"{k}=..." for k in degrees)])


def _every_plan(
    system: System, model: Model, phase: str, engine: Engine, asked: _Asked, degrees: dict[str, Any]
) -> Plan:
    """All plans a point may choose from, on the last axis."""
    require(
        not degrees,
        "with the best plan for each point, degrees of a plan cannot be varied",
        vary=", ".join(f"plan.{d}" for d in degrees),
    )
    every = candidate_plans(system, model, Workload(phase, 1.0, 1.0, 1.0), engine, asked.where)
    return in_every_order(every, system.fabric, active_groups(every))[0] if asked.orders else every


def _one_plan(
    system: System, model: Model, middle: Workload, engine: Engine, plan: str, degrees: dict[str, Any]
) -> tuple[Plan, str]:
    """One plan for a box, told or the best in its middle, and how it is said; dp takes the rest."""
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
