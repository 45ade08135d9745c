"""Chrome trace JSON, as ui.perfetto.dev and chrome://tracing read it: bars on named tracks, counters, arrows.

Names of fields are those of the Trace Event Format (Duvall & Sinclair, 2016): complete events X, counters C,
flows s and f, metadata M; times in microseconds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strata.drawing import keep

TraceRow = dict[str, Any]


def trace_slice(
    name: str, kind: str, where: tuple[int, int], start: float, end: float, **told: Any
) -> TraceRow:
    """One bar of a trace, on a thread of a process; `told` is what a click on it shows."""
    place = {"pid": where[0], "tid": where[1], "ts": start * 1e6, "dur": max(end - start, 0.0) * 1e6}
    return {"name": name, "cat": kind, "ph": "X", **place} | ({"args": told} if told else {})


def named_process(process: int, name: str) -> list[TraceRow]:
    """The name of a process, and its place among the others."""
    row = {"ph": "M", "pid": process, "tid": 0}
    return [
        {"name": "process_name", **row, "args": {"name": name}},
        {"name": "process_sort_index", **row, "args": {"sort_index": process}},
    ]


def named_thread(where: tuple[int, int], name: str) -> list[TraceRow]:
    """The name of a track, and its place in its process."""
    row = {"ph": "M", "pid": where[0], "tid": where[1]}
    return [
        {"name": "thread_name", **row, "args": {"name": name}},
        {"name": "thread_sort_index", **row, "args": {"sort_index": where[1]}},
    ]


def trace_arrow(
    number: int, name: str, start: tuple[int, int, float], end: tuple[int, int, float]
) -> list[TraceRow]:
    """An arrow from a bar to another: thread, process and time of either, the times within the bars."""
    row = {"name": name, "cat": "flow", "id": number}
    return [
        {**row, "ph": "s", "pid": start[0], "tid": start[1], "ts": start[2] * 1e6},
        {**row, "ph": "f", "bp": "e", "pid": end[0], "tid": end[1], "ts": end[2] * 1e6},
    ]


def rate_counter(
    process: int,
    name: str,
    amounts: Iterable[tuple[float, float, float]],
    *,
    unit: float = 1.0,
    base: float = 0.0,
) -> list[TraceRow]:
    """A counter of what flows: amounts from a start to an end, each at an even rate, over a base.

    >>> rows = rate_counter(0, "GB/s", [(0.0, 1.0, 4e9), (0.5, 1.0, 1e9)], unit=1e9)
    >>> [(row["ts"], row["args"]["GB/s"]) for row in rows]
    [(0.0, 4.0), (500000.0, 6.0), (1000000.0, 0.0)]
    """
    changes: dict[float, list[float]] = defaultdict(lambda: [0.0, 0])
    for start, end, amount in amounts:
        if end > start and amount > 0.0:
            rate = amount / (end - start)
            for at, sign in ((start, 1), (end, -1)):
                changes[at][0] += sign * rate
                changes[at][1] += sign
    rows, rate, running, said = [], 0.0, 0.0, None
    for at in sorted(changes):
        rate, running = rate + changes[at][0], running + changes[at][1]
        rate = rate if running else 0.0  # differences of sums leave their last bits
        value = float(f"{(base + max(rate, 0.0)) / unit:.6g}")
        if value != said:
            rows.append(
                {"name": name, "ph": "C", "pid": process, "tid": 0, "ts": at * 1e6, "args": {name: value}}
            )
            said = value
    return rows


def keep_trace(events: Iterable[TraceRow], path: Path) -> Path:
    """Write events as Chrome trace JSON: names first, then the rest in the order of their times."""
    rows = sorted(events, key=lambda row: (row["ph"] != "M", row.get("ts", 0.0)))
    return keep(path, json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}))
