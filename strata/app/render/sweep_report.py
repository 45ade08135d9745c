"""A sweep as a page: its best point, the picture, a heat map of two quantities, then the best in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.metrics import SHARES, metric_label, metric_text
from strata.app.render.page import cards_html, figure_html, html_page, paragraphs, plotly_graphs, section
from strata.app.render.page_bars import heat_html
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.sweep import sweep_remarks
from strata.drawing import keep
from strata.pricing.metrics import METRICS
from strata.search.swept import Sweep

# in the order of the values, each to be seen on a light ground and on a dark one
LINES = ("#7a63d4", "#4f78d6", "#2f8ac4", "#21979c", "#2f9c6c", "#7d962f", "#b58620", "#cf6a2c")
MOST_MAPS = 6  # heat maps of one sweep


def sweep_figure(swept: Sweep) -> Any:
    """Lines over the first axis of numbers, one for each value of the others; words stand side by side."""
    go = plotly_graphs()
    along = next((i for i, a in enumerate(swept.axes) if a.numeric), 0)
    first, rest = swept.axes[along], swept.axes[:along] + swept.axes[along + 1 :]
    values = np.moveaxis(np.where(swept.fits, swept.values, np.nan), along, 0)
    figure = go.Figure()
    lines = list(np.ndindex(*values.shape[1:]))
    for place, index in enumerate(lines):
        name = ", ".join(a.labels[i] for a, i in zip(rest, index, strict=True)) or metric_label(swept.metric)
        colour = LINES[round(place * (len(LINES) - 1) / max(len(lines) - 1, 1))]
        y = [None if np.isnan(v) else float(v) for v in values[(slice(None), *index)]]
        mode = "lines+markers" if first.numeric else "markers"
        figure.add_scatter(x=first.values.tolist(), y=y, mode=mode, name=name, line={"color": colour})
    if first.numeric:
        wide = first.values.min() > 0 and first.values.max() / first.values.min() > 20
        shown = {float(v): label for v, label in zip(first.values, first.labels, strict=True)}
        ticks = _apart(first.values, bool(wide))
        ticked = {"tickvals": ticks, "ticktext": [shown[v] for v in ticks]}
        figure.update_xaxes(title=first.name, type="log" if wide else "linear", **ticked)
    else:
        figure.update_xaxes(title=first.name, type="category")
    unit = METRICS[swept.metric].unit
    written = (
        {"tickformat": "~s", "ticksuffix": unit}
        if unit not in ("1", "USD")
        else {"tickformat": ".0%"}
        if swept.metric in SHARES
        else {}
    )
    figure.update_yaxes(
        title=metric_label(swept.metric) + (" [USD]" if unit == "USD" else ""), rangemode="tozero", **written
    )
    figure.update_layout(showlegend=bool(rest))
    return figure


def _apart(values: np.ndarray, logarithmic: bool) -> list[float]:
    """Values to be written under an axis: those far enough from the one before for their words.

    >>> _apart(np.array([1.0, 2.0, 500.0, 1000.0]), False)
    [1.0, 500.0, 1000.0]
    """
    at = np.log(values) if logarithmic else values
    order = np.argsort(at)
    room = (at[order[-1]] - at[order[0]]) / 12
    kept: list[int] = []
    for i in order:
        if not kept or at[i] - at[kept[-1]] >= room:
            kept.append(int(i))
    return [float(values[i]) for i in kept]


def sweep_heat(swept: Sweep) -> str:
    """The metric over the first two quantities, a heat map for each choice of the others."""
    numeric = [i for i, axis in enumerate(swept.axes) if axis.numeric and len(axis.values) > 1]
    if len(numeric) < 2:
        return ""
    down, across = numeric[:2]
    rest = [axis for i, axis in enumerate(swept.axes) if i not in (down, across)]
    values = np.moveaxis(np.where(swept.fits, swept.values, np.nan), (down, across), (0, 1))
    more, parts = METRICS[swept.metric].higher_is_better, []
    for index in list(np.ndindex(*values.shape[2:]))[:MOST_MAPS]:
        cells = values[(slice(None), slice(None), *index)]
        texts = [
            [metric_text(float(v), swept.metric) if np.isfinite(v) else "" for v in row] for row in cells
        ]
        wide, high = ((swept.axes[i].name, swept.axes[i].labels) for i in (across, down))
        told = heat_html(wide, high, cells, texts, more=more)
        parts.append(
            paragraphs([", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(rest, index, strict=True))])
        )
        parts.append(told)
    return section(
        f"{metric_label(swept.metric)} over {swept.axes[down].name} and {swept.axes[across].name}", *parts
    )


def sweep_report(swept: Sweep, path: Path) -> Path:
    """A sweep as a page: its best point, the picture, a heat map of two quantities, then the best in full."""
    said = paragraphs([swept.question, *(r.removeprefix("- : ") for r in sweep_remarks(swept))])
    best, rest = [], []
    if (found := swept.best_point()) is not None:
        chosen = ", ".join(f"{name} {label}" for name, label in found["at"].items())
        rows = [(f"best {metric_label(swept.metric)}", metric_text(found[swept.metric], swept.metric), "")]
        rows += [(name, label, "") for name, label in found["at"].items()]
        best = [cards_html(rows)]
        rest = [section(f"The best point: {chosen}", *prediction_parts(swept.best()))]
    along = next((a for a in swept.axes if a.numeric), swept.axes[0])
    others = ", ".join(a.name for a in swept.axes if a is not along)
    lines = paragraphs([f"A line for each {others}."] if others else [], "dim")
    drawn = section(
        f"{metric_label(swept.metric)} over {along.name}",
        lines,
        figure_html(sweep_figure(swept), 440, "sweep"),
    )
    title = f"Strata sweep: {metric_label(swept.metric)} over {' and '.join(a.name for a in swept.axes)}"
    return keep(path, html_page(title, [said, *best, drawn, sweep_heat(swept), *rest]))
