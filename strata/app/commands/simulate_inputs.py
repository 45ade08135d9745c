"""The command line of `strata simulate`, checked and made into inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strata.app.commands.options import picture_file, with_price
from strata.errors import BadValue, require
from strata.mapping.engine import USUAL_SERVER
from strata.search.served_options import deployment_of, limits_of_options, load_of_options, share_of_options

if TYPE_CHECKING:
    from strata.serving.deployment import Deployment
    from strata.serving.priced_service import PricedService
    from strata.serving.simulated import Deployments, Progress
    from strata.serving.simulated_result import Served

# what describes a deployment, and what stands there where nothing was typed
DEPLOYMENT_DEFAULTS = {
    "engine": USUAL_SERVER,
    "router": "least-loaded",
    "replicas": "1",
    "eviction": "recompute",
}
DEPLOYMENT = (*DEPLOYMENT_DEFAULTS, "model", "system", "plan", "prefill", "decode", "sequences", "tokens")
DEPLOYMENT += ("prefill_workers", "decode_workers")
DEPLOYMENT += ("kv_blocks", "no_prefix_caching", "power_cap", "speculative", "kv_tiers", "priorities")
DEPLOYMENT += ("skew", "other", "weights", "kv", "set", "price")


class SimulateInputs:
    """The command line, checked and made into inputs."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.picture = picture_file(told["picture"])
        self.kinds = [k for k in ("find_rate", "rates", "fleet", "cost", "caps") if told[k]]
        require(len(self.kinds) <= 1, "one question at a time", asked=", ".join(self.kinds))
        self.kind = self.kinds[0] if self.kinds else "run"
        kept = [n for n in ("requests", "html", "perfetto") if told[n] is not None]
        if kept and self.kind != "run":
            raise BadValue(f"--{kept[0]} is of a single run: leave out --{self.kind.replace('_', '-')}")
        self.options = told | {"set": with_price(told["set"], told["price"])}
        if told["pools"] is not None:
            self._check_pools()
        else:
            self.deployment = deployment_of(self.options)
        self.slo, self.share = limits_of_options(told), share_of_options(told)
        self.load = load_of_options(told)

    def _check_pools(self) -> None:
        """A file of pools says what serves: nothing else may."""
        told = {n: self.told[n] for n in DEPLOYMENT}
        given = [n for n, v in told.items() if v and v != DEPLOYMENT_DEFAULTS.get(n)]
        if given:
            flag = {"other": "or"}.get(given[0], given[0].replace("_", "-"))
            raise BadValue(f"--pools says what serves: leave out --{flag}")
        if self.kind in ("fleet", "cost", "caps"):
            raise BadValue(f"--{self.kind} asks which deployments to take: leave out --pools")

    def deployments(self) -> Deployments:
        """What serves: the pools of a file, or the one deployment that is asked for."""
        from strata.search.served_options import read_pools

        path = self.told["pools"]
        if path is None:
            return self.deployment.priced(self.load, self.slo)
        return read_pools(path, self.load, slo=self.slo)

    def run(self, keep: bool, progress: Progress | None) -> Served:
        """What becomes of the requests."""
        from strata.serving.deployment import served
        from strata.serving.simulated import simulate_services

        more: dict[str, Any] = {"slo": self.slo, "keep": keep, "progress": progress}
        if self.told["pools"] is None:
            return served(self.deployment, self.load, **more)
        return simulate_services(self.deployments(), self.load, router=self.told["router"], **more)

    def others(self, all_plans: bool = False) -> list[Deployment]:
        """Deployments on other systems; with `all_plans` several of each that names no plan."""
        words = [word.partition(":") for word in self.told["other"] or []]
        systems = [deployment_of(self.options | {"system": name, "plan": plan}) for name, _, plan in words]
        return [one for s in systems for one in (self._planned(s) if all_plans else [s])]

    def candidates(self) -> list[list[PricedService]]:
        """Deployments to compare: of a system without a plan, several plans."""
        every = [*self._planned(self.deployment), *self.others(all_plans=True)]
        return [one.priced(self.load, self.slo) for one in every]

    def _planned(self, one: Deployment) -> list[Deployment]:
        from strata.serving.priced_service import promising_plans

        if one.plan or one.prefill:
            return [one]
        plans = promising_plans(one.system, one.model, self.load, one.engine)
        return [replace(one, plan=plan) for plan in plans]
