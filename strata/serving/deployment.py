"""A deployment: model, system, plan and limits of the engine. It and a load are all that serving asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from math import ceil, inf, log2
from typing import Any

import numpy as np

from strata.base.calls import checked_class
from strata.base.errors import require
from strata.base.memo import Memo
from strata.base.records import readable
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.serving.pools import capped_system, checked_caps, plan_part, pool
from strata.serving.priced_service import (
    LONGEST,
    LoadSizes,
    PricedService,
    best_served_plan,
    engine_service,
    load_sizes,
)
from strata.serving.requests import check_context, longest_context
from strata.serving.simulated import Progress, simulate_services
from strata.serving.simulated_result import Served
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.kv_pool import host_tier, kv_tier
from strata.serving.simulator.step_pricer import ApartPricer, StepPricer, model_side
from strata.serving.speculation import Drafting
from strata.serving.steps import dollars_per_s, drafted_pricer
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import USUAL_SKEW

NO_LIMIT = 1e8  # tokens of a step that no memory has room for
_PRICED = Memo(256)  # deployments whose steps were priced, by the context they were priced up to


@checked_class
@readable("system", "model", "plan", "engine", "replicas")
@dataclass(frozen=True, eq=False)
class Deployment:
    """What serves: system, model, plan and engine; a plan that is left out is the best for the mean request.

    With plans `prefill` and `decode` workers that only read prompts, each as large as its plan, stand beside
    others that only generate; the system is all of them. Limits that are None are the engine's own.

    >>> pair = Deployment("8xh200", "llama-3-70b", prefill="tp=2", decode="tp=4", prefill_workers=2)
    >>> [s.text for s in pair.priced()]
    ['2 x 2 of 8xh200 prefill (tp=2)', '4 of 8xh200 decode (tp=4)']
    """

    system: System | str
    model: Model | str
    plan: Plan | str = ""
    engine: Engine | str = USUAL_SERVER
    _: KW_ONLY
    prefill: Plan | str = ""
    decode: Plan | str = ""
    prefill_workers: int = 1
    decode_workers: int = 1
    replicas: int = 1  # such systems behind the router
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    kv_blocks: int | None = None  # of a rank
    context: int | None = None  # longest that a sequence may become
    power_cap: float | None = None  # of each device [W]
    prefix_caching: bool = True
    router: str = "least-loaded"
    rank_router: str = "least-loaded"  # which attention rank of an engine takes a request
    eviction: str = "recompute"  # of requests without room: or swap (to the host), none (let in with all)
    kv_tiers: Sequence[str] = ()  # where caches go that a device has no room for
    priorities: bool = False  # requests with the lowest number first
    routed: dict[str, Any] = field(default_factory=lambda: {"skew": USUAL_SKEW})  # how tokens pick experts
    drafting: Drafting | None = None
    economics: Economics | None = None

    def __post_init__(self) -> None:
        require(bool(self.prefill) == bool(self.decode), "devices apart need both prefill and decode plans")
        require(not (self.prefill and self.plan), "prefill and decode are plans: leave out plan")
        counts = ("max_num_batched_tokens", "max_num_seqs", "kv_blocks", "context")
        for name in (*counts, "prefill_workers", "decode_workers"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} is a whole number of at least 1", **{name: value})

    def priced(self, load: Load | None = None, slo: dict[str, float] | None = None) -> list[PricedService]:
        """Make it ready to serve: steps priced and caches counted, once for any number of runs. The price of
        a step depends on the load only where a sequence becomes longer than `LONGEST`.
        """
        sizes = load_sizes(load) if load is not None else None
        if sizes is not None:
            check_context(self._model, sizes.input, sizes.output)
        longest = float(self.context or priced_context(sizes.longest if sizes else 0.0))
        key = (self, longest) if self.plan or self.prefill else None
        return list(_PRICED.of(key, lambda: self._services(longest, sizes, slo)))

    @property
    def _model(self) -> Model:
        return make_model(self.model) if isinstance(self.model, str) else self.model

    def _services(
        self, longest: float, sizes: LoadSizes | None, slo: dict[str, float] | None
    ) -> list[PricedService]:
        whole, engine = as_system(self.system), self._limited(longest)
        if self.power_cap is not None:
            whole = capped_system(whole, float(checked_caps([self.power_cap], whole.chip)[0]))
        if not self.prefill:
            plan = self.plan or best_served_plan(whole, self._model, sizes, engine, slo)
            plan = make_plan(plan) if isinstance(plan, str) else plan
            part = plan_part(whole, plan)
            idle, within = float(whole.devices) - float(part.devices), None if part is whole else whole
            service = self._service(part, plan, engine, longest)
            return [replace(service, copies=self.replicas, within=within, idle_devices=idle)]
        plans = [make_plan(p) if isinstance(p, str) else p for p in (self.prefill, self.decode)]
        sides = ("prefill", plans[0], self.prefill_workers), ("decode", plans[1], self.decode_workers)
        devices = [workers * int(float(plan.devices)) for _, plan, workers in sides]
        require(
            sum(devices) <= float(whole.devices),
            f"pools of {devices[0]} and {devices[1]} devices pass those of {whole.name}",
            devices=float(whole.devices),
        )
        services = []
        for role, plan, workers in sides:
            part = pool(whole, int(float(plan.devices)))
            service = self._service(part, plan, engine, longest, role)
            services.append(replace(service, copies=workers * self.replicas, within=whole))
        idle = (float(whole.devices) - sum(devices)) / self.prefill_workers
        return [replace(services[0], idle_devices=idle), services[1]]

    def _limited(self, longest: float) -> Engine:
        """The engine with limits of its own replaced; one without any reads the longest prompt in a step."""
        limits = {n: getattr(self, n) for n in ("max_num_batched_tokens", "max_num_seqs")}
        changes: dict[str, Any] = {n: float(v) for n, v in limits.items() if v is not None}
        engine = replace(as_engine(self.engine), **changes)
        if float(np.asarray(engine.max_num_batched_tokens)) >= NO_LIMIT:
            engine = replace(engine, max_num_batched_tokens=longest)
        return engine

    def _service(
        self, system: System, plan: Plan, engine: Engine, longest: float, role: str = "both"
    ) -> PricedService:
        model, drafting = self._model, self.drafting
        pricer = StepPricer(system=system, model=model, plan=plan, engine=engine, routed=self.routed)
        if drafting is not None:
            pricer = drafted_pricer(pricer, drafting)
        service = engine_service(pricer, longest, self.kv_blocks, self.prefix_caching)
        rules = replace(
            service.rules,
            role=role,
            eviction=self.eviction,
            priorities=self.priorities,
            rank_router=self.rank_router,
        )
        if drafting is not None:
            rules = replace(rules, tokens_per_step=drafting.tokens, drafted=int(drafting.size))
        # what is moved away for want of room goes to the host, unless told
        tiers = list(self.kv_tiers) or (["host"] if self.eviction == "swap" else [])
        return replace(
            service,
            rules=rules,
            context=float(self.context or longest_context(model) or np.inf),
            tiers=tuple(host_tier(system) if n == "host" else kv_tier(n) for n in tiers),
            drafting=drafting,
            economics=self.economics,
        )


def priced_context(longest: float) -> float:
    """Tokens of a sequence up to which steps are priced: `LONGEST`, doubled until it holds the longest, so
    that loads share prices.

    >>> priced_context(2000), priced_context(10240)
    (8192.0, 16384.0)
    """
    return float(LONGEST * 2 ** ceil(log2(max(longest / LONGEST, 1.0))))


def served(
    deployment: Deployment,
    load: Load,
    *,
    slo: dict[str, float] | None = None,
    keep: bool = False,
    until: float = inf,
    progress: Progress | None = None,
) -> Served:
    """Serve every request of a load on a deployment, step by step.

    `slo`: limits on `ttft`, `tpot`, `latency` and `queued` [s], which goodput counts. `keep` keeps every
    request and step; `progress` is told the clock and how many are done now and then, and stops the run by
    returning False. Ctrl-C ends the run with what is known so far (`stopped`).

    >>> import strata as st
    >>> load = st.serving.load_of("closed:clients=8,input=512,output=64,count=80")
    >>> served(Deployment("8xh200", "llama-3-70b", "tp=8"), load).completed
    80
    """
    services = deployment.priced(load, slo)
    return simulate_services(
        services, load, router=deployment.router, slo=slo, keep=keep, until=until, progress=progress
    )


def simulate(
    system: System | str,
    model: Model | str,
    load: Load,
    plan: Plan | str = "",
    engine: Engine | str = USUAL_SERVER,
    *,
    slo: dict[str, float] | None = None,
    keep: bool = False,
    until: float = inf,
    progress: Progress | None = None,
    **limits: Any,
) -> Served:
    """`served` with the fields of a `Deployment` (`limits`: the others of them).

    >>> import strata as st
    >>> short, chat = st.serving.Lengths(mean=512), st.serving.Lengths(mean=64, shape="exponential")
    >>> load = st.serving.OpenLoad(rate=2.0, input=short, output=chat, count=200, seed=1)
    >>> found = st.simulate("8xh200", "llama-3-70b", load, "tp=8", "vllm", slo={"ttft": 1.0})
    >>> found.completed, found.good, found.saturated
    (200, 200, False)
    """
    deployment = Deployment(system, model, plan, engine, **limits)
    return served(deployment, load, slo=slo, keep=keep, until=until, progress=progress)


@dataclass(frozen=True, eq=False, kw_only=True)
class ApartService(PricedService):
    """Attention on `system`, which has the caches, feed-forwards on `ffn_system`."""

    ffn_system: System
    ffn_plan: Plan

    @property
    def devices(self) -> float:
        return super().devices + self.copies * float(np.asarray(self.ffn_system.devices))

    @property
    def text(self) -> str:
        return f"{super().text} + {self.ffn_system.name} ffn ({plan_text(self.ffn_plan)})"

    def dollars(self, power: float) -> float:
        there = self.copies * float(dollars_per_s(self.ffn_system, np.asarray(0.0), self.economics))
        return super().dollars(power) + there


def attention_ffn_service(
    system: System | str,
    model: Model | str,
    plan: Plan | str,
    ffn_plan: Plan | str,
    engine: Engine | str = USUAL_SERVER,
    *,
    micro_batches: int = 2,
    context: int | None = None,
    kv_blocks: int | None = None,
    prefix_caching: bool = True,
    role: str = "both",
    replicas: int = 1,
    routed: dict[str, Any] | None = None,
    **limits: int,
) -> ApartService:
    """Parts of a system, each as large as its plan, of which the first runs attention and the second the
    feed-forwards, micro-batches taking turns. `limits`: `max_num_batched_tokens` and `max_num_seqs`.

    >>> made = attention_ffn_service("16xh200", "deepseek-v3", "dp=8", "dp=8,ep=8", max_num_seqs=32)
    >>> made.text, made.devices
    ('8 of 16xh200 (dp=8) + 8 of 16xh200 ffn (dp=8,ep=8)', 16.0)
    """
    whole, software = as_system(system), as_engine(engine)
    changes: dict[str, Any] = {k: float(v) for k, v in limits.items()}
    software = replace(software, **changes) if changes else software
    served = make_model(model) if isinstance(model, str) else model
    plans = [make_plan(p) if isinstance(p, str) else p for p in (plan, ffn_plan)]
    sizes = [int(float(p.devices)) for p in plans]
    require(
        sum(sizes) <= float(whole.devices),
        f"sides of {sizes[0]} and {sizes[1]} devices pass those of {whole.name}",
        devices=float(whole.devices),
    )
    here, there = (pool(whole, n) if n < float(whole.devices) else whole for n in sizes)
    pricer = ApartPricer(
        system=here,
        model=model_side(served, "attention"),
        plan=plans[0],
        engine=software,
        routed=routed or {},
        whole=served,
        ffn_system=there,
        ffn_plan=plans[1],
        across=whole,
        pieces=micro_batches,
    )
    pricer.check_room()
    found = engine_service(pricer, float(context or LONGEST), kv_blocks, prefix_caching)
    told = {f.name: getattr(found, f.name) for f in fields(PricedService)}
    told |= {"rules": replace(found.rules, role=role), "copies": replicas, "within": whole}
    return ApartService(**told, ffn_system=there, ffn_plan=plans[1])
