"""A model under load, whole: the rate of requests that keeps limits on latency, what requests see at a rate,
pools, guesses, the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.errors import require
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.engine import USUAL_SERVER, Engine, as_engine
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.records import readable
from strata.serving.curve import Curve
from strata.serving.frontier import ServingFrontier, serving_frontier
from strata.serving.goals import ServingLimits
from strata.serving.load import LEVERS, closed_load, goodput, most_rate, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.pools import Disaggregation, disaggregate
from strata.serving.requests import Requests
from strata.serving.served_plans import ServedPlans
from strata.serving.simulated_plans import Heard, PlanRuns, answered_plans, plan_runs
from strata.serving.speculation import Drafting, Speculation, best_window, speculate
from strata.units import show
from strata.workload.model import Model
from strata.workload.model import model as make_model

SHOWN = 16  # plans that are answered for
SPLITS = 2  # ways to share devices out that are simulated


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
        splits = _simulated_splits(splits, None if draft or not limits.text else runs)
    rates, at_rate = _rates(served, runs)
    told: dict[str, Any] = {"rates": rates, "at_rate": at_rate, "chosen": chosen, "load": load}
    told |= {"clients": clients, "splits": splits, "speculation": speculation}
    return UnderLoad(served=served, frontier=_frontier(served, splits) if with_frontier else None, **told)


def _simulated_splits(splits: list[Disaggregation], runs: PlanRuns | None) -> list[Disaggregation]:
    """Ways to share devices out, the first of them simulated, best first."""
    if runs is None:
        return splits
    few = [runs.split(one) for one in splits[:SPLITS]]
    return [*sorted(few, key=lambda one: -one.rate), *splits[SPLITS:]]


def _rates(served: ServedPlans, runs: PlanRuns | None) -> tuple[np.ndarray, LoadMetrics | None]:
    """The largest rate of each plan that keeps the limits, in closed form; of the best, where there are
    limits, as it is simulated, and what requests see there.
    """
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
