"""Picking a plan: every legal plan of a system priced in one batched call, best first, under limits on latency."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from strata.arrays import map_leaves
from strata.batch import take
from strata.errors import require
from strata.evaluate import Result, evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan, plans
from strata.workload.model import Model
from strata.workload.tasks import Workload


@dataclass(frozen=True)
class Choice:
    """One plan (and batch) with what it delivers, in order of merit."""

    result: Result
    rank: int
    considered: int
    feasible: int


def best_plans(
    system: System,
    model: Model,
    workload: Workload,
    engine: Engine | str = "ideal",
    *,
    ttft: float = float("inf"),
    tpot: float = float("inf"),
    metric: str = "tokens_per_s",
    top: int = 5,
) -> list[Choice]:
    """The best plans for a workload, whose batch may be a list; plans that miss a limit on latency do not count.

    >>> import strata as st
    >>> first = best_plans(st.system("8xh200"), st.model("llama-3-70b"), st.decode(batch=64, context=2048), top=1)[0]
    >>> first.result.fits, first.considered > 5
    (True, True)
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)
    every = plans(int(float(system.devices)), model, phase=workload.phase, zero=_levels(workload))
    batches = np.atleast_1d(np.asarray(workload.batch, float))
    work = replace(workload, batch=batches[:, None])
    box = evaluate(system, model, work, every, engine)
    m = box.metrics
    ok = box.fits & _within(m.ttft, ttft) & _within(m.tpot, tpot)
    score = np.where(ok, np.broadcast_to(getattr(m, metric), box.shape), -np.inf)
    order = np.argsort(-score, axis=None, kind="stable")[:top]
    found = []
    for rank, flat in enumerate(order):
        i, j = np.unravel_index(flat, box.shape)
        if np.isfinite(score[i, j]):
            point = evaluate(system, model, replace(workload, batch=float(batches[i])), plan_at(every, int(j)), engine)
            found.append(Choice(point, rank, int(score.size), int(ok.sum())))
    return found


def _levels(workload: Workload) -> tuple[int, ...]:
    """ZeRO levels worth trying: training can shard its state, or that and the weights."""
    return (0, 1, 3) if workload.phase == "train" else (0,)


def _within(value: object, limit: float) -> np.ndarray:
    """Whether a latency keeps its limit; a phase without that latency keeps every limit."""
    values = np.asarray(value, float)
    return (values <= limit) if np.isfinite(limit) else np.ones_like(values, bool)


def plan_at(every: Plan, index: int) -> Plan:
    """One plan out of many."""
    one: Plan = take(every, (index,), 1)
    return map_leaves(float, one)


def closest(system: System, model: Model, workload: Workload, engine: Engine | str = "ideal") -> Result:
    """Where no plan fits: the legal plan that needs the least memory, to say by how much."""
    every = plans(int(float(system.devices)), model, phase=workload.phase, zero=_levels(workload))
    box = evaluate(system, model, workload, every, engine)
    used = np.broadcast_to(box.metrics.memory_used, box.shape)
    return evaluate(system, model, workload, plan_at(every, int(np.argmin(used))), engine)
