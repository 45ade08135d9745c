"""Plans in order of merit, for machines and for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.metrics import shown_metrics
from strata.app.render.prediction import prediction_dict, workload_text
from strata.app.render.served import SEEN_COLUMNS, SEEN_UNITS, device_hour_text, served_dict, trust_of
from strata.app.terminal import plain_table, titled
from strata.mapping.layout import Layout
from strata.mapping.plan import division_text, order_text, plan_text
from strata.result import Result
from strata.search.plan_for import PlanRanking, why_behind
from strata.search.plans import RankedPlan
from strata.serving.load_metrics import limits_text
from strata.units import show

if TYPE_CHECKING:
    from rich.text import Text


def choice_dict(choice: RankedPlan | None) -> dict[str, Any] | None:
    """What a plan was chosen from."""
    if choice is None:
        return None
    return {
        "considered": choice.considered,
        "feasible": choice.feasible,
        "plan": division_text(choice.result.plan),
    }


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


def ranking_dict(ranking: PlanRanking) -> dict[str, Any]:
    """Plans for machines, best first."""
    return {
        "goal": ranking.goal,
        "limits": {"ttft": ranking.ttft, "tpot": ranking.tpot, "share": ranking.share},
        "plans": [_choice_dict(choice, ranking) for choice in ranking.choices],
        "considered": ranking.considered,
        "feasible": ranking.feasible,
        "interval": None if ranking.served is None else trust_of(ranking.served)[0],
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
    return step | {
        "question": step["question"] | question,
        "metrics": own,
        "units": SEEN_UNITS | {"memory_used": "B"},
        "slots": seen["slots"],
        "limited_by": seen["limited_by"],
    }


def _seconds(value: Any) -> str:
    return show(float(value), "s") if np.isfinite(value) else "-"


def _dollars(value: Any) -> str:
    return "" if np.isnan(value) else f"{float(value):.3g}"


COLUMNS: dict[str, tuple[str, Callable[[Result], str]]] = {
    "batch": ("batch", lambda r: f"{r.workload.batch:g}"),
    "items_per_s": ("items/s", lambda r: show(float(r.metrics.items_per_s))),
    "step_time": ("step", lambda r: _seconds(r.metrics.step_time)),
    "tokens_per_s": ("tokens/s", lambda r: show(float(r.metrics.tokens_per_s))),
    "ttft": ("TTFT", lambda r: _seconds(r.metrics.ttft)),
    "tpot": ("TPOT", lambda r: _seconds(r.metrics.tpot)),
    "memory_used": ("memory", lambda r: show(float(r.metrics.memory_used), "B")),
    "cost_per_mtoken": ("USD/Mtok", lambda r: _dollars(r.metrics.cost_per_mtoken)),
}


def served_ranking_table(ranking: PlanRanking) -> Any:
    """Plans that serve requests for people, a line each: what clients see, its cost, what others lose."""
    found, first = ranking.served, ranking.choices[0]
    assert found is not None and first.served is not None
    asked, best = found.curve.requests, first.result
    title = f"{best.model.name} on {best.system.name}, input {asked.input:g}, output {asked.output:g}"
    title += (
        f", engine {best.engine.name}{found.limits.text}\nbest {len(ranking.choices)} by {found.goal.means}"
    )
    several = found.considered > 1
    title += f" of {found.considered:,} plans, {found.feasible:,} of which fit" if several else " of 1 plan"
    title += " and keep the limits" if several and found.limits.text else ""
    if found.placed:
        title += f"; the best in every order on the fabric ({found.placed:,} priced)"
    table = plain_table("<plan", ">batch", ">tokens/s", *(f">{label}" for label in SEEN_COLUMNS))
    for label in ("batch limited by", "behind by") if first.served.limited_by else ("behind by",):
        table.add_column(label)
    top = float(found.goal.value(first.served.load, asked))
    for choice in ranking.choices:
        one = choice.served
        assert one is not None
        value = float(found.goal.value(one.load, asked))
        # goals that are better when lower are negative
        loss = 1.0 - value / top if top > 0 else value / top - 1.0
        behind = f"{'-' if top > 0 else '+'}{abs(loss):.1%}" if np.isfinite(loss) else "-"
        cells = [f"{one.clients:g}", show(float(one.load.tokens_per_s))]
        cells += [text(one.load) for text in SEEN_COLUMNS.values()]
        cells += [one.limited_by] if first.served.limited_by else []
        table.add_row(plan_text(one.plan), *cells, why_behind(choice.result, best, behind))
    below = device_hour_text(found)
    if len(ranking.choices) > 1:
        below += (
            f"\nbehind by: {found.goal.means} against the best, and the op that takes most more time for a "
            "sequence (what it waits for)"
        )
    return titled(title, table, "\n".join([below, *trust_of(found)[1]]))


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
    shown |= {"batch", "memory_used"}
    columns = [column for name, column in COLUMNS.items() if name in shown]
    table = plain_table("<plan")
    for label, _ in columns:
        table.add_column(label, justify="right", no_wrap=True)
    table.add_column("bound by")
    table.add_column("behind by")
    for choice in ranking.choices:
        r = choice.result
        cells = [text(r) for _, text in columns]
        table.add_row(division_text(r.plan), *cells, str(r.bound_by), why_behind(r, best))
    below = (
        "behind by: throughput lost against the best, and the op that takes most more time for a sequence "
    )
    return titled(title, table, f"{below}(what it waits for)" if len(ranking.choices) > 1 else "")


def hint_text(ranking: PlanRanking, typed: str) -> Text:
    """The next command, on one line however narrow the screen, to be copied."""
    from rich.text import Text

    r, served = ranking.choices[0].result, ranking.choices[0].served
    if served is not None:
        more = f"--plan {plan_text(served.plan)} --clients {served.clients:g}"
        return Text(f"look closer: strata serving {typed} {more}", no_wrap=True)
    more = f"--batch {r.workload.batch:g} --plan {division_text(r.plan)} --explain"
    return Text(f"look closer: strata predict {typed} {more}", no_wrap=True)
