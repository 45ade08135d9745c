"""Why a prediction is what it is: what is busy, where time goes op by op, and what more of each resource
would buy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strata.app.render.tables import picked, table
from strata.result import Result
from strata.units import show

if TYPE_CHECKING:
    from strata.search.sensitivity import Gain

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


def explanation(result: Result) -> Any:
    """Why: what is busy, where a step's time goes op by op, and what more of each resource would buy."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(busy_text(result)), Text(""), _ops_table(result), Text(""), _gains_table(result))


def busy_text(result: Result) -> str:
    """Two sentences: which kinds of op take the time that devices are busy, and what binds all of it."""
    kinds, bounds = (
        {name: float(time) for name, time in group.items()}
        for group in (result.summary.time_by_kind, result.summary.resources)
    )
    busy, span = sum(kinds.values()) or 1.0, sum(bounds.values()) or 1.0
    of_whole = "" if busy > 0.995 * span else f" ({busy / span:.0%} of the whole)"
    called = {BOUND_LABELS.get(name, name): time for name, time in bounds.items()}
    return (
        f"Busy time by kind of op{of_whole}: {_shares(kinds)}.\n"
        f"Time by what binds it: {_shares(called)}.{_hidden(result, busy)}"
    )


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
    most = ", ".join(name for name, _ in sorted(gains.items(), key=lambda i: -i[1]))
    return f"\nOverlap ({overlap}) saves {show(saved, 's')} of {show(span + saved, 's')}" + (
        f": {most} run beside other ops." if most else "."
    )


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

    fields = "moved more gain=speedup note"
    return [
        {"resource": g.resource, "bounds": list(g.bounds), **picked(g, fields)} for g in sensitivity(result)
    ]
