"""What a little more of each resource buys: the same question asked again with one quantity changed at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from strata.evaluate import Result, evaluate
from strata.params import leaf_paths, override, value_at

# What an architect can buy more of, and the quantities that grow with it.
RESOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "matrix rate": (("chip", "compute.matrix_rate.*"),),
    "DRAM bandwidth": (("chip", "memory.bandwidth"),),
    "cache bandwidth": (("chip", "cache.bandwidth"),),
    "vector and special rates": (("chip", "compute.vector_rate"), ("chip", "compute.special_rate")),
    "network bandwidth": (("fabric", "dimension.*.bandwidth"),),
    "network latency (less)": (("fabric", "dimension.*.latency"),),
    "kernel floor (less)": (("chip", "overhead.kernel"),),
}


@dataclass(frozen=True)
class Gain:
    """A resource, and how much faster the answer gets with so much more of it."""

    resource: str
    more: float
    speedup: float


def sensitivity(result: Result, more: float = 0.1) -> list[Gain]:
    """Speed-up (or loss, negative) from so much more of each resource, one at a time, largest first.

    >>> import strata as st
    >>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=8, context=2048), "tp=8")
    >>> sensitivity(r)[0].resource
    'DRAM bandwidth'
    """
    gains = []
    base = _time(result)
    for name, changes in RESOURCES.items():
        scale = 1.0 / (1.0 + more) if name.endswith("(less)") else 1.0 + more
        chip, fabric = result.system.chip, result.system.fabric
        for owner, path in changes:
            if owner == "chip":
                chip, _ = override(chip, {p: v * scale for p, v in _matching(chip, path).items()}, "chip")
            else:
                fabric, _ = override(fabric, {p: v * scale for p, v in _matching(fabric, path).items()}, "fabric")
        system = replace(result.system, chip=chip, fabric=fabric)
        again = evaluate(system, result.model, result.workload, result.plan, result.engine, money=result.economics)
        gains.append(Gain(name, more, base / _time(again) - 1.0))
    return sorted(gains, key=lambda g: -g.speedup)


def _time(result: Result) -> float:
    metrics = result.metrics
    return float(np.asarray(metrics.step_time)) if result.workload.phase != "serve" else 1.0 / float(np.asarray(metrics.tokens_per_s))


def _matching(record: Any, pattern: str) -> dict[str, float]:
    """Quantities of a record whose path matches, with their values."""
    return {path: value_at(record, path) for path in leaf_paths(record) if fnmatchcase(path, pattern)}
