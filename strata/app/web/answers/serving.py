"""Serving: a model under load by closed forms, at once; and simulated: a minute of requests one by one,
latency over load, the largest rate under an SLO, which system serves cheapest. Long questions report on the
way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import exp
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from strata.adapters.launchers.commands import devices_per_machine, launch_command
from strata.app.render.prediction import finite
from strata.app.render.serving import under_load_dict
from strata.app.render.simulated_page import joined_steps, lanes_of, phase_ends, served_requests, thinned
from strata.app.render.tables import floats, picked
from strata.app.web.answers import FieldPath, FieldValue, Name, NameOrNone, Tell, Text, WebQuestion, answers
from strata.app.web.answers.what_if import changes
from strata.base.errors import BadValue, StrataError
from strata.mapping.plan import plan_text
from strata.search.inputs import named_inputs
from strata.serving.deployment import Deployment
from strata.serving.load import closed_load, most_rate, open_load
from strata.serving.priced_service import PricedService, promising_plans
from strata.serving.requests import Requests
from strata.serving.simulated import simulate_services
from strata.serving.simulated_answers import CostPoint, answer_row, cost_frontier, find_rate, load_latency
from strata.serving.simulated_result import LATENCIES, Served
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.statistics import LatencyStatistics
from strata.serving.under_load import UnderLoad, client_steps, serve_under_load
from strata.software.engine import USUAL_SERVER
from strata.workload.model import Model

Shape = Literal["fixed", "uniform", "lognormal", "exponential"]
Limit = Annotated[float, Field(gt=1e-5, le=1e4)]
RATES = 32  # points of a curve
SEEN = "rate ttft ttft_p95 tpot active utilisation tokens_per_s power cost_per_mtoken energy_per_mtoken"
LAUNCHED = ("vllm", "sglang", "trtllm")
MINUTE = 60.0  # s of the service that are drawn
DRAWN, STEPS = 1200, 900  # requests and steps of a picture
FEWEST, MOST = 200, 3000  # requests of a run
FINE = 120  # points of a distribution


class Service(WebQuestion):
    """A deployment, the load on it, and the limits that requests are to keep."""

    model: Name = "llama-3-70b"
    system: Name = "8xh200"
    plan: Text = ""
    engine: Name = USUAL_SERVER
    weights: NameOrNone = ""
    kv: NameOrNone = ""
    set: dict[FieldPath, FieldValue] = Field(default_factory=dict, max_length=40)
    load: Literal["poisson", "even", "gamma", "bursty", "closed", "sessions", "agents"] = "poisson"
    rate: float = Field(4.0, gt=1e-3, le=1e4, description="requests a second, or sessions")
    clients: int = Field(16, ge=1, le=4096, description="of a closed loop")
    burstiness: float = Field(4.0, ge=0, le=50, description="squared variation of the gaps (gamma)")
    peak: float = Field(3.0, ge=1, le=100, description="of a burst, times the mean rate")
    turns: int = Field(4, ge=1, le=32, description="of a session")
    think: float = Field(10.0, ge=0, le=3600, description="between turns [s]")
    input: int = Field(1024, ge=1, le=1_000_000)
    output: int = Field(256, ge=2, le=100_000)
    input_shape: Shape = "lognormal"
    output_shape: Shape = "fixed"
    spread: float = Field(0.5, ge=0, le=2, description="of logarithms, where lengths are lognormal")
    ttft: Limit | None = 1.0
    tpot: Limit | None = 0.04
    share: float = Field(0.95, ge=0.5, le=0.999)
    seed: int = Field(0, ge=0, le=10**6)


def limits_of(service: dict[str, Any]) -> dict[str, float]:
    """The limits that are told, by name [s]."""
    return {name: float(service[name]) for name in ("ttft", "tpot") if service[name] is not None}


def inputs_of(service: dict[str, Any], system: str = "") -> tuple[Any, Any, Any]:
    """System, language model and engine by their names."""
    names = (service["model"], system or service["system"], service["engine"])
    found = named_inputs(*names, service["weights"], service["kv"], changes(service))
    if not isinstance(found[1], Model):
        raise BadValue(f"{service['model']} is no language model: it serves no requests")
    return found


def input_variation(service: dict[str, Any]) -> float:
    """Squared coefficient of variation of the prompts' lengths, by their distribution.

    >>> round(input_variation({"input_shape": "lognormal", "spread": 0.5}), 3)
    0.284
    """
    uniform = (0.2**2 / 12.0) / 0.9**2  # between 0.8 and 1 of the largest
    known = {"fixed": 0.0, "uniform": uniform, "exponential": 1.0}
    return known.get(service["input_shape"], exp(service["spread"] ** 2) - 1.0)


@answers("serving", Service)
def closed_forms(service: dict[str, Any]) -> dict[str, Any]:
    """A model under load by closed forms: plans, latency over load, cost, how to start it."""
    system, model, engine = inputs_of(service)
    asked = Requests(service["input"], service["output"], input_variation(service))
    closed = service["load"] == "closed"
    load = {"clients": float(service["clients"])} if closed else {"rate": service["rate"]}
    limits: dict[str, Any] = limits_of(service)
    limits |= {"share": service["share"]} if limits else {}
    found, missed = _answer((system, model, asked, service["plan"] or None, engine), load, limits)
    told = under_load_dict(found)
    chosen = plan_text(found.curve.plan_at(found.chosen))
    return {
        "title": f"{model.name} on {system.name}",
        "question": found.question,
        "plan": chosen,
        "missed": missed,
        "saturated": found.why_none,
        "load": told["load"] if not found.why_none else None,
        **{name: told[name] for name in ("plans", "interval")},
        "curve": _curve(found, closed),
        "most_rate": most_rate(found.curve)[found.chosen],
        "goodput": 0.0 if missed else found.rates[found.chosen],
        "slots": found.curve.slots[found.chosen],
        "frontier": [] if told["frontier"] is None else told["frontier"]["best"][:120],
        "launch": launch_texts(model, chosen, system, service),
        "note": _note(service),
    }


def _answer(asked: tuple[Any, ...], load: dict[str, Any], limits: dict[str, Any]) -> tuple[UnderLoad, str]:
    """What was found; where no plan keeps the limits or has room, with why, and without what was missed."""
    serve: Callable[..., UnderLoad] = partial(serve_under_load, *asked, with_frontier=True, quick=True)
    found = serve(**load, **limits)
    if found.served.choices:
        return found, ""
    if not found.served.fits:
        raise BadValue(found.why_none)
    missed = found.limits_missed() if limits else ""
    for fewer in ({**load}, {}):
        found = serve(**fewer)
        if found.served.choices:
            break
    if not found.served.choices:
        raise BadValue(found.why_none or "no plan serves this load")
    if found.load is None and "clients" in load:
        slots = float(found.curve.slots[0])
        missed = f"{load['clients']:g} clients are more than the {slots:g} that are served at once"
    return found, missed


def _note(service: dict[str, Any]) -> str:
    """What closed forms leave out of this load."""
    kinds = {"even": "come evenly", "gamma": "come in clumps", "bursty": "come in bursts"}
    kinds |= {"sessions": "build on earlier turns", "agents": "build on earlier turns and tools"}
    said = kinds.get(service["load"])
    return "" if said is None else f"Closed forms take arrivals at random; that requests {said} is simulated."


def _curve(found: UnderLoad, closed: bool) -> list[dict[str, Any]]:
    """Latency over load of the plan that carries it: over rates up to the most that is served, or over
    clients.
    """
    one = found.curve.at(found.chosen)
    if closed:
        most = max(float(one.slots[0]), 1.0)
        clients = client_steps(min(most, 4.0 * (found.clients or most) + 8.0), RATES)
        every = closed_load(one, clients)
        loads = [(every.at(0, j), float(n)) for j, n in enumerate(clients)]
        return [floats(load, SEEN) | {"clients": n} for load, n in loads if np.isfinite(load.ttft)]
    most = float(most_rate(one)[0])
    shares = np.unique(np.concatenate([np.linspace(0.02, 0.9, RATES - 8), np.linspace(0.92, 0.995, 8)]))
    seen = open_load(one.only([0] * len(shares)), shares * most)
    return [floats(load, SEEN) for load in map(seen.at, range(len(shares))) if np.isfinite(load.ttft)]


def launch_texts(model: Any, plan: str, system: Any, service: dict[str, Any]) -> list[dict[str, Any]]:
    """The command that starts this deployment with each engine; where one cannot, why."""
    found = []
    first = service["engine"].partition("@")[0]
    for name in sorted(LAUNCHED, key=lambda n: not first.startswith(n)):
        try:
            engine = inputs_of({**service, "engine": name, "set": {}})[2]
            made = launch_command(model, plan, engine, per_node=devices_per_machine(system))
            started = {"text": made.text, "notes": list(made.notes), "why": ""}
        except StrataError as error:
            started = {"text": "", "notes": [], "why": str(error)}
        found.append({"engine": name, **started})
    return found


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
    talk = {"turns": str(service["turns"]), "think": service["think"]}
    own: dict[str, dict[str, Any]] = {
        "gamma": {"burstiness": service["burstiness"]},
        "bursty": {"peak": service["peak"], "off": 10.0 * max(3.0, service["peak"])},
        "sessions": talk,
        "agents": talk,
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


@answers("serving/simulated", Service, job=True)
def simulated_service(service: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """A service request by request: a minute drawn, latency over load, the largest rate."""
    load, slo = load_asked(service), limits_of(service)
    deployed = priced_deployment(service, load)
    tell({"priced": deployed.text, "plan": plan_text(deployed.plan)})
    run = simulate_services([deployed], load, slo=slo, keep=True)
    told: dict[str, Any] = {"run": simulated_told(run)}
    tell(told)
    told["points"] = []

    def heard(rate: float, one: Served) -> None:
        told["points"].append(answer_row(rate, one) | picked(one, "saturated_from kv_use goodput"))
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
        tried = lambda rate, one: tell({"tried": rate, "kept": one.kept})  # noqa: E731
        found = find_rate([deployed], load, slo, share=service["share"], told=tried)
        told["largest"] = picked(found, "rate above share") | {"runs": len(found.runs)}
        told["largest"] |= picked(found, "confidence")
    return told


def simulated_told(run: Served) -> dict[str, Any]:
    """A run: its numbers, distributions of latencies, and the first minute of requests and batches."""
    times = {name: run.times[name] for name in LATENCIES} | {"inter_token": run.gaps}
    shares = {name: latency_shares(each) for name, each in times.items()}
    named = {"title": run.title, "plan": plan_text(run.plan)}
    return run.to_dict() | named | {"distributions": shares, "minute": minute_told(run)}


def latency_shares(times: LatencyStatistics) -> dict[str, Any]:
    """The share of requests within a time, thinned for a picture."""
    x, share = thinned(times, FINE)
    return {"within": list(map(float, x)), "share": list(map(float, share))}


def minute_told(run: Served) -> dict[str, Any]:
    """Requests in lanes and batches over time: the first minute, or as much of it as can be drawn."""
    served = served_requests(run)
    first = served[0].arrival if served else 0.0
    begin = first if first > MINUTE / 2 else 0.0  # a quiet service is drawn from its first request on
    shown = [r for r in served if r.arrival < begin + MINUTE][:DRAWN]
    end = min(max((r.last for r in shown), default=begin), begin + MINUTE)
    if len(shown) == DRAWN:
        end = min(end, shown[-1].arrival)
    rows = [[lane, *phase_ends(r), r.input, r.output, r.cached, r.preempted] for lane, r in lanes_of(shown)]
    steps = []
    for replica in sorted({s.replica for s in run.steps})[:4]:
        own = [s for s in run.steps if s.replica == replica and begin <= s.end and s.start < end]
        kept = joined_steps(own, STEPS) if len(own) > STEPS else own
        work = [(s.generating, s.reading, s.waiting, round(s.kv, 4)) for s in kept]
        steps.append([[s.start, min(s.end, end), *each] for s, each in zip(kept, work, strict=True)])
    return {
        "begin": begin,
        "end": end,
        "requests": rows,
        "of": len(served),
        "steps": steps,
        "saturated_from": run.saturated_from,
    }


@answers("serving/cost", Rivals, job=True)
def cheapest_system(service: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Cost against latency over systems, plans and rates, under the limits."""
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

    def heard(rate: float, run: Served) -> None:
        seen, cost = run.times[service["against"]].percentile(share), finite(run.cost_per_mtoken)
        tell({"fleet": run.fleet_text, "rate": rate, "seen": seen, "cost": cost, "kept": run.kept})

    found = cost_frontier(
        candidates, load, latency=service["against"], share=share, slo=slo or None, told=heard
    )
    least: dict[str, CostPoint] = {}
    for p in found.points:
        if not p.saturated and np.isfinite(p.cost) and p.cost < least.get(p.fleet, p).cost * (1 + 1e-12):
            least[p.fleet] = p
    ranked = sorted(least.values(), key=lambda p: p.cost)
    return {
        **picked(found, "latency share"),
        **picked(found, "points best", lambda points: [vars(p) for p in points]),
        "cheapest": [vars(p) for p in ranked],
        "missed": sorted({s.text for c in candidates for s in c} - set(least)),
        "left_out": left_out,
    }
