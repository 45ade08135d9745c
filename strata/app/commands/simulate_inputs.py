"""The command line of `strata simulate`, checked and made into inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strata.app.commands.options import picture_file, with_price
from strata.app.terminal import typed_quantity, typed_time, whole
from strata.errors import BadValue, require
from strata.units import parse

if TYPE_CHECKING:
    from strata.serving.priced_service import PricedService
    from strata.serving.simulated_pools import Deployments
    from strata.simulate.server.fleet import Load

# what describes a deployment, and what stands there where nothing was typed
DEPLOYMENT_DEFAULTS = {"engine": "vllm", "router": "least-loaded", "replicas": "1", "eviction": "recompute"}
DEPLOYMENT = (*DEPLOYMENT_DEFAULTS, "model", "system", "plan", "prefill", "decode", "sequences", "tokens")
DEPLOYMENT += ("kv_blocks", "no_prefix_caching", "power_cap", "speculative", "kv_tiers", "priorities")
DEPLOYMENT += ("skew", "other", "weights", "kv", "set", "price")


class SimulateInputs:
    """The command line, checked and made into inputs."""

    def __init__(self, told: dict[str, Any]) -> None:
        from strata.search.inputs import named_inputs

        self.told = told
        self.picture = picture_file(told["picture"])
        self.kinds = [k for k in ("find_rate", "rates", "fleet", "cost", "caps") if told[k]]
        require(len(self.kinds) <= 1, "one question at a time", asked=", ".join(self.kinds))
        self.kind = self.kinds[0] if self.kinds else "run"
        kept = [n for n in ("requests", "html", "perfetto") if told[n] is not None]
        if kept and self.kind != "run":
            raise BadValue(f"--{kept[0]} is of a single run: leave out --{self.kind.replace('_', '-')}")
        self.changes = with_price(told["set"], told["price"])
        if told["pools"] is not None:
            self._check_pools()
        else:
            lacks = [f"--{n}" for n in ("model", "system") if not told[n]]
            require(not lacks, f"simulate needs {' and '.join(lacks)}, or --pools FILE")
            self.system, self.model, self.engine = named_inputs(
                told["model"], told["system"], told["engine"], told["weights"], told["kv"], self.changes
            )
        limits = {n: typed_time(told[n], f"--{n}") for n in ("ttft", "tpot", "latency")}
        self.slo = {n: v for n, v in limits.items() if v < float("inf")}
        self.share = parse(told["share"], "1", "--share")
        require(0 < self.share <= 1, "--share lies between 0 and 100%", given=told["share"])
        self.load = self._load()

    def _check_pools(self) -> None:
        """A file of pools says what serves: nothing else may."""
        told = {n: self.told[n] for n in DEPLOYMENT}
        given = [n for n, v in told.items() if v and v != DEPLOYMENT_DEFAULTS.get(n)]
        if given:
            flag = {"other": "or"}.get(given[0], given[0].replace("_", "-"))
            raise BadValue(f"--pools says what serves: leave out --{flag}")
        if self.kind in ("fleet", "cost", "caps"):
            raise BadValue(f"--{self.kind} asks which deployments to take: leave out --pools")

    def _load(self) -> Load:
        from strata.serving.simulated_answers import PacedLoad
        from strata.simulate.server.load_text import load_of

        told = self.told
        ways = [n for n in ("load", "trace", "rate", "clients") if told[n]]
        if not ways:
            raise BadValue(
                "simulate needs requests: --rate, --clients, --load or --trace; see strata simulate --help"
            )
        if len(ways) > 1:
            raise BadValue(f"--{ways[0]} and --{ways[1]} both say which requests come; give one")
        options: dict[str, Any] = {n: told[n] for n in ("count", "seed") if told[n]}
        if ways[0] in ("rate", "clients"):
            options |= {"input": told["input"] or "1024", "output": told["output"] or "256"}
        else:
            options |= {n: told[n] for n in ("input", "output") if told[n]}
        if told["rate"]:
            value = typed_quantity(told["rate"], "Hz", "--rate")
            require(value > 0, "--rate must be positive", rate=told["rate"])
            made = load_of("poisson", rate=value, **options)
        elif told["clients"]:
            made = load_of("closed", clients=int(whole(told["clients"], "--clients")), **options)
        else:
            made = load_of(told["load"] or told["trace"], **options)
        if not told["speed"]:
            return made
        return PacedLoad(load=made, speed=parse(told["speed"], "1", "--speed"))

    @property
    def options(self) -> dict[str, Any]:
        """How a deployment is priced."""
        told = self.told
        names = ("sequences", "tokens", "kv_blocks")
        found: dict[str, Any] = {n: int(whole(told[n], f"--{n.replace('_', '-')}")) for n in names if told[n]}
        found |= {"prefix_caching": not told["no_prefix_caching"], "load": self.load, "slo": self.slo}
        found |= {"eviction": told["eviction"], "priorities": told["priorities"]}
        found["kv_tiers"] = [name.strip() for name in told["kv_tiers"].split(",") if name.strip()]
        if told["speculative"]:
            found["drafting"] = self._drafting(told["speculative"])
        if told["skew"]:
            require(self.model.has_experts, f"{self.model.name} has no experts to pick", skew=told["skew"])
            found["routed"] = {"skew": parse(told["skew"], "1", "--skew")}
        if told["power_cap"]:
            found["power_cap"] = typed_quantity(told["power_cap"], "W", "--power-cap")
        return found

    def _drafting(self, text: str) -> Any:
        """The guess that is typed; a module of the model's own where its draft is mtp."""
        from strata.app.commands.serving import typed_draft
        from strata.serving.speculation import drafting_layer

        words = text.split(",")
        own = "draft=mtp" in words
        named = [f"draft={self.told['model']}" if w == "draft=mtp" else w for w in words]
        guess = typed_draft(",".join(named))["draft"]
        return replace(guess, draft=drafting_layer(self.model)) if own else guess

    def services(self) -> list[PricedService]:
        """The deployment that is asked for."""
        from strata.serving.priced_service import price_service
        from strata.serving.simulated_pools import disaggregated_services

        told = self.told
        copies = int(whole(told["replicas"], "--replicas"))
        if bool(told["prefill"]) != bool(told["decode"]):
            raise BadValue("devices apart need both --prefill PLAN and --decode PLAN")
        if told["prefill"]:
            require(not told["plan"], "--prefill and --decode are plans: leave out --plan")
            inputs = (self.system, self.model, told["prefill"], told["decode"], self.engine)
            return [s.copied(copies) for s in disaggregated_services(*inputs, **self.options)]
        made = price_service(self.system, self.model, told["plan"], self.engine, **self.options)
        return [made.copied(copies)]

    def deployments(self) -> Deployments:
        """What serves: the pools of a file, or the one deployment that is asked for."""
        from strata.serving.pool_files import read_pools

        path = self.told["pools"]
        return self.services() if path is None else read_pools(path, self.load, slo=self.slo)

    def candidates(self) -> list[list[PricedService]]:
        """Deployments to compare: of a system without a plan, several plans."""
        from strata.search.inputs import named_inputs
        from strata.serving.priced_service import price_service, promising_plans

        if self.told["plan"] or self.told["prefill"]:
            found = [self.services()]
        else:
            plans = promising_plans(self.system, self.model, self.load, self.engine)
            inputs = [(self.system, self.model, p, self.engine) for p in plans]
            found = [[price_service(*one, **self.options)] for one in inputs]
        for word in self.told["other"] or []:
            name, _, plan = word.partition(":")
            told = (self.told["engine"], self.told["weights"], self.told["kv"])
            system, model, engine = named_inputs(self.told["model"], name, *told, self.changes)
            every = [plan] if plan else promising_plans(system, model, self.load, engine)
            found += [[price_service(system, model, p, engine, **self.options)] for p in every]
        return found

    def others(self) -> list[PricedService]:
        """Deployments on other systems."""
        from strata.search.inputs import named_inputs
        from strata.serving.priced_service import price_service

        found = []
        for word in self.told["other"] or []:
            name, _, plan = word.partition(":")
            told = (self.told["weights"], self.told["kv"])
            system, model, engine = named_inputs(
                self.told["model"], name, self.told["engine"], *told, self.changes
            )
            found.append(price_service(system, model, plan, engine, **self.options))
        return found
