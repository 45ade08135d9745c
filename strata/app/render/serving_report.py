"""A model under load as a page and a picture: latencies of clients, latency against load, the frontier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render import page
from strata.app.render.figures import colour_of, note, picture
from strata.app.render.prediction_report import printed_html, sources_html
from strata.app.render.ranking import SEEN_COLUMNS
from strata.app.render.serving import under_load_tables
from strata.app.render.tables import cells_of
from strata.base.units import show
from strata.mapping.plan import plan_text
from strata.serving.load import most_rate, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.under_load import ServingFrontier, ServingPoint, UnderLoad

LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96)  # of the most it takes
XLABEL, YLABEL = "tokens/s a user sees", "tokens/s of a device"
SPREAD = 0.05  # labels of neighbours closer than this share of an axis are left out


def serving_report(found: UnderLoad, path: Path) -> Path:
    """A model under load as a page that opens offline."""
    made = found.curve
    records = {"chip": made.system.chip, "fabric": made.system.fabric, "engine": made.engine}
    parts = [
        page.cards_html(_headline(found)),
        _latency(found),
        _frontier(found.frontier) if found.frontier is not None else "",
        *(printed_html(part) for part in under_load_tables(found) if part != ""),
        sources_html(records),
    ]
    title = f"Strata serving: {made.model.name} on {made.system.name}"
    return page.write_page(path, title, parts, found.question)


def _headline(found: UnderLoad) -> list[tuple[str, str, str]]:
    """What clients see under the load asked for, else with the most that keep the limits."""
    if found.load is not None:
        load: LoadMetrics = found.load
        given = found.clients is not None
        asked = f"{found.clients:g} clients" if given else f"{float(load.rate):.4g} requests/s"
        rows = [("load", asked, f"plan {plan_text(found.curve.plan_at(found.chosen))}")]
    elif found.served.choices:
        first = found.served.choices[0]
        load, limited = first.load, f"limited by {first.limited_by}" if first.limited_by else ""
        rows = [("best plan", plan_text(first.plan), f"of {found.served.considered:,}")]
        rows.append(("clients at once", f"{first.clients:g}", limited))
    else:
        return [("best plan", "devices apart", "for reading prompts and for generating")]
    rows += [
        ("requests/s", f"{float(load.rate):.4g}", ""),
        ("tokens/s", show(float(load.tokens_per_s)), ""),
        ("tokens/s/device", show(float(load.tokens_per_s) / found.curve.devices), ""),
    ]
    labels = {"TTFT": "time to first token", "TPOT": "time per output token"}
    labels["95 %"] = "95 % of first tokens within"
    return rows + [(labels.get(name, name), text(load), "") for name, text in SEEN_COLUMNS.items()]


def _latency(found: UnderLoad) -> str:
    """Latency of the chosen plan against the rate at which requests arrive at random."""
    one = found.curve.at(found.chosen)
    most = float(most_rate(one)[0])
    if not np.isfinite(most) or most <= 0:
        return ""
    rates = most * np.array(LOADS)
    every = open_load(one.only([0] * len(rates)), rates)
    loads = [every.at(i) for i in range(len(rates))]
    ttft, within, tpot = ([float(getattr(load, n)) for load in loads] for n in ("ttft", "ttft_p95", "tpot"))
    charts = [
        _over_rate(rates, "time to first token", {"mean": ttft, "95 % within": within}, found.limits.ttft),
        _over_rate(rates, "time per output token", {"mean": tpot}, found.limits.tpot),
    ]
    drawn = "".join(page.figure_html(chart, 340, f"load-{i}") for i, chart in enumerate(charts))
    said = f"Plan {plan_text(one.plan_at(0))}, requests arriving at random, up to the {most:.3g} a second "
    said += "that it takes."
    return page.section(
        "Latency against load", page.paragraphs([said], "dim"), f"<div class='two'>{drawn}</div>"
    )


def _over_rate(rates: np.ndarray, title: str, lines: dict[str, list[float]], limit: float) -> Any:
    """Lines over requests a second, and the limit where there is one."""
    figure = page.plotly_graphs().Figure()
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
    said = "Each point is a plan with so many requests at once; on the line no other is better for users and "
    said += "for devices."
    drawn = page.figure_html(frontier_figure(frontier), 480, "frontier")
    heading = "Throughput against interactivity"
    return page.section(heading, page.paragraphs([said], "dim"), drawn, frontier_table(frontier))


def frontier_table(frontier: ServingFrontier) -> str:
    """The points that no other beats."""
    fields = "plan clients:.4g per_user:.4g per_device:.4g ttft:s tpot:s"
    rows = [cells_of(p, fields) for p in frontier.best]
    header = ["plan", "requests at once", XLABEL, YLABEL, "TTFT", "TPOT"]
    table = page.html_table(header, rows)
    return f"<details><summary>The frontier's {len(rows)} points</summary>{table}</details>"


def frontier_picture(frontier: ServingFrontier, question: str, path: Path) -> Path:
    """The picture in the format its name asks for."""
    if path.suffix.lower() != ".html":
        return draw_frontier(frontier, question, path)
    parts = [_frontier(frontier)]
    return page.write_page(path, "Strata: throughput against interactivity", parts, question)


def frontier_figure(frontier: ServingFrontier) -> Any:
    """The frontier as a chart; plans that are not on it stand faintly behind."""
    figure = page.plotly_graphs().Figure()
    leading = list(dict.fromkeys(p.plan for p in frontier.best))
    groups = {"other plans": [p for p in frontier.points if p.plan not in leading]}
    groups |= {name: [p for p in frontier.points if p.plan == name] for name in leading}
    for i, (name, points) in enumerate(groups.items()):
        if points:
            _add_dots(figure, name, points, colour_of(i - 1) if i else "var(--faint)")
    x, y = _places(frontier.best)
    look = {"mode": "lines", "line": {"color": "var(--ink)", "width": 1.5}, "hoverinfo": "skip"}
    figure.add_scatter(x=x, y=y, name="frontier", **look)
    figure.update_xaxes(title=XLABEL, rangemode="tozero")
    figure.update_yaxes(title=YLABEL, rangemode="tozero")
    return figure


def _add_dots(figure: Any, name: str, points: list[ServingPoint], colour: str) -> None:
    """Points of one plan, or of several, with what they are when pointed at."""
    x, y = _places(points)
    told = (cells_of(p, "plan clients:.4g ttft:s tpot:s") for p in points)
    texts = [f"{plan}, {count} at once, TTFT {ttft}, TPOT {tpot}" for plan, count, ttft, tpot in told]
    hover = "%{text}<br>%{x:.4g} tokens/s a user, %{y:.4g} tokens/s a device<extra></extra>"
    dot = {"color": colour, "size": 4 if colour.startswith("var") else 6}
    figure.add_scatter(x=x, y=y, mode="markers", name=name, text=texts, marker=dot, hovertemplate=hover)


def draw_frontier(frontier: ServingFrontier, question: str, path: Path) -> Path:
    """The frontier and the points behind it; requests at once stand at its points."""
    best, leading = frontier.best, list(dict.fromkeys(p.plan for p in frontier.best))
    others = [p for p in frontier.points if p.plan not in leading]
    with picture(path, (7.4, 4.4)) as (_, axes):
        label = "other plans" if others else None
        axes.plot(*_places(others), ".", color="#d5d5d5", label=label, markersize=4)
        for i, name in enumerate(leading):
            own = sorted((p for p in frontier.points if p.plan == name), key=lambda p: p.per_user)
            axes.plot(*_places(own), "o", color=colour_of(i), label=name, markersize=3.5)
        if any(p.apart for p in frontier.points):
            look = {"color": "#888", "label": "frontier without pools", "linewidth": 1.0}
            axes.plot(*_places(frontier.aggregated), "--", **look)
        look = {"color": "#222", "label": "frontier, with requests at once", "linewidth": 1.2}
        axes.plot(*_places(best), "-", **look)
        axes.set(xlim=(0.0, None), ylim=(0.0, None), xlabel=XLABEL, ylabel=YLABEL)
        _numbers(axes, best)
        axes.set_title(question, fontsize=8.5)
        axes.legend(frameon=False, fontsize=8)
    return path


def _places(points: list[ServingPoint]) -> tuple[list[float], list[float]]:
    return [p.per_user for p in points], [p.per_device for p in points]


def _numbers(axes: Any, best: list[ServingPoint]) -> None:
    """Requests at once beside points of the frontier that have room for it."""
    wide, high = axes.get_xlim()[1], axes.get_ylim()[1]
    last = (-1.0, -1.0)
    for p in best:
        at = (p.per_user / wide, p.per_device / high)
        if max(abs(at[0] - last[0]), abs(at[1] - last[1])) > SPREAD:
            note(axes, f"{p.clients:.0f}", (p.per_user, p.per_device), (4, 4), fontsize=7, color="#444")
            last = at
