"""The frontier as a picture: tokens/s of a device over tokens/s of a user, as SVG or as a page that opens
offline.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from strata.drawing import COLOURS, STYLE, keep, pyplot_of, save
from strata.serving.frontier import ServingFrontier, ServingPoint
from strata.units import show

XLABEL, YLABEL = "tokens/s a user sees", "tokens/s of a device"


SPREAD = 0.05  # labels of neighbours closer than this share of an axis are left out


def frontier_picture(frontier: ServingFrontier, question: str, path: Path) -> Path:
    """The picture in the format its name asks for."""
    if path.suffix == ".svg":
        return draw_frontier(frontier, question, path)
    from strata.app.render.page import figure_html, html_page, html_table

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
    table = html_table(["plan", "requests at once", XLABEL, YLABEL, "TTFT", "TPOT"], rows)
    said = (
        f"<p>{html.escape(question)}</p><p class=dim>Each point is a plan with so many requests at once; "
        "on the line no other is better for users and for devices.</p>"
    )
    parts = [said, figure_html(_figure(frontier), True, 520), "<h2>The frontier</h2>", table]
    return keep(path, html_page("Strata: throughput against interactivity", parts))


def _groups(frontier: ServingFrontier) -> dict[str, list[ServingPoint]]:
    """Points by plan, the plans of the frontier first and in its order."""
    names = dict.fromkeys([p.plan for p in frontier.best] + [p.plan for p in frontier.points])
    return {
        name: sorted((p for p in frontier.points if p.plan == name), key=lambda p: p.per_user)
        for name in names
    }


def _figure(frontier: ServingFrontier) -> Any:
    from strata.app.render.page import plotly_graphs

    figure = plotly_graphs().Figure()
    leading = {p.plan for p in frontier.best}
    for i, (name, points) in enumerate(_groups(frontier).items()):
        colour = COLOURS[i % len(COLOURS)] if name in leading else "#cccccc"
        told = [
            f"{p.clients:.4g} at once, TTFT {show(p.ttft, 's')}, TPOT {show(p.tpot, 's')}" for p in points
        ]
        figure.add_scatter(
            x=[p.per_user for p in points],
            y=[p.per_device for p in points],
            mode="markers",
            name=name,
            text=told,
            marker={"color": colour, "size": 6},
            hovertemplate="%{x:.4g} tokens/s a user, %{y:.4g} tokens/s a device<br>%{text}",
            visible=True if name in leading else "legendonly",
        )
    best = frontier.best
    figure.add_scatter(
        x=[p.per_user for p in best],
        y=[p.per_device for p in best],
        mode="lines",
        name="frontier",
        line={"color": "#222", "width": 1.5},
        hoverinfo="skip",
    )
    figure.update_xaxes(title=XLABEL, rangemode="tozero")
    figure.update_yaxes(title=YLABEL, rangemode="tozero")
    return figure


def draw_frontier(frontier: ServingFrontier, question: str, path: Path) -> Path:
    """The frontier and the points behind it; requests at once stand at its points."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7.4, 4.4), layout="constrained")
        leading = list(dict.fromkeys(p.plan for p in frontier.best))
        others = [p for p in frontier.points if p.plan not in leading]
        axes.plot(
            [p.per_user for p in others],
            [p.per_device for p in others],
            ".",
            color="#d5d5d5",
            markersize=4,
            label="other plans" if others else None,
        )
        for i, name in enumerate(leading):
            points = sorted((p for p in frontier.points if p.plan == name), key=lambda p: p.per_user)
            axes.plot(
                [p.per_user for p in points],
                [p.per_device for p in points],
                "o",
                color=COLOURS[i % len(COLOURS)],
                markersize=3.5,
                label=name,
            )
        best = frontier.best
        if any(p.apart for p in frontier.points):
            one = frontier.aggregated
            axes.plot(
                [p.per_user for p in one],
                [p.per_device for p in one],
                "--",
                color="#888",
                linewidth=1.0,
                label="frontier without pools",
            )
        axes.plot(
            [p.per_user for p in best],
            [p.per_device for p in best],
            "-",
            color="#222",
            linewidth=1.2,
            label="frontier, with requests at once",
        )
        axes.set_xlim(left=0.0)
        axes.set_ylim(bottom=0.0)
        _numbers(axes, best)
        axes.set_title(question, fontsize=8.5)
        axes.set_xlabel(XLABEL)
        axes.set_ylabel(YLABEL)
        axes.legend(frameon=False, fontsize=8)
        return save(pyplot, figure, path)


def _numbers(axes: Any, best: list[ServingPoint]) -> None:
    """Requests at once beside points of the frontier that have room for it."""
    wide, high = axes.get_xlim()[1], axes.get_ylim()[1]
    last = (-1.0, -1.0)
    for p in best:
        at = (p.per_user / wide, p.per_device / high)
        if max(abs(at[0] - last[0]), abs(at[1] - last[1])) > SPREAD:
            axes.annotate(
                f"{p.clients:.0f}",
                (p.per_user, p.per_device),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=7,
                color="#444",
            )
            last = at
