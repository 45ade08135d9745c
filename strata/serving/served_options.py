"""Deployments and loads as texts: what `strata simulate` is typed with, by the names of its options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf
from typing import Any

from strata.errors import BadValue, UnknownName, require
from strata.hardware.system import System
from strata.mapping.engine import USUAL_SERVER, Engine
from strata.mapping.engine import engine as make_engine
from strata.mapping.plan import plan as make_plan
from strata.memo import Memo
from strata.search.fields import parse_changes
from strata.search.inputs import served_inputs, set_tables
from strata.serving.deployment import Deployment, served
from strata.serving.simulated_answers import PacedLoad, find_rate
from strata.serving.speculation import Drafting, named_drafting
from strata.simulate.server.fleet import Load
from strata.simulate.server.load_text import load_of
from strata.units import parse, typed_quantity, typed_time, whole
from strata.workload.model import Model

Options = Mapping[str, Any]  # texts by option; True for a flag; a sequence of items for set
GUESS = ("draft", "acceptance", "window", "branches", "plan")
# options that say what serves, and those of them that a deployment has under another name
COUNTS = {
    "sequences": "max_num_seqs",
    "tokens": "max_num_batched_tokens",
    "kv_blocks": "kv_blocks",
    "replicas": "replicas",
    "prefill_workers": "prefill_workers",
    "decode_workers": "decode_workers",
}
WORDS = ("router", "eviction", "prefill", "decode")
LOADS = ("load", "trace", "rate", "clients")
ASKED = (*LOADS, "input", "output", "count", "seed", "speed", "ttft", "tpot", "latency", "share", "find_rate")
UNPRICED = ("title", "versions", "sources", "training")  # what a step's price does not know of an engine
SHARE = "95%"  # of requests that keep all limits, where nothing is said

_RECORDS, _ENGINES, _DEPLOYMENTS, _SERVED = Memo(512), Memo(512), Memo(512), Memo(4096)


def deployment_of(options: Options, engines: Mapping[str, Engine] | None = None) -> Deployment:
    """The deployment that options say; the same one for options that mean the same, so that its steps are
    priced once. `engines` replace those of their names, but for what a version or an option says.

    >>> asked = {"model": "llama-3-70b", "system": "8xh200", "plan": "tp=8", "tokens": "2048"}
    >>> one = deployment_of(asked)
    >>> one.max_num_batched_tokens, one is deployment_of({**asked, "engine": "vllm@0.24", "count": "9"})
    (2048, True)
    """
    system, model, engine = _records(options, engines or {})
    named = {n: str(options[n]) for n in WORDS if options.get(n)}
    counts = {n: int(whole(options[n], _flag(n))) for n in COUNTS if options.get(n)}
    texts = {n: str(options.get(n) or "") for n in ("plan", "speculative", "skew", "power_cap", "kv_tiers")}
    flags = {n: bool(options.get(n)) for n in ("no_prefix_caching", "priorities")}
    key = (system, model, engine, *(tuple(part.items()) for part in (named, counts, texts, flags)))

    def make() -> Deployment:
        limits: dict[str, Any] = {**named, **{COUNTS[n]: v for n, v in counts.items()}}
        limits |= {"prefix_caching": not flags["no_prefix_caching"], "priorities": flags["priorities"]}
        limits["kv_tiers"] = [name.strip() for name in texts["kv_tiers"].split(",") if name.strip()]
        if texts["speculative"]:
            limits["drafting"] = typed_draft(texts["speculative"], model)["draft"]
        if texts["skew"]:
            require(model.has_experts, f"{model.name} has no experts to pick", skew=texts["skew"])
            limits["routed"] = {"skew": parse(texts["skew"], "1", "--skew")}
        if texts["power_cap"]:
            limits["power_cap"] = typed_quantity(texts["power_cap"], "W", "--power-cap")
        _check_plans(options)
        return Deployment(system, model, texts["plan"], engine, **limits)

    return _DEPLOYMENTS.of(key, make)


def _check_plans(options: Options) -> None:
    apart = [bool(options.get(n)) for n in ("prefill", "decode")]
    if apart[0] != apart[1]:
        raise BadValue("devices apart need both --prefill PLAN and --decode PLAN")
    require(not (apart[0] and options.get("plan")), "--prefill and --decode are plans: leave out --plan")
    lone = [n for n in ("prefill_workers", "decode_workers") if options.get(n) and not apart[0]]
    if lone:
        raise BadValue(f"{_flag(lone[0])} is of devices apart: give --prefill PLAN and --decode PLAN")


def _records(options: Options, engines: Mapping[str, Engine]) -> tuple[System, Model, Engine]:
    """System, model and engine that options name, each once for a process."""
    lacks = [f"--{n}" for n in ("model", "system") if not options.get(n)]
    require(not lacks, f"simulate needs {' and '.join(lacks)}, or --pools FILE")
    model, system, weights, kv = (str(options.get(n) or "") for n in ("model", "system", "weights", "kv"))
    software, items = str(options.get("engine") or USUAL_SERVER), tuple(options.get("set") or ())
    others = {owner: table for owner, table in parse_changes(items).items() if owner != "engine"}
    hardware, served_model = _RECORDS.of(
        (model, system, weights, kv, repr(others)),
        lambda: served_inputs(model, system, software, weights, kv, items)[:2],
    )
    tables = set_tables(model, system, software, items)
    engine = _replaced(make_engine(software, **tables["engine"]), engines)
    values = tuple(getattr(engine, f.name) for f in fields(Engine) if f.name not in UNPRICED)
    return hardware, served_model, _ENGINES.of(values, lambda: engine)


def _replaced(engine: Engine, engines: Mapping[str, Engine]) -> Engine:
    """An engine with the numbers of another of its name, where it has those of the newest version."""
    if engine.name not in engines:
        return engine
    newest, other = make_engine(engine.name), engines[engine.name]
    names = [f.name for f in fields(Engine) if f.name not in UNPRICED]
    own = [n for n in names if getattr(engine, n) == getattr(newest, n)]
    return replace(engine, **{n: getattr(other, n) for n in own})


def drafting_of(text: str, model: Model, phase: str = "serve") -> Drafting | None:
    """The guess that is typed, of a window that is told."""
    if not text:
        return None
    require(phase == "serve", "--speculative is of requests that are served", phase=phase)
    typed = typed_draft(text, model)
    require(not typed["free_window"], "strata serving and speculate find the best window; here it is told")
    drafting: Drafting = typed["draft"]
    return drafting


def typed_draft(text: str, model: Model) -> dict[str, Any]:
    """The guess that is typed, and whether its window is to be found; nothing where nothing is. The draft
    `mtp` is the model's own module.
    """
    if not text:
        return {}
    given: dict[str, str] = {}
    key = ""
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if key == "plan" and name not in GUESS:
            given["plan"] += f",{item}"
            continue
        if not equals or not value:
            raise BadValue(
                f"--speculative is written like draft=llama-3.2-1b,acceptance=0.7,window=4, but got '{text}'"
            )
        if name not in GUESS:
            raise UnknownName("part of a guess", name, GUESS, ", ".join(GUESS))
        key, given[name] = name, value
    for name in ("draft", "acceptance"):
        require(
            name in given, f"--speculative needs {name}, like draft=llama-3.2-1b,acceptance=0.7", given=text
        )
    free = given.get("window") == "best"
    wanted = [k for k in ("acceptance", "window", "branches") if k in given and not (k == "window" and free)]
    numbers: dict[str, float] = {k: parse(given[k], "1", k) for k in wanted}
    for name in ("window", "branches"):
        require(
            numbers.get(name, 1.0) % 1 == 0, f"{name} must be a whole number", **{name: numbers.get(name)}
        )
    plan = make_plan(given["plan"]) if "plan" in given else None
    return {"draft": named_drafting(given["draft"], model, **numbers, plan=plan), "free_window": free}


def load_of_options(options: Options) -> Load:
    """The requests that options say."""
    ways = [n for n in LOADS if options.get(n)]
    if not ways:
        raise BadValue(
            "simulate needs requests: --rate, --clients, --load or --trace; see strata simulate --help"
        )
    if len(ways) > 1:
        raise BadValue(f"--{ways[0]} and --{ways[1]} both say which requests come; give one")
    values: dict[str, Any] = {n: options[n] for n in ("count", "seed", "input", "output") if options.get(n)}
    if ways[0] in ("rate", "clients"):
        values = {"input": "1024", "output": "256", **values}
    if ways[0] == "rate":
        rate = typed_quantity(options["rate"], "Hz", "--rate")
        require(rate > 0, "--rate must be positive", rate=options["rate"])
        load = load_of("poisson", rate=rate, **values)
    elif ways[0] == "clients":
        load = load_of("closed", clients=int(whole(options["clients"], "--clients")), **values)
    else:
        load = load_of(options[ways[0]], **values)
    if not options.get("speed"):
        return load
    return PacedLoad(load=load, speed=parse(options["speed"], "1", "--speed"))


def limits_of_options(options: Options) -> dict[str, float]:
    """Limits on latencies that options say [s]."""
    limits = {n: typed_time(str(options.get(n) or ""), f"--{n}") for n in ("ttft", "tpot", "latency")}
    return {n: v for n, v in limits.items() if v < inf}


def share_of_options(options: Options) -> float:
    """The share of requests that must keep all limits."""
    text = str(options.get("share") or SHARE)
    share = parse(text, "1", "--share")
    require(0 < share <= 1, "--share lies between 0 and 100%", given=text)
    return share


def command_line(options: Options) -> str:
    """The line that a shell takes.

    >>> command_line({"model": "llama-3-70b", "system": "8xh200", "clients": "8", "set": ("model.kv=fp8",)})
    'strata simulate --model llama-3-70b --system 8xh200 --clients 8 --set model.kv=fp8 --json'
    """
    words = ["strata", "simulate"]
    for name, value in options.items():
        items = value if isinstance(value, list | tuple) else [value]
        for item in items:
            words += [_flag(name)] if item is True else [_flag(name), str(item)]
    return shlex.join([*words, "--json"])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def served_answer(options: Options, engines: Mapping[str, Engine] | None = None) -> dict[str, Any]:
    """What `strata simulate` prints as JSON for such options: of a run all, of `find_rate` the rate.

    >>> few = {"model": "llama-3-8b", "system": "1xh200", "plan": "tp=1", "clients": "4", "count": "40"}
    >>> served_answer(few)["completed"]
    40
    """
    deployment = deployment_of(options, engines)
    asked = tuple((n, options[n]) for n in sorted(options) if n in ASKED)
    return _SERVED.of((deployment, asked), lambda: _answer(deployment, options))


def _answer(deployment: Deployment, options: Options) -> dict[str, Any]:
    load, slo = load_of_options(options), limits_of_options(options)
    if not options.get("find_rate"):
        return served(deployment, load, slo=slo).to_dict()
    share, router = share_of_options(options), deployment.router
    return {"rate": find_rate(deployment.priced(load, slo), load, slo, share=share, router=router).rate}
