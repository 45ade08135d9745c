"""Plans in order of merit and what clients of a served model see and pay, for machines and for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.accuracy import interval_of, intervals_told
from strata.app.render.prediction import prediction_dict, shown_metrics, workload_text
from strata.app.render.tables import floats, picked, table
from strata.app.terminal import words
from strata.base.units import show
from strata.mapping.layout import Layout
from strata.mapping.plan import division_text, order_text, plan_text
from strata.result import RankedPlan, Result
from strata.search.plan_for import PlanRanking, why_behind
from strata.serving.load_metrics import LoadMetrics, limits_text

if TYPE_CHECKING:
    from strata.hardware.system import System
    from strata.serving.served_plans import ServedPlan, ServedPlans
    from strata.workload.model import Model

COLUMNS: dict[str, tuple[str, Callable[[Result], str]]] = {
    "batch": ("batch", lambda r: f"{r.workload.batch:g}"),
    "items_per_s": ("items/s", lambda r: show(float(r.metrics.items_per_s))),
    "step_time": ("step", lambda r: seconds_text(r.metrics.step_time)),
    "tokens_per_s": ("tokens/s", lambda r: show(float(r.metrics.tokens_per_s))),
    "ttft": ("TTFT", lambda r: seconds_text(r.metrics.ttft)),
    "tpot": ("TPOT", lambda r: seconds_text(r.metrics.tpot)),
    "memory_used": ("memory", lambda r: show(float(r.metrics.memory_used), "B")),
    "cost_per_mtoken": ("USD/Mtok", lambda r: dollars_text(r.metrics.cost_per_mtoken, "")),
}
BEHIND = "against the best, and the op that takes most more time for a sequence (what it waits for)"
SEEN_UNITS = {
    **dict.fromkeys(("requests_per_s", "tokens_per_s"), "1/s"),
    **dict.fromkeys(("tokens_per_s_per_device", "tokens_per_s_per_user"), "1/s"),
    **dict.fromkeys(("ttft", "ttft_p95", "tpot"), "s"),
    "in_flight": "1",
    "power": "W",
    "energy_per_mtoken": "J",
    "cost_per_mtoken": "USD",
    "cost_per_device_hour": "USD",
}
SEEN_COLUMNS: dict[str, Callable[[LoadMetrics], str]] = {
    "TTFT": lambda load: show(float(load.ttft), "s"),
    "95 %": lambda load: show(float(load.ttft_p95), "s"),
    "TPOT": lambda load: show(float(load.tpot), "s"),
    "USD/Mtok": lambda load: dollars_text(load.cost_per_mtoken),
    "J/Mtok": lambda load: joules_text(load.energy_per_mtoken),
}


def choice_dict(choice: RankedPlan | None) -> dict[str, Any] | None:
    """What a plan was chosen from."""
    if choice is None:
        return None
    return picked(choice, "considered feasible") | {"plan": division_text(choice.result.plan)}


def choice_text(choice: RankedPlan) -> str:
    """The same in words."""
    plan = choice.result.plan
    order = "" if isinstance(plan, Layout) else order_text(plan)
    placed = f", in its best order on the fabric ({order}, innermost first)" if order else ""
    if choice.considered == 1:
        return f"plan {division_text(plan)}: the only legal plan{placed}"
    few = f"{choice.considered} legal plans, {choice.feasible} of which fit"
    return f"plan {division_text(plan)}: best of {few}{placed}; choose another with --plan"


def part_text(part: Result, whole: Result) -> str:
    """That part of a system's devices does more than all of them."""
    few, many = (f"{float(r.system.devices):g}" for r in (part, whole))
    more, less = (show(float(r.metrics.tokens_per_s)) for r in (part, whole))
    return (
        f"{few} of the {many} devices do more, {more} tokens/s against {less} (plan "
        f"{division_text(part.plan)}: {many} divide less evenly): --system {part.system.name}"
    )


def ranking_interval(ranking: PlanRanking) -> tuple[dict[str, Any] | None, list[str]]:
    """Where cases like the best plan were measured: for machines, and lines for people; of what is served the
    table has its own.
    """
    if ranking.served is not None:
        return trust_of(ranking.served)[0], []
    return (None, []) if ranking.why_none else interval_of(ranking.nearest)


def ranking_dict(ranking: PlanRanking, interval: dict[str, Any] | None) -> dict[str, Any]:
    """Plans for machines, best first."""
    return {
        "goal": ranking.goal,
        "limits": picked(ranking, "ttft tpot share"),
        "plans": [_choice_dict(choice, ranking) for choice in ranking.choices],
        **picked(ranking, "considered feasible"),
        "interval": interval,
        "why_none": ranking.why_none or None,
    }


def _choice_dict(choice: RankedPlan, ranking: PlanRanking) -> dict[str, Any]:
    """A plan; where requests are served with what clients see, beside the step that generates."""
    step = prediction_dict(choice.result)
    if choice.served is None or ranking.served is None:
        return step
    asked, seen = ranking.served.curve.requests, served_dict(choice.served)
    question = {"phase": "serve", "batch": choice.served.clients, "context": None}
    question |= {"input": asked.input, "output": asked.output}
    own = {name: seen[name] for name in SEEN_UNITS} | {"memory_used": step["metrics"]["memory_used"]}
    step |= {"question": step["question"] | question, "metrics": own}
    step |= {"units": SEEN_UNITS | {"memory_used": "B"}}
    return step | {key: seen[key] for key in ("slots", "limited_by")}


def seconds_text(value: Any) -> str:
    """A time as people read it, a dash where there is none."""
    return show(float(value), "s") if np.isfinite(value) else "-"


def served_ranking_table(ranking: PlanRanking) -> Any:
    """Plans that serve requests for people, a line each: what clients see, its cost, what others lose."""
    found, first = ranking.served, ranking.choices[0]
    assert found is not None and first.served is not None
    asked, best, limited = found.curve.requests, first.result, bool(first.served.limited_by)
    title = f"{best.model.name} on {best.system.name}, input {asked.input:g}, output {asked.output:g}, "
    title += f"engine {best.engine.name}{found.limits.text}\n"
    title += f"best {len(ranking.choices)} by {found.goal.means}"
    several = found.considered > 1
    title += f" of {found.considered:,} plans, {found.feasible:,} of which fit" if several else " of 1 plan"
    title += " and keep the limits" if several and found.limits.text else ""
    if found.placed:
        title += f"; the best in every order on the fabric ({found.placed:,} priced)"
    top, rows = float(found.goal.value(first.served.load, asked)), []
    for choice in ranking.choices:
        one = choice.served
        assert one is not None
        value = float(found.goal.value(one.load, asked))
        # goals that are better when lower are negative
        loss = 1.0 - value / top if top > 0 else value / top - 1.0
        behind = f"{'-' if top > 0 else '+'}{abs(loss):.1%}" if np.isfinite(loss) else "-"
        cells = [plan_text(one.plan), f"{one.clients:g}", show(float(one.load.tokens_per_s))]
        cells += [text(one.load) for text in SEEN_COLUMNS.values()]
        rows.append([*cells, *([one.limited_by] if limited else []), why_behind(choice.result, best, behind)])
    below = [device_hour_text(found)]
    if len(ranking.choices) > 1:
        below.append(f"behind by: {found.goal.means} {BEHIND}")
    head = "|".join(["<plan|>batch|>tokens/s", *(f">{label}" for label in SEEN_COLUMNS)])
    head += "|batch limited by|behind by" if limited else "|behind by"
    return table(title, head, rows, "\n".join([*below, *trust_of(found)[1]]))


def ranking_table(ranking: PlanRanking) -> Any:
    """Plans for people, a line each, with what the later ones lose."""
    if ranking.served is not None:
        return served_ranking_table(ranking)
    first = ranking.choices[0]
    best = first.result
    limits = limits_text(ranking.ttft, ranking.tpot)
    asked = f"{best.model.name} on {best.system.name}, {workload_text(best, batch=False)}"
    title = f"{asked}, engine {best.engine.name}{limits}\nbest {len(ranking.choices)} of "
    title += f"{first.considered:,} plans x batches, {first.feasible:,} of which fit"
    title += " and keep the limits" if limits else ""
    if first.placed:
        rest = "" if best.workload.phase == "train" else ", the rest could not have won"
        title += f"; each in its best order on the fabric ({first.placed:,} other placements priced{rest})"
    of_items = {"items_per_s", "step_time"}
    shown = of_items if isinstance(best.plan, Layout) else {*shown_metrics(best.workload.phase)} - of_items
    columns = [column for name, column in COLUMNS.items() if name in {*shown, "batch", "memory_used"}]
    rows = []
    for r in (choice.result for choice in ranking.choices):
        cells = [text(r) for _, text in columns]
        rows.append([division_text(r.plan), *cells, str(r.bound_by), why_behind(r, best)])
    below = f"behind by: throughput lost {BEHIND}" if len(ranking.choices) > 1 else ""
    head = ["<plan", *(f">{label}" for label, _ in columns), "bound by", "behind by"]
    return table(title, head, rows, below)


def hint_text(ranking: PlanRanking, typed: str) -> Any:
    """The next command, on one line however narrow the screen, to be copied."""
    r, served = ranking.choices[0].result, ranking.choices[0].served
    if served is not None:
        more = f"--plan {plan_text(served.plan)} --clients {served.clients:g}"
        return words(f"look closer: strata serving {typed} {more}", no_wrap=True)
    more = f"--batch {r.workload.batch:g} --plan {division_text(r.plan)} --explain"
    return words(f"look closer: strata predict {typed} {more}", no_wrap=True)


def seen_dict(load: LoadMetrics) -> dict[str, float]:
    """What clients see and what it costs; units in `SEEN_UNITS`."""
    return {
        **floats(load, "requests_per_s=rate tokens_per_s"),
        "tokens_per_s_per_device": float(load.tokens_per_s / load.devices),
        "tokens_per_s_per_user": float(1.0 / load.tpot),
        **floats(load, "ttft ttft_p95 tpot in_flight=active power energy_per_mtoken cost_per_mtoken"),
        **floats(load, "cost_per_device_hour"),
    }


def served_dict(one: ServedPlan) -> dict[str, Any]:
    """One plan with its clients, and what the closed form says of those that were simulated, or why not."""
    closed = one.closed
    return {
        "plan": plan_text(one.plan),
        "batch": one.clients,
        "limited_by": one.limited_by or None,
        "slots": one.slots,
        **floats(one, "devices=load.devices devices_used=plan.devices"),
        **seen_dict(one.load),
        "simulated": one.simulated,
        "closed_form": None
        if closed is None
        else {**floats(closed, "ttft tpot rate"), "refused": str(closed.refusal) or None},
    }


def simulated_text(found: ServedPlans) -> str:
    """Which plans were simulated, and where the closed form says something else by more than a tenth."""
    from strata.serving.simulated_plans import MOST_CLIENTS, closed_form_errors

    shown = [one for one in found.choices if one.simulated]
    if not shown:
        many = found.choices[0].clients > MOST_CLIENTS
        why = f"more than {MOST_CLIENTS:,} clients" if many else "--quick"
        return f"in closed form, not simulated ({why})"
    rest = f": the first {len(shown)}, the others in closed form" if len(found.choices) > len(shown) else ""
    lines = [f"simulated request by request{rest}"]
    words = {"ttft": "TTFT", "tpot": "TPOT", "rate": "requests/s"}
    for one in shown:
        off = [f"{words[name]} {value:+.0%}" for name, value in closed_form_errors(one).items()]
        refused = "" if one.closed is None else str(one.closed.refusal)
        if refused:
            lines.append(f"{plan_text(one.plan)}: {refused}")
        elif off:
            lines.append(f"{plan_text(one.plan)}: the closed form differs, {', '.join(off)}")
    return "\n".join(lines)


def dollars_text(value: Any, none: str = "-") -> str:
    """US dollars, or a word where there is no price."""
    return f"{float(value):.3g}" if np.isfinite(value) else none


def joules_text(value: Any) -> str:
    return show(float(value), "J") if np.isfinite(value) else "-"


def device_hour_text(found: ServedPlans) -> str:
    """What a device of the best plan costs an hour, and what columns mean."""
    text = "batch: clients that each wait for their answer; TTFT, 95 %, TPOT: what they see, waiting "
    text += "included (mean, 95th percentile of TTFT, mean)"
    text += f"\n{simulated_text(found)}" if found.choices else ""
    if not found.choices or not np.isfinite(found.choices[0].load.cost_per_device_hour):
        return f"{text}; no price is known"
    best = found.choices[0]
    used = f"; {best.used}, the others idle and paid for" if best.used else ""
    return f"{text}\n{dollars_text(best.load.cost_per_device_hour)} USD per device-hour{used}"


def trust_of(found: ServedPlans, load: LoadMetrics | None = None) -> tuple[dict[str, Any] | None, list[str]]:
    """How far like cases measured were off, for what requests see under a load that was asked for, else for
    what clients of the best plan see; nothing of a load that no plan carries.
    """
    if load is None:
        if not found.choices:
            return None, []
        load = found.choices[0].load
    if not np.isfinite(load.ttft):
        return None, []
    where = (found.curve.system, found.curve.model, found.curve.engine.name)
    return served_interval(*where, float(load.ttft), float(load.tpot))


def served_interval(
    system: System, model: Model, engine: str, ttft: float, tpot: float
) -> tuple[dict[str, Any] | None, list[str]]:
    """How far first tokens and token times of a served model were off in runs like it, for machines and for
    people.
    """
    from strata.validation.accuracy.trust import trust_served

    asked = (("ttft", ttft, "request"), ("tpot", tpot, "decode"))
    return intervals_told(trust_served(system, model, engine, *one) for one in asked)
