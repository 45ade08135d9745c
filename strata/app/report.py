"""HTML reports: one file that opens offline, pictures first, numbers below them."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.present import METRIC_NAMES, as_dict, busy, listed, ops_of, step_text, title
from strata.app.sweep import remarks
from strata.drawing import keep
from strata.errors import StrataError
from strata.pricing.metrics import METRIC_UNITS
from strata.result import Result
from strata.search.sensitivity import sensitivity
from strata.search.sweep import Sweep
from strata.units import show

COLOURS = {
    "compute": "#4c72b0",
    "cache": "#64b5cd",
    "memory": "#dd8452",
    "network": "#55a868",
    "overhead": "#8c8c8c",
    "waiting": "#c44e52",
}
# dark to light, in the order of the values
LINES = ("#3b0f70", "#641a80", "#8c2981", "#b73779", "#de4968", "#f7705c", "#fe9f6d", "#fcbf6b")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; } p { margin: .3rem 0; }
table { border-collapse: collapse; } td, th { padding: .2rem 1.2rem .2rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 1px solid #ccc; font-weight: 600; } tr + tr td { border-top: 1px solid #eee; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.assumed td { color: #8a5a00; } .dim { color: #777; } summary { cursor: pointer; }
"""


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise StrataError("reports need plotly: pip install 'strata[plots]'") from None
    return go


def page(heading: str, parts: list[str]) -> str:
    """A whole page; the first picture carries the plotting library, so that the file opens offline."""
    head = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    head += f"<meta charset='utf-8'><title>{html.escape(heading)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{html.escape(heading)}</h1>{''.join(parts)}</body></html>"


def picture(figure: Any, first: bool, height: int = 380) -> str:
    figure.update_layout(
        height=height, margin={"l": 60, "r": 20, "t": 20, "b": 50}, template="plotly_white", font={"size": 13}
    )
    figure.update_yaxes(automargin=True)
    return str(
        figure.to_html(
            full_html=False, include_plotlyjs=first, config={"displaylogo": False, "displayModeBar": False}
        )
    )


def rows_table(header: list[str], rows: list[list[str]], words: tuple[int, ...] = (0,)) -> str:
    """A table; columns that hold words stand left, numbers right."""

    def cells(tag: str, row: list[str]) -> str:
        return "".join(
            f"<{tag}{'' if i in words else ' class=n'}>{html.escape(c)}</{tag}>" for i, c in enumerate(row)
        )

    head = f"<tr>{cells('th', header)}</tr>" if any(header) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def bars(
    labels: list[str], values: list[float], texts: list[str], colours: list[str] | str, axis: str
) -> Any:
    """Bars that lie, longest on top, each with its value at its end."""
    go = _plotly()
    figure = go.Figure(
        go.Bar(
            x=values,
            y=labels,
            text=texts,
            textposition="outside",
            cliponaxis=False,
            orientation="h",
            marker_color=colours,
            hoverinfo="skip",
        )
    )
    figure.update_yaxes(autorange="reversed", ticksuffix=" ")
    figure.update_xaxes(title=axis, range=[min(0.0, *values) * 1.15, max(*values, 1e-12) * 1.15])
    return figure


def prediction_parts(result: Result, first: bool, lines: list[str] | None = None) -> list[str]:
    """Headline, where time goes, what more would buy, and the inputs with their sources."""
    ops = ops_of(result)[:16]
    scale, unit = (1e3, "ms") if ops[0]["time"] >= 1e-3 else (1e6, "µs")
    shares = bars(
        [f"{o['block']}.{o['op']}" for o in ops],
        [o["time"] * scale for o in ops],
        [f"{o['time'] / result.timeline.time:.1%}" for o in ops],
        [COLOURS.get(o["bound_by"], "#8c8c8c") for o in ops],
        f"{unit} in all layers of one step",
    )
    gains = sensitivity(result)
    buys = bars(
        [g.resource for g in gains],
        [g.speedup * 100 for g in gains],
        [f"{g.speedup:+.1%}" for g in gains],
        "#4c72b0",
        "% faster with 10 % more",
    )
    bound = dict.fromkeys(o["bound_by"] for o in ops)
    legend = " &nbsp; ".join(
        f"<span style='color:{COLOURS.get(n, '#8c8c8c')}'>■</span> bound by {n}" for n in bound
    )
    said = "".join(
        f"<p class=dim>{html.escape(line)}</p>" for line in (result.notes if lines is None else lines)
    )
    return [
        f"<h2>{html.escape(title(result))}</h2>",
        rows_table(["", "", ""], [list(row) for row in listed(result)], (0, 2)),
        said,
        f"<h2>{html.escape(step_text(result))}</h2><p>{legend}</p>",
        picture(shares, first, 90 + 26 * len(ops)),
        "".join(f"<p>{html.escape(line)}</p>" for line in busy(result).splitlines()),
        "<h2>What 10 % more would buy, one at a time</h2>",
        picture(buys, False, 90 + 28 * len(gains)),
        _inputs(as_dict(result)),
    ]


def _inputs(data: dict[str, Any]) -> str:
    """Every number the answer rests on, with its source; assumed ones stand out."""
    rows = []
    for owner in ("chip", "fabric", "engine"):
        entry = data["inputs"][owner]
        for path, number in entry["numbers"].items():
            shown = show(float(number["value"]), number["unit"])
            mark = " class=assumed" if number["source"].startswith("assumed") else ""
            rows.append(
                f"<tr{mark}><td>{owner}.{html.escape(path)}</td><td class=n>{shown}</td><td>{html.escape(number['source'])}</td></tr>"
            )
    hashes = ", ".join(f"{k} {v['name']} {v['hash']}" for k, v in data["inputs"].items() if "hash" in v)
    return f"<h2>Inputs</h2><p class=dim>hashes: {hashes}</p><details><summary>{len(rows)} numbers with their sources</summary><table>{''.join(rows)}</table></details>"


def prediction_report(result: Result, path: Path, lines: list[str] | None = None) -> Path:
    """One prediction as a page; `lines` are said beside its numbers."""
    return keep(path, page("Strata prediction", prediction_parts(result, True, lines)))


def sweep_figure(swept: Sweep) -> Any:
    """Lines over the first axis, one for each value of the second; a third axis becomes further lines."""
    go = _plotly()
    first, rest = swept.axes[0], swept.axes[1:]
    values = np.where(swept.fits, swept.values, np.nan)
    figure = go.Figure()
    lines = list(np.ndindex(*values.shape[1:]))
    for place, index in enumerate(lines):
        name = ", ".join(a.labels[i] for a, i in zip(rest, index, strict=True)) or METRIC_NAMES[swept.metric]
        colour = LINES[round(place * (len(LINES) - 1) / max(len(lines) - 1, 1))]
        y = [None if np.isnan(v) else float(v) for v in values[(slice(None), *index)]]
        figure.add_scatter(
            x=first.values.tolist(), y=y, mode="lines+markers", name=name, line={"color": colour}
        )
    wide = first.values.min() > 0 and first.values.max() / first.values.min() > 20
    figure.update_xaxes(
        title=first.name,
        type="log" if wide else "linear",
        tickvals=first.values.tolist(),
        ticktext=first.labels,
    )
    unit = METRIC_UNITS[swept.metric]
    ticks = (
        {"tickformat": "~s", "ticksuffix": unit}
        if unit not in ("1", "USD")
        else {"tickformat": ".0%"}
        if swept.metric in ("mfu", "mbu")
        else {}
    )
    figure.update_yaxes(
        title=METRIC_NAMES[swept.metric] + (" [USD]" if unit == "USD" else ""), rangemode="tozero", **ticks
    )
    figure.update_layout(legend={"title": {"text": ", ".join(a.name for a in rest)}}, showlegend=bool(rest))
    return figure


def sweep_report(swept: Sweep, path: Path) -> Path:
    """A sweep as a page: the picture, then its best point in full."""
    said = [
        f"<p>{html.escape(line)}</p>"
        for line in (swept.question, *(r.removeprefix("- : ") for r in remarks(swept)))
    ]
    parts = [*said, picture(sweep_figure(swept), True, 460)]
    if np.any(swept.fits):
        best = swept.best()
        place = np.argwhere(swept.fits & (swept.values == float(getattr(best.metrics, swept.metric))))
        where = (
            ", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(swept.axes, place[0], strict=True))
            if len(place)
            else ""
        )
        parts += [
            f"<h2>The best point{': ' if where else ''}{html.escape(where)}</h2>",
            *prediction_parts(best, False),
        ]
    return keep(
        path,
        page(
            f"Strata sweep: {METRIC_NAMES[swept.metric]} over {' and '.join(a.name for a in swept.axes)}",
            parts,
        ),
    )


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
            said = f"{entry['points']} points, MAPE {entry['mape']:.1%}, median {entry['median']:.1%}, bias {entry['bias']:+.1%}"
            parts += [
                f"<h2>{html.escape(entry['file'])}</h2><p>{said}</p>",
                picture(_scatter(mine), not parts, 420),
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
    table = rows_table(
        ["file", "points", "failed", "MAPE", "median", "P90", "worst", "bias", "weighted"], rows
    )
    return keep(
        path,
        page(
            "Strata: predicted against measured",
            ["<p>error = predicted / measured - 1</p>", table, said, *parts],
        ),
    )


def _scatter(points: list[dict[str, Any]]) -> Any:
    """Predicted over measured on logarithmic axes, a colour a group, at most 2000 points each."""
    figure = _plotly().Figure()
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
