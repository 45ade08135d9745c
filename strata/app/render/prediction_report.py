"""A prediction, or a ranking of plans, as a page: its numbers, where time and memory go, what more would buy,
and the inputs with their sources; what a command prints, in a page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strata.app.render import page
from strata.app.render.explanation import BOUND_LABELS, SHOWN, busy_text, op_rows, step_text
from strata.app.render.prediction import headline_rows, inputs_digest, prediction_title, sourced_numbers
from strata.app.render.ranking import SEEN_COLUMNS, ranking_table
from strata.base.units import show
from strata.mapping.layout import Layout
from strata.mapping.plan import division_text, plan_text
from strata.result import Result
from strata.search.plan_for import PlanRanking
from strata.search.sensitivity import sensitivity

OP_BARS = 16  # shown at most


def prediction_parts(result: Result, lines: list[str] | None = None, sources: bool = True) -> list[str]:
    """Headline, where time and memory go, what more would buy, and the inputs with their sources."""
    said = page.paragraphs(result.notes if lines is None else lines, "dim")
    return [
        page.section(prediction_title(result), page.cards_html(headline_rows(result)), said),
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
    colours = {name: page.resource_colour(name) for name in times}
    says = {name: f"{time / whole:.1%}" for name, time in times.items()}
    parts = {name: [time] for name, time in times.items()}
    bars = page.stacked_html(["time"], parts, [show(whole, "s")], whole, colours, says)
    most = max(times, key=lambda name: times[name])
    told = page.paragraphs(busy_text(result).splitlines(), "dim")
    return page.section(f"What binds: {BOUND_LABELS.get(most, most)}", bars, told)


def _memory(result: Result) -> str:
    """What a device holds, up to what it may."""
    held = {name: float(size) for name, size in result.summary.memory.items() if float(size) > 0}
    used, limit = float(result.metrics.memory_used), float(result.metrics.memory_limit)
    parts = {name: [size] for name, size in held.items()}
    says = {name: show(size, "B") for name, size in held.items()}
    bars = page.stacked_html(["device"], parts, [f"{used / limit:.0%}"], max(limit, used), says=says)
    return page.section(f"Memory of a device: {show(used, 'B')} of {show(limit, 'B')}", bars)


def _ops(result: Result) -> str:
    ops = op_rows(result)[:OP_BARS]
    bound = dict.fromkeys(o["bound_by"] for o in ops)
    legend = page.legend_html({f"bound by {name}": page.resource_colour(name) for name in bound})
    rows = []
    for o in ops:
        share = f"{show(o['time'], 's')}, {o['time'] / result.timeline.time:.1%}"
        rows.append((f"{o['block']}.{o['op']}", o["time"], share))
    bars = page.bars_html(rows, [page.resource_colour(o["bound_by"]) for o in ops])
    return page.section(step_text(result), legend, bars)


def _buys(result: Result) -> str:
    gains = [g for g in sensitivity(result) if abs(g.speedup) >= SHOWN]  # not those that are out
    bars = page.bars_html([(g.resource, g.speedup, f"{g.speedup:+.1%}") for g in gains])
    said = "One at a time, with all that follows from it."
    return page.bars_section("What 10 % more would buy", said, bars)


def prediction_report(result: Result, path: Path, lines: list[str] | None = None) -> Path:
    """One prediction as a page; `lines` are said beside its numbers."""
    title = f"{result.model.name} on {result.system.name}"
    return page.write_page(path, f"Strata prediction: {title}", prediction_parts(result, lines))


def plan_report(ranking: PlanRanking, path: Path, lines: list[str] | None = None) -> Path:
    """The best plans as a page that opens offline; `lines` are said beside the numbers of the best."""
    best, served = ranking.choices[0].result, ranking.choices[0].served
    closer = "The best plan, closer" if served is None else "A step that generates, with the best plan"
    parts = [
        page.cards_html(_headline(ranking)),
        page.paragraphs(lines or [], "dim"),
        _bars(ranking),
        printed_html(ranking_table(ranking)),
        page.section(closer, *prediction_parts(best, sources=False)),
        sources_html(result_records(best)),
    ]
    return page.write_page(path, f"Strata plans: {best.model.name} on {best.system.name}", parts)


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
    of_items = isinstance(ranking.choices[0].result.plan, Layout) and ranking.served is None
    rows = []
    for r, served in ((choice.result, choice.served) for choice in ranking.choices):
        plan, batch, of = division_text(r.plan), r.workload.batch, r.metrics
        if served is not None:
            plan, batch, of = plan_text(served.plan), served.clients, served.load
        value = float(of.items_per_s if of_items else of.tokens_per_s)
        rows.append((f"{plan}, batch {batch:g}", value, show(value)))
    colours = [page.ACCENT, *["var(--c-overhead)"] * (len(rows) - 1)]
    what = "items/s" if of_items else "tokens/s"
    order = "Best first, by the goal and under the limits."
    return page.bars_section(f"{what} of the best plans", order, page.bars_html(rows, colours))


def printed_html(part: Any) -> str:
    """A table, a text or a group of them as it would be printed, as HTML.

    >>> printed_html("1 < 2")
    '<p>1 &lt; 2</p>'
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if isinstance(part, Group):
        first, *rest = part.renderables
        title = first.plain if isinstance(first, Text) else ""
        if not title:
            return "".join(printed_html(one) for one in part.renderables)
        heading, *more = title.splitlines()
        below = [
            page.paragraphs(one.plain.splitlines(), "dim") if isinstance(one, Text) else printed_html(one)
            for one in rest
        ]
        return page.section(heading, page.paragraphs(more, "dim"), *below)
    if isinstance(part, Table):
        return _table(part)
    return page.paragraphs((part.plain if isinstance(part, Text) else str(part)).splitlines())


def _table(table: Any) -> str:
    """A printed table: its header, its cells, which columns hold numbers."""
    columns = [[getattr(cell, "plain", cell) for cell in column.cells] for column in table.columns]
    header = [getattr(column.header, "plain", column.header) for column in table.columns]
    words = [i for i, column in enumerate(table.columns) if column.justify != "right"]
    return page.html_table(header if table.show_header else [], list(zip(*columns, strict=True)), words)


def sources_html(records: dict[str, Any], said: Iterable[str] = ()) -> str:
    """Every number an answer rests on, with its source; those that are assumed stand first and out."""
    rows, assumed, hashes = [], [], []
    for owner, record in records.items():
        numbers = sourced_numbers(record)
        called = " ".join(dict.fromkeys((owner, getattr(record, "name", owner))))
        hashes.append(f"{called} {inputs_digest(record)}")
        for path, number in numbers.items():
            guess = str(number["source"]).startswith("assumed")
            row = (
                f"<tr{' class=assumed' * guess}><td class='w'>{html.escape(f'{owner}.{path}')}</td>"
                f"<td class='n'>{html.escape(show(float(number['value']), number['unit']))}</td>"
                f"<td class='src'>{html.escape(str(number['source']))}</td></tr>"
            )
            rows.append(row)
            assumed += [row] if guess else []
    if not rows:
        return ""
    head = "<th>number</th><th class='n'>value</th><th>source</th>"
    guesses = f"<p>All {len(rows)} numbers have a source.</p>"
    if assumed:
        guesses = f"<p><span class='mark assumed'>assumed</span> {len(assumed)} of {len(rows)} numbers are "
        guesses += "assumed, not published or measured: the answer changes with them.</p>"
        few = {"shown": len(assumed) <= 12, "printed": True}
        guesses += page.folded_html(f"{len(assumed)} assumptions", page.wide_table(head, assumed), **few)
    every = page.folded_html(f"{len(rows)} numbers with their sources", page.wide_table(head, rows))
    known = f"<p class='dim'>hashes: {html.escape(', '.join(hashes))}</p>"
    return page.section(
        "Inputs, sources and assumptions", page.paragraphs(said, "dim"), guesses, every, known
    )


def result_records(result: Any) -> dict[str, Any]:
    """The records a prediction rests on, by what they are called."""
    return {"chip": result.system.chip, "fabric": result.system.fabric, "engine": result.engine}
