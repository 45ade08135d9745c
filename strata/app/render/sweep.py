"""A sweep as people read it: a table, and why points are empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.accuracy import swept_interval
from strata.app.render.metrics import SAID_IN_TOKENS, metric_label, metric_text
from strata.app.terminal import plain_table, titled
from strata.app.told_units import rate_unit
from strata.result import reasons
from strata.search.swept import Sweep
from strata.units import show


def sweep_table(swept: Sweep) -> Any:
    """The metric over the last two axes, further axes above; one axis alone with what binds and fills it."""
    last = swept.axes[-1]
    heading = f"{metric_label(swept.metric)} of {swept.question}"
    if len(swept.axes) > 1:
        heading += f"\nacross: {last.name}"
    table = plain_table()
    if len(swept.axes) == 1:
        return titled(heading, _one_axis(swept, table))
    for axis in swept.axes[:-1]:
        table.add_column(axis.name, style="dim", justify="right")
    for label in last.labels:
        table.add_column(label, justify="right")
    for index in np.ndindex(*swept.values.shape[:-1]):
        cells = [_cell(swept, (*index, i)) for i in range(len(last.values))]
        table.add_row(*(a.labels[i] for a, i in zip(swept.axes[:-1], index, strict=True)), *cells)
    return titled(heading, table)


def _one_axis(swept: Sweep, table: Any) -> Any:
    for column in (swept.axes[0].name, metric_label(swept.metric), "memory/device"):
        table.add_column(column, justify="right")
    table.add_column("bound by")
    planned = swept.picked or not swept.plan
    if planned:
        table.add_column("plan")
    used, binds, fits = swept.metric_values("memory_used"), swept.of(lambda r: r.bound_by), swept.fits
    for i, label in enumerate(swept.axes[0].labels):
        plan = [swept.plan_of((i,)) if fits[i] else ""] if planned else []
        table.add_row(
            label, _cell(swept, (i,)), show(float(used[i]), "B"), str(binds[i]) if fits[i] else "", *plan
        )
    return table


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
    told = sweep_dict(swept)
    columns: dict[str, list[Any]] = {
        a.name: np.broadcast_to(
            a.values.reshape([-1 if j == i else 1 for j in range(len(swept.axes))]), swept.shape
        )
        .ravel()
        .tolist()
        for i, a in enumerate(swept.axes)
    }
    count = swept.values.size
    columns |= {k: [v] * count for k, v in told["question"].items() if k not in columns and k != "plan"}
    if "plan" not in columns:
        columns["plan"] = told.get("plans", [swept.plan] * count)
    columns |= {"fits": swept.of(lambda r: r.fits).ravel().tolist()}
    columns |= {**told["metrics"], "bound_by": told["bound_by"]}
    units = {k: rate_unit(k, unit) for k, unit in told["units"].items()}
    units |= {a.name: a.unit for a in swept.axes if a.numeric}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], units
