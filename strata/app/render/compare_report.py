"""A comparison as a page: the best in numbers, bars side by side, the table, and why rows differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.compare import (
    COLUMNS,
    PHASES_OF,
    Trusted,
    compared_cells,
    compared_metrics,
    goal_text,
    question_text,
    reason_lines,
    remark_text,
)
from strata.app.render.compare_picture import INTERVALS_OF, TITLES
from strata.app.render.page import cards_html, folded_html, html_page, html_table, paragraphs, section
from strata.app.render.page_bars import bars_html, series_colour
from strata.app.render.page_told import sources_html
from strata.drawing import keep
from strata.search.compare import Comparison

WORD_COLUMNS = ("model", "system", "engine", "plan", "by")


def comparison_report(found: Comparison, trusted: Trusted, path: Path) -> Path:
    """A comparison as a page that opens offline: bars, table, reasons, the factors behind them, sources."""
    header, rows = compared_cells(found, trusted)
    words = [i for i, name in enumerate(header) if name in WORD_COLUMNS]
    best = found.ranking[0] if found.ranking else -1
    remarks = paragraphs(remark_text(found, trusted).splitlines(), "dim")
    parts = [
        cards_html(_headline(found, trusted)) if found.ranking else "",
        _panels(found, trusted),
        section("Row by row", html_table(header, rows, words, best), remarks),
        section("Why they differ", paragraphs(reason_lines(found, trusted)), _factors(found)),
        sources_html(_records(found)),
    ]
    return keep(path, html_page(f"Strata: {found.means} side by side", parts, question_text(found)))


def _headline(found: Comparison, trusted: Trusted) -> list[tuple[str, str, str]]:
    """The best by the goal, how much better than the next it is, and what it delivers."""
    first, *others = found.ranking
    row, told = found.rows[first], trusted[first]
    assert row.answer is not None
    value = row.answer.value(found.goal)
    ends = (
        "" if told is None or told.bounds is None else " to ".join(goal_text(found, e) for e in told.bounds)
    )
    rows = [
        (f"best by {found.means}", found.label(first), f"plan {row.answer.plan}, batch {row.answer.batch:g}")
    ]
    rows.append((found.means, goal_text(found, value), f"of like cases measured: {ends}" if ends else ""))
    if others and (second := found.rows[others[0]].answer) is not None:
        next_value = second.value(found.goal)
        if np.isfinite([value, next_value]).all() and value and next_value:
            ahead = max(value / next_value, next_value / value)
            rows.append(("ahead of the next", f"{ahead:.2f} x", found.label(others[0])))
    metrics = compared_metrics(row, row.answer, found.phase)
    wanted = ("tokens_per_s", "ttft", "tpot", "step_time", "cost_per_mtoken", "energy_per_mtoken")
    rows += [
        (COLUMNS[name][0], COLUMNS[name][1](metrics[name]), "")
        for name in wanted
        if name in metrics and np.isfinite(metrics[name]) and COLUMNS[name][0] != found.means
    ]
    return rows


def _panels(found: Comparison, trusted: Trusted) -> str:
    """Bars of each row, a panel a metric, with where like cases measured would lie."""
    wanted = [n for n in TITLES if n in {*PHASES_OF[found.phase], "tokens_per_s", "cost_per_mtoken"}]
    rows = [
        {} if row.answer is None else compared_metrics(row, row.answer, found.phase) for row in found.rows
    ]
    names = [found.label(i) for i in range(len(rows))]
    panels = []
    for place, name in enumerate(wanted):
        values = [float(row.get(name, np.nan)) for row in rows]
        if not np.isfinite(values).any():
            continue
        spans = [_span(name, told) for told in trusted]
        texts = [COLUMNS[name][1](v) if np.isfinite(v) else "no answer" for v in values]
        bars = bars_html(names, values, texts, series_colour(place), spans)
        panels.append(f"<div class='panel'>{section(TITLES[name].partition(' [')[0], bars, level=3)}</div>")
    said = paragraphs(["Lines over bars: where 80 % of like cases measured would lie."], "dim")
    return section("Side by side", f"<div class='two'>{''.join(panels)}</div>", said) if panels else ""


def _span(name: str, told: Any) -> tuple[float, float] | None:
    one = None if told is None or name not in INTERVALS_OF else told.every.get(name)
    if one is None or one.bounds is None:
        return None
    low, high = (float(end) for end in one.bounds)
    return low, high


def _records(found: Comparison) -> dict[str, Any]:
    """Chips, fabrics and engines of all rows, each once."""
    told: dict[str, Any] = {}
    for row in found.rows:
        told[row.system.chip.name] = row.system.chip
        told[row.system.fabric.name] = row.system.fabric
        told[row.engine.name] = row.engine
    return told


def _factors(found: Comparison) -> str:
    """Every reason's factor of each row; their product is the ratio."""
    rows = [
        [found.label(i), r.what, r.bound, r.said, f"{r.factor:.4f}"]
        for i, row in enumerate(found.rows)
        if row.difference is not None and i != found.against
        for r in row.difference.reasons
        if abs(r.share) >= 5e-5
    ]
    if not rows:
        return ""
    table = html_table(["row", "stage", "bound by", "", "factor"], rows, (0, 1, 2, 3))
    return folded_html("All factors; their product is the ratio", table)
