"""HTML reports: one file that opens offline, pictures first, numbers below them."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.present import SHOWN, as_dict, ops_of, title
from strata.app.sweep import Sweep
from strata.errors import StrataError
from strata.evaluate import Result
from strata.pricing.metrics import METRIC_UNITS
from strata.search.sensitivity import sensitivity
from strata.units import show

COLOURS = {"compute": "#4c72b0", "cache": "#64b5cd", "memory": "#dd8452", "network": "#55a868", "overhead": "#8c8c8c", "waiting": "#c44e52"}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } tr.assumed td { color: #8a5a00; } .dim { color: #777; }
"""


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise StrataError("reports need plotly: pip install 'strata[plots]'") from None
    return go


def page(heading: str, parts: list[str]) -> str:
    """A whole page; the first picture carries the plotting library, so that the file opens offline."""
    head = f"<meta charset='utf-8'><title>{html.escape(heading)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{html.escape(heading)}</h1>{''.join(parts)}</body></html>"


def picture(figure: Any, first: bool, height: int = 380) -> str:
    figure.update_layout(height=height, margin={"l": 60, "r": 20, "t": 30, "b": 50}, template="plotly_white", font={"size": 13})
    return str(figure.to_html(full_html=False, include_plotlyjs=first, config={"displaylogo": False}))


def rows_table(header: list[str], rows: list[list[str]]) -> str:
    cells = "".join("<tr>" + "".join(f"<td{'' if i == 0 else ' class=n'}>{html.escape(c)}</td>" for i, c in enumerate(row)) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{html.escape(h)}</th>' for h in header)}</tr>{cells}</table>"


def prediction_parts(result: Result, first: bool) -> list[str]:
    """Headline, where time goes, what more would buy, and the inputs with their sources."""
    go = _plotly()
    data = as_dict(result)
    listed = [[label, show(v, METRIC_UNITS[k])] for k, label in SHOWN.items() if (v := data["metrics"][k]) is not None]
    ops = ops_of(result)[:16]
    bars = go.Figure(go.Bar(x=[o["time"] * 1e6 for o in ops], y=[f"{o['block']}.{o['op']}" for o in ops], orientation="h", marker_color=[COLOURS[o["bound_by"]] for o in ops],
                            customdata=[o["bound_by"] for o in ops], hovertemplate="%{y}: %{x:.0f} us, bound by %{customdata}<extra></extra>"))  # fmt: skip
    bars.update_yaxes(autorange="reversed")
    bars.update_xaxes(title="µs in all layers of one step")
    gains = sensitivity(result)
    buys = go.Figure(go.Bar(x=[g.speedup * 100 for g in gains], y=[g.resource for g in gains], orientation="h", marker_color="#4c72b0"))
    buys.update_yaxes(autorange="reversed")
    buys.update_xaxes(title="% faster with 10 % more")
    legend = " ".join(f"<span style='color:{c}'>■</span> {n}" for n, c in COLOURS.items())
    return [
        f"<h2>{html.escape(title(result))}</h2>", rows_table(["", ""], listed),
        f"<p class=dim>{html.escape('; '.join(result.notes))}</p>" if result.notes else "",
        f"<h2>Where a step goes</h2><p>{legend}</p>", picture(bars, first, 480), "<h2>What 10 % more would buy</h2>", picture(buys, False, 300), _inputs(data),
    ]  # fmt: skip


def _inputs(data: dict[str, Any]) -> str:
    """Every number the answer rests on, with its source; assumed ones stand out."""
    rows = []
    for owner in ("chip", "fabric", "engine"):
        entry = data["inputs"][owner]
        for path, number in entry["numbers"].items():
            shown = show(float(number["value"]), number["unit"])
            mark = " class=assumed" if number["source"].startswith("assumed") else ""
            rows.append(f"<tr{mark}><td>{owner}.{html.escape(path)}</td><td class=n>{shown}</td><td>{html.escape(number['source'])}</td></tr>")
    hashes = ", ".join(f"{k} {v['name']} {v['hash']}" for k, v in data["inputs"].items() if "hash" in v)
    return f"<h2>Inputs</h2><p class=dim>hashes: {hashes}</p><details><summary>{len(rows)} numbers with their sources</summary><table>{''.join(rows)}</table></details>"


def prediction_report(result: Result, path: Path) -> Path:
    """One prediction as a page."""
    return _write(path, page("Strata prediction", prediction_parts(result, True)))


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def sweep_figure(swept: Sweep) -> Any:
    """Lines over the first axis, one for each value of the second; a third axis becomes further lines."""
    go = _plotly()
    first, rest = swept.axes[0], swept.axes[1:]
    values = np.where(np.broadcast_to(swept.result.fits, swept.values.shape), swept.values, np.nan)
    figure = go.Figure()
    for index in np.ndindex(*values.shape[1:]):
        name = ", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(rest, index, strict=True))
        figure.add_scatter(x=first.values, y=values[(slice(None), *index)], mode="lines+markers", name=name)
    figure.update_xaxes(
        title=first.name,
        type="log" if first.values.min() > 0 and first.values.max() / first.values.min() > 20 else "linear",
        tickvals=first.values,
        ticktext=first.labels,
    )
    figure.update_yaxes(
        title=f"{swept.metric} [{METRIC_UNITS[swept.metric]}]" if METRIC_UNITS[swept.metric] != "1" else swept.metric, rangemode="tozero"
    )
    return figure


def sweep_report(swept: Sweep, path: Path) -> Path:
    """A sweep as a page: the picture, then its best point in full."""
    parts = [f"<p>{html.escape(swept.plan)}</p>", picture(sweep_figure(swept), True, 460)]
    if np.any(swept.result.fits):
        parts += ["<h2>The best point</h2>", *prediction_parts(swept.result.best(swept.metric), False)]
    return _write(path, page(f"Strata sweep: {swept.metric} over {', '.join(a.name for a in swept.axes)}", parts))


def accuracy_report(outcome: dict[str, Any], points: list[dict[str, Any]], path: Path) -> Path:
    """Predicted against measured, a picture a file, and the table."""
    go = _plotly()
    parts = []
    for i, entry in enumerate(e for e in outcome["files"] if any(p["file"] == e["file"] for p in points)):
        mine = [p for p in points if p["file"] == entry["file"]]
        figure = go.Figure()
        for group in dict.fromkeys(p["group"] for p in mine):
            chosen = [p for p in mine if p["group"] == group][:2000]
            figure.add_scattergl(
                x=[p["measured"] for p in chosen], y=[p["predicted"] for p in chosen], mode="markers", name=str(group), marker={"size": 4}
            )
        low, high = (f([p["measured"] for p in mine if p["measured"] > 0]) for f in (min, max))
        figure.add_scatter(x=[low, high], y=[low, high], mode="lines", line={"color": "#888", "dash": "dash"}, showlegend=False)
        figure.update_xaxes(type="log", title="measured")
        figure.update_yaxes(type="log", title="predicted")
        said = f"{entry['points']} points, MAPE {entry['mape']:.1%}, median {entry['median']:.1%}, bias {entry['bias']:+.1%}"
        parts += [f"<h2>{html.escape(entry['file'])}</h2><p>{said}</p>", picture(figure, i == 0, 420)]
    keys = ("mape", "median", "p90", "worst", "bias", "weighted")
    rows = [[e["file"], str(e["points"]), *(f"{e[k]:.1%}" for k in keys)] for e in outcome["files"]]
    return _write(path, page("Strata: predicted against measured", [rows_table(["file", "points", *keys], rows), *parts]))
