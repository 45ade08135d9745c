"""The best plans of a model on a system under limits on latency; where there is none, why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.base.errors import BadValue, require
from strata.base.units import show
from strata.evaluate import evaluate
from strata.hardware.system import System, as_system
from strata.mapping.layout import STAGES, Layout
from strata.mapping.plan import Plan, layout_degrees, plan_text
from strata.pricing.price import RESOURCES
from strata.result import RankedPlan, Result, why_infeasible
from strata.search.plans import best_plans, best_strategies, closest_plan, closest_strategy, largest_batches
from strata.serving.load_metrics import ServingGoal, ServingLimits, serving_goal
from strata.serving.requests import Requests, check_work, requests_of
from strata.software.engine import Engine, as_engine, usual_engine
from strata.workload.model import Model
from strata.workload.program import program as make_program
from strata.workload.protocol import Program, member
from strata.workload.tasks import Workload, decode

if TYPE_CHECKING:
    from strata.serving.served_plans import ServedPlans
    from strata.serving.speculation import Drafting

METRIC_OF_GOAL = {
    "throughput": {},
    "cheapest": dict.fromkeys(("prefill", "decode", "serve", "train"), "cost_per_mtoken"),
    "fastest": {"prefill": "ttft", "decode": "tpot", "serve": "tpot", "train": "step_time"},
    "efficient": dict.fromkeys(("prefill", "decode", "serve", "train"), "energy_per_token"),
}
# of a step's time, what no op of it takes
WAITED_FOR = {"bubble": "waiting for other stages", "host": "the engine's host"}


@dataclass(frozen=True, kw_only=True)
class PlanRanking:
    """Plans x batches that fit and keep the limits, best first; where none does, why, and the nearest one."""

    choices: list[RankedPlan] = field(default_factory=list)
    nearest: Result  # the best; else the quickest where limits are missed, the smallest where none fits
    why_none: str = ""
    ttft: float = float("inf")  # limits [s]
    tpot: float = float("inf")
    share: float | None = None
    goal: str = "throughput"
    served: ServedPlans | None = None  # where requests are served: what clients see, and what it costs

    def __repr__(self) -> str:
        if self.why_none:
            return f"PlanRanking(none: {self.why_none})"
        best = self.choices[0]
        return f"PlanRanking({self.feasible} of {self.considered}; best: {best.served or best.result!r})"

    @property
    def considered(self) -> int | None:
        """Plans x batches that are legal."""
        return self.choices[0].considered if self.choices else None

    @property
    def feasible(self) -> int:
        """Those of them that fit and keep the limits."""
        return self.choices[0].feasible if self.choices else 0


def plan_for(
    system: System | str,
    model: Model | Program | str,
    workload: Workload | Requests,
    engine: Engine | str = "",
    *,
    ttft: float = float("inf"),
    tpot: float = float("inf"),
    share: float | None = None,
    goal: str = "throughput",
    top: int = 8,
    where: str = "",
    at_once: bool = False,
    largest: bool = False,
    quick: bool = False,
    heard: Callable[[str], None] | None = None,
    drafting: Drafting | None = None,
) -> PlanRanking:
    """The best plans by a goal (throughput, cheapest, fastest, efficient), out of every legal one, under
    limits [s].

    Of `Requests` each plan has the largest number of clients that keeps the limits; of `st.serve` each of its
    batches as clients. What they see is what `strata serving` says: `choices[i].served`, the best simulated
    request by request unless `quick` (`heard` is told which), with tokens guessed by `drafting`. `at_once`:
    the batch is one, all of whose prompts come together and which nothing follows, as `strata predict` has
    it. Other phases are single steps, at every batch of the workload; `largest`: then also at the largest
    that keeps the limits. Of programs that kernel parallelism divides the best strategies by items/s. `where`
    keeps some plans by a condition over their degrees, like ``(ep == 1) & (cp == 1)``.

    >>> import strata as st
    >>> ranking = plan_for("8xh200", "llama-3-70b", st.serving.Requests(1024, 256), tpot=0.04, top=2)
    >>> len(ranking.choices), ranking.feasible < ranking.considered, ranking.choices[0].served.limited_by
    (2, True, 'TPOT')
    """
    hardware, wanted = as_system(system), serving_goal(goal)
    served: Any = make_program(model) if isinstance(model, str) else model
    serves = isinstance(workload, Requests) or (workload.phase == "serve" and not at_once)
    software = as_engine(engine or usual_engine("serve" if serves else ""))
    limits = ServingLimits(ttft=ttft, tpot=tpot, share=share)
    require(top >= 1, "at least one plan is asked for", top=top)
    if member(served, "kernel_modules"):
        require(goal == "throughput", "strategies are ranked by throughput alone", goal=goal)
        if isinstance(workload, Requests):
            raise BadValue(f"{served.name} answers no requests; give a workload")
        return _strategy_ranking(hardware, served, _listed(workload), software, top, where)
    if not isinstance(served, Model):
        known = ", ".join(layout_degrees(served)) or "none"
        raise BadValue(
            f"plans of language models are ranked, and {served.name} is none: say how it is divided with "
            f"strata predict --plan (its degrees: {known})"
        )
    if isinstance(workload, Requests) or serves:
        told = {"top": top, "where": where}
        how: dict[str, Any] = told | {"quick": quick, "heard": heard, "drafting": drafting}
        return _served_ranking(hardware, served, workload, software, wanted, limits, how)
    case = (hardware, served, workload, software)
    return _step_ranking(case, limits, goal, top, where, largest)


def _step_ranking(
    case: tuple[System, Model, Workload, Engine],
    limits: ServingLimits,
    goal: str,
    top: int,
    where: str,
    largest: bool,
) -> PlanRanking:
    """Plans of single steps."""
    hardware, served, workload, software = case
    check_work(served, workload)
    ttft, tpot = limits.ttft, limits.tpot
    case = (hardware, served, _listed(workload), software)
    metric = METRIC_OF_GOAL[goal].get(workload.phase, "tokens_per_s")
    told: dict[str, Any] = {"ttft": ttft, "tpot": tpot, "goal": goal}
    choices = best_plans(*case, ttft=ttft, tpot=tpot, metric=metric, top=top, where=where)
    if choices:
        choices = largest_batches(choices, metric, ttft, tpot) if largest else choices
        return PlanRanking(choices=choices, nearest=choices[0].result, **told)
    if not best_plans(*case, top=1, where=where):
        nearest = closest_plan(hardware, served, _least(workload), software, where)
        return PlanRanking(nearest=nearest, why_none=why_infeasible(nearest), **told)
    quickest = METRIC_OF_GOAL["fastest"][workload.phase]
    fastest = best_plans(*case, top=1, metric=quickest, where=where)[0].result
    seen = (_time(fastest.metrics.ttft), _time(fastest.metrics.tpot))
    return PlanRanking(nearest=fastest, why_none=_limits_missed(limits, seen, fastest), **told)


def _listed(workload: Workload) -> Workload:
    """A workload whose batch may be told as a list."""
    return replace(workload, batch=np.asarray(workload.batch, float)) if np.ndim(workload.batch) else workload


def _least(workload: Workload) -> Workload:
    return replace(workload, batch=float(np.min(workload.batch)))


def _limits_missed(limits: ServingLimits, seen: tuple[str, str], quick: Result) -> str:
    """Why there is no plan: the quickest misses a limit."""
    return (
        f"no plan keeps the limits{limits.text}; "
        f"the quickest has TTFT {seen[0]} and TPOT {seen[1]} "
        f"({plan_text(quick.plan)}, batch {quick.workload.batch:g}); "
        "levers: fewer sequences, more devices, narrower weights"
    )


def asked_requests(work: Workload | Requests) -> tuple[Requests, np.ndarray | None]:
    """Requests as they are asked for, and their clients where a workload says how many."""
    if isinstance(work, Requests):
        return work, None
    return requests_of(work), np.atleast_1d(np.asarray(work.batch, float))


def no_room(what: str, room: float, fewest: float) -> str:
    """Why nobody is served: there is no room for so many."""
    said = f"{what} has room for {room:g} requests at once, but got {fewest:g}"
    return f"{said}; levers: fewer, more devices, narrower kv"


def _served_ranking(
    system: System,
    model: Model,
    workload: Workload | Requests,
    engine: Engine,
    goal: ServingGoal,
    limits: ServingLimits,
    how: dict[str, Any],
) -> PlanRanking:
    """Plans that serve requests, by what their clients see."""
    from strata.serving.load import closed_load  # queues and curves: predictions of a step start without
    from strata.serving.simulated_plans import answered_plans

    asked, clients = asked_requests(workload)
    found = answered_plans(
        system, model, asked, None, engine, goal=goal.name, limits=limits, clients=clients, **how
    )

    def step(plan: Plan, batch: float) -> Result:
        """The step that generates for so many, in the middle of their answers."""
        work = decode(max(batch, float(plan.dp)), asked.context, **asked.routed)
        return evaluate(found.curve.system, model, work, plan, engine)

    told: dict[str, Any] = {**limits.told, "goal": goal.name, "served": found}
    if found.choices:
        counts = {"considered": found.considered, "feasible": found.feasible, "placed": found.placed}
        choices = [
            RankedPlan(result=step(one.plan, one.clients), rank=rank, served=one, **counts)
            for rank, one in enumerate(found.choices)
        ]
        return PlanRanking(choices=choices, nearest=choices[0].result, **told)
    fewest = 1.0 if clients is None else float(np.min(clients))
    if not np.any(found.every.slots >= fewest):
        work = decode(fewest, asked.context, **asked.routed)
        nearest = closest_plan(system, model, work, engine, how["where"])
        if not nearest.fits:
            return PlanRanking(nearest=nearest, why_none=why_infeasible(nearest), **told)
        room = float(np.max(found.every.slots))
        why = no_room(f"{model.name} on {system.name}", room, fewest)
        return PlanRanking(nearest=nearest, why_none=why, **told)
    seen = closed_load(found.every, fewest).at(slice(None), 0)
    quick = limits.nearest(seen)
    times = (
        _time(seen.ttft_at(limits.share)[quick] if limits.share else seen.ttft[quick]),
        _time(seen.tpot[quick]),
    )
    nearest = step(found.every.plan_at(quick), fewest)
    return PlanRanking(nearest=nearest, why_none=_limits_missed(limits, times, nearest), **told)


def _strategy_ranking(
    system: System, program: Program, workload: Workload, engine: Engine, top: int, where: str
) -> PlanRanking:
    """The same of kernel parallelism: by items/s, without limits on latency."""
    choices = best_strategies(system, program, workload, engine, top=top, where=where)
    if choices:
        return PlanRanking(choices=choices, nearest=choices[0].result)
    nearest = closest_strategy(system, program, _least(workload), engine, where)
    return PlanRanking(nearest=nearest, why_none=why_infeasible(nearest))


def _time(seconds: object) -> str:
    value = float(np.asarray(seconds))
    return show(value, "s") if np.isfinite(value) else "-"


def why_behind(result: Result, best: Result, loss: str = "") -> str:
    """How much throughput a plan loses against the best one (or what else it is told to lose), and the op on
    which it spends most more for a sequence, with what that waits for.
    """
    if result is best:
        return "the best"
    if not loss:
        metric = "items_per_s" if isinstance(result.plan, Layout) else "tokens_per_s"
        loss = f"-{1 - float(getattr(result.metrics, metric)) / float(getattr(best.metrics, metric)):.1%}"
    own, theirs = time_by_op(result), time_by_op(best)
    grown = {name: time - theirs.get(name, 0.0) for name, time in own.items()}
    most = max(grown, key=lambda name: grown[name])
    return loss + (f" {most}" if grown[most] > 0 else "")


def time_by_op(result: Result) -> dict[str, float]:
    """Time of each op for one sequence [s], over a whole answer where one is served; the engine's host, and
    what stages wait for each other, beside.
    """
    reading, generating = result.workload.steps()
    repeated = 1.0 if reading is None else float(result.workload.output)
    weights = [*([] if reading is None else [1.0]), *(float(weight) * repeated for weight, _ in generating)]
    times: dict[str, float] = {}
    for step, weight in zip(result.steps, weights, strict=True):
        each = weight / float(result.workload.batch)
        stages = result.plan.mesh.get(STAGES, 1.0) if isinstance(result.plan, Layout) else result.plan.pp
        share = each * float(step.microbatches) / float(stages)
        for block in step.blocks:
            for op, price in block.ops:
                waits = max(RESOURCES, key=lambda r: float(getattr(price, r)))
                name = f"{op.name.replace('_', ' ')} ({waits})"
                times[name] = times.get(name, 0.0) + float(block.block.times * price.time) * share
        for wait, name in WAITED_FOR.items():
            times[name] = times.get(name, 0.0) + each * float(step.time_by_bound[wait])
    return times
