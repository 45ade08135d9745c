"""Which plans serve requests best: for each the largest number at once that keeps limits on latency, what its
clients see there, and what it costs. One answer for `strata plan` and `strata serving`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadValue, require
from strata.base.records import readable
from strata.base.units import show
from strata.evaluate import evaluate
from strata.hardware.fabric import Fabric
from strata.hardware.system import System, as_system
from strata.mapping.place import in_every_order, orders_matter
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan_layout import active_groups
from strata.mapping.plans import candidate_plans, taken
from strata.serving.curve import Curve, as_many, curve
from strata.serving.load import closed_load, largest_concurrency, most_rate
from strata.serving.load_metrics import LoadMetrics, ServingGoal, ServingLimits, serving_goal
from strata.serving.pools import plan_part, pool, used_counts
from strata.serving.requests import Requests
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.tasks import decode, serve

# more plans than this are first priced at few numbers of sequences, and so many are left
MANY, ROUGH, AT_A_TIME = 192, 6, 512
PLACED = 16  # of the best plans are tried in every order on the fabric
TIE = 1e-12  # weight of throughput where plans are equal in what is asked for


@readable("plan", "clients", "load", "slots", "limited_by")
@dataclass(frozen=True, eq=False, kw_only=True)
class ServedPlan:
    """One plan with so many clients, each waiting for its answer: what they see and what it costs."""

    plan: Plan
    clients: float  # requests at once
    load: LoadMetrics
    slots: float  # sequences there is room for
    limited_by: str  # what one more client would break: TTFT, TPOT, memory, engine; "" where clients are told
    row: int = 0  # of its plan in the curve of its `ServedPlans`
    closed: LoadMetrics | None = None  # in closed form, where `load` was simulated
    deployment: Any = None  # that was simulated, its steps priced

    @property
    def simulated(self) -> bool:
        """Whether what clients see was simulated request by request."""
        return self.closed is not None

    @property
    def used(self) -> str:
        """How many devices work where others stay idle, like ``64 of 72 used``; else empty."""
        devices, every = float(self.plan.devices), float(self.load.devices)
        return f"{devices:g} of {every:g} used" if devices < every else ""


@readable("goal", "limits", "considered", "feasible")
@dataclass(frozen=True, eq=False, kw_only=True)
class ServedPlans:
    """Plans x numbers of clients that keep the limits, best first; the nearest where none does."""

    every: Curve  # of all plans looked at closely
    curve: Curve  # of the plans of `choices`, in their order, then of those next to them
    choices: list[ServedPlan] = field(default_factory=list)
    goal: ServingGoal
    limits: ServingLimits
    considered: int
    feasible: int
    placed: int = 0  # other orders on the fabric that were priced

    @property
    def fits(self) -> bool:
        """Whether any plan has room for a request."""
        return bool(np.any(self.every.slots >= 1))

    @property
    def no_room(self) -> str:
        """Why no plan has room for a request, or none is legal, in one line with levers."""
        c = self.every
        if c.memory is not None and not np.isfinite(np.min(c.memory)):
            work = decode(float(c.plan_at(0).dp), c.requests.context)
            broken = evaluate(c.system, c.model, work, c.plan_at(0), c.engine).infeasible[0]
            return f"no plan for {c.system.name}: {plan_text(c.plan_at(0))}: {broken}"
        need = show(float(np.min(c.memory)), "B") if c.memory is not None else "more"
        have = show(float(np.min(c.system.chip.memory.capacity * c.engine.gpu_memory_utilization)), "B")
        legal = "" if len(c.slots) > 1 else f" with plan {plan_text(c.plan_at(0))}"
        return (
            f"{c.model.name} has no room for a request on {c.system.name}{legal}: a device needs {need} and "
            f"may fill {have}; levers: more devices, narrower weights, another plan"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Found:
    """Scores of plans x numbers of clients, -inf where one is out; [plans, numbers]."""

    curve: Curve
    clients: Array
    loads: LoadMetrics
    scores: Array

    def order(self) -> list[tuple[int, int]]:
        flat = np.argsort(-self.scores, axis=None, kind="stable")
        places = zip(*np.unravel_index(flat, self.scores.shape), strict=True)
        return [(int(i), int(j)) for i, j in places]


def _scored(made: Curve, goal: ServingGoal, limits: ServingLimits, clients: Array | None) -> _Found:
    """Every plan at the clients told; else at the most that keep the limits, or, of the fastest, at one."""
    if clients is not None:
        wanted = np.broadcast_to(clients, (len(made.slots), len(clients)))
    elif goal.fewest:
        wanted = np.ones((len(made.slots), 1))
    else:
        wanted = np.maximum(largest_concurrency(made, **limits.told)[0], 1.0)[:, None]
    loads = closed_load(made, wanted)
    good = loads.within(**limits.told) & (wanted <= made.slots[:, None])
    with np.errstate(invalid="ignore"):
        values = goal.value(loads, made.requests) + TIE * loads.tokens_per_s
    # a chip without a price has no cheapest plan: all are alike
    values = np.where(np.isnan(values), TIE * loads.tokens_per_s, values)
    return _Found(curve=made, clients=wanted, loads=loads, scores=np.where(good, values, -np.inf))


def served_plans(
    system: System | str,
    model: Model,
    requests: Requests,
    plan: Plan | None = None,
    engine: Engine | str = USUAL_SERVER,
    **how: Any,
) -> ServedPlans:
    """The best of some plans under limits on latency, each with the most clients that keep them, or with
    each number of `clients`; of every plan worth pricing where none is given (`where`: a condition on them),
    on all devices or on as many as serve better, the others idle. `how`: as of `served_parts`.

    >>> from strata.mapping.plan import plan
    >>> from strata.workload.model import model
    >>> asked = ("8xh200", model("llama-3-70b"), Requests(2048, 512), plan("tp=8"), "vllm")
    >>> best = served_plans(*asked, limits=ServingLimits(tpot=0.03)).choices[0]
    >>> best.limited_by, bool(best.load.tpot <= 0.03)
    ('TPOT', True)
    """
    return served_parts(system, model, requests, plan, engine, **how)[0]


def served_parts(
    system: System | str,
    model: Model,
    requests: Requests,
    plan: Plan | None = None,
    engine: Engine | str = USUAL_SERVER,
    *,
    where: str = "",
    goal: str = "throughput",
    **how: Any,
) -> list[ServedPlans]:
    """The best plans of each number of devices worth using, best first. `how`: as of `plans_that_serve`."""
    hardware = as_system(system)

    def answered(part: System, some: Plan) -> ServedPlans:
        within = None if part is hardware else hardware
        return plans_that_serve(part, model, requests, some, engine, goal=goal, within=within, **how)

    if plan is not None:
        return [answered(plan_part(hardware, plan), plan)]
    work = serve(1.0, requests.input, requests.output)
    answers: list[ServedPlans] = []
    for count in reversed(used_counts(hardware)):
        part = hardware if count == float(hardware.devices) else pool(hardware, count)
        try:
            every = candidate_plans(part, model, work, engine, where)
        except BadValue:  # the condition leaves none of so many devices
            if part is hardware and not answers:
                raise
            continue
        answers.insert(0, answered(part, every))
    every_one: dict[str, Any] = {n: sum(getattr(a, n) for a in answers) for n in ("considered", "feasible")}
    return [replace(a, **every_one) for a in sorted(answers, key=best_value, reverse=True)]


def plan_value(found: ServedPlans, load: LoadMetrics) -> float:
    """What a plan has of what is asked for, larger is better; by tokens/s where a chip has no price."""
    value = float(found.goal.value(load, found.curve.requests))
    return TIE * float(load.tokens_per_s) if np.isnan(value) else value


def best_value(found: ServedPlans) -> float:
    """What the best plan has of what is asked for."""
    return plan_value(found, found.choices[0].load) if found.choices else -np.inf


def plans_that_serve(
    system: System,
    model: Model,
    requests: Requests,
    plan: Plan,
    engine: Engine | str = USUAL_SERVER,
    *,
    goal: str = "throughput",
    limits: ServingLimits | None = None,
    clients: Any = None,
    top: int = 8,
    places: bool = True,
    **priced: Any,
) -> ServedPlans:
    """The best of some plans; `places`: also in other orders on the fabric; `priced`: as of `curve`."""
    software, wanted = as_engine(engine), serving_goal(goal)
    asked, told = limits or ServingLimits(), None if clients is None else _whole(clients)
    every = as_many(plan)

    def found(some: Plan, **more: Any) -> _Found:
        made = curve(system, model, requests, some, software, **priced, **more)
        return _scored(made, wanted, asked, told)

    considered, feasible = np.size(every.tp), None
    if considered > MANY:
        every = _with_room(system, model, requests, every, software)
    if np.size(every.tp) > MANY:
        every, feasible = _roughly_best(every, found)
    near = found(every)
    feasible = int(np.isfinite(near.scores).sum()) if feasible is None else feasible
    placed = 0
    if places and orders_matter(system.fabric):
        near, placed = _in_best_order(near, every, found, system.fabric)
    best = [(i, j) for i, j in near.order() if np.isfinite(near.scores[i, j])]
    rows = list(dict.fromkeys([i for i, _ in best] + _best_rows(near, len(near.scores))))
    largest = told is None and not wanted.fewest
    return ServedPlans(
        every=near.curve,
        curve=near.curve.only(rows[:top]),
        choices=[replace(_served_plan(near, i, j, asked, largest), row=rows.index(i)) for i, j in best[:top]],
        goal=wanted,
        limits=asked,
        considered=considered * (1 if told is None else len(told)),
        feasible=feasible,
        placed=placed,
    )


def _with_room(system: System, model: Model, requests: Requests, plan: Plan, engine: Engine) -> Plan:
    """Plans that have room for a sequence in each lane; all where none has."""
    work = decode(plan.dp * plan.pp, requests.context, **requests.routed)
    fits = np.broadcast_to(evaluate(system, model, work, plan, engine).fits, np.shape(plan.tp))
    return taken(plan, fits) if fits.any() else plan


def _roughly_best(every: Plan, found: Callable[..., _Found]) -> tuple[Plan, int]:
    """The most promising plans by a few numbers of sequences, some at a time; how many keep the limits."""
    count = np.size(every.tp)
    scores, rates, feasible = np.zeros(count), np.zeros(count), 0
    for start in range(0, count, AT_A_TIME):
        some = np.arange(start, min(start + AT_A_TIME, count))
        rough = found(taken(every, some), nodes=ROUGH)
        scores[some], rates[some] = np.max(rough.scores, axis=1), most_rate(rough.curve)
        feasible += int(np.isfinite(rough.scores).sum())
    return taken(every, np.lexsort((-rates, -scores))[:MANY]), feasible


def _whole(clients: Any) -> Array:
    told = np.atleast_1d(np.asarray(clients, float))
    require(told.ndim == 1 and len(told) > 0, "numbers of clients are a list", shape=told.shape)
    require(
        bool(np.all((told >= 1) & (told % 1 == 0))),
        "clients are whole numbers of at least 1",
        clients=[float(n) for n in told],
    )
    return told


def _best_rows(found: _Found, count: int) -> list[int]:
    """Plans, best first; those that are out follow by the most they complete."""
    best = np.max(found.scores, axis=1)
    rates = most_rate(found.curve)
    return [int(i) for i in np.lexsort((-rates, -best))[:count]]


def _in_best_order(
    near: _Found, every: Plan, found: Callable[..., _Found], fabric: Fabric
) -> tuple[_Found, int]:
    """The best plans, each in its best order on the fabric, before all others; how many were priced more."""
    best = _best_rows(near, PLACED)
    rows, which = in_every_order(taken(every, np.array(best)), fabric, active_groups(every))
    moved = np.asarray(rows.order) > 0
    if not moved.any():
        return near, 0
    rows, which = taken(rows, moved), which[moved]
    other = found(rows)
    chosen = as_many(every)
    order = np.array(np.broadcast_to(np.asarray(chosen.order, float), np.shape(chosen.tp)))
    for k, row in enumerate(best):
        mine = np.flatnonzero(which == k)
        if len(mine):
            scores = np.max(other.scores[mine], axis=1)
            if np.max(scores) > np.max(near.scores[row]):
                order[row] = np.asarray(rows.order)[mine[int(np.argmax(scores))]]
    return found(replace(chosen, order=order)), int(moved.sum())


def _served_plan(found: _Found, i: int, j: int, limits: ServingLimits, largest: bool) -> ServedPlan:
    made, clients = found.curve, float(found.clients[i, j])
    return ServedPlan(
        plan=made.plan_at(i),
        clients=clients,
        load=found.loads.at(i, j),
        slots=float(made.slots[i]),
        limited_by=limited_by(made.at(i), clients, limits) if largest else "",
    )


def limited_by(made: Curve, clients: float, limits: ServingLimits) -> str:
    """What one more client of the first plan would break: TTFT, TPOT, memory, the engine (its requests at
    once), or the number of requests that was looked at.
    """
    slots = float(made.slots[0])
    if clients + 1 <= slots:
        more = closed_load(made, clients + 1.0).at(0, 0)
        return "TTFT" if bool(more.within(np.inf, limits.tpot)) else "TPOT"
    if slots < float(made.allowed[0]):
        return "memory"
    own = float(np.min(np.asarray(made.engine.max_num_seqs, float))) * float(np.asarray(made.plan.dp)[0])
    return "engine" if slots >= own else "requests looked at"
