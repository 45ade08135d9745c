"""Serving, simulated: a minute of requests one by one, latency over load, the largest rate under an SLO, and
which system serves cheapest. Long questions: they report on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from strata.app.render.prediction import finite
from strata.app.render.simulated_page import joined_steps, lanes_of
from strata.app.web.answers.serving import Service, inputs_of, limits_of
from strata.app.web.questions import Name, Tell, answers
from strata.errors import BadValue, StrataError
from strata.mapping.plan import plan_text
from strata.serving.deployment import Deployment
from strata.serving.priced_service import PricedService, promising_plans
from strata.serving.simulated import simulate_services
from strata.serving.simulated_answers import CostPoint, answer_row, cost_frontier, find_rate, load_latency
from strata.serving.simulated_result import LATENCIES, Served
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.statistics import LatencyStatistics
from strata.serving.under_load import client_steps

MINUTE = 60.0  # s of the service that are drawn
DRAWN, STEPS = 1200, 900  # requests and steps of a picture
FEWEST, MOST = 200, 3000  # requests of a run
FINE = 120  # points of a distribution


class Rivals(Service):
    """A service, and systems that could run it instead."""

    systems: list[Name] = Field(
        default=["8xh200", "8xh100", "8xb200", "8xmi300x"], min_length=1, max_length=6
    )
    against: Annotated[str, Field(pattern="^(ttft|tpot|latency)$")] = "tpot"


def load_asked(service: dict[str, Any], clients: int = 0) -> Load:
    """The requests of a service.

    >>> load_asked(Service(rate=2.0).model_dump()).count
    200
    """
    kind = service["load"]
    options: dict[str, Any] = {"seed": service["seed"]}
    for name in ("input", "output"):
        shape = service[f"{name}_shape"]
        spread = f":{service['spread']:g}" if shape == "lognormal" else ""
        options[name] = f"{shape}:{service[name]}{spread}"
    if kind == "closed":
        many = clients or service["clients"]
        return load_of("closed", clients=many, count=int(np.clip(8 * many, FEWEST, MOST)), **options)
    options["rate"] = service["rate"]
    count = int(np.clip(1.5 * MINUTE * service["rate"], FEWEST, MOST))
    own: dict[str, dict[str, Any]] = {
        "gamma": {"burstiness": service["burstiness"]},
        "bursty": {"peak": service["peak"], "off": 10.0 * max(3.0, service["peak"])},
        "sessions": {"turns": str(service["turns"]), "think": service["think"]},
        "agents": {"turns": str(service["turns"]), "think": service["think"]},
    }
    if kind in ("sessions", "agents"):
        count = max(20, count // service["turns"])
    return load_of(kind, count=count, **options, **own.get(kind, {}))


def priced_deployment(
    service: dict[str, Any], load: Load, plan: Any = None, system: str = ""
) -> PricedService:
    """A deployment ready to serve, under the plan that is told or the best."""
    hardware, model, engine = inputs_of(service, system)
    chosen = service["plan"] if plan is None else plan
    return Deployment(hardware, model, chosen, engine).priced(load, limits_of(service))[0]


@answers(
    "serving/simulated",
    "A service request by request: a minute drawn, latency over load, the largest rate",
    Service,
    job=True,
)
def simulated_service(service: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Requests one by one: first the load that is asked for, then others, then the most within the limits."""
    load, slo = load_asked(service), limits_of(service)
    deployed = priced_deployment(service, load)
    tell({"priced": deployed.text, "plan": plan_text(deployed.plan)})
    run = simulate_services([deployed], load, slo=slo, keep=True)
    told: dict[str, Any] = {"run": simulated_told(run)}
    tell(told)
    told["points"] = []

    def heard(rate: float, one: Served) -> None:
        told["points"].append(_point(rate, one))
        tell({"point": told["points"][-1]})

    if service["load"] == "closed":
        at_once = float(deployed.rules.sequences * deployed.ranks * deployed.engines)
        most = max(min(4.0 * service["clients"] + 8.0, at_once), service["clients"])
        for many in client_steps(most, 8):
            loop = load_asked(service, int(many))
            heard(float(many), simulate_services([deployed], loop, slo=slo))
        return told
    load_latency([deployed], load, slo=slo, told=heard)
    if slo:
        found = find_rate(
            [deployed],
            load,
            slo,
            share=service["share"],
            told=lambda rate, one: tell({"tried": rate, "kept": one.kept}),
        )
        told["largest"] = {
            "rate": found.rate,
            "above": finite(found.above),
            "share": found.share,
            "runs": len(found.runs),
            "confidence": found.confidence,
        }
    return told


def _point(rate: float, run: Served) -> dict[str, Any]:
    row = answer_row(rate, run)
    return row | {"saturated_from": run.saturated_from, "kv_use": run.kv_use, "goodput": run.goodput}


def simulated_told(run: Served) -> dict[str, Any]:
    """A run: its numbers, distributions of latencies, and the first minute of requests and batches."""
    return run.to_dict() | {
        "title": run.title,
        "plan": plan_text(run.plan),
        "distributions": {name: latency_shares(run.times[name]) for name in LATENCIES}
        | {"inter_token": latency_shares(run.gaps)},
        "minute": minute_told(run),
    }


def latency_shares(times: LatencyStatistics) -> dict[str, Any]:
    """The share of requests within a time, thinned for a picture."""
    x, share = times.distribution()
    if len(x) > FINE:
        chosen = np.unique(np.linspace(0, len(x) - 1, FINE).astype(int))
        x, share = x[chosen], share[chosen]
    return {"within": list(map(float, x)), "share": list(map(float, share))}


def minute_told(run: Served) -> dict[str, Any]:
    """Requests in lanes and batches over time: the first minute, or as much of it as can be drawn."""
    served = sorted((r for r in run.records if r.last >= 0.0), key=lambda r: r.arrival)
    first = served[0].arrival if served else 0.0
    begin = first if first > MINUTE / 2 else 0.0  # a quiet service is drawn from its first request on
    shown = [r for r in served if r.arrival < begin + MINUTE][:DRAWN]
    end = min(max((r.last for r in shown), default=begin), begin + MINUTE)
    if len(shown) == DRAWN:
        end = min(end, shown[-1].arrival)
    rows = [
        [
            lane,
            r.arrival,
            max(r.scheduled, r.arrival),
            max(r.first, r.scheduled),
            max(r.last, r.first),
            r.input,
            r.output,
            r.cached,
            r.preempted,
        ]
        for lane, r in lanes_of(shown)
    ]
    steps = []
    for replica in sorted({s.replica for s in run.steps})[:4]:
        own = [s for s in run.steps if s.replica == replica and begin <= s.end and s.start < end]
        kept = joined_steps(own, STEPS) if len(own) > STEPS else own
        steps.append(
            [[s.start, min(s.end, end), s.generating, s.reading, s.waiting, round(s.kv, 4)] for s in kept]
        )
    return {
        "begin": begin,
        "end": end,
        "requests": rows,
        "of": len(served),
        "steps": steps,
        "saturated_from": run.saturated_from,
    }


# ------------------------------------------------------------------------------------------------ rivals


@answers(
    "serving/cost", "Cost against latency over systems, plans and rates, under the limits", Rivals, job=True
)
def cheapest_system(service: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Cost against a latency, over systems with their promising plans, at rates up to what each serves."""
    if service["load"] == "closed":
        raise BadValue("cost is told over rates: choose a load that arrives at a rate")
    load, slo = load_asked(service), limits_of(service)
    candidates: list[list[PricedService]] = []
    left_out: list[dict[str, str]] = []
    for name in dict.fromkeys(service["systems"]):
        try:
            hardware, model, engine = inputs_of(service, name)
            plans = [service["plan"]] if service["plan"] else promising_plans(hardware, model, load, engine)
            made = [[priced_deployment(service, load, plan, name)] for plan in plans]
        except StrataError as error:
            left_out.append({"system": name, "why": str(error)})
            continue
        candidates += made
        tell({"priced": name, "plans": [plan_text(s[0].plan) for s in made]})
    if not candidates:
        raise BadValue("; ".join(f"{one['system']}: {one['why']}" for one in left_out))
    share = service["share"]
    found = cost_frontier(
        candidates,
        load,
        latency=service["against"],
        share=share,
        slo=slo or None,
        told=_heard_cost(tell, service["against"], share),
    )
    least: dict[str, CostPoint] = {}
    for p in found.points:
        if not p.saturated and np.isfinite(p.cost) and p.cost < least.get(p.fleet, p).cost * (1 + 1e-12):
            least[p.fleet] = p
    ranked = sorted(least.values(), key=lambda p: p.cost)
    return {
        "latency": found.latency,
        "share": found.share,
        "points": [vars(p) for p in found.points],
        "best": [vars(p) for p in found.best],
        "cheapest": [vars(p) for p in ranked],
        "missed": sorted({s.text for c in candidates for s in c} - set(least)),
        "left_out": left_out,
    }


def _heard_cost(tell: Tell, latency: str, share: float) -> Callable[[float, Served], None]:
    def heard(rate: float, run: Served) -> None:
        seen, cost = run.times[latency].percentile(share), finite(run.cost_per_mtoken)
        tell({"fleet": run.fleet_text, "rate": rate, "seen": seen, "cost": cost, "kept": run.kept})

    return heard
