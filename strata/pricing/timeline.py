"""The order of a single step: one event per op of the slowest stage, for people and for Perfetto; and rows of
Chrome trace JSON, as ui.perfetto.dev and chrome://tracing read it: bars on named tracks, counters, arrows.

Names of fields are those of the Trace Event Format (Duvall & Sinclair, 2016): complete events X, counters C,
flows s and f, metadata M; times in microseconds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.base.drawing import keep
from strata.hardware.chip import Chip
from strata.pricing.block import PricedBlock
from strata.pricing.power_cap import price_at_clock
from strata.pricing.price import RESOURCES
from strata.pricing.step import Step
from strata.workload.graph import BlockSequence


@dataclass(frozen=True)
class Event:
    """One kernel or collective: where, when, how long, and what bound it."""

    name: str
    block: str
    layer: int
    kind: str
    start: float
    duration: float
    bound_by: str
    lower: float
    flop: float
    memory_bytes: float
    saved: float = 0.0  # by running beside others: how much longer they all would take
    energy: float = 0.0  # beside static power [J]


TraceRow = dict[str, Any]
MICRO = 1e6  # of a second in it
TRACKS = ("kernels", "DRAM", "network")
TOLD = ("lower", "flop", "memory_bytes", "saved", "energy")  # of a price, in an event under the same names
COUNTED = (("TFLOP/s", 1e12, "flop"), ("DRAM GB/s", 1e9, "memory_bytes"), ("power [W]", 1.0, "energy"))


@dataclass(frozen=True)
class Timeline:
    """Events of one micro-batch through the whole model on one rank, layer by layer."""

    events: tuple[Event, ...]
    static: float = 0.0  # power of the device that flows whatever it does [W]

    @property
    def time(self) -> float:
        return self.events[-1].start + self.events[-1].duration if self.events else 0.0

    def to_perfetto(self, path: str | Path) -> Path:
        """Write Chrome trace JSON: open it at ui.perfetto.dev or chrome://tracing. Kernels, those that DRAM
        binds, and collectives have a track each; counters say what is computed, read and drawn.
        """
        rows = named_process(0, "rank")
        for thread, name in enumerate(TRACKS, 1):
            rows += named_thread((0, thread), name)
        for e in self.events:
            told = {"block": e.block, "layer": e.layer, "bound_by": e.bound_by, "lower_us": e.lower * MICRO}
            told |= {"flop": e.flop, "memory_bytes": e.memory_bytes, "saved_us": e.saved * MICRO}
            on = ["network"] if e.kind == "collective" else ["kernels"]
            on += ["DRAM"] if e.bound_by == "memory" else []
            for track in on:
                place = (0, 1 + TRACKS.index(track))
                rows.append(trace_slice(e.name, e.kind, place, e.start, e.start + e.duration, **told))
        for name, unit, field in COUNTED:
            amounts = ((e.start, e.start + e.duration, getattr(e, field)) for e in self.events)
            base = self.static if field == "energy" else 0.0
            rows += rate_counter(0, name, amounts, unit=unit, base=base)
        return keep_trace(rows, Path(path))


def timeline(step: Step, order: BlockSequence, chip: Chip) -> Timeline:
    """Lay the priced blocks of a step out in the order of the program, at the clock the step holds."""
    events: list[Event] = []
    clock = 0.0
    known: dict[str, list[dict[str, Any]]] = {}  # layers of a kind have the same ops at the same prices
    for priced, layer in _in_order(step, order):
        name = priced.block.name
        if name not in known:
            known[name] = _told_ops(priced, step, chip)
        for told in known[name]:
            events.append(Event(layer=layer, start=clock, **told))
            clock += told["duration"]
    return Timeline(tuple(events), float(step.static))


def _told_ops(priced: PricedBlock, step: Step, chip: Chip) -> list[dict[str, Any]]:
    """What events say of a block's ops, wherever it stands."""
    found = []
    for op, full in priced.ops:
        price = price_at_clock(full, step.clock, chip)
        resources = {r: float(getattr(price, r)) for r in RESOURCES}
        bound_by = max(resources, key=lambda r: resources[r])
        numbers = {name: float(getattr(price, name)) for name in TOLD}
        where = {"name": op.name, "block": priced.block.name, "kind": op.category}
        found.append({**where, "bound_by": bound_by, "duration": float(price.time), **numbers})
    return found


def _in_order(step: Step, order: BlockSequence) -> list[tuple[PricedBlock, int]]:
    """Blocks with their layer, -1 before all layers; a backward pass goes through them last first."""
    by_name = {b.block.name: b for b in step.blocks}
    back = {b.block.gradient_of: b for b in step.blocks if b.block.gradient_of}
    layers = int(float(order.layers))
    names = [(name, -1) for name in order.first]
    for i in range(layers):
        names += [(name, i) for name in order.layer_blocks(i)]
    names += [(name, layers) for name in order.last]
    forward = [(by_name[name], i) for name, i in names]
    return forward + [(back[name], i) for name, i in reversed(names) if name in back]


def trace_slice(
    name: str, kind: str, where: tuple[int, int], start: float, end: float, **told: Any
) -> TraceRow:
    """One bar of a trace, on a thread of a process; `told` is what a click on it shows."""
    place = {"pid": where[0], "tid": where[1], "ts": start * MICRO, "dur": max(end - start, 0.0) * MICRO}
    return {"name": name, "cat": kind, "ph": "X", **place} | ({"args": told} if told else {})


def named_process(process: int, name: str) -> list[TraceRow]:
    """The name of a process, and its place among the others."""
    return _named("process", (process, 0), name, process)


def named_thread(where: tuple[int, int], name: str) -> list[TraceRow]:
    """The name of a track, and its place in its process."""
    return _named("thread", where, name, where[1])


def _named(kind: str, where: tuple[int, int], name: str, place: int) -> list[TraceRow]:
    told = {"name": {"name": name}, "sort_index": {"sort_index": place}}
    row = {"ph": "M", "pid": where[0], "tid": where[1]}
    return [{"name": f"{kind}_{what}", **row, "args": args} for what, args in told.items()]


def trace_arrow(
    number: int, name: str, start: tuple[int, int, float], end: tuple[int, int, float]
) -> list[TraceRow]:
    """An arrow from a bar to another: thread, process and time of either, the times within the bars."""
    row = {"name": name, "cat": "flow", "id": number}
    return [
        {**row, "ph": "s", "pid": start[0], "tid": start[1], "ts": start[2] * MICRO},
        {**row, "ph": "f", "bp": "e", "pid": end[0], "tid": end[1], "ts": end[2] * MICRO},
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
                {"name": name, "ph": "C", "pid": process, "tid": 0, "ts": at * MICRO, "args": {name: value}}
            )
            said = value
    return rows


def keep_trace(events: Iterable[TraceRow], path: Path) -> Path:
    """Write events as Chrome trace JSON: names first, then the rest in the order of their times."""
    rows = sorted(events, key=lambda row: (row["ph"] != "M", row.get("ts", 0.0)))
    return keep(path, json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}))
