"""What `predict` and `plan` do, as functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np

from strata.app.present import PHASE_SKIPS, as_dict, asked_text
from strata.app.words import plain_table, titled
from strata.errors import require
from strata.evaluate import GENERATION, Result, evaluate
from strata.mapping.plan import CORES, order_text, plan_text
from strata.mapping.plan import plan as make_plan
from strata.pricing.price import RESOURCES
from strata.search.plans import Choice, best_plans, closest
from strata.search.question import make_workload, question, routing_of
from strata.units import parse, show


@dataclass(frozen=True)
class Asked:
    """A result with what should be said beside it."""

    result: Result
    choice: dict[str, Any] | None
    interval: dict[str, Any] | None
    lines: list[str]


def why_out(result: Result) -> str:
    """Why a single result is out, in one line: a plan that is not legal before a device that is too small or
    too hot.
    """
    broken = sorted(result.infeasible, key=lambda i: i.unit != "1")
    first, more = broken[0], f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    need, have = show(first.demand, first.unit), show(first.limit, first.unit)
    levers = f"levers: {', '.join(first.levers)}"
    if first.what == CORES.relation:
        return f"{result.system.chip.name} cannot be built: {first.what}, but got {need} against {have}{more}; {levers}"
    if first.unit == "1":
        return f"plan {plan_text(result.plan)} is not legal: {first.what}, but got {need} against {have}{more}; {levers}"
    what = f"{result.model.name} does not fit on {result.system.name} with plan {plan_text(result.plan)}"
    if first.unit == "B":
        return f"{what}: a device needs {need} and has {have}; {levers}"
    return f"{result.model.name} cannot run on {result.system.name} with plan {plan_text(result.plan)}: {first.what}, but got {need} against {have}; {levers}"


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
    routing: str = "",
) -> Asked:
    """One prediction; without a plan the best legal one is taken and named."""
    where, what, by = question(model, system, engine, weights, kv, changes)
    work = make_workload(phase, batch, input, output, routing=routing_of(routing, what))
    lines: list[str] = []
    choice = None
    if plan:
        result = evaluate(where, what, work, make_plan(plan), by)
    else:
        found = best_plans(where, what, work, by, top=1)
        result = found[0].result if found else closest(where, what, work, by)
        if not found:
            return Asked(result, None, None, [])
        choice = {
            "considered": found[0].considered,
            "feasible": found[0].feasible,
            "plan": plan_text(result.plan),
        }
        lines.append(
            f"plan {plan_text(result.plan)}: best of {found[0].considered} legal plans, {found[0].feasible} of which fit{_ordered(result)}; choose another with --plan"
        )
    from strata.app.accuracy import interval_of

    interval, said = interval_of(result)
    return Asked(result, choice, interval, lines + said + result.notes)


def _ordered(result: Result) -> str:
    return (
        f", in its best order on the fabric ({order_text(result.plan)}, innermost first)"
        if order_text(result.plan)
        else ""
    )


@dataclass(frozen=True)
class Ranking:
    """The best plans, and why there are none where there are none."""

    choices: list[Choice]
    why_none: str
    limits: str
    typed: str

    def as_dict(self) -> dict[str, Any]:
        first = self.choices[0] if self.choices else None
        return {
            "plans": [as_dict(c.result) for c in self.choices],
            "considered": first.considered if first else None,
            "feasible": first.feasible if first else 0,
            "why_none": self.why_none or None,
        }

    def table(self) -> Any:
        first = self.choices[0]
        r = first.result
        heading = f"{r.model.name} on {r.system.name}, {asked_text(r, batch=False)}, engine {r.engine.name}{self.limits}"
        said = f"best {len(self.choices)} of {first.considered:,} plans x batches, {first.feasible:,} of which fit{' and keep the limits' if self.limits else ''}"
        if first.placed:
            said += f"; each in its best order on the fabric ({first.placed:,} other placements priced, the rest could not have won)"
        table = plain_table()
        skipped = PHASE_SKIPS[r.workload.phase]
        columns = {
            "batch": lambda c: f"{c.result.workload.batch:g}",
            "tokens/s": lambda c: show(float(c.result.metrics.tokens_per_s)),
            "ttft": lambda c: _time(c.result.metrics.ttft),
            "tpot": lambda c: _time(c.result.metrics.tpot),
            "memory": lambda c: show(float(c.result.metrics.memory_used), "B"),
            "USD/Mtok": lambda c: (
                ""
                if np.isnan(c.result.metrics.cost_per_mtoken)
                else f"{float(c.result.metrics.cost_per_mtoken):.3g}"
            ),
        }
        shown = {k: f for k, f in columns.items() if k not in skipped}
        table.add_column("plan", no_wrap=True)
        for key in shown:
            table.add_column(key.upper() if key in ("ttft", "tpot") else key, justify="right", no_wrap=True)
        table.add_column("bound by")
        table.add_column("behind by")
        for choice in self.choices:
            cells = [make(choice) for make in shown.values()]
            table.add_row(
                plan_text(choice.result.plan), *cells, str(choice.result.bound_by), why_lost(choice.result, r)
            )
        below = "behind by: throughput lost against the best, and the op that takes most more time for a sequence (what it waits for)"
        return titled(f"{heading}\n{said}", table, below if len(self.choices) > 1 else "")

    def hint(self) -> Any:
        """The next command, on one line however narrow the screen, to be copied."""
        from rich.text import Text

        r = self.choices[0].result
        said = f"look closer: strata predict {self.typed} --batch {r.workload.batch:g} --plan {plan_text(r.plan)} --explain"
        return Text(said, no_wrap=True)


def _time(value: Any) -> str:
    return show(float(value), "s") if np.isfinite(value) else "-"


def why_lost(result: Result, best: Result) -> str:
    """How much a plan loses against the best one, and the op on which it spends most more a sequence, with
    what that waits for.
    """
    if result is best:
        return "the best"
    loss = 1 - float(result.metrics.tokens_per_s) / float(best.metrics.tokens_per_s)
    mine, theirs = _op_times(result), _op_times(best)
    grown = {k: v - theirs.get(k, 0.0) for k, v in mine.items()}
    most = max(grown, key=lambda k: grown[k])
    return f"-{loss:.1%}" + (f" {most}" if grown[most] > 0 else "")


def _op_times(result: Result) -> dict[str, float]:
    """Time of each op for one sequence, over a whole answer where one is served; what stages wait for each
    other beside.
    """
    served = result.workload.phase == "serve"
    weights = [1.0, *(w * float(result.workload.output) for _, w in GENERATION)] if served else [1.0]
    found: dict[str, float] = {}
    for step, weight in zip(result.steps, weights, strict=True):
        each = weight / float(result.workload.batch)
        share = each * float(step.pieces) / float(result.plan.pp)
        for block in step.blocks:
            for op, price in block.ops:
                waits = max(RESOURCES, key=lambda r: float(getattr(price, r)))
                name = f"{op.name.replace('_', ' ')} ({waits})"
                found[name] = found.get(name, 0.0) + float(block.block.count * price.time) * share
        found["waiting for other stages"] = found.get("waiting for other stages", 0.0) + each * float(
            step.time - step.price.time
        )
    return found


def rank_plans(
    model: str,
    system: str,
    *,
    batches: list[float],
    input: float,
    output: float,
    phase: str,
    engine: str,
    weights: str,
    kv: str,
    changes: list[str],
    ttft: str = "",
    tpot: str = "",
    top: int = 8,
    where: str = "",
    routing: str = "",
) -> Ranking:
    """Every legal plan at every batch, best first, under limits on latency; `where` keeps some plans by their
    degrees.
    """
    first, each = (
        parse(v, "s", f"--{k}") if v else float("inf") for k, v in (("ttft", ttft), ("tpot", tpot))
    )
    for name, value, typed in (("ttft", first, ttft), ("tpot", each, tpot)):
        require(value > 0, f"--{name} must be a positive time", **{name: typed})
    limits = "".join(
        f", {k.upper()} at most {show(v, 's')}"
        for k, v in (("ttft", first), ("tpot", each))
        if np.isfinite(v)
    )
    options = {
        "model": model,
        "system": system,
        "input": f"{input:g}",
        "output": f"{output:g}",
        "phase": phase,
        "engine": engine,
        "weights": weights,
        "kv": kv,
        "routing": routing,
    }
    usual = {"phase": "serve", "engine": "ideal", "weights": "", "kv": "", "routing": ""}
    typed = " ".join(
        [f"--{k} {quote(v)}" for k, v in options.items() if usual.get(k) != v]
        + [f"--set {quote(c)}" for c in changes]
    )
    on, what, by = question(model, system, engine, weights, kv, changes)
    work = make_workload(phase, np.array(batches), input, output, routing=routing_of(routing, what))
    found = best_plans(on, what, work, by, ttft=first, tpot=each, top=top, where=where)
    if found:
        return Ranking(found, "", limits, typed)
    free = best_plans(on, what, work, by, top=1, where=where)
    if not free:
        return Ranking(
            [], why_out(closest(on, what, replace(work, batch=min(batches)), by, where)), limits, typed
        )
    quick = best_plans(on, what, work, by, top=1, metric="tokens_per_s_per_user", where=where)[0].result
    got = f"the quickest has TTFT {_time(quick.metrics.ttft)} and TPOT {_time(quick.metrics.tpot)} ({plan_text(quick.plan)}, batch {quick.workload.batch:g})"
    return Ranking(
        [],
        f"no plan keeps the limits{limits}; {got}; levers: fewer sequences, more devices, narrower weights",
        limits,
        typed,
    )
