"""The order of a single step: one event per op of the slowest stage, for people and for Perfetto."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    return Timeline(tuple(events))


def _told_ops(priced: PricedBlock, step: Step, chip: Chip) -> list[dict[str, Any]]:
    """What events say of a block's ops, wherever it stands."""
    found = []
    for op, full in priced.ops:
        price = price_at_clock(full, step.clock, chip)
        resources = {r: float(getattr(price, r)) for r in RESOURCES}
        found.append(
            {
                "name": op.name,
                "block": priced.block.name,
                "kind": op.category,
                "duration": float(price.time),
                "bound_by": max(resources, key=lambda r: resources[r]),
                "lower": float(price.lower),
                "flop": float(price.flop),
                "memory_bytes": float(price.memory_bytes),
                "saved": float(price.saved),
            }
        )
    return found


def _in_order(step: Step, order: BlockSequence) -> list[tuple[PricedBlock, int]]:
    """Blocks with the layer they stand in, -1 before all layers; a backward pass goes through them last
    first.
    """
    by_name = {b.block.name: b for b in step.blocks}
    back = {b.block.gradient_of: b for b in step.blocks if b.block.gradient_of}
    layers = int(float(order.layers))
    names = [(name, -1) for name in order.first]
    for i in range(layers):
        names += [(name, i) for name in order.layer_blocks(i)]
    names += [(name, layers) for name in order.last]
    forward = [(by_name[name], i) for name, i in names]
    return forward + [(back[name], i) for name, i in reversed(names) if name in back]
