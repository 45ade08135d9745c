"""A prediction as a page: its numbers, where time goes, what more would buy, and the inputs with their
sources.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from strata.app.render.explanation import SHOWN, busy_text, op_rows, step_text
from strata.app.render.page import bars_figure, figure_html, html_page, html_table
from strata.app.render.prediction import headline_rows, prediction_dict, prediction_title
from strata.drawing import keep
from strata.result import Result
from strata.search.sensitivity import sensitivity
from strata.units import show

COLOURS = {
    "compute": "#4c72b0",
    "cache": "#64b5cd",
    "memory": "#dd8452",
    "network": "#55a868",
    "overhead": "#8c8c8c",
}


def prediction_parts(result: Result, first: bool, lines: list[str] | None = None) -> list[str]:
    """Headline, where time goes, what more would buy, and the inputs with their sources."""
    ops = op_rows(result)[:16]
    scale, unit = (1e3, "ms") if ops[0]["time"] >= 1e-3 else (1e6, "µs")
    shares = bars_figure(
        [f"{o['block']}.{o['op']}" for o in ops],
        [o["time"] * scale for o in ops],
        [f"{o['time'] / result.timeline.time:.1%}" for o in ops],
        [COLOURS.get(o["bound_by"], "#8c8c8c") for o in ops],
        f"{unit} in all layers of one step",
    )
    gains = [g for g in sensitivity(result) if abs(g.speedup) >= SHOWN]  # not those that are out
    buys = bars_figure(
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
        f"<h2>{html.escape(prediction_title(result))}</h2>",
        html_table(["", "", ""], [list(row) for row in headline_rows(result)], (0, 2)),
        said,
        f"<h2>{html.escape(step_text(result))}</h2><p>{legend}</p>",
        figure_html(shares, first, 90 + 26 * len(ops)),
        "".join(f"<p>{html.escape(line)}</p>" for line in busy_text(result).splitlines()),
        "<h2>What 10 % more would buy, one at a time, with all that follows from it</h2>",
        figure_html(buys, False, 90 + 28 * len(gains)),
        _inputs(prediction_dict(result)),
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
                f"<tr{mark}><td>{owner}.{html.escape(path)}</td><td class=n>{shown}</td>"
                f"<td>{html.escape(number['source'])}</td></tr>"
            )
    hashes = ", ".join(f"{k} {v['name']} {v['hash']}" for k, v in data["inputs"].items() if "hash" in v)
    return (
        f"<h2>Inputs</h2><p class=dim>hashes: {hashes}</p><details><summary>{len(rows)} numbers with their "
        f"sources</summary><table>{''.join(rows)}</table></details>"
    )


def prediction_report(result: Result, path: Path, lines: list[str] | None = None) -> Path:
    """One prediction as a page; `lines` are said beside its numbers."""
    return keep(path, html_page("Strata prediction", prediction_parts(result, True, lines)))
