"""A prediction, or a ranking of plans, as a page: its numbers, where time and memory go, what more would buy,
and the inputs with their sources.
"""

from __future__ import annotations

from pathlib import Path

from strata.app.render.explanation import BOUND_LABELS, SHOWN, busy_text, op_rows, step_text
from strata.app.render.page import (
    bars_html,
    bars_section,
    cards_html,
    html_page,
    legend_html,
    paragraphs,
    resource_colour,
    section,
    stacked_html,
)
from strata.app.render.page_told import printed_html, result_records, sources_html
from strata.app.render.prediction import headline_rows, prediction_title
from strata.app.render.ranking import SEEN_COLUMNS, ranking_table
from strata.drawing import keep
from strata.mapping.layout import Layout
from strata.mapping.plan import division_text, plan_text
from strata.result import RankedPlan, Result
from strata.search.plan_for import PlanRanking
from strata.search.sensitivity import sensitivity
from strata.units import show

OP_BARS = 16  # shown at most


def prediction_parts(result: Result, lines: list[str] | None = None, sources: bool = True) -> list[str]:
    """Headline, where time and memory go, what more would buy, and the inputs with their sources."""
    said = paragraphs(result.notes if lines is None else lines, "dim")
    return [
        section(prediction_title(result), cards_html(headline_rows(result)), said),
        _binding(result),
        _memory(result),
        _ops(result),
        _buys(result),
        sources_html(result_records(result)) if sources else "",
    ]


def _binding(result: Result) -> str:
    """All of the time by what binds it, as one bar."""
    times = {name: float(time) for name, time in result.summary.resources.items() if float(time) > 0}
    whole = sum(times.values())
    if not whole:
        return ""
    colours = {name: resource_colour(name) for name in times}
    says = {name: f"{time / whole:.1%}" for name, time in times.items()}
    parts = {name: [time] for name, time in times.items()}
    bars = stacked_html(["time"], parts, [show(whole, "s")], whole, colours, says)
    most = max(times, key=lambda name: times[name])
    told = paragraphs(busy_text(result).splitlines(), "dim")
    return section(f"What binds: {BOUND_LABELS.get(most, most)}", bars, told)


def _memory(result: Result) -> str:
    """What a device holds, up to what it may."""
    held = {name: float(size) for name, size in result.summary.memory.items() if float(size) > 0}
    used, limit = float(result.metrics.memory_used), float(result.metrics.memory_limit)
    parts, says = (
        {name: [size] for name, size in held.items()},
        {n: show(size, "B") for n, size in held.items()},
    )
    bars = stacked_html(["device"], parts, [f"{used / limit:.0%}"], max(limit, used), says=says)
    return section(f"Memory of a device: {show(used, 'B')} of {show(limit, 'B')}", bars)


def _ops(result: Result) -> str:
    ops = op_rows(result)[:OP_BARS]
    bound = dict.fromkeys(o["bound_by"] for o in ops)
    legend = legend_html({f"bound by {name}": resource_colour(name) for name in bound})
    bars = bars_html(
        [f"{o['block']}.{o['op']}" for o in ops],
        [o["time"] for o in ops],
        [f"{show(o['time'], 's')}, {o['time'] / result.timeline.time:.1%}" for o in ops],
        [resource_colour(o["bound_by"]) for o in ops],
    )
    return section(step_text(result), legend, bars)


def _buys(result: Result) -> str:
    gains = [g for g in sensitivity(result) if abs(g.speedup) >= SHOWN]  # not those that are out
    bars = bars_html(
        [g.resource for g in gains], [g.speedup for g in gains], [f"{g.speedup:+.1%}" for g in gains]
    )
    said = "One at a time, with all that follows from it."
    return bars_section("What 10 % more would buy", said, bars)


def prediction_report(result: Result, path: Path, lines: list[str] | None = None) -> Path:
    """One prediction as a page; `lines` are said beside its numbers."""
    title = f"{result.model.name} on {result.system.name}"
    return keep(path, html_page(f"Strata prediction: {title}", prediction_parts(result, lines)))


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
    return [
        ("plan", plan_text(first.served.plan), counted),
        ("batch", f"{first.served.clients:g}", limited),
        ("tokens/s", show(float(load.tokens_per_s)), ""),
        ("tokens/s/device", show(float(load.tokens_per_s) / float(load.devices)), ""),
        *((name, text(load), "") for name, text in SEEN_COLUMNS.items()),
    ]


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
