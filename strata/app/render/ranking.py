"""Plans in order of merit, for machines and for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.metrics import shown_metrics
from strata.app.render.prediction import prediction_dict, workload_text
from strata.app.terminal import plain_table, titled
from strata.mapping.layout import Layout
from strata.mapping.plan import division_text, order_text
from strata.result import Result
from strata.search.plan_for import PlanRanking, why_behind
from strata.search.plans import RankedPlan
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
    return (
        f"plan {division_text(choice.result.plan)}: best of {choice.considered} legal plans, "
        f"{choice.feasible} of which fit{placed}; choose another with --plan"
    )


def ranking_dict(ranking: PlanRanking) -> dict[str, Any]:
    """Plans for machines, best first."""
    return {
        "plans": [prediction_dict(choice.result) for choice in ranking.choices],
        "considered": ranking.considered,
        "feasible": ranking.feasible,
        "why_none": ranking.why_none or None,
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


def ranking_table(ranking: PlanRanking) -> Any:
    """Plans for people, a line each, with what the later ones lose."""
    first = ranking.choices[0]
    best = first.result
    from strata.serving.under_load import limits_text

    limits = limits_text(ranking.ttft, ranking.tpot)
    asked = f"{best.model.name} on {best.system.name}, {workload_text(best, batch=False)}"
    title = f"{asked}, engine {best.engine.name}{limits}\nbest {len(ranking.choices)} of "
    title += f"{first.considered:,} plans x batches, {first.feasible:,} of which fit"
    title += " and keep the limits" if limits else ""
    if first.placed:
        title += f"; each in its best order on the fabric ({first.placed:,} other placements priced, "
        title += "the rest could not have won)"
    of_items = {"items_per_s", "step_time"}
    shown = of_items if isinstance(best.plan, Layout) else {*shown_metrics(best.workload.phase)} - of_items
    shown |= {"batch", "memory_used"}
    columns = [column for name, column in COLUMNS.items() if name in shown]
    table = plain_table()
    table.add_column("plan", no_wrap=True)
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

    r = ranking.choices[0].result
    more = f"--batch {r.workload.batch:g} --plan {division_text(r.plan)} --explain"
    return Text(f"look closer: strata predict {typed} {more}", no_wrap=True)
