"""A model under load as a page: what clients see, latency against load, the frontier, plans, sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.page import (
    cards_html,
    figure_html,
    html_page,
    html_table,
    paragraphs,
    plotly_graphs,
    section,
)
from strata.app.render.page_told import printed_html, sources_html
from strata.app.render.served import SEEN_COLUMNS
from strata.app.render.serving import under_load_tables
from strata.app.render.serving_picture import XLABEL, YLABEL, frontier_figure
from strata.drawing import keep
from strata.mapping.plan import plan_text
from strata.serving.load import most_rate, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.under_load import ServingFrontier, UnderLoad
from strata.units import show

LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96)  # of the most it takes


def serving_report(found: UnderLoad, path: Path) -> Path:
    """A model under load as a page that opens offline."""
    made = found.curve
    records = {"chip": made.system.chip, "fabric": made.system.fabric, "engine": made.engine}
    parts = [
        cards_html(_headline(found)),
        _latency(found),
        _frontier(found.frontier) if found.frontier is not None else "",
        *(printed_html(part) for part in under_load_tables(found) if part != ""),
        sources_html(records),
    ]
    title = f"Strata serving: {made.model.name} on {made.system.name}"
    return keep(path, html_page(title, parts, found.question))


def _headline(found: UnderLoad) -> list[tuple[str, str, str]]:
    """What clients see under the load asked for, else with the most that keep the limits."""
    rows: list[tuple[str, str, str]] = []
    if found.load is not None:
        load: LoadMetrics = found.load
        asked = (
            f"{found.clients:g} clients"
            if found.clients is not None
            else f"{float(load.rate):.4g} requests/s"
        )
        rows.append(("load", asked, f"plan {plan_text(found.curve.plan_at(found.chosen))}"))
    elif found.served.choices:
        first = found.served.choices[0]
        load, limited = first.load, f"limited by {first.limited_by}" if first.limited_by else ""
        rows.append(("best plan", plan_text(first.plan), f"of {found.served.considered:,}"))
        rows.append(("clients at once", f"{first.clients:g}", limited))
    else:
        return [("best plan", "devices apart", "for reading prompts and for generating")]
    rows += [
        ("requests/s", f"{float(load.rate):.4g}", ""),
        ("tokens/s", show(float(load.tokens_per_s)), ""),
        ("tokens/s/device", show(float(load.tokens_per_s) / found.curve.devices), ""),
    ]
    labels = {
        "TTFT": "time to first token",
        "95 %": "95 % of first tokens within",
        "TPOT": "time per output token",
    }
    rows += [(labels.get(name, name), text(load), "") for name, text in SEEN_COLUMNS.items()]
    return rows


def _latency(found: UnderLoad) -> str:
    """Latency of the chosen plan against the rate at which requests arrive at random."""
    one = found.curve.at(found.chosen)
    most = float(most_rate(one)[0])
    if not np.isfinite(most) or most <= 0:
        return ""
    rates = most * np.array(LOADS)
    every = open_load(one.only([0] * len(rates)), rates)
    loads = [every.at(i) for i in range(len(rates))]
    first = {
        "mean": [float(load.ttft) for load in loads],
        "95 % within": [float(load.ttft_p95) for load in loads],
    }
    later = {"mean": [float(load.tpot) for load in loads]}
    charts = [
        _over_rate(rates, "time to first token", first, found.limits.ttft),
        _over_rate(rates, "time per output token", later, found.limits.tpot),
    ]
    drawn = "".join(figure_html(chart, 340, f"load-{i}") for i, chart in enumerate(charts))
    said = (
        f"Plan {plan_text(one.plan_at(0))}, requests arriving at random, up to the {most:.3g} a second that "
    )
    said += "it takes."
    return section("Latency against load", paragraphs([said], "dim"), f"<div class='two'>{drawn}</div>")


def _over_rate(rates: np.ndarray, title: str, lines: dict[str, list[float]], limit: float) -> Any:
    """Lines over requests a second, and the limit where there is one."""
    figure = plotly_graphs().Figure()
    for place, (name, values) in enumerate(lines.items()):
        y = [v if np.isfinite(v) else None for v in values]
        colour = ("var(--accent)", "var(--c-memory)")[place % 2]
        figure.add_scatter(x=rates.tolist(), y=y, mode="lines+markers", name=name, line={"color": colour})
    if np.isfinite(limit):
        ends = [float(rates[0]), float(rates[-1])]
        dashed = {"color": "var(--bad)", "dash": "dash"}
        figure.add_scatter(x=ends, y=[limit, limit], mode="lines", name="limit", line=dashed)
    figure.update_xaxes(title="requests/s", rangemode="tozero")
    figure.update_yaxes(title=title, rangemode="tozero", tickformat="~s", ticksuffix="s")
    figure.update_layout(showlegend=True)
    return figure


def _frontier(frontier: ServingFrontier) -> str:
    said = (
        "Each point is a plan with so many requests at once; on the line no other is better for users and "
        "for devices."
    )
    drawn = figure_html(frontier_figure(frontier), 480, "frontier")
    heading = "Throughput against interactivity"
    return section(heading, paragraphs([said], "dim"), drawn, frontier_table(frontier))


def frontier_table(frontier: ServingFrontier) -> str:
    """The points that no other beats."""
    rows = [
        [
            p.plan,
            f"{p.clients:.4g}",
            f"{p.per_user:.4g}",
            f"{p.per_device:.4g}",
            show(p.ttft, "s"),
            show(p.tpot, "s"),
        ]
        for p in frontier.best
    ]
    header = ["plan", "requests at once", XLABEL, YLABEL, "TTFT", "TPOT"]
    return (
        f"<details><summary>The frontier's {len(rows)} points</summary>{html_table(header, rows)}</details>"
    )


def frontier_page(frontier: ServingFrontier, question: str, path: Path) -> Path:
    """The frontier alone as a page that opens offline."""
    return keep(path, html_page("Strata: throughput against interactivity", [_frontier(frontier)], question))
