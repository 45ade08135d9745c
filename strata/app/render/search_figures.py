"""Pictures of a search: the cloud of its points, what each choice costs, its designs as lines, and how the
answer came.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.metrics import metric_label
from strata.app.render.page import plotly_graphs
from strata.app.render.search_traits import Trait
from strata.app.render.sweep_report import LINES
from strata.search.derived_metrics import GOAL_METRICS, metric_column

if TYPE_CHECKING:
    from strata.search.goal import Goal
    from strata.search.outcome import Progress, SearchOutcome
    from strata.search.points import Evaluated
    from strata.search.space import Space


DOTS = 3000  # points of a cloud


THREADS = 1500  # lines of the parallel coordinates
LABELS = 24  # of one of their axes


GOOD, POOR, GREY = "#3b0f70", "#fcbf6b", "#b5b5b5"


def cloud_figure(outcome: SearchOutcome, seen: Evaluated, first: str, second: str) -> Any:
    """Points that are in, by two metrics, and those that no other beats in both."""
    from strata.pareto import non_dominated
    from strata.search.goal import Goal

    pair = Goal((first, second), outcome.goal.limits)
    scores = pair.scores(seen)
    inside = np.flatnonzero(np.isfinite(scores).all(axis=1))
    kept = non_dominated(scores)
    ends = np.flatnonzero(kept)
    ends = ends[np.argsort(scores[ends, 0])]
    x, y = metric_column(seen.columns, second), metric_column(seen.columns, first)
    dots = np.random.default_rng(0).permutation(inside)[:DOTS]
    figure = plotly_graphs().Figure()
    figure.add_scatter(
        x=_told(x[dots], second),
        y=_told(y[dots], first),
        mode="markers",
        name="points",
        marker={"size": 4, "color": GREY},
        hoverinfo="skip",
    )
    hover = [_design(outcome.space, seen.digits[i]) for i in ends]
    figure.add_scatter(
        x=_told(x[ends], second),
        y=_told(y[ends], first),
        mode="lines+markers",
        name="no other beats",
        text=hover,
        line={"color": GOOD},
        hovertemplate="%{text}<br>%{x}, %{y}<extra></extra>",
    )
    if outcome.found:
        best = outcome.frontier.columns
        figure.add_scatter(
            x=_told(metric_column(best, second)[:1], second),
            y=_told(metric_column(best, first)[:1], first),
            mode="markers",
            name=f"best {metric_label(first)}",
            marker={"size": 13, "color": "#c44e52", "symbol": "star"},
            hoverinfo="skip",
        )
    figure.update_xaxes(title=_titled(second), **_spread(x[inside]))
    figure.update_yaxes(title=_titled(first), **_spread(y[inside]))
    return figure


def choices_figure(ordered: list[Trait], worth: np.ndarray) -> Any:
    """For each trait, the best worth found with each of its choices."""
    from plotly.subplots import make_subplots

    across = min(4, len(ordered))
    down = -(-len(ordered) // across)
    figure = make_subplots(
        rows=down,
        cols=across,
        subplot_titles=[t.name for t in ordered],
        vertical_spacing=0.42 / max(down, 1),
        horizontal_spacing=0.05,
    )
    for place, trait in enumerate(ordered):
        best = np.zeros(len(trait.labels))
        np.maximum.at(best, trait.of, worth)
        row, col = place // across + 1, place % across + 1
        shown = [None if b == 0 else float(f"{b:.4g}") for b in best]
        figure.add_scatter(
            x=list(range(len(best))),
            y=shown,
            mode="lines+markers",
            line={"color": GOOD},
            marker={"size": 5},
            showlegend=False,
            row=row,
            col=col,
            text=list(trait.labels),
            hovertemplate="%{text}: %{y:.3f}<extra></extra>",
        )
        step = -(-len(best) // 6)
        figure.update_xaxes(
            tickvals=list(range(0, len(best), step)),
            ticktext=list(trait.labels[::step]),
            tickfont={"size": 10},
            row=row,
            col=col,
        )
        figure.update_yaxes(range=[0, 1.08], tickvals=[0, 0.5, 1], tickfont={"size": 10}, row=row, col=col)
    figure.update_annotations(font={"size": 12})
    return figure


def threads_figure(goal: Goal, ordered: list[Trait], seen: Evaluated, worth: np.ndarray) -> Any:
    """Parallel coordinates of the best designs: a line a point over what tells them apart and the metrics of
    the goal.
    """
    go = plotly_graphs()
    which = np.argsort(-worth, kind="stable")[: min(THREADS, int(np.sum(worth > 0)))]
    which = which[::-1]  # the best are drawn last, above the others
    lines = []
    for trait in ordered:
        if len(np.unique(trait.of[which])) == 1:
            continue
        step = -(-len(trait.labels) // LABELS)
        ticks = list(range(0, len(trait.labels), step))
        lines.append(
            {
                "label": trait.name,
                "values": trait.of[which].tolist(),
                "range": [0, len(trait.labels) - 1],
                "tickvals": ticks,
                "ticktext": [trait.labels[k] for k in ticks],
            }
        )
    lines += [
        {"label": metric_label(m), "values": _told(metric_column(seen.columns, m)[which], m)}
        for m in goal.metrics
    ]
    low, inner = float(worth[which].min()), {"x": [0.0, 0.96], "y": [0.06, 0.97]}  # room for slanting labels
    colour = {
        "color": worth[which].tolist(),
        "cmin": low,
        "cmax": 1.0,
        "colorscale": [[0, POOR], [0.7, LINES[4]], [1, GOOD]],
        "showscale": False,
    }
    figure = go.Figure(
        go.Parcoords(
            dimensions=lines,
            line=colour,
            domain=inner,
            labelangle=-20,
            labelside="bottom",
            tickfont={"size": 10},
        )
    )
    return figure


def came_figure(goal: Goal, history: list[Progress]) -> Any:
    """The best found and the proven bound over time."""
    figure = plotly_graphs().Figure()
    step = -(-len(history) // 1000)
    kept = [*history[:-1:step], history[-1]]
    seconds = [h.seconds for h in kept]
    metric = goal.metrics[0]
    for name, values, colour in (
        ("best found", [h.best for h in kept], GOOD),
        ("proven bound", [h.bound for h in kept], "#c44e52"),
    ):
        if np.isfinite(values).any():
            told = [
                None if not np.isfinite(v) else t
                for v, t in zip(values, _told(np.array(values), metric), strict=True)
            ]
            figure.add_scatter(
                x=seconds,
                y=told,
                mode="lines+markers",
                name=name,
                line={"color": colour, "shape": "hv"},
                marker={"size": 4},
            )
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(title=_titled(metric))
    return figure


def _told(values: np.ndarray, metric: str) -> list[float]:
    """Numbers of a picture's axis, to four digits, in the unit `_titled` names: °C for kelvin, mm2 for m2."""
    unit = GOAL_METRICS[metric].unit
    scaled = values - 273.15 if unit == "K" else values * 1e6 if unit == "m2" else values
    return [float(f"{v:.4g}") for v in scaled]


def _titled(metric: str) -> str:
    unit = {"1": "", "K": "°C", "m2": "mm2"}.get(GOAL_METRICS[metric].unit, GOAL_METRICS[metric].unit)
    return metric_label(metric) + (f" [{unit}]" if unit else "")


def _spread(values: np.ndarray) -> dict[str, Any]:
    """A logarithmic axis where values span more than a factor of 20."""
    positive = values[values > 0]
    wide = len(positive) == len(values) and len(values) and values.max() > 20 * values.min()
    return {"type": "log", "exponentformat": "SI"} if wide else {"exponentformat": "SI"}


def _design(space: Space, digits: np.ndarray) -> str:
    return "<br>".join(
        f"{a.name} {html.escape(a.labels[int(d)])}"
        for a, d in zip(space.axes, digits, strict=True)
        if len(a) > 1
    )
