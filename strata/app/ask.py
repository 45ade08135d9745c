"""From words to questions: what `predict` and `plan` do, as functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table

from strata.app.present import as_dict, plan_text
from strata.errors import BadValue, require
from strata.evaluate import Result, evaluate
from strata.hardware.chip import chip as make_chip
from strata.hardware.system import System
from strata.hardware.system import system as make_system
from strata.mapping.engine import engine as make_engine
from strata.mapping.plan import plan as make_plan
from strata.params import override
from strata.search.plans import Choice, best_plans, closest
from strata.units import parse, show
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import PHASES, Workload, decode, prefill, serve, train


@dataclass(frozen=True)
class Asked:
    """A result with what should be said beside it."""

    result: Result
    choice: dict[str, Any] | None
    interval: dict[str, Any] | None
    lines: list[str]


def make_workload(phase: str, batch: Any, input: float, output: float) -> Workload:
    """A workload from what the command line knows; decode takes the context in the middle of the generation."""
    require(phase in PHASES, "phase must be one of " + ", ".join(PHASES), phase=phase)
    if phase == "prefill":
        return prefill(batch, input)
    if phase == "decode":
        return decode(batch, input + output / 2)
    return train(batch, input) if phase == "train" else serve(batch, input, output)


def question(model: str, system: str, engine: str, weights: str, kv: str, changes: list[str]) -> tuple[System, Model, Any]:
    """System, model and engine with `--set` changes applied."""
    given: dict[str, dict[str, str]] = {"chip": {}, "fabric": {}, "model": {}, "engine": {}}
    for item in changes:
        path, equals, value = item.partition("=")
        owner, _, name = path.partition(".")
        if not equals or owner not in given or not name:
            raise BadValue(f"--set takes chip.PATH=VALUE, fabric.PATH=VALUE, engine.PATH=VALUE or model.FIELD=VALUE, but got '{item}'")
        given[owner][name] = value
    made = make_system(system)
    if given["chip"]:
        made = replace(made, chip=make_chip(made.chip.name, **given["chip"]))
    if given["fabric"]:
        fabric, noted = override(made.fabric, {_dimension(made, k): v for k, v in given["fabric"].items()}, "fabric")
        made = replace(made, fabric=replace(fabric, sources=made.fabric.sources.updated(noted)))
    fields: dict[str, Any] = {k: _model_value(v) for k, v in given["model"].items()}
    fields |= {"weights": weights} if weights else {}
    fields |= {"kv": kv} if kv else {}
    return made, make_model(model, **fields), make_engine(engine, **given["engine"])


def _dimension(system: System, name: str) -> str:
    head, _, rest = name.partition(".")
    for i, dimension in enumerate(system.fabric.dimension):
        if rest and head in (str(i), dimension.name):
            return f"dimension.{i}.{rest}"
    return f"dimension.0.{name}" if not rest else name


def _model_value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def ask(
    model: str,
    system: str,
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
) -> Asked:
    """One prediction; without a plan the best legal one is taken and named."""
    where, what, by = question(model, system, engine, weights, kv, changes)
    work = make_workload(phase, batch, input, output)
    lines: list[str] = []
    choice = None
    if plan:
        result = evaluate(where, what, work, make_plan(plan), by)
    else:
        found = best_plans(where, what, work, by, top=2)
        if not found:
            return Asked(closest(where, what, work, by), None, None, [])
        result = found[0].result
        choice = {"considered": found[0].considered, "feasible": found[0].feasible, "plan": plan_text(result.plan)}
        lines.append(
            f"plan {plan_text(result.plan)}: best of {found[0].considered} legal plans, {found[0].feasible} of which fit; choose with --plan"
        )
    from strata.app.accuracy import interval_of

    interval, said = interval_of(result)
    return Asked(result, choice, interval, lines + said + result.notes)


@dataclass(frozen=True)
class Ranking:
    """The best plans, and why there are none where there are none."""

    choices: list[Choice]
    why_none: str

    def as_dict(self) -> dict[str, Any]:
        return {"plans": [as_dict(c.result) for c in self.choices], "why_none": self.why_none or None}

    def table(self) -> Table:
        first = self.choices[0]
        table = Table(
            title=f"best {len(self.choices)} of {first.considered} plans x batches; {first.feasible} fit and keep the limits",
            title_justify="left",
            title_style="bold",
            box=None,
            padding=(0, 2),
        )
        for column, justify in (
            ("plan", "left"),
            ("batch", "right"),
            ("tokens/s", "right"),
            ("/user", "right"),
            ("TTFT", "right"),
            ("TPOT", "right"),
            ("memory", "right"),
            ("$/Mtok", "right"),
            ("bound by", "left"),
            ("against the best", "left"),
        ):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        for choice in self.choices:
            r, m = choice.result, choice.result.metrics
            table.add_row(
                plan_text(r.plan), f"{r.workload.batch:g}", show(float(m.tokens_per_s)), show(float(m.tokens_per_s_per_user)), _time(m.ttft), _time(m.tpot),
                show(float(m.memory_used), "B"), "" if np.isnan(m.cost_per_mtoken) else f"{float(m.cost_per_mtoken):.3g}", str(r.bound_by), why_lost(r, first.result),
            )  # fmt: skip
        return table


def _time(value: Any) -> str:
    return show(float(value), "s") if np.isfinite(value) else "-"


def why_lost(result: Result, best: Result) -> str:
    """The resource on which a plan spends most more than the best one."""
    if result is best:
        return "the best"
    mine, theirs = result.summary.resources, best.summary.resources
    per = {k: float(mine[k]) / float(result.workload.batch) - float(theirs[k]) / float(best.workload.batch) for k in mine}
    worst = max(per, key=lambda k: per[k])
    loss = 1 - float(result.metrics.tokens_per_s) / float(best.metrics.tokens_per_s)
    return f"-{loss:.1%}: more {worst} time a sequence"


def rank_plans(
    model: str, system: str, *, batch: str, input: float, output: float, phase: str, engine: str, weights: str, kv: str,
    changes: list[str], ttft: str = "", tpot: str = "", top: int = 8,
) -> Ranking:  # fmt: skip
    """Every legal plan at every batch, best first, under limits on latency."""
    where, what, by = question(model, system, engine, weights, kv, changes)
    try:
        batches = np.array([float(b) for b in batch.split(",")])
    except ValueError:
        raise BadValue(f"batch is a number or a list like 1,8,64, but got '{batch}'") from None
    work = make_workload(phase, batches, input, output)
    first, each = (parse(v, "s", k) if v else float("inf") for k, v in (("ttft", ttft), ("tpot", tpot)))
    found = best_plans(where, what, work, by, ttft=first, tpot=each, top=top)
    if found:
        return Ranking(found, "")
    free = best_plans(where, what, work, by, top=1)
    if not free:
        least = closest(where, what, replace(work, batch=float(batches.min())), by)
        return Ranking([], f"no plan fits: {least.infeasible[0]}")
    quickest = best_plans(where, what, work, by, top=1, metric="tokens_per_s_per_user")[0].result
    got = f"the quickest plan has TPOT {_time(quickest.metrics.tpot)} and TTFT {_time(quickest.metrics.ttft)} ({plan_text(quickest.plan)}, batch {quickest.workload.batch:g})"
    return Ranking([], f"no plan keeps the limits; {got}; levers: fewer sequences, more devices, narrower weights")
