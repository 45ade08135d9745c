"""Which plans serve requests best: for each the largest number at once that keeps limits on latency, what its
clients see there, and what it costs. One answer for `strata plan` and `strata serving`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import require
from strata.evaluate import evaluate
from strata.hardware.fabric import Fabric
from strata.hardware.fabric_parts import DIRECT
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.place import in_every_order
from strata.mapping.plan import Plan
from strata.mapping.plan_layout import active_groups
from strata.mapping.plans import taken
from strata.records import readable
from strata.serving.curve import Curve, as_many, curve
from strata.serving.goals import ServingGoal, ServingLimits, serving_goal
from strata.serving.load import closed_load, largest_concurrency, most_rate
from strata.serving.load_metrics import LoadMetrics
from strata.serving.requests import Requests
from strata.serving.speculation import Drafting
from strata.workload.model import Model
from strata.workload.tasks import decode

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
    plan: Plan,
    engine: Engine | str = "ideal",
    *,
    goal: str = "throughput",
    limits: ServingLimits | None = None,
    clients: Any = None,
    top: int = 8,
    chunk: float | None = None,
    sequences: float | None = None,
    drafting: Drafting | None = None,
    economics: Economics | None = None,
    places: bool = True,
) -> ServedPlans:
    """The best of some plans under limits on latency, each with the most clients that keep them, or with
    each number of `clients`. `places`: whether other orders on the fabric are tried.

    >>> from strata.mapping.plan import plan
    >>> from strata.workload.model import model
    >>> asked = ("8xh200", model("llama-3-70b"), Requests(2048, 512), plan("tp=8"), "vllm")
    >>> best = served_plans(*asked, limits=ServingLimits(tpot=0.03)).choices[0]
    >>> best.limited_by, bool(best.load.tpot <= 0.03)
    ('TPOT', True)
    """
    hardware, software, wanted = as_system(system), as_engine(engine), serving_goal(goal)
    asked, told = limits or ServingLimits(), None if clients is None else _whole(clients)
    every = as_many(plan)
    how: dict[str, Any] = {"chunk": chunk, "sequences": sequences}
    how |= {"drafting": drafting, "economics": economics}

    def found(some: Plan, **more: Any) -> _Found:
        made = curve(hardware, model, requests, some, software, **how, **more)
        return _scored(made, wanted, asked, told)

    considered, feasible = np.size(every.tp), None
    if considered > MANY:
        every = _with_room(hardware, model, requests, every, software)
    if np.size(every.tp) > MANY:
        every, feasible = _roughly_best(every, found)
    near = found(every)
    feasible = int(np.isfinite(near.scores).sum()) if feasible is None else feasible
    placed = 0
    if places and _orders_matter(hardware.fabric):
        near, placed = _in_best_order(near, every, found, hardware.fabric)
    best = [(i, j) for i, j in near.order() if np.isfinite(near.scores[i, j])]
    rows = list(dict.fromkeys([i for i, _ in best] + _best_rows(near, len(near.scores))))
    largest = told is None and not wanted.fewest
    return ServedPlans(
        every=near.curve,
        curve=near.curve.only(rows[:top]),
        choices=[_served_plan(near, i, j, asked, largest) for i, j in best[:top]],
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


def _orders_matter(fabric: Fabric) -> bool:
    """Whether groups can lie differently on a fabric: not where every two devices are one step apart."""
    crossed = [d for d in fabric.dimension if np.any(np.asarray(d.size) > 1)]
    return len(crossed) > 1 or any(d.kind not in DIRECT for d in crossed)


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
    own = float(np.min(np.asarray(made.engine.sequences, float))) * float(np.asarray(made.plan.dp)[0])
    return "engine" if slots >= own else "requests looked at"
