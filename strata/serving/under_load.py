"""A model under load, whole: the rate of requests that keeps limits on latency, what requests see at a rate,
pools, guesses, the frontier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.errors import require
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.plan import Plan, plan_text
from strata.serving.curve import Curve, curve
from strata.serving.frontier import ServingFrontier, serving_frontier
from strata.serving.load import LEVERS, LoadMetrics, closed_load, goodput, most_rate, open_load, shortlist
from strata.serving.pools import Disaggregation, disaggregate
from strata.serving.requests import Requests
from strata.serving.speculation import Drafting, Speculation, best_window, speculate
from strata.units import show
from strata.workload.model import Model
from strata.workload.model import model as make_model

TIE = 1e-12  # weight of the highest rate where plans keep the limits at the same rate


@dataclass(frozen=True, eq=False, kw_only=True)
class UnderLoad:
    """What was asked of a model under load, and what was found: plans worth looking at, best first."""

    curve: Curve  # of these plans
    ttft: float  # limits [s]; inf: none
    tpot: float
    share: float | None  # of requests that keep ttft; None: their mean does
    rates: np.ndarray  # goodput of each plan [1/s]
    order: list[int]  # plans, best first
    chosen: int  # the plan of `load`
    load: LoadMetrics | None  # at the rate or with the clients asked for
    clients: float | None
    splits: list[Disaggregation] | None  # devices apart for reading and for generating
    speculation: Speculation | None
    frontier: ServingFrontier | None

    @property
    def question(self) -> str:
        """What was asked, in words."""
        c = self.curve
        size = f"input {c.requests.input:g}, output {c.requests.output:g}"
        limits = limits_text(self.ttft, self.tpot, self.share)
        return f"{c.model.name} on {c.system.name}, {size}, engine {c.engine.name}{limits}"

    @property
    def why_none(self) -> str:
        """Why there is no answer, in one line with levers; empty where there is one."""
        c = self.curve
        if not np.any(c.slots >= 1):
            return self._no_slots()
        if self.load is not None and not np.isfinite(self.load.ttft):
            most, plan = float(most_rate(c)[self.chosen]), plan_text(c.plan_at(self.chosen))
            return (
                f"{c.model.name} on {c.system.name} completes at most {most:.3g} requests/s "
                f"with plan {plan}, but got {float(self.load.rate):.3g}; levers: {', '.join(LEVERS)}"
            )
        if (
            self.load is None
            and not np.any(self.rates > 0)
            and not any(s.rate > 0 for s in self.splits or [])
        ):
            return self._limits_missed()
        return ""

    def _no_slots(self) -> str:
        c = self.curve
        need = show(float(np.min(c.memory)), "B") if c.memory is not None else "more"
        have = show(float(np.min(c.system.chip.memory.capacity * c.engine.memory_share)), "B")
        legal = "" if len(c.slots) > 1 else f" with plan {plan_text(c.plan_at(0))}"
        return (
            f"{c.model.name} has no room for a request on {c.system.name}{legal}: a device needs {need} and "
            f"may fill {have}, or the plan is not legal; levers: more devices, narrower weights, another plan"
        )

    def _limits_missed(self) -> str:
        alone = open_load(self.curve, 0.0)
        quick = int(np.argmin(np.maximum(alone.ttft / self.ttft, alone.tpot / self.tpot)))
        ttft, tpot = show(float(alone.ttft[quick]), "s"), show(float(alone.tpot[quick]), "s")
        return (
            f"no plan keeps the limits{limits_text(self.ttft, self.tpot, self.share)}; "
            f"the nearest has TTFT {ttft} and TPOT {tpot} without load "
            f"({plan_text(self.curve.plan_at(quick))}); "
            "levers: more devices, narrower weights, a smaller model, speculation"
        )


def limits_text(ttft: float, tpot: float, share: float | None = None) -> str:
    """Limits on latency as they follow a question; empty where there are none.

    >>> limits_text(2.0, 0.04, share=0.95)
    ', TTFT at most 2 s for 95 % of requests, TPOT at most 40 ms'
    """
    of = "" if share is None else f" for {share * 100:.4g} % of requests"
    limits = (("TTFT", ttft, of), ("TPOT", tpot, ""))
    return "".join(f", {k} at most {show(v, 's')}{of}" for k, v, of in limits if np.isfinite(v))


def serve_under_load(
    system: System | str,
    model: Model | str,
    requests: Requests,
    plan: Plan | str | None = None,
    engine: Engine | str = "ideal",
    *,
    rate: float | None = None,
    clients: float | None = None,
    ttft: float = np.inf,
    tpot: float = np.inf,
    share: float | None = None,
    chunk: float | None = None,
    sequences: float | None = None,
    disaggregated: bool = False,
    prefill_devices: int | None = None,
    draft: Drafting | None = None,
    free_window: bool = False,
    with_frontier: bool = False,
) -> UnderLoad:
    """A model that serves requests: which plans carry how many a second under limits on TTFT and TPOT [s].

    `rate` [1/s] or `clients` ask what requests see under that load; `share` of them must keep `ttft`, else
    their mean must. `chunk` and `sequences` replace the engine's own. `disaggregated` looks at devices apart
    for reading prompts and for generating, too; `draft` guesses tokens ahead, with its best window where
    `free_window`; `with_frontier` adds throughput against interactivity.

    >>> import strata as st
    >>> asked = st.serving.Requests(input=2048, output=512)
    >>> found = serve_under_load("8xh200", "llama-3-70b", asked, "tp=8", "vllm", ttft=1.0, tpot=0.03)
    >>> found.why_none, bool(found.rates[found.order[0]] > 1)
    ('', True)
    """
    require(rate is None or clients is None, "rate and clients are two kinds of load; give one")
    model = make_model(model) if isinstance(model, str) else model
    served = _Served(as_system(system), model, requests, as_engine(engine))
    steps: dict[str, Any] = {"chunk": chunk, "sequences": sequences}
    limits: dict[str, Any] = {"ttft": ttft, "tpot": tpot, "share": share}
    every, few, rates = served.plans(plan, steps, limits)
    speculation = None
    if draft is not None:
        best = int(np.argmax(rates + TIE * most_rate(few)))
        draft, speculation = _speculated(few, best, clients, draft, free_window)
        every, few, rates = served.plans(plan, {**steps, "drafting": draft}, limits)
    order = [int(i) for i in np.argsort(-(rates + TIE * most_rate(few)), kind="stable")]
    chosen, load = _loaded(few, order[0], rate, clients, limits)
    pools = {"prefill_devices": prefill_devices, "sequences": sequences}
    splits = served.pools(**pools, **limits) if disaggregated or prefill_devices else None
    return UnderLoad(
        curve=few,
        rates=rates,
        order=order,
        chosen=chosen,
        load=load,
        clients=clients,
        splits=splits,
        speculation=speculation,
        frontier=serving_frontier(every, splits) if with_frontier else None,
        **limits,
    )


@dataclass(frozen=True, eq=False)
class _Served:
    """What serves, and what it serves."""

    system: System
    model: Model
    requests: Requests
    engine: Engine

    def plans(
        self, plan: Plan | str | None, steps: dict[str, Any], limits: dict[str, Any]
    ) -> tuple[Curve, Curve, np.ndarray]:
        """Every plan, those worth looking at, and the rates of these that keep the limits."""
        every = curve(self.system, self.model, self.requests, plan, self.engine, **steps)
        few = shortlist(every, limits["ttft"], limits["tpot"])
        return every, few, goodput(few, **limits)

    def pools(self, **asked: Any) -> list[Disaggregation]:
        return disaggregate(self.system, self.model, self.requests, self.engine, **asked)


def _loaded(
    few: Curve, best: int, rate: float | None, clients: float | None, limits: dict[str, Any]
) -> tuple[int, LoadMetrics | None]:
    """Which plan carries the load that is asked for, and what requests see there."""
    if rate is not None:
        return best, open_load(few.at(best), rate).at(0)
    if clients is None:
        return best, None
    seen = closed_load(few, clients)
    chosen = int(np.argmax(np.where(seen.within(**limits), seen.rate, seen.rate * TIE)[:, 0]))
    return chosen, seen.at(chosen, 0)


def _speculated(
    few: Curve, best: int, clients: float | None, draft: Drafting, free_window: bool
) -> tuple[Drafting, Speculation]:
    """Guesses with the best plan, and the draft with its window found where it is free."""
    size: dict[str, Any] = {
        "batch": clients or float(few.plan_at(best).dp),
        "context": few.requests.context,
        "acceptance": draft.acceptance,
        "branches": draft.branches,
        "engine": few.engine,
        "draft_plan": draft.plan,
    }
    target = (few.system, few.model, draft.draft, few.plan_at(best))
    if free_window:
        draft = replace(draft, window=float(best_window(*target, **size).window))
    return draft, speculate(*target, **size, window=draft.window)
