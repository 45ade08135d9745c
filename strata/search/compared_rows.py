"""One row of a comparison: the best plan and batch of a model on a system with an engine, or why there is
none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import StrataError, UnknownName
from strata.base.units import show
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.plan import Plan, division_text, plan_text
from strata.mapping.plan import plan as make_plan
from strata.pricing.metrics import known_metric
from strata.result import RankedPlan, Result, why_infeasible
from strata.search.goal import metric_column
from strata.search.plan_for import METRIC_OF_GOAL, asked_requests, no_room, plan_for
from strata.search.plans import keeps_limits, largest_batches, with_batch
from strata.search.reasons import Difference, Measure, served_token_time, step_token_time
from strata.serving.curve import Curve
from strata.serving.load import closed_load
from strata.serving.load_metrics import ServingLimits
from strata.serving.requests import Requests, check_work
from strata.serving.served_plans import ServedPlan
from strata.serving.simulated_plans import answered_plans
from strata.software.engine import Engine
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode

BEST = "best"  # a plan that is to be found


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """The best plan of a combination, what it delivers and what that costs. Times are infinite and money is
    nan where a phase or a chip has none.
    """

    plan: str
    batch: float
    limited_by: str  # what one more sequence would break; "" where batches are told
    tokens_per_s: float
    ttft: float  # means, waiting included where requests are served [s]
    ttft_p95: float
    tpot: float
    step_time: float
    cost_per_mtoken: float  # [USD]
    energy_per_mtoken: float  # [J]
    cost_per_device_hour: float  # [USD]
    power: float  # of the system [W]
    result: Result  # the step; of requests that are served, that which generates
    measure: Measure
    served: ServedPlan | None = None

    @property
    def train_days(self) -> float:
        """Days to train on a trillion tokens."""
        return float(metric_column({"tokens_per_s": np.asarray(self.tokens_per_s)}, "train_days"))

    @property
    def train_cost(self) -> float:
        """What training on a trillion tokens costs [USD]."""
        return 1e6 * self.cost_per_mtoken

    def value(self, goal: str) -> float:
        """What a goal counts: tokens/s, USD/Mtoken, J/Mtoken, or time of a sequence [s]."""
        if goal == "fastest":
            return self.measure.own.time
        return {
            "throughput": self.tokens_per_s,
            "cheapest": self.cost_per_mtoken,
            "efficient": self.energy_per_mtoken,
        }[goal]


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedRow:
    """One combination: its answer, or why there is none, and how it differs from the reference row."""

    model: Model
    system: System
    engine: Engine
    asked_plan: str  # "best" or as typed
    answer: Answer | None = None
    why_none: str = ""
    difference: Difference | None = None

    @property
    def devices(self) -> float:
        return float(np.max(np.asarray(self.system.devices, float)))

    @property
    def names(self) -> tuple[str, str, str, str]:
        return self.model.name, self.system.name, self.engine.name, self.asked_plan


def typed_plan(text: str) -> Plan | None:
    return None if text in ("", BEST) else make_plan(text)


def answered_row(
    row: ComparedRow,
    work: Workload | Requests,
    limits: ServingLimits,
    goal: str,
    largest: bool = False,
    **served: Any,
) -> ComparedRow:
    """A combination with its answer, or why there is none. `largest`: of a step also the largest batch that
    keeps the limits; `served`: how requests are (`quick` in closed form, `drafting`).
    """
    plan = typed_plan(row.asked_plan)
    try:
        if isinstance(work, Requests) or work.phase == "serve":
            return _served_row(row, work, limits, goal, plan, served)
        check_work(row.model, work)
        return _step_row(row, work, limits, goal, plan, largest)
    except UnknownName:
        raise
    except StrataError as error:  # a chip without a quantity, a plan that a model does not have
        return replace(row, why_none=str(error))


def _served_row(
    row: ComparedRow,
    work: Workload | Requests,
    limits: ServingLimits,
    goal: str,
    plan: Plan | None,
    served: dict[str, Any],
) -> ComparedRow:
    case: tuple[Any, Any] = (row.system, row.model)
    told: dict[str, Any] = {**limits.told, "goal": goal, **served}
    if plan is None:
        ranking = plan_for(*case, work, row.engine, **told, top=1)
        found, why = ranking.served, ranking.why_none
        assert found is not None
    else:
        asked, clients = asked_requests(work)
        more: dict[str, Any] = {"goal": goal, "limits": limits, "clients": clients, **served}
        found = answered_plans(*case, asked, plan, row.engine, top=1, places=False, **more)
        fewest = 1.0 if clients is None else float(np.min(clients))
        why = "" if found.choices else _why_not_served(found.every, fewest, limits)
    if not found.choices:
        return replace(row, why_none=why)
    return replace(row, answer=_served_answer(found.curve.at(0), found.choices[0]))


def _why_not_served(curve: Curve, fewest: float, limits: ServingLimits) -> str:
    """Why a plan that is told serves nobody."""
    room, plan = float(curve.slots[0]), curve.plan_at(0)
    if room < fewest:
        work = decode(max(fewest, float(plan.dp)), curve.requests.context, **curve.requests.routed)
        result = evaluate(curve.system, curve.model, work, plan, curve.engine)
        if not result.fits:
            return why_infeasible(result)
        return no_room(f"plan {plan_text(plan)}", room, fewest)
    seen = closed_load(curve, fewest).at(0, 0)
    return _missed(plan_text(plan), limits, float(seen.ttft), float(seen.tpot), fewest)


def _missed(plan: str, limits: ServingLimits, ttft: float, tpot: float, batch: float) -> str:
    seen = [f"{k} {show(v, 's')}" for k, v in (("TTFT", ttft), ("TPOT", tpot)) if np.isfinite(v)]
    return (
        f"plan {plan} misses the limits{limits.text}: {' and '.join(seen)} at batch {batch:g}; "
        "levers: another plan, more devices, narrower weights"
    )


def _quantities(metrics: Any) -> dict[str, Any]:
    """What steps and served requests have in common."""
    names = ("tokens_per_s", "ttft", "tpot", "cost_per_mtoken", "cost_per_device_hour", "power")
    return {name: float(getattr(metrics, name)) for name in names}


def _served_answer(curve: Curve, one: ServedPlan) -> Answer:
    load, requests = one.load, curve.requests
    work = decode(max(one.clients, float(one.plan.dp)), requests.context, **requests.routed)
    own = served_token_time(curve, one.clients, load)
    measure = Measure(
        own=own,
        at=lambda batch: own if batch == one.clients else served_token_time(curve, batch),
        least=1.0,
        limited_by=one.limited_by,
        dollars=float(load.dollars),
        power=float(load.power),
    )
    return Answer(
        **_quantities(load),
        plan=plan_text(one.plan),
        batch=one.clients,
        limited_by=one.limited_by,
        ttft_p95=float(load.ttft_p95),
        step_time=float("inf"),
        energy_per_mtoken=float(load.energy_per_mtoken),
        result=evaluate(curve.system, curve.model, work, one.plan, curve.engine),
        measure=measure,
        served=one,
    )


def _step_row(
    row: ComparedRow, work: Workload, limits: ServingLimits, goal: str, plan: Plan | None, largest: bool
) -> ComparedRow:
    if plan is None:
        more: dict[str, Any] = {"ttft": limits.ttft, "tpot": limits.tpot, "goal": goal, "top": 1}
        ranking = plan_for(row.system, row.model, work, row.engine, **more, largest=largest)
        if ranking.why_none:
            return replace(row, why_none=ranking.why_none)
        best = ranking.choices[0].result
    else:
        found = _best_batch(row, work, limits, goal, plan, largest)
        if isinstance(found, str):
            return replace(row, why_none=found)
        best = found
    return replace(row, answer=_step_answer(best, limits, largest))


def _best_batch(
    row: ComparedRow, work: Workload, limits: ServingLimits, goal: str, plan: Plan, largest: bool
) -> Result | str:
    """The best batch of a plan that is told, or why it has none."""
    metric = METRIC_OF_GOAL[goal].get(work.phase, "tokens_per_s")
    sign = 1.0 if known_metric(metric, work.phase).higher_is_better else -1.0
    each = [
        evaluate(row.system, row.model, replace(work, batch=float(batch)), plan, row.engine)
        for batch in np.atleast_1d(np.asarray(work.batch, float))
    ]
    fitting = [r for r in each if r.fits]
    kept = [r for r in fitting if keeps_limits(r, limits.ttft, limits.tpot)]
    if not kept:
        if not fitting:
            return why_infeasible(min(each, key=lambda r: len(r.infeasible)))
        m = fitting[0].metrics
        return _missed(
            division_text(plan), limits, float(m.ttft), float(m.tpot), float(fitting[0].workload.batch)
        )
    best = max(kept, key=lambda r: sign * float(getattr(r.metrics, metric)))
    if not largest:
        return best
    choice = RankedPlan(result=best, rank=0, considered=len(each), feasible=len(kept))
    return largest_batches([choice], metric, limits.ttft, limits.tpot)[0].result


def _step_answer(result: Result, limits: ServingLimits, largest: bool) -> Answer:
    m = result.metrics
    limited = _limit_of_step(result, limits) if largest else ""
    devices, own = float(np.asarray(result.system.devices)), step_token_time(result)
    measure = Measure(
        own=own,
        at=lambda batch: step_token_time(with_batch(result, batch)),
        least=float(result.plan.dp),
        limited_by=limited,
        dollars=float(m.cost_per_device_hour) * devices / 3600.0,
        power=float(m.power),
    )
    return Answer(
        **_quantities(m),
        plan=division_text(result.plan),
        batch=own.batch,
        limited_by=limited,
        ttft_p95=float("inf"),
        step_time=float(m.step_time),
        energy_per_mtoken=1e6 * float(m.energy_per_token),
        result=result,
        measure=measure,
    )


def _limit_of_step(result: Result, limits: ServingLimits) -> str:
    """What one more sequence would break; "" where a batch is not the largest because a smaller is better."""
    more = with_batch(result, float(result.workload.batch) + 1.0)
    if not more.fits:
        return "memory" if any(i.unit == "B" for i in more.infeasible) else "power or plan"
    if keeps_limits(more, limits.ttft, limits.tpot):
        return ""
    return "TPOT" if result.workload.phase == "decode" else "TTFT"
