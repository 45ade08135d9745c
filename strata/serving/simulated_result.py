"""What became of the requests of a simulated service: latencies, goodput, caches, energy, money."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from strata.base.records import Tabular, record_html, row_columns
from strata.base.units import show
from strata.hardware.system import System
from strata.mapping.plan import Plan, plan_text
from strata.serving.priced_service import ObservedReplica, PricedService, StepsRecord
from strata.serving.simulator.saturation import Overload, SteadyShare
from strata.serving.simulator.scheduling import Request
from strata.serving.simulator.statistics import LatencyStatistics
from strata.serving.simulator.step_pricer import KvRoom
from strata.software.engine import Engine
from strata.workload.model import Model

LATENCIES = ("ttft", "tpot", "latency", "queued")
ROW = ("key", "arrival", "input", "output", "cached", "queued", "ttft", "tpot", "latency", "preempted")


def _no_latencies() -> dict[str, LatencyStatistics]:
    return {name: LatencyStatistics() for name in LATENCIES}


@dataclass(eq=False, kw_only=True)
class ModelTimes:
    """What requests for one of several models, or adapters, saw."""

    completed: int = 0
    refused: int = 0
    output_tokens: int = 0
    times: dict[str, LatencyStatistics] = field(default_factory=_no_latencies)

    def add(self, request: Request) -> None:
        self.completed += 1
        self.output_tokens += request.output
        for name, times in self.times.items():
            if name != "tpot" or request.output > 1:
                times.add(getattr(request, name))

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {n: getattr(self, n) for n in ("completed", "refused", "output_tokens")}
        return told | {name: _finite_summary(t) for name, t in self.times.items()}


@dataclass(eq=False, kw_only=True)
class Served(Tabular):
    """What became of the requests."""

    services: list[PricedService]  # deployments
    slo: dict[str, float] = field(default_factory=dict)  # limits on latencies to be kept [s]
    gaps: LatencyStatistics  # between tokens, of all of them
    replicas: list[ObservedReplica] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)  # the deployment of each replica
    pools: list[str] = field(default_factory=list)  # the pool of each deployment, by name
    by_model: dict[str, ModelTimes] = field(default_factory=dict)  # where pools serve several
    times: dict[str, LatencyStatistics] = field(default_factory=_no_latencies)
    completed: int = 0
    refused: int = 0
    refusals: dict[str, int] = field(default_factory=dict)  # how many, by why
    good: int = 0  # completed within the limits
    input_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    cached_tokens: int = 0  # of prompts, found in the prefix cache
    saturated_from: float | None = None  # since when the queue grew until the last arrival [s]
    overloads: list[Overload] = field(default_factory=list)  # in which the queue grew without end in sight
    begin: float = 0.0  # of what is counted: the end of a warm-up that was dropped [s]
    end: float = 0.0  # of the last event [s]
    stopped: bool = False  # by Ctrl-C or by whoever was told of progress, before all were served
    given_up: bool = False  # because more requests would not show that the share is kept
    steady: SteadyShare | None = None  # where a share was asked for
    records: list[Request] = field(default_factory=list)  # where they are kept
    steps: list[StepsRecord] = field(default_factory=list)  # where they are kept

    # -- what was served with, of the first deployment

    @property
    def system(self) -> System:
        return self.services[0].system

    @property
    def model(self) -> Model:
        return self.services[0].model

    @property
    def plan(self) -> Plan:
        return self.services[0].plan

    @property
    def engine(self) -> Engine:
        return self.services[0].engine

    @property
    def room(self) -> KvRoom:
        return self.services[0].room

    @property
    def step_errors(self) -> dict[str, float]:
        """What lines between priced steps leave, relative: the largest of all deployments."""
        every = [s.step_errors for s in self.services]
        return {name: max(e[name] for e in every) for name in every[0]}

    def of_model(self, name: str) -> ModelTimes:
        """Requests for a model; "" those that name none."""
        return self.by_model.setdefault(name, ModelTimes())

    @property
    def models_text(self) -> str:
        """The models of all deployments."""
        return ", ".join(dict.fromkeys(s.model.name for s in self.services))

    @property
    def fleet_text(self) -> str:
        """The deployments in words."""
        return " + ".join(s.text for s in self.services)

    @property
    def title(self) -> str:
        """What serves, in words."""
        engines = ", ".join(dict.fromkeys(s.engine.name for s in self.services))
        return f"{self.models_text} on {self.fleet_text}, engine {engines}"

    @property
    def devices(self) -> float:
        return sum(s.devices for s in self.services)

    # -- throughput

    @property
    def span(self) -> float:
        """The time that is counted [s]."""
        return self.end - self.begin

    @property
    def rate(self) -> float:
        """Requests completed [1/s]."""
        return self.completed / self.span if self.span else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated [1/s]."""
        return self.output_tokens / self.span if self.span else 0.0

    @property
    def goodput(self) -> float:
        """Requests completed within the limits [1/s]."""
        return self.good / self.span if self.span else 0.0

    @property
    def kept(self) -> float:
        """Share of requests that keep all limits; one that is refused keeps none."""
        return self.good / max(self.completed + self.refused, 1)

    @property
    def saturated(self) -> bool:
        """Whether requests came faster than they were served until the last."""
        return self.saturated_from is not None

    # -- what it takes

    @property
    def utilisation(self) -> float:
        """Share of the time in which replicas stepped."""
        return sum(r.busy for r in self.replicas) / (self.end * len(self.replicas)) if self.end else 0.0

    @property
    def kv_use(self) -> float:
        """Share of the cache's blocks that requests hold, mean over the time."""
        return float(np.mean([r.kv_use(self.end)[0] for r in self.replicas]))

    @property
    def kv_highest(self) -> float:
        """The largest share of any rank."""
        return max(r.kv_use(self.end)[1] for r in self.replicas)

    @property
    def prefix_hits(self) -> float:
        """Share of the tokens of prompts that the prefix cache had."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0

    def _powers(self) -> list[float]:
        """Mean power of all copies of each deployment [W]."""
        energies = [service.idle_power * self.end for service in self.services]
        for r, i in zip(self.replicas, self.owner, strict=True):
            energies[i] += r.total_energy(self.end)
        return [energy / self.end if self.end else 0.0 for energy in energies]

    @property
    def power(self) -> float:
        """Mean power of the fleet, steps and waiting [W]."""
        return sum(self._powers())

    @property
    def devices_power(self) -> float:
        """Mean power of the devices alone, without hosts, cooling and supply [W]."""
        pairs = zip(self._powers(), self.services, strict=True)
        return sum(service.devices_power(power) for power, service in pairs)

    @property
    def devices_energy_per_token(self) -> float:
        """Energy of the devices alone for a token generated [J]."""
        return self.devices_power / self.tokens_per_s if self.output_tokens else float("nan")

    @property
    def dollars(self) -> float:
        """Price of the fleet [USD/s]; nan where a chip has none."""
        pairs = zip(self._powers(), self.services, strict=True)
        return sum(service.dollars(power) for power, service in pairs)

    @property
    def energy_per_token(self) -> float:
        """Energy of the fleet for a token generated [J]."""
        return self.power / self.tokens_per_s if self.output_tokens else float("nan")

    @property
    def cost_per_mtoken(self) -> float:
        """Price of a million tokens generated [USD]."""
        return 1e6 * self.dollars / self.tokens_per_s if self.output_tokens else float("nan")

    # -- for people and machines

    def __repr__(self) -> str:
        ttft, tpot = self.times["ttft"], self.times["tpot"]
        limits = f", {self.kept:.1%} within limits" if self.slo else ""
        sat = f", saturated from {show(self.saturated_from, 's')}" if self.saturated_from is not None else ""
        return (
            f"Served({self.completed:,} requests of {self.models_text} on {self.fleet_text}: "
            f"{self.rate:.3g}/s, {self.tokens_per_s:.4g} tokens/s, "
            f"TTFT {show(ttft.mean, 's')} (p95 {show(ttft.percentile(0.95), 's')}), "
            f"TPOT {show(tpot.mean, 's')} (p95 {show(tpot.percentile(0.95), 's')}){limits}{sat})"
        )

    def _repr_html_(self) -> str:
        told = {name: _shown(self.times[name]) for name in LATENCIES} | {"between tokens": _shown(self.gaps)}
        told |= {"requests/s": f"{self.rate:.4g}", "tokens/s": f"{self.tokens_per_s:.4g}"}
        return record_html(f"{self.models_text} on {self.fleet_text}", told)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each request that was kept, in order of arrival, and what it saw [s]; nothing: it was refused."""
        for r in sorted(self.records, key=lambda r: (r.arrival, str(r.key))):
            served = r.last >= 0.0
            told = {name: getattr(r, name) for name in ROW}
            told["key"] = "/".join(map(str, r.key)) if isinstance(r.key, tuple) else r.key
            if not served:
                told |= dict.fromkeys(LATENCIES)
            yield told | ({"session": r.session, "turn": r.turn} if r.session is not None else {})

    def columns(self) -> dict[str, Any]:
        """The requests, one row each, where the run kept them (`keep=True`)."""
        return row_columns(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """All of it in SI units, without the requests themselves."""
        names = ("completed", "refused", "good", "input_tokens", "output_tokens", "preemptions")
        shares = ("utilisation", "kv_use", "kv_highest", "prefix_hits", "kept")
        rates = ("rate", "goodput", "tokens_per_s", "power", "energy_per_token", "cost_per_mtoken", "dollars")
        powers = ("devices_power", "devices_energy_per_token")
        found: dict[str, Any] = {
            "model": self.models_text,
            "fleet": [_service_dict(s, p) for s, p in zip(self.services, self.pools, strict=True)],
            "devices": self.devices,
            "slo": dict(self.slo),
            **{name: getattr(self, name) for name in (*names, *rates, *powers, *shares)},
            "begin": self.begin,
            "duration": self.end,
            "stopped": self.stopped,
            "saturated_from": self.saturated_from,
            "overloads": [{k: _finite(v) for k, v in vars(o).items()} for o in self.overloads],
            "refusals": dict(self.refusals),
            "by_model": {name: times.to_dict() for name, times in sorted(self.by_model.items())},
            **{name: _finite_summary(t) for name, t in self.times.items()},
            "inter_token": _finite_summary(self.gaps),
            "step_table_error": self.step_errors,
            "units": dict(UNITS),
        }
        return found


UNITS = {
    **dict.fromkeys(("rate", "goodput", "tokens_per_s"), "1/s"),
    **{"power": "W", "energy_per_token": "J", "devices_power": "W", "devices_energy_per_token": "J"},
    **{"cost_per_mtoken": "USD", "dollars": "USD/s"},
    **dict.fromkeys(("begin", "duration", "saturated_from", "slo"), "s"),
    **{
        f"{name}.{what}": "s"
        for name in (*LATENCIES, "inter_token")
        for what in ("mean", "confidence", "p50", "p90", "p95", "p99", "largest")
    },
    **{"overloads.start": "s", "overloads.end": "s", "overloads.growth": "1/s"},
    **dict.fromkeys(("completed", "refused", "refusals", "good", "input_tokens", "output_tokens"), "1"),
    **dict.fromkeys(("preemptions", "kv_use", "kv_highest", "prefix_hits", "kept", "overloads"), "1"),
    **dict.fromkeys(("step_table_error", "fleet", "launch", "by_model"), "1"),
}


def _shown(times: LatencyStatistics) -> str:
    return f"{show(times.mean, 's')} (p95 {show(times.percentile(0.95), 's')})"


def _finite_summary(times: LatencyStatistics) -> dict[str, float | None]:
    return {k: _finite(v) for k, v in times.summary().items()}


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _service_dict(service: PricedService, pool: str) -> dict[str, Any]:
    named = {"pool": pool, "model": service.model.name} if pool else {}
    return named | {
        "system": service.system.name,
        "replicas": service.copies,
        "plan": plan_text(service.plan),
        "engine": service.engine.name,
        "engines": service.engines,
        "ranks": service.ranks,
        "step_tokens": service.rules.tokens,
        "sequences": service.rules.sequences,
        "kv_blocks": service.room.blocks,
        "kv_page": service.room.page,
        "prefix_caching": service.prefix_caching,
    }
