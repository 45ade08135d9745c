"""A sweep as people read it: a table, and why points are empty."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.metrics import SAID_IN_TOKENS, metric_label, metric_text
from strata.app.terminal import plain_table, titled
from strata.result import reasons
from strata.search.sweep import Sweep
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
    if swept.picked is not None:
        table.add_column("plan")
    used, binds, fits = (
        swept.of(np.asarray(swept.result.metrics.memory_used, float)),
        swept.of(swept.result.bound_by),
        swept.fits,
    )
    for i, label in enumerate(swept.axes[0].labels):
        plan = [] if swept.picked is None else [swept.plan_of((i,)) if fits[i] else ""]
        table.add_row(
            label, _cell(swept, (i,)), show(float(used[i]), "B"), str(binds[i]) if fits[i] else "", *plan
        )
    return table


def _cell(swept: Sweep, index: tuple[int, ...]) -> str:
    if not swept.fits[index]:
        return "-"
    return metric_text(float(swept.values[index]), swept.metric)


def sweep_remarks(swept: Sweep) -> list[str]:
    """Why points are empty, where some are."""
    broken = swept.of(swept.result.reason)[~swept.fits]
    if not broken.size:
        return []
    rules = list(dict.fromkeys(rule for mask in np.unique(broken) for rule in reasons(int(mask))))
    why = "; ".join(rules) or "this phase has no such metric"
    return [f"- : {len(broken)} of {swept.values.size} points are out: {why}"]


def sweep_dict(swept: Sweep) -> dict[str, Any]:
    """A sweep for machines; what a language model says in tokens is not repeated in items."""
    told = swept.as_dict()
    for key in ("metrics", "units"):
        told[key] = {name: value for name, value in told[key].items() if name not in SAID_IN_TOKENS}
    return told
