"""Pools of a fleet from a TOML file: which models they serve, on what, with which limits and adapters."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from strata.errors import BadValue, UnknownName, require
from strata.mapping.engine import USUAL_SERVER
from strata.search.inputs import served_inputs
from strata.serving.deployment import Deployment
from strata.serving.priced_service import PricedService
from strata.serving.simulated_pools import ServicePool, with_adapters
from strata.serving.speculation import Drafting, named_drafting
from strata.simulate.server.adapters import AdapterRules
from strata.simulate.server.fleet import Load
from strata.units import parse
from strata.workload.adapted_model import adapted_model
from strata.workload.lora import ALL_MODULES, Lora
from strata.workload.model import Model

NAMES = ("name", "model", "system", "plan", "prefill", "decode", "engine", "weights", "kv")
WORDS = (*NAMES, "router", "rank_router", "eviction", "admission")
COUNTS = ("replicas", "sequences", "tokens", "kv_blocks", "context", "most_waiting")
FLAGS = ("prefix_caching", "priorities")
LISTS = ("serves", "kv_tiers")
QUANTITIES = {"power_cap": "W", "skew": "1"}
SAME = (
    "prefill",
    "decode",
    "kv_blocks",
    "context",
    "replicas",
    "rank_router",
    "eviction",
    "kv_tiers",
    "power_cap",
)
# keys of a pool and the fields of a deployment they are
PRICED = {"tokens": "max_num_batched_tokens", "sequences": "max_num_seqs"} | {n: n for n in (*FLAGS, *SAME)}
ADAPTERS = {"names": LISTS, "modules": LISTS, "slots": COUNTS, "rank": QUANTITIES, "bandwidth": QUANTITIES}
DRAFT = {"model": WORDS, "acceptance": QUANTITIES, "window": QUANTITIES, "branches": QUANTITIES}


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
        known = (*WORDS, *COUNTS, *FLAGS, *LISTS, *QUANTITIES, "adapters", "draft")
        self.values = {name: self._checked(name, value, known) for name, value in values.items()}
        self.name = str(self.values.get("name") or self.values.get("model") or "")
        for name in ("model", "system"):
            require(bool(self.values.get(name)), f"{self.where} must say its {name}")

    def _checked(self, name: str, value: Any, known: tuple[str, ...]) -> Any:
        if name not in known:
            raise UnknownName(f"key of {self.where}", name, known)
        if name in ("adapters", "draft"):
            inside = ADAPTERS if name == "adapters" else DRAFT
            require(isinstance(value, dict), f"{self.where}: {name} is a table")
            for key in value:
                if key not in inside:
                    raise UnknownName(f"key of {name} of {self.where}", key, tuple(inside))
            return {key: self._typed(f"{name}.{key}", v, inside[key]) for key, v in value.items()}
        kinds = (WORDS, COUNTS, FLAGS, LISTS, QUANTITIES)
        return self._typed(name, value, next(kind for kind in kinds if name in kind))

    def _typed(self, name: str, value: Any, kind: Any) -> Any:
        said = f"{self.where}: {name}"
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        checks: list[tuple[Any, bool, str]] = [
            (WORDS, isinstance(value, str), "a text"),
            (COUNTS, whole, "a whole number of at least 1"),
            (FLAGS, isinstance(value, bool), "true or false"),
            (LISTS, isinstance(value, list) and all(isinstance(v, str) for v in value), "a list of names"),
            (QUANTITIES, isinstance(value, int | float | str) and not isinstance(value, bool), "a number"),
        ]
        good, what = next((good, what) for one, good, what in checks if one is kind)
        require(good, f"{said} is {what}", given=value)
        if kind is not QUANTITIES:
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
            limits["drafting"] = _drafting(model, values["draft"])
        lora = _lora(values["adapters"]) if "adapters" in values else None
        slots = int(values.get("adapters", {}).get("slots", 1))
        served = model if lora is None else adapted_model(model, lora, float(slots))
        services = Deployment(system, served, self.get("plan"), engine, **limits).priced(load, slo)
        if lora is None:
            return services, None
        return _adapted(services, values["adapters"], lora, slots)


def _lora(told: dict[str, Any]) -> Lora:
    for name in ("names", "rank", "bandwidth"):
        require(name in told, f"adapters must say their {name}")
    return Lora(rank=float(told["rank"]), modules=tuple(told.get("modules", ALL_MODULES)))


def _adapted(
    services: list[PricedService], told: dict[str, Any], lora: Lora, slots: int
) -> tuple[list[PricedService], AdapterRules]:
    """Deployments with room for adapters; the rules of the one that fetches slowest."""
    rates = {"slots": slots, "bandwidth": told["bandwidth"]}
    pairs = [with_adapters(s, told["names"], lora, **rates) for s in services]
    slowest = max(rules.fetch_time for _, rules in pairs)
    return [s for s, _ in pairs], replace(pairs[0][1], fetch_time=slowest)


def _drafting(model: Model, told: dict[str, Any]) -> Drafting:
    for name in ("model", "acceptance"):
        require(name in told, f"a draft must say its {name}")
    shape = {n: told[n] for n in ("acceptance", "window", "branches") if n in told}
    return named_drafting(told["model"], model, **shape)
