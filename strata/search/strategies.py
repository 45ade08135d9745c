"""Picking a strategy of kernel parallelism: every legal one of a system, priced in batched calls, the best
first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.errors import require
from strata.evaluate import evaluate
from strata.expression import holds_at
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine
from strata.mapping.kernel_parallel import Strategy, by_structure, layout_of, strategies
from strata.pricing.metrics import METRICS
from strata.result import RankedPlan, Result
from strata.search.plans import ranked_places
from strata.workload.program import Program
from strata.workload.program import program as make_program
from strata.workload.tasks import Workload


@dataclass(frozen=True, eq=False, kw_only=True)
class PricedStrategies:
    """Strategies with a metric at every batch [batches, strategies], memory, and whether they fit."""

    strategies: Strategy
    values: np.ndarray
    memory: np.ndarray
    fits: np.ndarray


def price_strategies(
    system: System | str,
    program: Program | str,
    workload: Workload,
    many: Strategy,
    engine: Engine | str = "ideal",
    *,
    metric: str = "step_time",
    backward: str = "gather",
) -> PricedStrategies:
    """Arrays of strategies, of one or of several structures, priced in one call for each structure.

    >>> import strata as st
    >>> lstm = st.program("lstm-lm-v100")
    >>> made = strategies(8, lstm, per_module=True)
    >>> priced = price_strategies("8xh200", lstm, st.train(64, 1), made)
    >>> priced.values.shape, bool(priced.fits.all())
    ((1, 963), True)
    """
    hardware = as_system(system)
    code = make_program(program) if isinstance(program, str) else program
    batches = np.atleast_1d(np.asarray(workload.batch, float))
    work = replace(workload, batch=batches[:, None])
    count = np.size(many.dp)
    values, memory = np.empty((len(batches), count)), np.empty((len(batches), count))
    fits = np.empty((len(batches), count), bool)
    for where, part in by_structure(many):
        box = evaluate(hardware, code, work, layout_of(part, code, backward=backward), engine)
        values[:, where] = np.broadcast_to(np.asarray(getattr(box.metrics, metric), float), box.shape)
        memory[:, where] = np.broadcast_to(box.metrics.memory_used, box.shape)
        fits[:, where] = box.fits
    return PricedStrategies(strategies=many, values=values, memory=memory, fits=fits)


def candidate_strategies(system: System, program: Any, where: str = "", **which: Any) -> Strategy:
    """Every legal strategy of a system; `where` keeps some, by a condition over kp1, kp2, depth, dp and pp.

    >>> import strata as st
    >>> some = candidate_strategies(st.system("8xh200"), st.program("gemm-8192"), "(dp == 1) & (depth == 1)")
    >>> some.kp1.tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    many = strategies(int(float(system.devices)), program, **which)
    if not where:
        return many
    split = many.split
    named = {"kp1": split.rows, "kp2": split.columns, "depth": split.depth, "dp": many.dp, "pp": many.lp}
    kept = holds_at(where, named, np.size(many.dp), "where")
    require(bool(kept.any()), "no legal strategy is left by the condition", where=where)
    return many.at(np.flatnonzero(kept))


def best_strategies(
    system: System | str,
    program: Program | str,
    workload: Workload,
    engine: Engine | str = "ideal",
    *,
    metric: str = "items_per_s",
    top: int = 5,
    where: str = "",
    kinds: tuple[str, ...] = ("RC", "CR"),
    per_module: bool = False,
    backward: str = "gather",
) -> list[RankedPlan]:
    """The best strategies for a workload by a metric, out of every legal one at every batch; only those that
    fit.

    >>> import strata as st
    >>> first = best_strategies("8xh200", "lstm-lm-v100", st.train(64, 1), top=1)[0]
    >>> from strata.mapping.plan import division_text
    >>> division_text(first.result.plan), first.considered
    ('RC-1-8', 13)
    """
    hardware = as_system(system)
    code = make_program(program) if isinstance(program, str) else program
    many = candidate_strategies(hardware, code, where, kinds=kinds, per_module=per_module)
    priced = price_strategies(hardware, code, workload, many, engine, metric=metric, backward=backward)
    better = priced.values if METRICS[metric].higher_is_better else -priced.values
    scores = np.where(priced.fits & np.isfinite(better), better, -np.inf)
    batches = np.atleast_1d(np.asarray(workload.batch, float))
    ranked = []
    counts: dict[str, Any] = {"considered": scores.size, "feasible": int(np.isfinite(scores).sum())}
    for rank, (i, j) in enumerate(ranked_places(scores, top)):
        plan = layout_of(many.at(j), code, backward=backward)
        one = replace(workload, batch=float(batches[i]))
        ranked.append(RankedPlan(result=evaluate(hardware, code, one, plan, engine), rank=rank, **counts))
    return ranked


def closest_strategy(
    system: System,
    program: Program | str,
    workload: Workload,
    engine: Engine | str = "ideal",
    where: str = "",
) -> Result:
    """Where no strategy fits: the one that needs the least memory, to say by how much."""
    many = candidate_strategies(system, program, where)
    priced = price_strategies(system, program, workload, many, engine)
    least = int(np.argmin(priced.memory[0]))
    return evaluate(system, program, workload, many.at(least), engine)
