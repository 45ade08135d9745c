"""A deployment made ready to serve: a model on a system under a plan, its steps priced and its caches counted
once, for any number of simulated runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from strata.errors import BadValue, require
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.params import data_folder
from strata.records import readable
from strata.search.power_caps import capped_system, checked_caps
from strata.serving.observed import ObservedReplica, StepsRecord, TokenTimes
from strata.serving.pools import cache_bytes
from strata.serving.requests import Requests
from strata.serving.simulated_drafts import drafted_pricer
from strata.serving.speculation import Drafting
from strata.serving.steps import ServedSteps, dollars_per_s
from strata.serving.under_load import serve_under_load
from strata.simulate.server.fleet import Load
from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.kv_tiers import KvTier, TierStore, host_tier, kv_tier
from strata.simulate.server.scheduling import Scheduling
from strata.simulate.server.step_table import KvRoom, StepPricer, StepTable, kv_room
from strata.workload.model import Model
from strata.workload.model import model as make_model

LONGEST = 8192.0  # tokens of a sequence that steps are priced for, unless the load says more
USUAL = 2048.0  # tokens of a sequence at which blocks are counted
SOME = 64  # sequences at which engines are weighed against each other
SAMPLE = 4096  # requests of a load that are looked at before it is served


@dataclass(frozen=True, kw_only=True)
class LoadSizes:
    """What the first requests of a load bring."""

    requests: int
    input: float  # mean tokens of a prompt
    output: float  # and of an answer
    longest: int  # prompt and answer
    rate: float  # at which they arrive [1/s]; infinite where all come at once
    more: bool  # more may come than were looked at, or because of their answers


def load_sizes(load: Load, sample: int = SAMPLE) -> LoadSizes:
    """Lengths and rate of a load, from its first requests."""
    first = list(islice(load.arrivals(), sample))
    require(bool(first), "a load must have at least one request", requests=0)
    span, count = first[-1].arrival - first[0].arrival, len(first)
    return LoadSizes(
        requests=count,
        input=sum(r.input for r in first) / count,
        output=sum(r.output for r in first) / count,
        longest=max(r.input + r.output for r in first),
        rate=_told_rate(load) or ((count - 1) / span if span > 0 else float("inf")),
        more=count == sample or any(r.session is not None or r.keep is not None for r in first),
    )


def _told_rate(load: Load) -> float:
    """The rate that a load is told to have [1/s]; 0 where it says none."""
    own = getattr(load, "process", None) or load
    rate = getattr(own, "rate", 0.0)
    return float(rate) if isinstance(rate, int | float) else 0.0


@readable("system", "model", "plan", "engine", "copies")
@dataclass(frozen=True, eq=False, kw_only=True)
class PricedService:
    """An engine ready to serve: its steps priced, its caches counted."""

    system: System
    model: Model
    plan: Plan
    engine: Engine
    rules: Scheduling
    room: KvRoom
    table: StepTable
    step_errors: dict[str, float]  # what lines between priced steps leave, relative
    engines: int  # that step by themselves
    ranks: int  # of each
    prefix_caching: bool = True
    economics: Economics | None = None
    copies: int = 1  # such systems behind the router
    within: System | None = None  # of which the system is a part
    tiers: tuple[KvTier, ...] = ()  # behind each device
    drafting: Drafting | None = None
    context: float = float("inf")  # tokens of prompt and answer beyond which a request is refused

    def __post_init__(self) -> None:
        whole = self.copies >= 1 and self.copies == int(self.copies)
        require(whole, "replicas are a whole number of at least 1", replicas=self.copies)

    def copied(self, copies: int) -> PricedService:
        """So many of it."""
        return replace(self, copies=copies)

    @property
    def devices(self) -> float:
        """Of all copies."""
        return self.copies * float(np.asarray(self.system.devices))

    @property
    def text(self) -> str:
        """It in words, like ``2 x 8xh200 (tp=8)``."""
        many = f"{self.copies} x " if self.copies > 1 else ""
        does = f" {self.rules.role}" if self.rules.role != "both" else ""
        return f"{many}{self.system.name}{does} ({plan_text(self.plan)})"

    @property
    def _sharers(self) -> float:
        """Devices over which the cache of a rank is taken to lie evenly."""
        return float(self.plan.tp) * float(self.plan.cp) * float(self.plan.pp)

    @property
    def strength(self) -> float:
        """Tokens a second that one of its engines brings, to weigh it against others [1/s]."""
        count = max(min(self.rules.sequences, SOME, self.room.blocks * self.room.page // int(USUAL)), 1)
        return count * self.ranks / self.table.decode_steps(count, count * USUAL, 1)[0]

    def replicas(
        self, first: int, gaps: TokenTimes, tell: Callable[[StepsRecord], None] | None
    ) -> list[ObservedReplica]:
        """The engines of all copies with nothing to do yet, numbered from `first` on."""
        room = self.room

        def store() -> TierStore | None:
            if not self.tiers:
                return None
            each = float(np.max(cache_bytes(self.model, float(room.page)))) / self._sharers
            return TierStore(self.tiers, each, lambda n, attended: self.table.step(0, 0.0, n, attended)[0])

        def pools() -> list[KvPool]:
            return [
                KvPool(room.blocks, room.page, room.fixed, self.prefix_caching, store())
                for _ in range(self.ranks)
            ]

        return [
            ObservedReplica(first + i, self.table, pools(), self.rules, gaps=gaps, tell=tell)
            for i in range(self.engines * self.copies)
        ]

    def dollars(self, power: float) -> float:
        """What all copies cost while they draw so much together [USD/s]; nan where the chip has no price."""
        return self.copies * float(
            dollars_per_s(self.system, np.asarray(power / self.copies), self.economics)
        )


def price_service(
    system: System | str,
    model: Model | str,
    plan: Plan | str = "",
    engine: Engine | str = "vllm",
    *,
    load: Load | None = None,
    slo: dict[str, float] | None = None,
    tokens: int | None = None,
    sequences: int | None = None,
    context: int | None = None,
    kv_blocks: int | None = None,
    prefix_caching: bool = True,
    power_cap: float | None = None,
    replicas: int = 1,
    role: str = "both",
    drafting: Drafting | None = None,
    eviction: str = "recompute",
    priorities: bool = False,
    rank_router: str = "least-loaded",
    kv_tiers: Sequence[str] = (),
    routed: dict[str, Any] | None = None,
    economics: Economics | None = None,
) -> PricedService:
    """Make a deployment ready to serve; the plan that is left out is the best for the mean request of `load`.

    `tokens` of a step, `sequences` and `kv_blocks` of a rank replace the engine's own; `context` is the
    longest a sequence may become; `power_cap` limits each device [W]; `routed` says how tokens pick experts;
    `replicas`: so many such systems; `role`: prefill or decode where they do only that. `drafting` guesses
    tokens ahead (`mtp_drafting` for the model's own module); requests without room are read again, moved to
    the host (`eviction` swap) or, with none, let in only with room for all; `kv_tiers` hold caches behind the
    device, by name; `priorities`: requests with the lowest number first; `rank_router`: which attention rank
    of an engine takes a request.
    """
    software = _limited(as_engine(engine), tokens, sequences, kv_blocks, context)
    hardware, served = as_system(system), make_model(model) if isinstance(model, str) else model
    if power_cap is not None:
        hardware = capped_system(hardware, float(checked_caps([power_cap], hardware.chip)[0]))
    sizes = load_sizes(load) if load is not None else None
    longest = float(context or max(LONGEST, sizes.longest if sizes else 0.0))
    _check_context(served, sizes)
    if isinstance(plan, str):
        plan = make_plan(plan) if plan else best_served_plan(hardware, served, sizes, software, slo)
    pricer = StepPricer(system=hardware, model=served, plan=plan, engine=software, routed=routed or {})
    if drafting is not None:
        pricer = drafted_pricer(pricer, drafting)
    found = engine_service(pricer, longest, kv_blocks, prefix_caching)
    told = {"role": role, "eviction": eviction, "priorities": priorities, "rank_router": rank_router}
    rules = replace(found.rules, **told)  # type: ignore[arg-type]
    most, tiers = float(context or longest_context(served) or np.inf), _tiers(hardware, kv_tiers, eviction)
    more: dict[str, Any] = {
        "context": most,
        "tiers": tiers,
        "drafting": drafting,
        "economics": economics,
        "copies": replicas,
    }
    return replace(found, rules=_guessing(rules, drafting), **more)


def _limited(
    engine: Engine, tokens: int | None, sequences: int | None, kv_blocks: int | None, context: int | None
) -> Engine:
    """An engine with limits of its own replaced."""
    told = {"tokens": tokens, "sequences": sequences, "kv_blocks": kv_blocks, "context": context}
    for name, value in told.items():
        require(value is None or value >= 1, f"{name} is a whole number of at least 1", **{name: value})
    changes: dict[str, Any] = {
        name: float(value)
        for name, value in told.items()
        if value is not None and name in ("tokens", "sequences")
    }
    return replace(engine, **changes) if changes else engine


def _guessing(rules: Scheduling, drafting: Drafting | None) -> Scheduling:
    if drafting is None:
        return rules
    return replace(rules, tokens_per_step=drafting.tokens, drafted=int(drafting.size))


def _tiers(system: System, names: Sequence[str], eviction: str) -> tuple[KvTier, ...]:
    """Tiers by name; what is moved away for want of room goes to the host, unless told."""
    wanted = list(names) or (["host"] if eviction == "swap" else [])
    return tuple(host_tier(system) if n == "host" else kv_tier(n) for n in wanted)


def shipped_config(name: str) -> dict[str, Any]:
    """The config of a shipped model; empty where there is none."""
    path = data_folder("models") / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def longest_context(model: Model) -> float:
    """Tokens of prompt and answer that a model has positions for; 0 where nothing says it.

    >>> longest_context(make_model("llama-3-70b"))
    8192.0
    """
    config = shipped_config(model.name)
    told = {**config.get("text_config", {}), **config}
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    found = next((told[n] for n in names if isinstance(told.get(n), int | float)), 0.0)
    return float(found) or float(np.max(np.asarray(model.positions)))


def _check_context(model: Model, sizes: LoadSizes | None) -> None:
    most = longest_context(model)
    mean = 0.0 if sizes is None else sizes.input + sizes.output
    if 0.0 < most < mean:
        raise BadValue(
            f"the mean request of {mean:,.0f} tokens, prompt and answer, passes the context of {model.name} "
            f"({most:,.0f}); cut the lengths, or take another model"
        )


def best_served_plan(
    system: System, model: Model, sizes: LoadSizes | None, engine: Engine, slo: dict[str, float] | None = None
) -> Plan:
    """The plan that serves most of the mean request under limits on TTFT and TPOT; under none where none
    keeps them.
    """
    if sizes is None:
        raise BadValue("without a load there is no best plan: give one, like plan='tp=8'")
    mean = Requests(max(round(sizes.input), 1.0), max(round(sizes.output), 2.0))
    limits: dict[str, Any] = {k: v for k, v in (slo or {}).items() if k in ("ttft", "tpot")}
    found = serve_under_load(system, model, mean, None, engine, **limits)
    if not found.served.choices:
        found = serve_under_load(system, model, mean, None, engine)
    if not found.served.choices:
        raise BadValue(found.why_none)
    return found.served.choices[0].plan


def promising_plans(
    system: System | str, model: Model | str, load: Load, engine: Engine | str = "vllm"
) -> list[Plan]:
    """Plans worth a simulation where cost and latency are both asked for: the best for the mean request by
    throughput, by price, and by the time of one request.
    """
    served = make_model(model) if isinstance(model, str) else model
    sizes = load_sizes(load)
    mean = Requests(max(round(sizes.input), 1.0), max(round(sizes.output), 2.0))
    found: dict[str, Plan] = {}
    for goal in ("throughput", "cheapest", "fastest"):
        answer = serve_under_load(system, served, mean, None, engine, goal=goal)
        for choice in answer.served.choices[:1]:
            found.setdefault(plan_text(choice.plan), choice.plan)
        if answer.why_none and not answer.served.choices:
            raise BadValue(answer.why_none)
    return list(found.values())


def engine_service(
    pricer: StepPricer,
    longest: float,
    kv_blocks: int | None,
    prefix_caching: bool,
) -> PricedService:
    """An engine ready to serve by what its steps cost: its caches counted, its steps priced."""
    software = pricer.engine
    rules = Scheduling(
        tokens=int(np.asarray(software.tokens)),
        sequences=int(np.asarray(software.sequences)),
        mixed=bool(np.asarray(software.mixed) > 0),
        request_time=float(np.asarray(software.request)),
        token_time=float(np.asarray(software.tokenize or 0.0)),
        ahead=bool(np.asarray(software.asynchronous or 0.0) > 0),
        whole_prompt=bool(np.asarray(software.whole_prompt or 0.0) > 0),
        # prompts wait for those of the other attention ranks, where an engine has them read together
        wait_steps=int(np.asarray(software.balance)) if pricer.shares_experts else 0,
    )
    one = pricer.evaluated(pricer.generating(1.0, 1.0))
    if not bool(one.fits):
        raise BadValue(f"no plan for {pricer.system.name}: {plan_text(pricer.plan)}: {one.infeasible[0]}")
    room = kv_room(pricer, context=min(longest, USUAL))
    room = room if kv_blocks is None else replace(room, blocks=kv_blocks)
    if room.blocks < 1:
        where = f"{pricer.system.name} with {plan_text(pricer.plan)}"
        raise BadValue(f"{pricer.model.name} leaves no room for a request on {where}")
    most = min(rules.sequences, max(room.blocks // (1 + room.fixed), 1))
    table = StepTable(pricer, sequences=most, context=longest, tokens=rules.tokens)
    steps = ServedSteps(
        system=pricer.system,
        model=pricer.model,
        requests=Requests(min(longest, USUAL), 2.0),
        plan=pricer.plan,
        engine=software,
        pieces=1.0,
        drafting=None,
    )
    engines = int(np.asarray(steps.replicas))
    return PricedService(
        system=pricer.system,
        model=pricer.model,
        plan=pricer.plan,
        engine=software,
        rules=rules,
        room=room,
        table=table,
        step_errors=table.errors(),
        engines=engines,
        ranks=max(int(pricer.lanes) // engines, 1),
        prefix_caching=prefix_caching,
    )
