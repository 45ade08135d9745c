"""The best plans as a page: the best in numbers, the others beside it, where its time goes, sources."""

from __future__ import annotations

from pathlib import Path

from strata.app.render.page import cards_html, html_page, paragraphs, section
from strata.app.render.page_bars import bars_html, bars_section
from strata.app.render.page_told import printed_html, result_records, sources_html
from strata.app.render.prediction import headline_rows
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.ranking import ranking_table
from strata.app.render.served import SEEN_COLUMNS
from strata.drawing import keep
from strata.mapping.layout import Layout
from strata.mapping.plan import division_text, plan_text
from strata.search.plan_for import PlanRanking
from strata.search.plans import RankedPlan
from strata.units import show


def plan_report(ranking: PlanRanking, path: Path, lines: list[str] | None = None) -> Path:
    """The best plans as a page that opens offline; `lines` are said beside the numbers of the best."""
    best, served = ranking.choices[0].result, ranking.choices[0].served
    closer = "The best plan, closer" if served is None else "A step that generates, with the best plan"
    parts = [
        cards_html(_headline(ranking)),
        paragraphs(lines or [], "dim"),
        _bars(ranking),
        printed_html(ranking_table(ranking)),
        section(closer, *prediction_parts(best, sources=False)),
        sources_html(result_records(best)),
    ]
    return keep(path, html_page(f"Strata plans: {best.model.name} on {best.system.name}", parts))


def _name(choice: RankedPlan) -> str:
    if choice.served is not None:
        return f"{plan_text(choice.served.plan)}, batch {choice.served.clients:g}"
    return f"{division_text(choice.result.plan)}, batch {choice.result.workload.batch:g}"


def _headline(ranking: PlanRanking) -> list[tuple[str, str, str]]:
    """The best plan, out of how many, and what it does."""
    first = ranking.choices[0]
    counted = f"best of {first.considered:,} plans, {first.feasible:,} fit"
    if first.served is None:
        return [("plan", division_text(first.result.plan), counted), *headline_rows(first.result)]
    load = first.served.load
    limited = f"limited by {first.served.limited_by}" if first.served.limited_by else ""
    rows = [("plan", plan_text(first.served.plan), counted), ("batch", f"{first.served.clients:g}", limited)]
    rows += [
        ("tokens/s", show(float(load.tokens_per_s)), ""),
        ("tokens/s/device", show(float(load.tokens_per_s) / float(load.devices)), ""),
    ]
    return rows + [(name, text(load), "") for name, text in SEEN_COLUMNS.items()]


def _bars(ranking: PlanRanking) -> str:
    """Throughput of each plan listed, the best in the accent."""
    values, what = [], "tokens/s"
    for choice in ranking.choices:
        if choice.served is not None:
            values.append(float(choice.served.load.tokens_per_s))
        elif isinstance(choice.result.plan, Layout):
            values.append(float(choice.result.metrics.items_per_s))
            what = "items/s"
        else:
            values.append(float(choice.result.metrics.tokens_per_s))
    colours = ["var(--accent)", *["var(--c-overhead)"] * (len(values) - 1)]
    bars = bars_html([_name(c) for c in ranking.choices], values, [show(v) for v in values], colours)
    return bars_section(f"{what} of the best plans", "Best first, by the goal and under the limits.", bars)
