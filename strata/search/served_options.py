"""Deployments, loads and pools as texts: what `strata simulate` is typed with, and TOML files of a fleet."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

from strata.base.errors import BadValue, UnknownName, require
from strata.base.memo import Memo
from strata.base.units import parse, typed_quantity, typed_time, whole
from strata.hardware.system import System
from strata.mapping.plan import plan as make_plan
from strata.search.fields import parse_changes
from strata.search.inputs import served_inputs, set_tables
from strata.serving.deployment import Deployment, served
from strata.serving.priced_service import PricedService
from strata.serving.simulated import ServicePool, with_adapters
from strata.serving.simulated_answers import PacedLoad, find_rate
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.pool import AdapterRules
from strata.serving.speculation import Drafting, named_drafting
from strata.software.engine import USUAL_SERVER, Engine
from strata.software.engine import engine as make_engine
from strata.workload.adapted_model import adapted_model
from strata.workload.lora import ALL_MODULES, Lora
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
    """The guess that is typed (`mtp`: the model's own module), and whether its window is to be found."""
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


WORD, COUNT, FLAG = "a text", "a whole number of at least 1", "true or false"
LIST, QUANTITY = "a list of names", "a number"
NAMES = ("name", "model", "system", "plan", "prefill", "decode", "engine", "weights", "kv")
KINDS = {
    **dict.fromkeys((*NAMES, "router", "rank_router", "eviction", "admission"), WORD),
    **dict.fromkeys(("replicas", "sequences", "tokens", "kv_blocks", "context", "most_waiting"), COUNT),
    **dict.fromkeys(("prefix_caching", "priorities"), FLAG),
    **dict.fromkeys(("serves", "kv_tiers"), LIST),
    **dict.fromkeys(("power_cap", "skew"), QUANTITY),
}
PLACED = ("prefill", "decode", "replicas", "rank_router", "power_cap", "priorities")
CACHED = ("kv_blocks", "context", "eviction", "kv_tiers", "prefix_caching")
# keys of a pool and the fields of a deployment they are
PRICED = {n: n for n in (*PLACED, *CACHED)}
PRICED |= {"tokens": "max_num_batched_tokens", "sequences": "max_num_seqs"}
INSIDE = {
    "adapters": {"names": LIST, "modules": LIST, "slots": COUNT, "rank": QUANTITY, "bandwidth": QUANTITY},
    "draft": {"model": WORD, "acceptance": QUANTITY, "window": QUANTITY, "branches": QUANTITY},
}


def read_pools(path: str | Path, load: Load, *, slo: dict[str, float] | None = None) -> list[ServicePool]:
    """The pools of a fleet as a TOML file says them, a table `[[pool]]` each, ready to serve.

    A pool names its `model` and `system`, and may say its `plan` (or `prefill` and `decode`), `engine`,
    `replicas`, `router`, `rank_router`, limits (`sequences`, `tokens`, `kv_blocks`, `context`,
    `most_waiting`), caches (`prefix_caching`, `kv_tiers`, `eviction`, `admission`), formats (`weights`,
    `kv`), `power_cap`, `skew`, `priorities`, tables `adapters` and `draft`, and which names it `serves`
    beside its own and its model's.
    """
    tables = _tables(Path(path))
    pools = [_Stated(f"pool {i + 1}", t).pool(load, slo) for i, t in enumerate(tables)]
    names = [p.name for p in pools]
    twice = next((n for n in names if names.count(n) > 1), None)
    require(twice is None, f"two pools of {path} have one name", name=twice)
    return pools


def _tables(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise BadValue(f"there is no file of pools {path}")
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"{path} is no TOML: {error}") from None
    others = sorted(set(stated) - {"pool"})
    if others:
        raise UnknownName("table of a file of pools", others[0], ("pool",))
    tables = stated.get("pool", [])
    good = isinstance(tables, list) and bool(tables) and all(isinstance(t, dict) for t in tables)
    require(good, f"{path} has at least one table [[pool]]")
    return list(tables)


class _Stated:
    """One table of the file, checked."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self.where = f"{where} ({values['name']})" if isinstance(values.get("name"), str) else where
        self.values = {name: self._checked(name, value) for name, value in values.items()}
        self.name = str(self.values.get("name") or self.values.get("model") or "")
        for name in ("model", "system"):
            require(bool(self.values.get(name)), f"{self.where} must say its {name}")

    def _checked(self, name: str, value: Any) -> Any:
        known = (*KINDS, *INSIDE)
        if name not in known:
            raise UnknownName(f"key of {self.where}", name, known)
        if name in KINDS:
            return self._typed(name, value, KINDS[name])
        require(isinstance(value, dict), f"{self.where}: {name} is a table")
        for key in value:
            if key not in INSIDE[name]:
                raise UnknownName(f"key of {name} of {self.where}", key, tuple(INSIDE[name]))
        return {key: self._typed(f"{name}.{key}", v, INSIDE[name][key]) for key, v in value.items()}

    def _typed(self, name: str, value: Any, kind: str) -> Any:
        said, flag = f"{self.where}: {name}", isinstance(value, bool)
        good = {
            WORD: isinstance(value, str),
            COUNT: isinstance(value, int) and not flag and value >= 1,
            FLAG: flag,
            LIST: isinstance(value, list) and all(isinstance(v, str) for v in value),
            QUANTITY: isinstance(value, int | float | str) and not flag,
        }
        require(good[kind], f"{said} is {kind}", given=value)
        if kind != QUANTITY:
            return value
        unit = {"adapters.bandwidth": "B/s", "power_cap": "W"}.get(name, "1")
        return parse(str(value), unit, said)

    def get(self, name: str, otherwise: str = "") -> str:
        return str(self.values.get(name, otherwise))

    def pool(self, load: Load, slo: dict[str, float] | None) -> ServicePool:
        values = self.values
        try:
            services, adapters = self._services(load, slo)
        except BadValue as error:
            raise BadValue(f"{self.where}: {error}") from None
        return ServicePool(
            services=services,
            name=self.name,
            router=self.get("router", "least-loaded"),
            serves=frozenset({self.name, services[0].model.name, *values.get("serves", [])}),
            most_waiting=float(values.get("most_waiting", "inf")),
            admission=self.get("admission", "at-once"),
            adapters=adapters,
        )

    def _services(
        self, load: Load, slo: dict[str, float] | None
    ) -> tuple[list[PricedService], AdapterRules | None]:
        values = self.values
        formats = (self.get("weights"), self.get("kv"))
        system, model, engine = served_inputs(
            self.get("model"), self.get("system"), self.get("engine", USUAL_SERVER), *formats, ()
        )
        limits: dict[str, Any] = {PRICED[n]: values[n] for n in PRICED if n in values}
        if "skew" in values:
            limits["routed"] = {"skew": values["skew"]}
        if "draft" in values:
            guess = values["draft"]
            for name in ("model", "acceptance"):
                require(name in guess, f"a draft must say its {name}")
            shape = {n: v for n, v in guess.items() if n != "model"}
            limits["drafting"] = named_drafting(guess["model"], model, **shape)
        told = values.get("adapters")
        if told is None:
            return Deployment(system, model, self.get("plan"), engine, **limits).priced(load, slo), None
        for name in ("names", "rank", "bandwidth"):
            require(name in told, f"adapters must say their {name}")
        lora = Lora(rank=float(told["rank"]), modules=tuple(told.get("modules", ALL_MODULES)))
        slots = int(told.get("slots", 1))
        served = adapted_model(model, lora, float(slots))
        services = Deployment(system, served, self.get("plan"), engine, **limits).priced(load, slo)
        rates = {"slots": slots, "bandwidth": told["bandwidth"]}
        pairs = [with_adapters(s, told["names"], lora, **rates) for s in services]
        slowest = max(rules.fetch_time for _, rules in pairs)
        return [s for s, _ in pairs], replace(pairs[0][1], fetch_time=slowest)
