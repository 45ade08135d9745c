"""The order of a single step: one event per op of the slowest stage, for people and for Perfetto."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from strata.hardware.chip import Chip
from strata.pricing.block import PricedBlock
from strata.pricing.power_cap import at_share
from strata.pricing.price import RESOURCES
from strata.pricing.step import Step
from strata.workload.model import Model


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


@dataclass(frozen=True)
class Timeline:
    """Events of one micro-batch through the whole model on one rank, layer by layer."""

    events: tuple[Event, ...]

    @property
    def time(self) -> float:
        return self.events[-1].start + self.events[-1].duration if self.events else 0.0

    def to_perfetto(self, path: str | Path) -> Path:
        """Write Chrome trace JSON: open it at ui.perfetto.dev or chrome://tracing."""
        rows = [
            {
                "name": e.name,
                "cat": e.kind,
                "ph": "X",
                "pid": 0,
                "tid": 1 if e.kind == "collective" else 0,
                "ts": e.start * 1e6,
                "dur": e.duration * 1e6,
                "args": {
                    "block": e.block,
                    "layer": e.layer,
                    "bound_by": e.bound_by,
                    "lower_us": e.lower * 1e6,
                    "flop": e.flop,
                    "memory_bytes": e.memory_bytes,
                    "saved_us": e.saved * 1e6,
                },
            }
            for e in self.events
        ]
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": t, "args": {"name": n}}
            for t, n in ((0, "kernels"), (1, "network"))
        ]
        target = Path(path)
        target.write_text(json.dumps({"traceEvents": names + rows, "displayTimeUnit": "ms"}))
        return target


def timeline(step: Step, model: Model, chip: Chip) -> Timeline:
    """Lay the priced blocks of a step out in the order of the layers, at the clock the step holds."""
    events: list[Event] = []
    clock = 0.0
    for priced, layer in _sequence(step, model):
        for op, full in priced.ops:
            price = at_share(full, step.clock, chip)
            duration = float(price.time)
            resources = {r: float(getattr(price, r)) for r in RESOURCES}
            binds = max(resources, key=lambda r: resources[r])
            events.append(
                Event(
                    op.name,
                    priced.block.name,
                    layer,
                    op.kind,
                    clock,
                    duration,
                    binds,
                    float(price.lower),
                    float(price.flop),
                    float(price.memory_bytes),
                    float(price.saved),
                )
            )
            clock += duration
    return Timeline(tuple(events))


def _sequence(step: Step, model: Model) -> list[tuple[PricedBlock, int]]:
    by_place = {(b.block.part, b.block.layer, b.block.passes): b for b in step.blocks}
    pattern, layers = model.pattern, int(model.pattern.layers)
    kinds = [
        pattern.prefix
        if i < pattern.prefix_layers
        else pattern.period[int(i - pattern.prefix_layers) % len(pattern.period)]
        for i in range(layers)
    ]
    order = [(by_place[(-1, "", "forward")], -1)]
    for i, kind in enumerate(kinds):
        order += [(by_place[(part, kind[part], "forward")], i) for part in (0, 1)]
    order.append((by_place[(-2, "", "forward")], layers))
    if (-2, "", "backward") in by_place:
        order.append((by_place[(-2, "", "backward")], layers))
        for i in reversed(range(layers)):
            order += [(by_place[(part, kinds[i][part], "backward")], i) for part in (1, 0)]
        order.append((by_place[(-1, "", "backward")], -1))
    return order
