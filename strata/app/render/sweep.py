"""A sweep as people read it: a table, a page, and why points are empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render import page
from strata.app.render.accuracy import swept_interval
from strata.app.render.prediction import SAID_IN_TOKENS, SHARES, metric_label, metric_text
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.tables import rows_table
from strata.app.rows_out import rate_unit
from strata.app.terminal import titled
from strata.drawing import keep
from strata.pricing.metrics import METRICS
from strata.result import reasons
from strata.search.swept import Sweep
from strata.units import show

# in the order of the values, each to be seen on a light ground and on a dark one
LINES = ("#7a63d4", "#4f78d6", "#2f8ac4", "#21979c", "#2f9c6c", "#7d962f", "#b58620", "#cf6a2c")
MOST_MAPS = 6  # heat maps of one sweep


def sweep_table(swept: Sweep) -> Any:
    """The metric over the last two axes, further axes above; one axis alone with what binds and fills it."""
    *upper, last = swept.axes
    heading = f"{metric_label(swept.metric)} of {swept.question}"
    if not upper:
        return titled(heading, _one_axis(swept))
    rows = []
    for index in np.ndindex(*swept.values.shape[:-1]):
        cells = [_cell(swept, (*index, i)) for i in range(len(last.values))]
        rows.append((*(a.labels[i] for a, i in zip(upper, index, strict=True)), *cells))
    made = rows_table([f"){name}" for name in (*(a.name for a in upper), *last.labels)], rows)
    for column in made.columns[: len(upper)]:
        column.style = "dim"
    return titled(f"{heading}\nacross: {last.name}", made)


def _one_axis(swept: Sweep) -> Any:
    planned, rows = swept.picked or not swept.plan, []
    used, binds, fits = swept.metric_values("memory_used"), swept.of(lambda r: r.bound_by), swept.fits
    for i, label in enumerate(swept.axes[0].labels):
        plan = [swept.plan_of((i,)) if fits[i] else ""] if planned else []
        bound = str(binds[i]) if fits[i] else ""
        rows.append((label, _cell(swept, (i,)), show(float(used[i]), "B"), bound, *plan))
    head = [f"){swept.axes[0].name}", f"){metric_label(swept.metric)}", ")memory/device", "bound by"]
    return rows_table([*head, *(["plan"] if planned else [])], rows)


def _cell(swept: Sweep, index: tuple[int, ...]) -> str:
    if not swept.fits[index]:
        return "-"
    return metric_text(float(swept.values[index]), swept.metric)


def best_line(swept: Sweep) -> list[str]:
    """The best point in a line; nothing where none fits."""
    best = swept.best_point()
    if best is None:
        return []
    at = ", ".join(f"{name} {label}" for name, label in best["at"].items())
    plan = "" if swept.plan and not swept.picked else f", plan {best['plan']}"
    plan = "" if "plan" in best["at"] else plan
    return [f"best: {metric_text(best[swept.metric], swept.metric)} at {at}{plan}"]


def sweep_remarks(swept: Sweep) -> list[str]:
    """Why points are empty, where some are."""
    broken = swept.of(lambda r: r.reason)[~swept.fits]
    if not broken.size:
        return []
    rules = list(dict.fromkeys(rule for mask in np.unique(broken) for rule in reasons(int(mask))))
    why = "; ".join(rules) or "this phase has no such metric"
    return [f"- : {len(broken)} of {swept.values.size} points are out: {why}"]


def sweep_intervals(swept: Sweep) -> tuple[dict[str, Any], list[str]]:
    """Where like cases would be measured: for machines that of each group, for people that of the best."""
    found = [swept_interval(g.result, swept.metric) for g in swept.groups]
    if len(found) == 1:
        return {"interval": found[0][0]}, found[0][1]
    names = [", ".join(g.words.values()) for g in swept.groups]
    told = {"intervals": dict(zip(names, (data for data, _ in found), strict=True))}
    if swept.best_index is None:
        return told, []
    best = swept.groups.index(swept.place(swept.best_index)[0])
    return told, [f"{names[best]}: {line}" for line in found[best][1]]


def sweep_dict(swept: Sweep) -> dict[str, Any]:
    """A sweep for machines; what a language model says in tokens is not repeated in items."""
    told = swept.as_dict()
    for key in ("metrics", "units"):
        told[key] = {name: value for name, value in told[key].items() if name not in SAID_IN_TOKENS}
    return told


def sweep_rows(swept: Sweep) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A sweep as rows, one a point, with units: its place on the axes, plan, every metric, what binds it."""
    told, count, columns = sweep_dict(swept), swept.values.size, {}
    for i, axis in enumerate(swept.axes):
        along = [-1 if j == i else 1 for j in range(len(swept.axes))]
        columns[axis.name] = np.broadcast_to(axis.values.reshape(along), swept.shape).ravel().tolist()
    columns |= {k: [v] * count for k, v in told["question"].items() if k not in columns and k != "plan"}
    if "plan" not in columns:
        columns["plan"] = told.get("plans", [swept.plan] * count)
    columns |= {"fits": swept.of(lambda r: r.fits).ravel().tolist()}
    columns |= {**told["metrics"], "bound_by": told["bound_by"]}
    units = {k: rate_unit(k, unit) for k, unit in told["units"].items()}
    units |= {a.name: a.unit for a in swept.axes if a.numeric}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], units


def sweep_figure(swept: Sweep) -> Any:
    """Lines over the first axis of numbers, one for each value of the others; words stand side by side."""
    go = page.plotly_graphs()
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
        told = page.heat_html(wide, high, cells, texts, more=more)
        parts.append(
            page.paragraphs([", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(rest, index, strict=True))])
        )
        parts.append(told)
    return page.section(
        f"{metric_label(swept.metric)} over {swept.axes[down].name} and {swept.axes[across].name}", *parts
    )


def sweep_report(swept: Sweep, path: Path) -> Path:
    """A sweep as a page: its best point, the picture, a heat map of two quantities, then the best in full."""
    said = page.paragraphs([swept.question, *(r.removeprefix("- : ") for r in sweep_remarks(swept))])
    best, rest = [], []
    if (found := swept.best_point()) is not None:
        chosen = ", ".join(f"{name} {label}" for name, label in found["at"].items())
        rows = [(f"best {metric_label(swept.metric)}", metric_text(found[swept.metric], swept.metric), "")]
        rows += [(name, label, "") for name, label in found["at"].items()]
        best = [page.cards_html(rows)]
        rest = [page.section(f"The best point: {chosen}", *prediction_parts(swept.best()))]
    along = next((a for a in swept.axes if a.numeric), swept.axes[0])
    others = ", ".join(a.name for a in swept.axes if a is not along)
    lines = page.paragraphs([f"A line for each {others}."] if others else [], "dim")
    drawn = page.section(
        f"{metric_label(swept.metric)} over {along.name}",
        lines,
        page.figure_html(sweep_figure(swept), 440, "sweep"),
    )
    title = f"Strata sweep: {metric_label(swept.metric)} over {' and '.join(a.name for a in swept.axes)}"
    return keep(path, page.html_page(title, [said, *best, drawn, sweep_heat(swept), *rest]))
