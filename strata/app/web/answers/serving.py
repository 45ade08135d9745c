"""Serving: a model under load by closed forms, at once; what is simulated follows from `serving_runs`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import exp
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from strata.app.render.prediction import finite
from strata.app.render.serving import under_load_dict
from strata.app.render.tables import floats
from strata.app.web.answers import FieldPath, FieldValue, Name, NameOrNone, Text, WebQuestion, answers
from strata.app.web.answers.what_if import changes
from strata.errors import BadValue, StrataError
from strata.mapping.engine import USUAL_SERVER
from strata.mapping.plan import plan_text
from strata.search.inputs import named_inputs
from strata.serving.launch import devices_per_machine, launch_command
from strata.serving.load import closed_load, most_rate, open_load
from strata.serving.requests import Requests
from strata.serving.under_load import UnderLoad, client_steps, serve_under_load
from strata.workload.model import Model

Shape = Literal["fixed", "uniform", "lognormal", "exponential"]
Limit = Annotated[float, Field(gt=1e-5, le=1e4)]
RATES = 32  # points of a curve
SEEN = "rate ttft ttft_p95 tpot active utilisation tokens_per_s power cost_per_mtoken energy_per_mtoken"
LAUNCHED = ("vllm", "sglang", "trtllm")


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


@answers(
    "serving", "A model under load by closed forms: plans, latency over load, cost, how to start it", Service
)
def closed_forms(service: dict[str, Any]) -> dict[str, Any]:
    """What `strata serving --quick` says: the best plans under limits, what requests see, the curve."""
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
        "most_rate": finite(float(most_rate(found.curve)[found.chosen])),
        "goodput": 0.0 if missed else finite(float(found.rates[found.chosen])),
        "slots": finite(float(found.curve.slots[found.chosen])),
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
    kinds = {
        "even": "come evenly",
        "gamma": "come in clumps",
        "bursty": "come in bursts",
        "sessions": "build on earlier turns",
        "agents": "build on earlier turns and tools",
    }
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
