"""Predicted against measured as a page: the table, then a picture a file."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.page import figure_html, html_page, html_table, plotly_graphs
from strata.drawing import keep


def accuracy_report(outcome: dict[str, Any], points: list[dict[str, Any]], path: Path) -> Path:
    """The table, then predicted against measured, a picture a file."""
    parts: list[str] = []
    for entry in outcome["files"]:
        mine = [
            p
            for p in points
            if p["file"] == entry["file"] and p["measured"] > 0 and 0 < p["predicted"] < np.inf
        ]
        if mine:
            said = (
                f"{entry['points']} points, MAPE {entry['mape']:.1%}, median {entry['median']:.1%}, bias "
                f"{entry['bias']:+.1%}"
            )
            parts += [
                f"<h2>{html.escape(entry['file'])}</h2><p>{said}</p>",
                figure_html(_scatter(mine), not parts, 420),
            ]
    keys = ("mape", "median", "p90", "worst", "bias", "weighted")
    rows = [
        [
            e["file"],
            str(e["points"]),
            str(e["failed"] or ""),
            *("" if e.get(k) is None else f"{e[k]:.1%}" for k in keys),
        ]
        for e in outcome["files"]
    ]
    said = "".join(
        f"<p class=dim>{what}: {html.escape(', '.join(outcome[key]))}</p>"
        for key, what in (("not_yet", "not predicted yet"), ("unknown", "unknown files"))
        if outcome[key]
    )
    table = html_table(
        ["file", "points", "failed", "MAPE", "median", "P90", "worst", "bias", "weighted"], rows
    )
    return keep(
        path,
        html_page(
            "Strata: predicted against measured",
            ["<p>error = predicted / measured - 1</p>", table, said, *parts],
        ),
    )


def _scatter(points: list[dict[str, Any]]) -> Any:
    """Predicted over measured on logarithmic axes, a colour a group, at most 2000 points each."""
    figure = plotly_graphs().Figure()
    for group in dict.fromkeys(p["group"] for p in points):
        chosen = [p for p in points if p["group"] == group]
        chosen = chosen[:: -(-len(chosen) // 2000)]
        x, y = ([float(f"{p[k]:.4g}") for p in chosen] for k in ("measured", "predicted"))
        figure.add_scatter(x=x, y=y, mode="markers", name=str(group), marker={"size": 5, "opacity": 0.6})
    ends = [f(p["measured"] for p in points) for f in (min, max)]
    figure.add_scatter(x=ends, y=ends, mode="lines", line={"color": "#888", "dash": "dash"}, name="equal")
    figure.update_xaxes(type="log", title="measured", exponentformat="power")
    figure.update_yaxes(type="log", title="predicted", exponentformat="power")
    return figure
