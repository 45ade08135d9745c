"""Picking a plan: every legal plan of a system priced in one batched call, in every order on its fabric, best
first, under limits on latency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import require
from strata.base.expression import holds_at
from strata.evaluate import evaluate
from strata.hardware.fabric import Dimension
from strata.hardware.system import System, as_system
from strata.mapping.kernel_parallel import Strategy, by_structure, layout_of, strategies
from strata.mapping.place import orders_matter, try_orders
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plans import candidate_plans, plan_at, taken
from strata.mapping.rules import LIMITS
from strata.pricing.metrics import METRICS, RATE, TIME, Metric, known_metric
from strata.pricing.training_memory import STATE
from strata.result import RankedPlan, Result
from strata.software.engine import Engine
from strata.workload.model import Model
from strata.workload.program import program as make_program
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

MOST_SEQUENCES = 2.0**40  # batches that are looked at: more than any memory holds


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
    where: str = "",
) -> list[RankedPlan]:
    """The best plans for a workload by a metric, whose batch may be a list; plans that miss a limit on
    latency do not count.

    Each plan counts in its best order on the fabric. Of training micro-batches, recomputation, schedules and
    ZeRO levels are tried too (`search_training`), and each mesh counts once.

    >>> import strata as st
    >>> system, model, work = st.system("8xh200"), st.model("llama-3-70b"), st.decode(batch=64, context=2048)
    >>> first = best_plans(system, model, work, top=1)[0]
    >>> first.result.fits, first.considered > 5
    (True, True)
    """
    require(ttft > 0 and tpot > 0, "limits on latency must be positive", ttft=ttft, tpot=tpot)
    declared = known_metric(metric, workload.phase)
    if workload.phase == "train":
        from strata.training.plan_search import ranked_training  # other phases start without

        return ranked_training(system, model, workload, engine, metric=metric, top=top, where=where)
    legal = candidate_plans(system, model, workload, engine, where)
    every, batches = legal, np.atleast_1d(np.asarray(workload.batch, float))
    if len(batches) > 1:
        least = replace(workload, batch=batches.min())
        every = taken(legal, _weights_fit(system, model, least, legal, engine))

    def score(plan: Plan, rows: np.ndarray, on: System = system) -> tuple[Result, np.ndarray]:
        """The metric of batches x plans, larger is better; -inf where a plan is out."""
        box = evaluate(on, model, replace(workload, batch=rows[:, None]), plan, engine)
        ok = box.fits & keeps_limits(box, ttft, tpot)
        values = np.broadcast_to(np.asarray(getattr(box.metrics, metric), float), box.shape)
        return box, np.where(
            ok & np.isfinite(values), values if declared.higher_is_better else -values, -np.inf
        )

    box, scores = score(every, batches)
    order, priced = np.zeros(scores.shape), 0
    if orders_matter(system.fabric):
        at, some = _contenders(system, every, batches, score, (box, scores), top, declared)
        priced = try_orders(
            system, every, lambda plan: score(plan, batches[some])[1], scores, order, at, some
        )
    counts: dict[str, Any] = {"feasible": int(np.isfinite(scores).sum()), "placed": priced}
    ranked = []
    for rank, (i, j) in enumerate(ranked_places(scores, top)):
        plan = replace(plan_at(every, j), order=float(order[i, j]))
        result = evaluate(system, model, replace(workload, batch=float(batches[i])), plan, engine)
        considered = np.size(legal.tp) * len(batches)
        ranked.append(RankedPlan(result=result, rank=rank, considered=considered, **counts))
    return ranked


def ranked_places(scores: np.ndarray, top: int) -> list[tuple[int, int]]:
    """Where the highest scores of a table stand, best first; none of those that are out (-inf)."""
    order = np.argsort(-scores, axis=None, kind="stable")[:top]
    places = zip(*np.unravel_index(order, scores.shape), strict=True)
    return [(int(i), int(j)) for i, j in places if np.isfinite(scores[i, j])]


def _contenders(
    system: System,
    every: Plan,
    batches: np.ndarray,
    score: Any,
    found: tuple[Result, np.ndarray],
    top: int,
    metric: Metric,
) -> tuple[np.ndarray, np.ndarray]:
    """Plans, and batches, that may win in another order: those that are legal and fit.

    A plan is left out where it would not be among the best even with links that cost nothing: no order is
    quicker. They bound times and rates of steps.
    """
    box, scores = found
    possible = (box.reason & ~LIMITS.bit) == 0
    if metric.kind in (TIME, RATE) and possible.any():
        least = np.sort(scores, axis=None)[::-1][min(top, scores.size) - 1]
        at = np.flatnonzero(possible.any(axis=0))
        free, most = score(taken(every, at), batches, _without_links(system))
        possible[:, at] &= (most >= least) | (free.reason == LIMITS.bit)
    return np.flatnonzero(possible.any(axis=0)), np.flatnonzero(possible.any(axis=1))


def _weights_fit(
    system: System, model: Model, least: Workload, every: Plan, engine: Engine | str
) -> np.ndarray:
    """Plans whose weights alone fit a device, by their smallest batch: no other batch of the rest can fit."""
    box = evaluate(system, model, least, every, engine)
    held = sum((size for purpose, size in box.summary.memory.items() if purpose in ("weights", *STATE)), 0.0)
    room: np.ndarray = np.broadcast_to(held <= box.metrics.memory_limit, np.shape(every.tp))
    return room if room.any() else ~room


def _without_links(system: System) -> System:
    """The system with links that cost nothing: no order on the real fabric is quicker."""
    nothing = {"bandwidth": 1e30, "latency": 0.0, "energy": 0.0, "reduction": None}
    free = plain_dimension(system.fabric.dimension[0], kind="full", size=system.devices, **nothing)
    return replace(system, fabric=replace(system.fabric, dimension=(free,)))


def plain_dimension(one: Dimension, **changes: Any) -> Dimension:
    """A dimension of a fabric that reaches its bandwidth, changed, by links of its own and whatever carries
    messages.
    """
    unlimited: dict[str, Any] = {"efficiency": 1.0, "oversubscription": None, "links": None}
    return replace(one, **unlimited, transport_model=None, transport="", shares_links_of="", **changes)


def _within(value: object, limit: float) -> np.ndarray:
    """Whether a latency keeps its limit; a phase without that latency keeps every limit."""
    values = np.asarray(value, float)
    return (values <= limit) if np.isfinite(limit) else np.ones_like(values, bool)


def keeps_limits(result: Result, ttft: float, tpot: float) -> np.ndarray:
    """Where steps keep limits on latency."""
    return _within(result.metrics.ttft, ttft) & _within(result.metrics.tpot, tpot)


def with_batch(result: Result, batch: float) -> Result:
    """The same step with another batch."""
    work = replace(result.workload, batch=batch)
    return evaluate(result.system, result.model, work, result.plan, result.engine)


def closest_plan(
    system: System, model: Model, workload: Workload, engine: Engine | str = "ideal", where: str = ""
) -> Result:
    """Where no plan fits: the legal plan that needs the least memory, to say by how much."""
    if workload.phase == "train":
        from strata.training.plan_search import search_training

        return search_training(system, model, workload, engine, top=1, where=where).nearest
    every = candidate_plans(system, model, workload, engine, where)
    box = evaluate(system, model, workload, every, engine)
    used = np.broadcast_to(box.metrics.memory_used, box.shape)
    return evaluate(system, model, workload, plan_at(every, int(np.argmin(used))), engine)


def largest_batches(
    choices: list[RankedPlan], metric: str, ttft: float = float("inf"), tpot: float = float("inf")
) -> list[RankedPlan]:
    """Plans of single steps with the largest batch that fits and keeps the limits, where it is better by the
    metric than the batch they were found with; best first.

    The batch is found by doubling and halving: so many keep the limits, one more does not.
    """
    declared = known_metric(metric, choices[0].result.workload.phase)

    def kept(result: Result) -> bool:
        return bool(result.fits) and bool(np.all(keeps_limits(result, ttft, tpot)))

    def value(result: Result) -> float:
        number = float(getattr(result.metrics, metric))
        return number if declared.higher_is_better else -number

    found: dict[tuple[str, float], RankedPlan] = {}
    for choice in choices:
        low, high = float(choice.result.workload.batch), 2.0 * float(choice.result.workload.batch)
        while high <= MOST_SEQUENCES and kept(with_batch(choice.result, high)):
            low, high = high, 2.0 * high
        while high - low > 1.0:
            middle = float(np.floor(0.5 * (low + high)))
            low, high = (middle, high) if kept(with_batch(choice.result, middle)) else (low, middle)
        more = with_batch(choice.result, low)
        best = replace(choice, result=more) if value(more) > value(choice.result) else choice
        found.setdefault((plan_text(best.result.plan), float(best.result.workload.batch)), best)
    ranked = sorted(found.values(), key=lambda c: -value(c.result))
    return [replace(choice, rank=rank) for rank, choice in enumerate(ranked)]


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
