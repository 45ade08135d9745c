"""Why a prediction is what it is: what is busy, where time goes op by op, and what more of each resource
would buy.
"""

from __future__ import annotations

from typing import Any

from strata.app.terminal import plain_table, titled
from strata.result import Result
from strata.units import show


def explanation(result: Result) -> Any:
    """Why: what is busy, where a step's time goes op by op, and what more of each resource would buy."""
    from rich.console import Group
    from rich.text import Text

    return Group(Text(busy_text(result)), Text(""), _ops_table(result), Text(""), _gains_table(result))


def busy_text(result: Result) -> str:
    """Two sentences: which kinds of op take the time, and which resources bind them."""
    span = sum(float(v) for v in result.summary.time_by_kind.values()) or 1.0
    resources, kinds = (
        ", ".join(
            f"{k} {float(v) / span:.0%}"
            for k, v in sorted(group.items(), key=lambda i: -float(i[1]))
            if float(v) / span >= 0.005
        )
        for group in (result.summary.resources, result.summary.time_by_kind)
    )
    return f"Time by kind of op: {kinds}.\nTime by what binds it: {resources}.{_hidden(result, span)}"


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
        row = rows.setdefault(
            (e.block, e.name),
            {
                "block": e.block,
                "op": e.name,
                "kind": e.kind,
                "count": 0,
                "time": 0.0,
                "lower": 0.0,
                "bound_by": e.bound_by,
            },
        )
        row["count"] += 1
        row["time"] += e.duration
        row["lower"] += e.lower
    return sorted(rows.values(), key=lambda r: -r["time"])


def step_text(result: Result) -> str:
    """Which step the op table is about."""
    work = result.workload
    name = {
        "serve": f"last decode step (context {work.sequence + work.output:g})",
        "train": "training step",
    }.get(work.phase, f"{work.phase} step")
    return f"Where the {name} goes: {show(result.timeline.time, 's')} for one micro-batch through all layers"


def _ops_table(result: Result) -> Any:
    rows = op_rows(result)
    whole = result.timeline.time
    table = plain_table()
    for column, justify in (
        ("op", "left"),
        ("times", "right"),
        ("each", "right"),
        ("in all", "right"),
        ("share", "right"),
        ("bound by", "left"),
        ("of peak", "right"),
    ):
        table.add_column(column, justify=justify)
    shown = 0.0
    for row in rows[:14]:
        shown += row["time"]
        peak = row["lower"] / row["time"] if row["time"] else 0.0
        table.add_row(
            f"{row['block']}.{row['op']}",
            str(row["count"]),
            show(row["time"] / row["count"], "s"),
            show(row["time"], "s"),
            f"{row['time'] / whole:.1%}",
            row["bound_by"],
            f"{peak:.0%}",
        )
    if len(rows) > 14:
        table.add_row(
            f"{len(rows) - 14} more",
            "",
            "",
            show(whole - shown, "s"),
            f"{1 - shown / whole:.1%}",
            "",
            "",
            style="dim",
        )
    return titled(step_text(result), table, "of peak: the time at datasheet peaks over the predicted time")


def _gains_table(result: Result) -> Any:
    from strata.search.sensitivity import sensitivity

    table = plain_table()
    table.add_column("resource")
    table.add_column("faster by", justify="right")
    for gain in sensitivity(result):
        table.add_row(gain.resource, f"{gain.speedup:+.1%}", style="dim" if gain.speedup < 0.005 else "")
    return titled("What 10 % more would buy, one at a time", table)
