"""A schedule as a trace for Perfetto: a process a stage with its cores, DRAM and links, counters of what
flows, arrows where stages hand over.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from strata.pricing.trace_events import (
    TraceRow,
    keep_trace,
    named_process,
    named_thread,
    rate_counter,
    trace_arrow,
    trace_slice,
)
from strata.simulate.events import Schedule, ScheduledTask
from strata.simulate.gantt import by_place, lines_of, tracks_of

# counters of a stage: field of a task's work, name, unit
COUNTERS = (("flop", "TFLOP/s", 1e12), ("memory_bytes", "DRAM GB/s", 1e9), ("energy", "power [W]", 1.0))
SENDS = "to "  # how names of hand-overs begin


def perfetto_json(schedule: Schedule, path: str | Path, static: float = 0.0) -> Path:
    """Write Chrome trace JSON; `static`: power of a device that flows whatever it does [W]."""
    where, rows = _places(schedule), list[TraceRow]()
    for process in sorted({process for process, _ in where.values()}):
        rows += named_process(process, f"stage {process}")
    for line, place in where.items():
        rows += named_thread(place, line)
    for t in schedule.tasks:
        if t.end > t.start:
            rows += _bars(t, where)
    return keep_trace([*rows, *_counters(schedule, where, static), *_arrows(schedule, where)], Path(path))


def _places(schedule: Schedule) -> dict[str, tuple[int, int]]:
    """Process and thread of each track: resources of a stage, and links that leave it, are with its cores."""
    found: dict[str, tuple[int, int]] = {}
    threads: dict[int, Iterator[int]] = {}
    for line in tracks_of(schedule):
        numbers = by_place(line)[1]
        process = numbers[0] if numbers else 0
        found[line] = (process, next(threads.setdefault(process, count(1))))
    return found


def _bars(t: ScheduledTask, where: dict[str, tuple[int, int]]) -> Iterator[TraceRow]:
    work = t.task.work
    told = {
        name: value for name, value in (("flop", work.flop), ("memory_bytes", work.memory_bytes)) if value
    }
    for line in lines_of(t):
        yield trace_slice(t.task.name, t.task.kind or "task", where[line], t.start, t.end, **told)


def _counters(schedule: Schedule, where: dict[str, tuple[int, int]], static: float) -> Iterator[TraceRow]:
    """What each stage computes, reads and draws; nothing where tasks do not know their work."""
    known = [t for t in schedule.tasks if t.end > t.start and t.task.work.flop + t.task.work.energy > 0.0]
    stages: dict[int, list[ScheduledTask]] = {}
    for t in known:
        stages.setdefault(where[lines_of(t)[0]][0], []).append(t)
    for process, tasks in stages.items():
        for field, name, unit in COUNTERS:
            amounts = ((t.start, t.end, getattr(t.task.work, field)) for t in tasks)
            base = static if field == "energy" else 0.0
            yield from rate_counter(process, name, amounts, unit=unit, base=base)


def _arrows(schedule: Schedule, where: dict[str, tuple[int, int]]) -> Iterator[TraceRow]:
    """From each message on its link to the pass that waits for it."""
    sent = {t.task.name: t for t in schedule.tasks if t.task.kind == "send" and t.end > t.start}
    numbers = count(1)
    for t in schedule.tasks:
        if t.end <= t.start:
            continue
        for name in t.task.after:
            message = sent.get(name) if name.startswith(SENDS) else None
            if message is not None:
                start, end = where[lines_of(message)[0]], where[lines_of(t)[0]]
                times = (*start, message.start), (*end, t.start)
                yield from trace_arrow(next(numbers), name, *times)
