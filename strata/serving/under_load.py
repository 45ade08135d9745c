"""A model under load, whole: rates that keep limits, what requests see, pools, guesses, the frontier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import require
from strata.base.pareto import non_dominated
from strata.base.records import Tabular, readable, row_columns
from strata.base.rich_html import display_html, scatter_svg, table_html
from strata.base.units import show
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.serving.curve import Curve
from strata.serving.load import LEVERS, closed_load, goodput, most_rate, open_load
from strata.serving.load_metrics import LoadMetrics, ServingLimits
from strata.serving.pools import Disaggregation, disaggregate, pools_limit
from strata.serving.requests import Requests
from strata.serving.served_plans import ServedPlans
from strata.serving.simulated_plans import Heard, PlanRuns, answered_plans, plan_runs
from strata.serving.speculation import Drafting, Speculation, best_window, speculate
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.model import model as make_model

# of a split's highest rate
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)


@dataclass(frozen=True, kw_only=True)
class ServingPoint:
    """One way to serve."""

    plan: str
    clients: float  # requests under way at once
    per_user: float  # tokens/s
    per_device: float  # tokens/s
    ttft: float  # [s]
    tpot: float  # [s]
    apart: bool = False  # prompts are read on devices of their own
    best: bool = False  # no other point is better for users and for devices


@dataclass(frozen=True, kw_only=True)
class ServingFrontier(Tabular):
    """Every point, and the best of them from the most for a device to the most for a user."""

    points: tuple[ServingPoint, ...]

    @property
    def best(self) -> list[ServingPoint]:
        return sorted((p for p in self.points if p.best), key=lambda p: p.per_user)

    @property
    def aggregated(self) -> list[ServingPoint]:
        """The best of those that read and generate on the same devices."""
        one = [p for p in self.points if not p.apart]
        return sorted(compress(one, _non_dominated(one)), key=lambda p: p.per_user)

    def columns(self) -> dict[str, Any]:
        """Every point, the best marked."""
        return row_columns(vars(p) for p in self.points)

    def _repr_html_(self) -> str:
        """For notebooks: what devices and users get at the best points."""
        best = self.best
        heads = ("plan", "clients", "tokens/s/user", "tokens/s/device", "TTFT", "TPOT")
        numbers = [(f"{p.clients:g}", f"{p.per_user:.4g}", f"{p.per_device:.4g}") for p in best]
        times = [(show(p.ttft, "s"), show(p.tpot, "s")) for p in best]
        rows = [(p.plan, *n, *t) for p, n, t in zip(best, numbers, times, strict=True)]
        points = [(p.per_user, p.per_device, f"{p.plan}, {p.clients:g} clients") for p in best]
        drawn = scatter_svg(points, "tokens/s/user", "tokens/s/device")
        title = f"Ways to serve: {len(best):,} of {len(self.points):,} points are beaten by no other"
        return display_html(title, drawn, table_html(heads, rows))

    def as_dict(self) -> dict[str, Any]:
        return {"points": [vars(p) for p in self.points], "best": [vars(p) for p in self.best]}


def _non_dominated(points: list[ServingPoint]) -> list[bool]:
    """Which points no other beats, for users and for devices."""
    scores = np.array([[p.per_user, p.per_device] for p in points]).reshape(-1, 2)
    kept: list[bool] = non_dominated(scores).tolist()
    return kept


def client_steps(most: float, count: int = 24) -> Array:
    """Whole numbers of clients in geometric steps, 1 and the most included.

    >>> client_steps(8.0, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    return np.unique(np.round(np.maximum(most, 1.0) ** (np.arange(count) / (count - 1.0))))


def serving_frontier(
    curve: Curve,
    splits: list[Disaggregation] | None = None,
    *,
    clients: Any = None,
    beside: Any = (),
    ttft: float = np.inf,
    tpot: float = np.inf,
    share: float | None = None,
) -> ServingFrontier:
    """Points of every plan with so many clients at once (and with numbers `beside` them), and of pools at
    shares of their highest rate; limits on latency leave some out.
    """
    steps = client_steps(float(np.max(curve.slots))) if clients is None else np.ravel(clients)
    clients = np.unique(np.concatenate([np.asarray(steps, float), np.asarray(beside, float)]))
    seen = closed_load(curve, clients)
    kept = seen.within(ttft, tpot, share) & (clients <= curve.slots[:, None])
    names = [plan_text(curve.plan_at(i)) for i in range(len(curve.slots))]
    points = []
    for i, j in np.argwhere(kept):
        points.append(_point(names[i], clients[j], seen.at(int(i), int(j)), curve.devices))
    for split in splits or []:
        points += _pool_points(split, ttft, tpot, share)
    best = _non_dominated(points)
    return ServingFrontier(points=tuple(replace(p, best=b) for p, b in zip(points, best, strict=True)))


def _point(plan: str, clients: Any, seen: LoadMetrics, devices: float, apart: bool = False) -> ServingPoint:
    return ServingPoint(
        plan=plan,
        clients=float(clients),
        per_user=float(1.0 / seen.tpot),
        per_device=float(seen.tokens_per_s) / devices,
        ttft=float(seen.ttft),
        tpot=float(seen.tpot),
        apart=apart,
    )


def _pool_points(split: Disaggregation, ttft: float, tpot: float, share: float | None) -> list[ServingPoint]:
    devices = split.prefill_devices + split.decode_devices
    name = (
        f"{split.prefill_devices} read ({plan_text(split.prefill_plan)}),"
        f" {split.decode_devices} generate ({plan_text(split.decode_plan)})"
    )
    points = []
    for part in SHARES:
        one = open_load(split.curve, part * pools_limit(split), split.remote_prefill).at(0)
        if one.within(ttft, tpot, share):
            points.append(_point(name, one.active + one.rate * one.ttft, one, devices, apart=True))
    return points


SHOWN = 16  # plans that are answered for


@readable("question", "load", "clients")
@dataclass(frozen=True, eq=False, kw_only=True)
class UnderLoad:
    """What was asked of a model under load, and what was found: plans worth looking at, best first."""

    served: ServedPlans  # the best, each with the most clients that keep the limits: what `strata plan` says
    rates: np.ndarray  # of the plans of `curve`, the most requests a second, arriving at random [1/s]
    at_rate: LoadMetrics | None  # what they see there with the first plan, where that was simulated
    chosen: int  # the plan of `load`
    load: LoadMetrics | None  # at the rate or with the clients asked for
    clients: float | None
    splits: list[Disaggregation] | None  # devices apart for reading and for generating
    speculation: Speculation | None
    frontier: ServingFrontier | None

    @property
    def curve(self) -> Curve:
        """Of the plans that are answered for, best first."""
        return self.served.curve

    @property
    def limits(self) -> ServingLimits:
        return self.served.limits

    @property
    def question(self) -> str:
        """What was asked, in words."""
        c = self.curve
        size = f"input {c.requests.input:g}, output {c.requests.output:g}"
        return f"{c.model.name} on {c.system.name}, {size}, engine {c.engine.name}{self.limits.text}"

    @property
    def why_none(self) -> str:
        """Why there is no answer, in one line with levers; empty where there is one."""
        c = self.curve
        if not self.served.fits:
            return self.served.no_room
        if self.load is not None and not np.isfinite(self.load.ttft):
            most, plan = float(most_rate(c)[self.chosen]), plan_text(c.plan_at(self.chosen))
            return (
                f"{c.model.name} on {c.system.name} completes at most {most:.3g} requests/s "
                f"with plan {plan}, but got {float(self.load.rate):.3g}; levers: {', '.join(LEVERS)}"
            )
        if self.load is None and not self.served.choices and not any(s.rate > 0 for s in self.splits or []):
            return self.limits_missed()
        return ""

    def limits_missed(self) -> str:
        """Why no plan keeps the limits, and which one comes nearest, in one line."""
        every, limits = self.served.every, self.limits
        alone = open_load(every, 0.0)
        quick = limits.nearest(alone)
        ttft, tpot = show(float(alone.ttft[quick]), "s"), show(float(alone.tpot[quick]), "s")
        return (
            f"no plan keeps the limits{limits.text}; "
            f"the nearest has TTFT {ttft} and TPOT {tpot} without load "
            f"({plan_text(every.plan_at(quick))}); "
            "levers: more devices, narrower weights, a smaller model, speculation"
        )


def serve_under_load(
    system: System | str,
    model: Model | str,
    requests: Requests,
    plan: Plan | str | None = None,
    engine: Engine | str = USUAL_SERVER,
    *,
    rate: float | None = None,
    clients: float | None = None,
    ttft: float = np.inf,
    tpot: float = np.inf,
    share: float | None = None,
    goal: str = "throughput",
    chunk: float | None = None,
    sequences: float | None = None,
    disaggregated: bool = False,
    prefill_devices: int | None = None,
    draft: Drafting | None = None,
    free_window: bool = False,
    with_frontier: bool = False,
    economics: Economics | None = None,
    quick: bool = False,
    heard: Heard | None = None,
) -> UnderLoad:
    """A model that serves requests: which plans are best by a goal under limits on TTFT and TPOT [s].

    `rate` [1/s] or `clients` ask what requests see under that load; `share` of them must keep `ttft`, else
    their mean must. `chunk` and `sequences` replace the engine's own. `disaggregated` looks at devices apart
    for reading prompts and for generating, too; `draft` guesses tokens ahead, with its best window where
    `free_window`; `with_frontier` adds throughput against interactivity. Best plans, the largest rate of the
    first, the load asked for and the best pools are simulated (`simulated_plans`), unless `quick`; `heard` is
    told of which.

    >>> found = serve_under_load("8xh200", "llama-3-70b", Requests(2048, 512), "tp=8", ttft=1.0, tpot=0.03)
    >>> bool(found.rates[0] > 1), found.served.choices[0].limited_by
    (True, 'TTFT')
    """
    require(rate is None or clients is None, "rate and clients are two kinds of load; give one")
    hardware, software = as_system(system), as_engine(engine)
    limits = ServingLimits(ttft=ttft, tpot=tpot, share=share)
    how: dict[str, Any] = {"goal": goal, "limits": limits, "clients": clients, "chunk": chunk, "top": SHOWN}
    how |= {"sequences": sequences, "economics": economics, "places": plan is None, "quick": quick}
    given = make_plan(plan) if isinstance(plan, str) and plan else plan or None
    asked: Any = (hardware, make_model(model) if isinstance(model, str) else model, requests, given, software)
    served, speculation = answered_plans(*asked, **{**how, "quick": quick or bool(draft)}, heard=heard), None
    if draft:
        draft, speculation = _speculated(served.curve, clients, draft, free_window)
        how["drafting"] = draft
        served = answered_plans(*asked, **how, heard=heard)
    runs = None if quick else plan_runs(served, hardware, software, heard=heard, **how)
    chosen, load = _loaded(served, rate, clients, runs)
    splits = None
    if disaggregated or prefill_devices is not None:
        pools: Any = {"prefill_devices": prefill_devices, "sequences": sequences, **limits.told}
        splits = disaggregate(hardware, asked[1], requests, software, **pools)
        splits = runs.splits(splits) if runs is not None and limits.text and not draft else splits
    rates, at_rate = _rates(served, runs)
    told: dict[str, Any] = {"rates": rates, "at_rate": at_rate, "chosen": chosen, "load": load}
    told |= {"clients": clients, "splits": splits, "speculation": speculation}
    return UnderLoad(served=served, frontier=_frontier(served, splits) if with_frontier else None, **told)


def _rates(served: ServedPlans, runs: PlanRuns | None) -> tuple[np.ndarray, LoadMetrics | None]:
    """The largest rate of each plan that keeps the limits; of the best simulated, with what requests see."""
    rates, best = goodput(served.curve, **served.limits.told), served.choices[:1]
    if runs is None or not served.limits.text or not best:
        return rates, None
    rates[0], seen = runs.plan_rate(best[0], float(rates[0]))
    return rates, seen


def _frontier(served: ServedPlans, splits: list[Disaggregation] | None) -> ServingFrontier:
    """Of every plan, with the numbers of clients that plans were answered for among its points."""
    answered = [one.clients for one in served.choices]
    return serving_frontier(served.every, splits, beside=answered, **served.limits.told)


def _loaded(
    served: ServedPlans, rate: float | None, clients: float | None, runs: PlanRuns | None
) -> tuple[int, LoadMetrics | None]:
    """Which plan carries the load that is asked for, and what requests see there: the best one that keeps the
    limits, else the best that carries it, else the best.
    """
    few = served.curve
    if rate is None and clients is None:
        return 0, None
    seen = open_load(few, rate) if clients is None else closed_load(few, clients).at(slice(None), 0)
    good = seen.within(**served.limits.told) & (clients is None or few.slots >= (clients or 0.0))
    chosen = int(np.argmax(np.where(good, 2, np.where(seen.fits, 1, 0))))
    if clients is not None and not good.any():
        chosen = int(np.argmax(seen.rate))
    if runs is None or not np.isfinite(seen.ttft[chosen]):
        return chosen, seen.at(chosen)
    one = next((c for c in served.choices if c.row == chosen and c.simulated), None)
    if one is not None and one.clients == clients:
        return chosen, one.load
    deployment = runs.deployment(few.plan_at(chosen)) if one is None else one.deployment
    slots = float(few.slots[chosen])
    if clients is not None:
        return chosen, runs.with_clients(deployment, clients, slots)
    return chosen, runs.at_random(deployment, float(rate or 0.0), slots)


def _speculated(
    few: Curve, clients: float | None, draft: Drafting, free_window: bool
) -> tuple[Drafting, Speculation]:
    """Guesses with the best plan, and the draft with its window found where it is free."""
    size: dict[str, Any] = {
        "batch": clients or float(few.plan_at(0).dp),
        "context": few.requests.context,
        "acceptance": draft.acceptance,
        "branches": draft.branches,
        "engine": few.engine,
        "draft_plan": draft.plan,
    }
    target = (few.system, few.model, draft.draft, few.plan_at(0))
    if free_window:
        draft = replace(draft, window=float(best_window(*target, **size).window))
    return draft, speculate(*target, **size, window=draft.window)
