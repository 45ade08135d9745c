"""The best plans of a model on a system under limits on latency; where there is none, why not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.layout import STAGES, Layout
from strata.mapping.plan import division_text, plan_text
from strata.mapping.rules import CORES
from strata.pricing.price import RESOURCES
from strata.result import Result
from strata.search.plans import RankedPlan, best_plans, closest_plan
from strata.search.strategies import best_strategies, closest_strategy
from strata.units import show
from strata.workload.model import Model
from strata.workload.program import Program
from strata.workload.program import program as make_program
from strata.workload.tasks import Workload


@dataclass(frozen=True, kw_only=True)
class PlanRanking:
    """Plans x batches that fit and keep the limits, best first; where none does, why, and the nearest one."""

    choices: list[RankedPlan] = field(default_factory=list)
    nearest: (
        Result  # the best one; else the quickest where limits are missed, the smallest where nothing fits
    )
    why_none: str = ""
    ttft: float = float("inf")  # limits [s]
    tpot: float = float("inf")

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
    workload: Workload,
    engine: Engine | str = "ideal",
    *,
    ttft: float = float("inf"),
    tpot: float = float("inf"),
    top: int = 8,
    where: str = "",
) -> PlanRanking:
    """The best plans by tokens/s, out of every legal one at every batch of the workload, under limits [s]; of
    programs that kernel parallelism divides the best strategies by items/s.

    `where` keeps some plans by a condition over their degrees, like ``(ep == 1) & (cp == 1)``.

    >>> import strata as st
    >>> ranking = plan_for("8xh200", "llama-3-70b", st.serve(64, 1024, 256), tpot=0.04, top=2)
    >>> len(ranking.choices), ranking.feasible < ranking.considered, ranking.nearest.fits
    (2, True, True)
    """
    hardware = as_system(system)
    served: Any = make_program(model) if isinstance(model, str) else model
    software = as_engine(engine)
    if hasattr(served, "kernel_modules"):
        return _strategy_ranking(hardware, served, workload, software, top, where)
    case = (hardware, served, workload, software)
    choices = best_plans(*case, ttft=ttft, tpot=tpot, top=top, where=where)
    if choices:
        return PlanRanking(choices=choices, nearest=choices[0].result, ttft=ttft, tpot=tpot)
    if not best_plans(*case, top=1, where=where):
        least = replace(workload, batch=float(np.min(workload.batch)))
        nearest = closest_plan(hardware, served, least, software, where)
        return PlanRanking(nearest=nearest, why_none=why_infeasible(nearest), ttft=ttft, tpot=tpot)
    from strata.serving.under_load import limits_text

    quick = best_plans(*case, top=1, metric="tokens_per_s_per_user", where=where)[0].result
    why = (
        f"no plan keeps the limits{limits_text(ttft, tpot)}; "
        f"the quickest has TTFT {_time(quick.metrics.ttft)} and TPOT {_time(quick.metrics.tpot)} "
        f"({plan_text(quick.plan)}, batch {quick.workload.batch:g}); "
        "levers: fewer sequences, more devices, narrower weights"
    )
    return PlanRanking(nearest=quick, why_none=why, ttft=ttft, tpot=tpot)


def _strategy_ranking(
    system: System, program: Program, workload: Workload, engine: Engine, top: int, where: str
) -> PlanRanking:
    """The same of kernel parallelism: by items/s, without limits on latency."""
    choices = best_strategies(system, program, workload, engine, top=top, where=where)
    if choices:
        return PlanRanking(choices=choices, nearest=choices[0].result)
    least = replace(workload, batch=float(np.min(workload.batch)))
    nearest = closest_strategy(system, program, least, engine, where)
    return PlanRanking(nearest=nearest, why_none=why_infeasible(nearest))


def _time(seconds: object) -> str:
    value = float(np.asarray(seconds))
    return show(value, "s") if np.isfinite(value) else "-"


def why_infeasible(result: Result) -> str:
    """Why a single result is out, in one line with levers; a plan that is not legal comes before a device
    that is too small or too hot.

    >>> import strata as st
    >>> result = st.evaluate("1xh100", "llama-3-8b", st.decode(batch=256, context=8192))
    >>> why_infeasible(result).partition(";")[0]
    'llama-3-8b does not fit on 1xh100 with plan tp=1: a device needs 291 GB and has 85.9 GB'
    """
    broken = sorted(result.infeasible, key=lambda i: i.unit != "1")
    first, more = broken[0], f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    need, have = show(first.demand, first.unit), show(first.limit, first.unit)
    levers = f"levers: {', '.join(first.levers)}"
    rule = f"{first.what}, but got {need} against {have}"
    chip, system, model = result.system.chip.name, result.system.name, result.model.name
    plan = f"plan {division_text(result.plan)}"
    if first.what == CORES.relation:
        return f"{chip} cannot be built: {rule}{more}; {levers}"
    if first.unit == "1":
        return f"{plan} is not legal: {rule}{more}; {levers}"
    if first.unit == "B":
        needs = f"a device needs {need} and has {have}"
        return f"{model} does not fit on {system} with {plan}: {needs}; {levers}"
    return f"{model} cannot run on {system} with {plan}: {rule}; {levers}"


def why_behind(result: Result, best: Result) -> str:
    """How much throughput a plan loses against the best one, and the op on which it spends most more for a
    sequence, with what that waits for.
    """
    if result is best:
        return "the best"
    metric = "items_per_s" if isinstance(result.plan, Layout) else "tokens_per_s"
    loss = 1 - float(getattr(result.metrics, metric)) / float(getattr(best.metrics, metric))
    own, theirs = time_by_op(result), time_by_op(best)
    grown = {name: time - theirs.get(name, 0.0) for name, time in own.items()}
    most = max(grown, key=lambda name: grown[name])
    return f"-{loss:.1%}" + (f" {most}" if grown[most] > 0 else "")


def time_by_op(result: Result) -> dict[str, float]:
    """Time of each op for one sequence [s], over a whole answer where one is served; what stages wait for
    each other beside.
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
        bubble = each * float(step.time - step.price.time)
        times["waiting for other stages"] = times.get("waiting for other stages", 0.0) + bubble
    return times
