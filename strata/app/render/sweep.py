"""A sweep as people read it: a table, a page, and why points are empty; speed and energy against caps of
power.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render import page
from strata.app.render.accuracy import swept_interval
from strata.app.render.figures import note, picture
from strata.app.render.prediction import SAID_IN_TOKENS, SHARES, metric_label, metric_text
from strata.app.render.prediction_report import prediction_parts
from strata.app.render.tables import picked, rows_table, table
from strata.app.rows_out import rate_unit
from strata.app.terminal import titled
from strata.base.drawing import COLOURS, check_picture
from strata.base.errors import require
from strata.base.units import show
from strata.mapping.layout import Layout
from strata.mapping.plan import plan_text
from strata.pricing.metrics import METRICS
from strata.result import reasons
from strata.search.power_caps import PowerCaps
from strata.search.swept import Sweep

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
    return metric_text(float(swept.values[index]), swept.metric) if swept.fits[index] else "-"


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
    why = _rules(broken) or "this phase has no such metric"
    return [f"- : {len(broken)} of {swept.values.size} points are out: {why}"]


def _rules(broken: np.ndarray) -> str:
    """The rules that points break."""
    return "; ".join(dict.fromkeys(rule for mask in np.unique(broken) for rule in reasons(int(mask))))


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
    written = {"tickformat": ".0%"} if swept.metric in SHARES else {}
    written = written if unit in ("1", "USD") else {"tickformat": "~s", "ticksuffix": unit}
    title = metric_label(swept.metric) + (" [USD]" if unit == "USD" else "")
    figure.update_yaxes(title=title, rangemode="tozero", **written)
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
        texts = [[metric_text(v, swept.metric) if np.isfinite(v) else "" for v in row] for row in cells]
        wide, high = ((swept.axes[i].name, swept.axes[i].labels) for i in (across, down))
        fixed = ", ".join(f"{a.name} {a.labels[i]}" for a, i in zip(rest, index, strict=True))
        parts += [page.paragraphs([fixed]), page.heat_html(wide, high, cells, texts, more=more)]
    over = f"{swept.axes[down].name} and {swept.axes[across].name}"
    return page.section(f"{metric_label(swept.metric)} over {over}", *parts)


def sweep_report(swept: Sweep, path: Path) -> Path:
    """A sweep as a page: its best point, the picture, a heat map of two quantities, then the best in full."""
    said = page.paragraphs([swept.question, *(r.removeprefix("- : ") for r in sweep_remarks(swept))])
    best, rest = [], []
    if (found := swept.best_point()) is not None:
        at = found["at"].items()
        rows = [(f"best {metric_label(swept.metric)}", metric_text(found[swept.metric], swept.metric), "")]
        best = [page.cards_html([*rows, *((name, value, "") for name, value in at)])]
        chosen = ", ".join(f"{name} {value}" for name, value in at)
        rest = [page.section(f"The best point: {chosen}", *prediction_parts(swept.best()))]
    along = next((a for a in swept.axes if a.numeric), swept.axes[0])
    others = ", ".join(a.name for a in swept.axes if a is not along)
    lines = page.paragraphs([f"A line for each {others}."] if others else [], "dim")
    chart, label = page.figure_html(sweep_figure(swept), 440, "sweep"), metric_label(swept.metric)
    drawn = page.section(f"{label} over {along.name}", lines, chart)
    title = f"Strata sweep: {label} over {' and '.join(a.name for a in swept.axes)}"
    return page.write_page(path, title, [said, *best, drawn, sweep_heat(swept), *rest])


def asked(found: PowerCaps) -> str:
    """What was asked, in a line."""
    r, work = found.result, found.result.workload
    shape = f"{work.phase}, {_plan(found)}, batch {float(np.max(work.batch)):g}"
    return f"{r.program.name} on {r.system.name}, {shape}, engine {r.engine.name}"


def _plan(found: PowerCaps) -> str:
    plan = found.result.plan
    if isinstance(plan, Layout):
        return ",".join(f"{name}={float(np.max(ranks)):g}" for name, ranks in plan.mesh.items())
    return plan_text(plan)


def columns(found: PowerCaps) -> list[str]:
    """The metrics of a row, in the order of reading."""
    return [found.rate, found.latency, "clock", "device_power", "power", "device_energy", found.energy]


def power_cap_tables(found: PowerCaps) -> list[Any]:
    """A heading, a row for each cap, and the best of them."""
    per, rows = found.energy.rsplit("_", 1)[-1], []
    fits, most = found.fits, float(found.middle(found.rate).max())
    for i, cap in enumerate(found.caps):
        cells = ["-"] * (len(columns(found)) + 1)
        if fits[i]:
            ranges = ((name, found.range(name)) for name in columns(found))
            first, *cells = (range_text(*(_said(float(e[i]), name) for e in ends)) for name, ends in ranges)
            cells = [first, f"{float(found.middle(found.rate)[i]) / most:.1%}", *cells]
            cells[-1] += " *" if i == found.best else "  "
        rows.append([show(float(cap), "W"), *cells])
    head = f">cap|>{metric_label(found.rate)}|>of most|>{found.latency.replace('_', ' ')}|>clock|>a device"
    head += f"|>at the plug|>J/{per}, devices|>J/{per}, plug"
    return [table(asked(found), head, rows), *_cap_remarks(found)]


def range_text(low: str, high: str) -> str:
    """Two values as one range; a unit they share is said once.

    >>> range_text("369 W", "383 W"), range_text("990 MHz", "1.1 GHz"), range_text("2 ms", "2 ms")
    ('369-383 W', '990 MHz - 1.1 GHz', '2 ms')
    """
    if low == high:
        return low
    first, _, unit = low.partition(" ")
    if unit == high.partition(" ")[2]:
        return f"{first}-{high}"
    return f"{low} - {high}"


def _said(value: float, name: str) -> str:
    """A value as people read it; joules in joules, so that caps compare.

    >>> _said(0.8212, "device_energy"), _said(435.1, "device_power")
    ('0.821', '435 W')
    """
    if name == "device_energy" or name.startswith("energy_per"):
        return f"{value:.3g}"
    return metric_text(value, name)


def _cap_remarks(found: PowerCaps) -> list[str]:
    said = [] if found.best is None else [_best_line(found, found.best)]
    free = found.caps[found.fits & ~found.binds]
    if len(free):
        said.append(f"from {show(float(free[0]), 'W')} on the cap slows nothing down")
    low = found.caps[found.too_low]
    if len(low):
        at = ", ".join(show(float(c), "W") for c in low)
        why = "not held even at the lowest clock; DRAM, links and what flows at rest draw more"
        said.append(f"- : {at}: {why}")
    out = ~found.fits & ~found.too_low
    if out.any():
        broken = np.broadcast_to(found.result.reason, found.result.shape)[out]
        said.append(f"- : {int(out.sum())} of {len(out)} caps are out: {_rules(broken)}")
    said.append(f"at rest {show(found.idle_power, 'W')} at the plug, devices ready")
    return said


def _best_line(found: PowerCaps, best: int) -> str:
    energy, rate = found.middle(found.energy), found.middle(found.rate)
    last = int(np.flatnonzero(found.fits)[-1])
    per = found.energy.rsplit("_", 1)[-1]
    line = f"* least energy at the plug: {energy[best]:.3g} J/{per} at {show(float(found.caps[best]), 'W')}"
    if best == last:
        return f"{line}, the highest"
    return (
        f"{line}: {1.0 - energy[best] / energy[last]:.1%} less than at {show(float(found.caps[last]), 'W')} "
        f"for {1.0 - rate[best] / rate[last]:.1%} fewer {metric_label(found.rate)}"
    )


def power_cap_dict(found: PowerCaps) -> dict[str, Any]:
    """Every number, SI units; where prompts are an interval, a row for each end of it."""
    r, work = found.result, found.result.workload
    contexts = np.broadcast_to(np.asarray(work.context, float), r.shape[1:]).ravel()
    names = {"device_energy": "device_energy_J"}
    values = {names.get(name, name): found.values(name) for name in columns(found)}
    reason = np.broadcast_to(r.reason, r.shape).astype(int).reshape(len(found.caps), -1)
    rows = []
    for i, cap in enumerate(found.caps):
        for j in range(int(np.prod(r.shape[1:]))):
            row: dict[str, Any] = {"cap_W": float(cap), "fits": bool(reason[i, j] == 0)}
            row |= {"context": float(contexts[j])} if found.ranged else {}
            rows.append(row | {name: float(value[i, j]) for name, value in values.items()})
    question = picked(r, "program=program.name system=system.name") | {"plan": _plan(found)}
    question |= {"engine": r.engine.name, "phase": work.phase, "batch": float(np.max(work.batch))}
    best = None if found.best is None else float(found.caps[found.best])
    return {"question": question, "rows": rows, "best_cap_W": best, "idle_power_W": found.idle_power}


def draw_power_caps(found: PowerCaps, path: Path) -> Path:
    """Write the picture; where answers are ranges, bands show them, and lines their middle."""
    check_picture(path)
    require(bool(found.fits.any()), "no cap fits, so that there is nothing to draw")
    with picture(path, (8.6, 5.6), 2, 2, sharex=True) as (figure, ((speed, latency), (power, energy))):
        _curve(speed, found, found.rate, COLOURS[0])
        speed.set_title(metric_label(found.rate))
        _curve(latency, found, found.latency, COLOURS[1], 1e3)
        latency.set_title(f"{metric_label(found.latency)} [ms]")
        devices, caps = float(np.max(found.system.devices)), found.caps[found.fits]
        _curve(power, found, "power", COLOURS[3], 1e-3, "at the plug")
        _curve(power, found, "device_power", COLOURS[0], devices * 1e-3, "devices")
        power.plot(caps, devices * caps * 1e-3, ":", color="#888", label="devices at the cap")
        rest = {"color": "#bbb", "linewidth": 0.8, "linestyle": "--", "label": "plug, at rest"}
        power.axhline(found.idle_power * 1e-3, **rest)
        power.set_title("power [kW]")
        _curve(energy, found, found.energy, COLOURS[3], 1.0, "at the plug")
        _curve(energy, found, "device_energy", COLOURS[0], 1.0, "devices")
        if found.best is not None:
            cap, joules = float(found.caps[found.best]), float(found.middle(found.energy)[found.best])
            look = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": COLOURS[3]}
            energy.plot([cap], [joules], "o", **look)
            note(energy, f"{cap:g} W", (cap, joules), (0, 9), ha="center", fontsize=8)
        energy.set_title(f"{METRICS[found.energy].label} [J]")
        for panel in (speed, latency, power, energy):
            panel.set_ylim(bottom=0.0)
        for panel in (power, energy):
            panel.set_xlabel("cap of a device [W]")
            panel.legend(frameon=False, fontsize=7)
        figure.suptitle(asked(found), fontsize=9)
    return path


def _curve(axes: Any, found: PowerCaps, name: str, colour: str, scale: float = 1.0, label: str = "") -> None:
    fits = found.fits
    low, high = (scale * end[fits] for end in found.range(name))
    caps = found.caps[fits]
    if found.ranged:
        axes.fill_between(caps, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(caps, 0.5 * (low + high), ".-", color=colour, label=label or None)
