"""Why a prediction is what it is: what is busy, where time goes op by op and event by event, what more of
each resource would buy, and what differs from another prediction.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.render.prediction import metric_label, metric_text, shown_metrics
from strata.app.render.tables import bare, cells_of, picked, table
from strata.app.terminal import words
from strata.base.errors import BadFile
from strata.base.reading import json_file
from strata.base.units import show
from strata.mapping.plan import division_text
from strata.result import Result

if TYPE_CHECKING:
    from strata.search.sensitivity import Gain
    from strata.search.what_if import WhatIf
    from strata.simulate.step import Simulation

# Rows of time as people read them; others are called as they are.
BOUND_LABELS = {
    "network": "network (exposed communication)",
    "overhead": "overhead (fixed times of kernels)",
    "throttling": "throttling (limits of power and heat)",
    "bubble": "pipeline bubble",
    "host": "the engine's host",
}
MOST_OPS = 14  # lines of ops; more are summed up
SHOWN = 0.0005  # gains below this are named, not numbered
MOST_RESOURCES = 24  # lines of a table; more are summed up
DETAIL = {"op": "an op", "block": "a block", "stage": "a stage's pass"}


def explanation(result: Result) -> Any:
    """Why: what is busy, where a step's time goes op by op, and what more of each resource would buy."""
    from rich.console import Group

    gap = words("")
    return Group(words(busy_text(result)), gap, _ops_table(result), gap, _gains_table(result))


def busy_text(result: Result) -> str:
    """Two sentences: which kinds of op take the time that devices are busy, and what binds all of it."""
    groups = (result.summary.time_by_kind, result.summary.resources)
    kinds, bounds = ({name: float(time) for name, time in group.items()} for group in groups)
    busy, span = sum(kinds.values()) or 1.0, sum(bounds.values()) or 1.0
    of_whole = "" if busy > 0.995 * span else f" ({busy / span:.0%} of the whole)"
    called = {BOUND_LABELS.get(name, name): time for name, time in bounds.items()}
    binds = f"Time by what binds it: {_shares(called)}.{_hidden(result, busy)}"
    return f"Busy time by kind of op{of_whole}: {_shares(kinds)}.\n{binds}"


def _shares(times: dict[str, float]) -> str:
    """Whole percentages that add up to 100, largest first; those below half a percent are left out."""
    whole = sum(times.values()) or 1.0
    shown = {name: time for name, time in times.items() if time / whole >= 0.005}
    points = whole_percents(list(shown.values()))
    ranked = sorted(zip(shown, points, strict=True), key=lambda one: -shown[one[0]])
    return ", ".join(f"{name} {share}%" for name, share in ranked)


def whole_percents(parts: list[float]) -> list[int]:
    """Parts as whole percentages of their sum that add up to 100: the largest remainders are rounded up.

    >>> whole_percents([1.0, 1.0, 1.0]), whole_percents([0.995, 0.005])
    ([34, 33, 33], [100, 0])
    """
    whole = sum(parts) or 1.0
    exact = [100.0 * part / whole for part in parts]
    down = [int(share) for share in exact]
    order = sorted(range(len(parts)), key=lambda i: down[i] - exact[i])
    for i in order[: max(0, 100 - sum(down)) if parts else 0]:
        down[i] += 1
    return down


def _hidden(result: Result, span: float) -> str:
    """A sentence on what runs beside computation, where the engine has it: what it saves, and with which
    collectives.
    """
    overlap = result.engine.overlap
    if overlap == "none":
        return ""
    saved = float(result.summary.overlap)
    if saved <= 0.0:
        return f"\nOverlap ({overlap}) saves nothing here: no collective is quicker beside other ops."
    gains: dict[str, float] = {}
    for e in result.timeline.events:
        if e.kind == "collective" and e.saved > 0.0:
            gains[f"{e.block}.{e.name}"] = gains.get(f"{e.block}.{e.name}", 0.0) + e.saved
    most = ", ".join(sorted(gains, key=lambda name: -gains[name]))
    beside = f": {most} run beside other ops." if most else "."
    return f"\nOverlap ({overlap}) saves {show(saved, 's')} of {show(span + saved, 's')}{beside}"


def op_rows(result: Result) -> list[dict[str, Any]]:
    """Ops of the last step added up over layers, longest first."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for e in result.timeline.events:
        first = {"block": e.block, "op": e.name, "kind": e.kind, "count": 0, "time": 0.0, "lower": 0.0}
        row = rows.setdefault((e.block, e.name), first | {"bound_by": e.bound_by})
        row["count"] += 1
        row["time"] += e.duration
        row["lower"] += e.lower
    return sorted(rows.values(), key=lambda r: -r["time"])


def step_text(result: Result) -> str:
    """Which step the op table is about."""
    work = result.workload
    last = f"last decode step (context {work.sequence + work.output:g})"
    name = {"serve": last, "train": "training step"}.get(work.phase, f"{work.phase} step")
    return f"Where the {name} goes: {show(result.timeline.time, 's')} for one micro-batch through all layers"


def _ops_table(result: Result) -> Any:
    ops, whole, shown = op_rows(result), result.timeline.time, 0.0
    rows = []
    for row in ops[:MOST_OPS]:
        shown += row["time"]
        peak = row["lower"] / row["time"] if row["time"] else 0.0
        each, share = show(row["time"] / row["count"], "s"), f"{row['time'] / whole:.1%}"
        first = (f"{row['block']}.{row['op']}", str(row["count"]), each, show(row["time"], "s"))
        rows.append((*first, share, row["bound_by"], f"{peak:.0%}"))
    if len(ops) > MOST_OPS:
        rest = (show(whole - shown, "s"), f"{1 - shown / whole:.1%}")
        rows.append((f"{len(ops) - MOST_OPS} more", "", "", *rest, "", ""))
    styles = [*[""] * MOST_OPS, "dim"][: len(rows)]
    below = "of peak: the time at datasheet peaks over the predicted time"
    head = "op|)times|)each|)in all|)share|bound by|)of peak"
    return table(step_text(result), head, rows, below, styles)


def _gains_table(result: Result) -> Any:
    from strata.search.sensitivity import sensitivity

    gains, rows, styles = sensitivity(result), [], []
    for gain in gains:
        if gain.note or abs(gain.speedup) >= SHOWN:
            told = f"{gain.moved}; {gain.note}" if gain.note and gain.moved else gain.moved or gain.note
            rows.append((gain.resource, gain_text(gain), told))
            styles.append("dim" if gain.note or gain.speedup < 0.005 else "")
    small = [g.resource for g in gains if not g.note and abs(g.speedup) < SHOWN]
    below = f"less than {SHOWN:.2%} each: {', '.join(small)}" if small else ""
    title = "What 10 % more would buy, one at a time, with all that follows from it"
    return table(title, "resource|)faster by|moved~", rows, below, styles)


def gain_text(gain: Gain) -> str:
    """A gain in percent; a word where there is none.

    >>> from strata.search.sensitivity import Gain
    >>> gain_text(Gain(resource="cores", more=0.1, speedup=0.031))
    '+3.1%'
    """
    if gain.speedup != gain.speedup:
        return "out"
    return "none" if gain.note else f"{gain.speedup:+.1%}"


def gain_rows(result: Result) -> list[dict[str, Any]]:
    """The same for machines."""
    from strata.search.sensitivity import sensitivity

    return [picked(g, "resource bounds moved more gain=speedup note") for g in sensitivity(result)]


def simulation_table(made: Simulation) -> list[Any]:
    """One simulated step: its time beside the closed form, what leads from one to the other, and how busy
    resources were.
    """
    from strata.simulate.gantt import by_place

    head = (
        ("schedule", made.schedule, f"{made.stages} stages, {made.microbatches} micro-batches"),
        ("time", show(made.time, "s"), f"{len(made.events.tasks):,} tasks, each {DETAIL[made.detail]}"),
        ("closed form", show(made.closed_form, "s"), "of the schedule, each stage in its own time"),
        ("evaluation", show(made.step_time, "s"), "what strata predict says"),
        ("bubble", f"{made.bubble:.1%}", "of the step the mean stage waits"),
    )
    rounding = 1e-9 * made.step_time  # such a difference is none
    why = [
        (what, f"{'+' if s > 0 else '-'}{show(abs(s), 's')}" if abs(s) > rounding else "0")
        for what, s in made.why
    ]
    names = sorted(made.utilisation, key=by_place)
    busy = ((name, f"{made.utilisation[name]:.1%}") for name in names[:MOST_RESOURCES])
    left = len(names) - MOST_RESOURCES
    below = f"and {left} more resources (--json has them)" if left > 0 else ""
    return [
        bare(made.title, head),
        bare("from the evaluation's time to this one", why),
        table("busy", "resource|>busy", busy, below),
    ]


def comparison_dict(result: Result, found: dict[str, Simulation | str]) -> dict[str, Any]:
    """Schedules side by side for machines."""
    rows = {n: {"why_not": s} if isinstance(s, str) else s.to_dict() for n, s in found.items()}
    return {"plan": str(result.plan), "schedules": rows}


def comparison_table(result: Result, found: dict[str, Simulation | str]) -> Any:
    """Schedules side by side, or why one cannot run."""
    rows = []
    for name, made in found.items():
        if isinstance(made, str):
            rows.append([name, *[""] * 6, made])
            continue
        used = made.utilisation
        stages = [v for k, v in used.items() if k.startswith("stage ") and k.count(" ") == 1]
        links = [v for k, v in used.items() if k.startswith("link ")]
        busiest = [f"{max(stages):.1%}", f"{min(stages):.1%}", f"{max(links):.1%}" if links else "", ""]
        rows.append([name, *cells_of(made, "time:s closed_form:s bubble:.1%"), *busiest])
    about = f"{result.program.name} on {result.system.name}, {result.plan!r}, a training step"
    head = "schedule|>time|>closed form|>bubble|>busiest stage|>idlest stage|>busiest link|"
    return table(about, head, rows)


def differences(first: Path, second: Path) -> list[dict[str, Any]]:
    """Every value that differs between two results saved with --json, by path; numbers with their ratio."""
    left, right = (_flat(_read(p)) for p in (first, second))
    both = ((path, left.get(path), right.get(path)) for path in dict.fromkeys([*left, *right]))
    return [
        {"path": path, "first": a, "second": b, "unit": _unit(path, left, right), "ratio": _ratio(a, b)}
        for path, a, b in both
        if a != b
    ]


def _ratio(first: Any, second: Any) -> float | None:
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (first, second))
    return second / first if numeric and first else None


def _unit(path: str, *flat: dict[str, Any]) -> str | None:
    """The unit of a value, where the results say it."""
    owner, _, last = path.rpartition(".")
    if owner in ("resources_s", "kinds_s", "memory_B"):
        return owner.rpartition("_")[2]
    beside = f"{owner}.unit" if last == "value" else f"units.{last}" if owner == "metrics" else ""
    return next((str(f[beside]) for f in flat if beside in f), None)


def _read(path: Path) -> Any:
    try:
        data = json_file(path, "result file")
    except BadFile as error:
        raise BadFile(f"{error}; a result is a file made with strata predict ... --json") from None
    if not isinstance(data, dict) or "metrics" not in data:
        raise BadFile(f"{path.name} is not a result: make one with strata predict ... --json")
    return data


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(node, dict):
        return {k: v for key, value in node.items() for k, v in _flat(value, f"{prefix}{key}.").items()}
    if isinstance(node, list):
        return {k: v for i, value in enumerate(node) for k, v in _flat(value, f"{prefix}{i}.").items()}
    return {prefix[:-1]: node}


def differences_table(rows: list[dict[str, Any]], first: str, second: str) -> Any:
    if not rows:
        return f"{first} and {second} are the same"
    cells = []
    for row in rows:
        shown = [_shown(row[side], row["unit"]) for side in ("first", "second")]
        cells.append((row["path"], *shown, f"{row['ratio']:.3f}" if row["ratio"] is not None else ""))
    head = ["what~", f"){first}~", f"){second}~", ">ratio"]
    return table(f"{len(rows)} difference{'s' if len(rows) > 1 else ''}", head, cells)


def _shown(value: Any, unit: str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return show(value, unit, digits=4) if unit and unit != "1" else f"{value:.6g}"


def difference_dict(changed: WhatIf) -> dict[str, Any]:
    """What was set and what it does, for machines."""
    own, both = "before after ratio unit", (changed.before, changed.after)
    return {
        "set": {one.name: picked(one, own) for one in changed.fields},
        "plan": [division_text(r.plan) for r in both],
        "fits": [bool(r.fits) for r in both],
        "metrics": {one.name: picked(one, own) for one in changed.metrics},
        "notes": changed.notes,
    }


def difference_table(changed: WhatIf) -> Any:
    """What was set and what it does: before, after, and their ratio."""
    rows = []
    for one in changed.fields:
        sides = [_shown(value, one.unit) for value in (one.before, one.after)]
        rows.append((one.name, *sides, _ratio_text(one.ratio)))
    plans = [division_text(r.plan) for r in (changed.before, changed.after)]
    if plans[0] != plans[1]:
        rows.append(("plan, the best of each", *plans, ""))
    styles = ["dim"] * len(rows)
    shown = shown_metrics(changed.after.workload.phase, changed.after.metrics)
    known = {one.name: one for one in changed.metrics}
    for one in (known[name] for name in shown if name in known):
        sides = [metric_text(value, one.name) for value in (one.before, one.after)]
        rows.append((metric_label(one.name), *sides, _ratio_text(one.ratio)))
    below = list(changed.notes)
    if not changed.before.fits:
        below.append(f"the unchanged design is out: {'; '.join(i.what for i in changed.before.infeasible)}")
    title = "Against the unchanged design"
    return table(title, "<|>before|>after|>ratio", rows, "\n".join(below), styles)


def _ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"x{ratio:.3f}"
