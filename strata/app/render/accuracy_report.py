"""Predicted against measured as a page: the table, then a picture a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.page import (
    cards_html,
    figure_html,
    html_page,
    html_table,
    log_axis,
    paragraphs,
    plotly_graphs,
    section,
)
from strata.app.render.page_bars import bars_html, bars_section, series_colour
from strata.drawing import keep
from strata.validation.accuracy.headline import HEADLINE, headline_cells


def accuracy_report(outcome: dict[str, Any], points: list[dict[str, Any]], path: Path) -> Path:
    """The numbers, the table, then predicted against measured, a picture a file."""
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
            drawn = figure_html(_scatter(mine), 420, entry["file"].replace("/", "-").removesuffix(".csv"))
            parts.append(section(entry["file"], paragraphs([said], "dim"), drawn))
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
        paragraphs([f"{what}: {', '.join(outcome[key])}"], "dim")
        for key, what in (("not_yet", "not predicted yet"), ("unknown", "unknown files"))
        if outcome[key]
    )
    header = ["file", "points", "failed", "MAPE", "median", "P90", "worst", "bias", "weighted"]
    table = section("File by file", html_table(header, rows), said)
    lead = "error = predicted / measured - 1"
    page = [cards_html(_cards(outcome)), _by_file(outcome), table, *parts]
    if outcome.get("families"):
        left_out = html_table(list(HEADLINE), headline_cells(outcome))
        page.insert(0, section("Families left out, numbers refitted without each", left_out))
    return keep(path, html_page("Strata: predicted against measured", page, lead))


def _cards(outcome: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What all files say together: each counts as much as any other."""
    files = [e for e in outcome["files"] if e.get("mape") is not None]
    if not files:
        return []
    told = {key: [float(e[key]) for e in files] for key in ("mape", "median", "bias")}
    worst = max(files, key=lambda e: float(e["mape"]))
    return [
        ("typical error of a file", f"{np.median(told['median']):.1%}", "median of the files' medians"),
        ("typical MAPE of a file", f"{np.median(told['mape']):.1%}", "median of the files' means"),
        ("bias", f"{np.median(told['bias']):+.1%}", "median; above 0: more predicted than measured"),
        ("points", f"{sum(e['points'] for e in files):,}", f"in {len(files)} files"),
        ("farthest off", f"{worst['mape']:.1%}", worst["file"]),
    ]


def _by_file(outcome: dict[str, Any]) -> str:
    files = sorted((e for e in outcome["files"] if e.get("mape") is not None), key=lambda e: float(e["mape"]))
    bars = bars_html(
        [e["file"] for e in files], [float(e["mape"]) for e in files], [f"{e['mape']:.1%}" for e in files]
    )
    return bars_section("MAPE of each file", "Mean of the absolute errors.", bars)


def _scatter(points: list[dict[str, Any]]) -> Any:
    """Predicted over measured on logarithmic axes, a colour a group, at most 2000 points each."""
    figure = plotly_graphs().Figure()
    for place, group in enumerate(dict.fromkeys(p["group"] for p in points)):
        chosen = [p for p in points if p["group"] == group]
        chosen = chosen[:: -(-len(chosen) // 2000)]
        x, y = ([float(f"{p[k]:.4g}") for p in chosen] for k in ("measured", "predicted"))
        look = {"size": 6, "opacity": 0.75, "color": series_colour(place)}
        figure.add_scatter(x=x, y=y, mode="markers", name=str(group), marker=look)
    ends = [f(p["measured"] for p in points) for f in (min, max)]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={"color": "var(--faint)", "dash": "dash"}, name="equal"
    )
    for update, key in ((figure.update_xaxes, "measured"), (figure.update_yaxes, "predicted")):
        update(title=key, **log_axis(*(float(f(p[key] for p in points)) for f in (min, max))))
    return figure
