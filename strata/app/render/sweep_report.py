"""A sweep as a page: the picture, then its best point in full."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.metrics import SHARES, metric_label
from strata.app.render.page import figure_html, html_page, plotly_graphs
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.sweep import sweep_remarks
from strata.drawing import keep
from strata.pricing.metrics import METRICS
from strata.search.swept import Sweep

# dark to light, in the order of the values
LINES = ("#3b0f70", "#641a80", "#8c2981", "#b73779", "#de4968", "#f7705c", "#fe9f6d", "#fcbf6b")


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
        ticked = {"type": "log" if wide else "linear", "tickvals": first.values.tolist()}
        figure.update_xaxes(title=first.name, ticktext=first.labels, **ticked)
    else:
        figure.update_xaxes(title=first.name, type="category")
    unit = METRICS[swept.metric].unit
    ticks = (
        {"tickformat": "~s", "ticksuffix": unit}
        if unit not in ("1", "USD")
        else {"tickformat": ".0%"}
        if swept.metric in SHARES
        else {}
    )
    figure.update_yaxes(
        title=metric_label(swept.metric) + (" [USD]" if unit == "USD" else ""), rangemode="tozero", **ticks
    )
    figure.update_layout(legend={"title": {"text": ", ".join(a.name for a in rest)}}, showlegend=bool(rest))
    return figure


def sweep_report(swept: Sweep, path: Path) -> Path:
    """A sweep as a page: the picture, then its best point in full."""
    said = [
        f"<p>{html.escape(line)}</p>"
        for line in (swept.question, *(r.removeprefix("- : ") for r in sweep_remarks(swept)))
    ]
    parts = [*said, figure_html(sweep_figure(swept), True, 460)]
    if (found := swept.best_point()) is not None:
        chosen = ", ".join(f"{name} {label}" for name, label in found["at"].items())
        parts += [f"<h2>The best point: {html.escape(chosen)}</h2>", *prediction_parts(swept.best(), False)]
    return keep(
        path,
        html_page(
            f"Strata sweep: {metric_label(swept.metric)} over {' and '.join(a.name for a in swept.axes)}",
            parts,
        ),
    )
