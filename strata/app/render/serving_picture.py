"""The frontier as a picture: tokens/s of a device over tokens/s of a user, as SVG or as a page that opens
offline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.drawing import COLOURS, STYLE, pyplot_of, save
from strata.serving.under_load import ServingFrontier, ServingPoint
from strata.units import show

XLABEL, YLABEL = "tokens/s a user sees", "tokens/s of a device"


SPREAD = 0.05  # labels of neighbours closer than this share of an axis are left out


def frontier_picture(frontier: ServingFrontier, question: str, path: Path) -> Path:
    """The picture in the format its name asks for."""
    if path.suffix.lower() != ".html":
        return draw_frontier(frontier, question, path)
    from strata.app.render.serving_report import frontier_page

    return frontier_page(frontier, question, path)


def frontier_figure(frontier: ServingFrontier) -> Any:
    """The frontier as a chart; plans that are not on it stand faintly behind."""
    from strata.app.render.page import plotly_graphs

    figure = plotly_graphs().Figure()
    leading = list(dict.fromkeys(p.plan for p in frontier.best))
    groups = {"other plans": [p for p in frontier.points if p.plan not in leading]}
    groups |= {name: [p for p in frontier.points if p.plan == name] for name in leading}
    for i, (name, points) in enumerate(groups.items()):
        if points:
            _add_dots(figure, name, points, COLOURS[(i - 1) % len(COLOURS)] if i else "var(--faint)")
    best = frontier.best
    figure.add_scatter(
        x=[p.per_user for p in best],
        y=[p.per_device for p in best],
        mode="lines",
        name="frontier",
        line={"color": "var(--ink)", "width": 1.5},
        hoverinfo="skip",
    )
    figure.update_xaxes(title=XLABEL, rangemode="tozero")
    figure.update_yaxes(title=YLABEL, rangemode="tozero")
    return figure


def _add_dots(figure: Any, name: str, points: list[ServingPoint], colour: str) -> None:
    """Points of one plan, or of several, with what they are when pointed at."""
    figure.add_scatter(
        x=[p.per_user for p in points],
        y=[p.per_device for p in points],
        mode="markers",
        name=name,
        text=[
            f"{p.plan}, {p.clients:.4g} at once, TTFT {show(p.ttft, 's')}, TPOT {show(p.tpot, 's')}"
            for p in points
        ],
        marker={"color": colour, "size": 4 if colour.startswith("var") else 6},
        hovertemplate="%{text}<br>%{x:.4g} tokens/s a user, %{y:.4g} tokens/s a device<extra></extra>",
    )


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
