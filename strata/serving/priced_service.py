"""A deployment made ready to serve, its steps priced and its caches counted once, and watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from strata.base.errors import BadValue, require
from strata.base.records import readable
from strata.hardware.money import Economics, device_share, economics
from strata.hardware.system import System
from strata.mapping.plan import Plan, plan_text
from strata.serving.load_metrics import ServingLimits
from strata.serving.pools import cache_bytes
from strata.serving.requests import Requests
from strata.serving.served_plans import served_plans
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.kv_pool import KvPool, KvTier, TierStore
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.scheduling import Request, Scheduling
from strata.serving.simulator.statistics import LatencyStatistics
from strata.serving.simulator.step_pricer import KvRoom, StepPricer, engines_apart, kv_room
from strata.serving.simulator.step_table import StepTable
from strata.serving.speculation import Drafting
from strata.serving.steps import dollars_per_s
from strata.software.engine import USUAL_SERVER, Engine
from strata.workload.model import Model
from strata.workload.model import model as make_model


class StepsRecord(NamedTuple):
    """Steps of a replica after one another with nothing changed between: what was in each."""

    replica: int
    start: float
    end: float
    steps: int
    generating: int  # sequences
    reading: int  # tokens of prompts
    waiting: int  # requests
    kv: float  # share of the blocks that are held


class ObservedReplica(Replica):
    """A replica that is watched: the gaps between its tokens, and each of its steps where asked for.

    The gap of a token is the step that brings it, with the steps before it in which prompts were read alone;
    the time in which a preempted request waits is in its own TPOT, not in a gap.
    """

    def __init__(
        self,
        index: int,
        table: StepTable,
        pools: list[KvPool],
        rules: Scheduling,
        *,
        gaps: LatencyStatistics,
        tell: Callable[[StepsRecord], None] | None = None,
    ) -> None:
        super().__init__(index, table, pools, rules)
        self.gaps, self.tell = gaps, tell
        self._plain = tell is None and len(pools) == 1 and rules.mixed and rules.tokens_per_step == 1.0
        # of each rank: how many wait for their next token while prompts are read alone, and how long so far
        self._stalled: list[list[list[float]]] = [[] for _ in pools]

    def end(self, done: Callable[[Request], None]) -> None:
        """The event under way is over: what it was is noted before it is forgotten."""
        if self._plain:  # what is most often asked for, without the rest
            count, steps = self.ranks[0].generating, self.steps
            if count:
                self.gaps.add_many((self.until - self.started) / steps, count * steps)
            super().end(done)
            return
        time, steps, mixed = self.until - self.started, self.steps, self.rules.mixed
        each, generating, tokens = time / steps, 0, 0
        waited = 0.0
        for rank, stalled in zip(self.ranks, self._stalled, strict=True):
            read = sum([chunk for _, chunk in rank.reading]) if rank.reading else 0
            tokens += read
            count = rank.generating
            if count and read and not mixed:
                _stall(stalled, count, time)
            elif count:
                generating += count
                for size, wait in stalled:
                    self._gap(each + wait, size)
                    waited += size
                stalled.clear()
        self._gap(each, generating * steps - waited)
        if self.tell is not None:
            waits = sum([len(r.waiting) for r in self.ranks])
            used = max([r.pool.used / r.pool.blocks for r in self.ranks])
            self.tell(
                StepsRecord(self.index, self.started, self.until, steps, generating, tokens, waits, used)
            )
        super().end(done)

    def _gap(self, time: float, count: float) -> None:
        """So many sequences had their next step after so long; guesses that hold bring several tokens."""
        brought = self.rules.tokens_per_step
        if count > 0:
            self.gaps.add_many(time / brought, round(count * brought))


def _stall(stalled: list[list[float]], count: int, time: float) -> None:
    """All that generate wait; those that had their first token since are a group of their own."""
    known = sum([size for size, _ in stalled])
    while stalled and known > count:  # preempted ones came last
        known -= stalled.pop()[0]
    if count > known:
        stalled.append([count - known, 0.0])
    for group in stalled:
        group[1] += time


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


def _told_rate(load: Any) -> float:
    """The rate that a load is told to have [1/s]; 0 where it says none."""
    parts = getattr(load, "loads", ())
    if parts:
        rates = [_told_rate(part) for part in parts]
        return sum(rates) if all(rates) else 0.0
    if getattr(load, "load", None) is not None:
        return _told_rate(load.load) * float(getattr(load, "speed", 1.0))
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
    engines: int  # that step by themselves
    ranks: int  # of each
    prefix_caching: bool = True
    economics: Economics | None = None
    copies: int = 1  # such systems behind the router
    within: System | None = None  # of which the system is a part
    idle_devices: float = 0.0  # of each copy that no plan takes, paid for with it
    tiers: tuple[KvTier, ...] = ()  # behind each device
    drafting: Drafting | None = None
    context: float = float("inf")  # tokens of prompt and answer beyond which a request is refused

    def __post_init__(self) -> None:
        whole = self.copies >= 1 and self.copies == int(self.copies)
        require(whole, "replicas are a whole number of at least 1", replicas=self.copies)

    @cached_property
    def step_errors(self) -> dict[str, float]:
        """What lines between priced steps leave, relative."""
        return self.table.errors()

    def copied(self, copies: int) -> PricedService:
        """So many of it."""
        return replace(self, copies=copies)

    @property
    def devices(self) -> float:
        """Of all copies, idle ones too."""
        return self.copies * float(np.asarray(self.system.devices)) * self._paid_share

    @property
    def _paid_share(self) -> float:
        """Devices that are paid for, to those that work."""
        return 1.0 + self.idle_devices / float(np.asarray(self.system.devices))

    @property
    def idle_power(self) -> float:
        """Of the devices of all copies that do not work [W]."""
        return self.copies * self.table.idle * (self._paid_share - 1.0)

    @property
    def text(self) -> str:
        """It in words, like ``2 x 8xh200 (tp=8)``."""
        many = f"{self.copies} x " if self.copies > 1 else ""
        does = f" {self.rules.role}" if self.rules.role != "both" else ""
        return f"{many}{self.system.name}{does} ({plan_text(self.plan)})"

    @property
    def strength(self) -> float:
        """Tokens a second that one of its engines brings, to weigh it against others [1/s]."""
        count = max(min(self.rules.sequences, SOME, self.room.blocks * self.room.page // int(USUAL)), 1)
        return count * self.ranks / self.table.decode_steps(count, count * USUAL, 1)[0]

    def replicas(
        self, first: int, gaps: LatencyStatistics, tell: Callable[[StepsRecord], None] | None
    ) -> list[ObservedReplica]:
        """The engines of all copies with nothing to do yet, numbered from `first` on."""
        room = self.room
        # devices over which the cache of a rank is taken to lie evenly
        sharers = float(self.plan.tp) * float(self.plan.cp) * float(self.plan.pp)

        def store() -> TierStore | None:
            if not self.tiers:
                return None
            each = float(np.max(cache_bytes(self.model, float(room.page)))) / sharers
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

    def devices_power(self, power: float) -> float:
        """What the devices of all copies draw of the power at their plugs [W]."""
        each = device_share(self.system.fabric, economics(), power / self.devices)
        return self.devices * float(np.asarray(each))

    def dollars(self, power: float) -> float:
        """What all copies cost while they draw so much together [USD/s]; nan where the chip has no price."""
        share = self.copies * self._paid_share
        return share * float(dollars_per_s(self.system, np.asarray(power / share), self.economics))


def best_served_plan(
    system: System, model: Model, sizes: LoadSizes | None, engine: Engine, slo: dict[str, float] | None = None
) -> Plan:
    """The plan that serves most of the mean request under limits on TTFT and TPOT, or under none."""
    if sizes is None:
        raise BadValue("without a load there is no best plan: give one, like plan='tp=8'")
    mean = Requests(max(round(sizes.input), 1.0), max(round(sizes.output), 2.0))
    limits = ServingLimits(**{k: v for k, v in (slo or {}).items() if k in ("ttft", "tpot")})
    found = served_plans(system, model, mean, None, engine, limits=limits)
    found = found if found.choices else served_plans(system, model, mean, None, engine)
    if not found.choices:
        raise BadValue(found.no_room)
    return found.choices[0].plan


def promising_plans(
    system: System | str, model: Model | str, load: Load, engine: Engine | str = USUAL_SERVER
) -> list[Plan]:
    """Plans worth a simulation: the best for the mean request by throughput, by price, and by its time."""
    served = make_model(model) if isinstance(model, str) else model
    sizes = load_sizes(load)
    mean = Requests(max(round(sizes.input), 1.0), max(round(sizes.output), 2.0))
    found: dict[str, Plan] = {}
    for goal in ("throughput", "cheapest", "fastest"):
        answer = served_plans(system, served, mean, None, engine, goal=goal)
        if not answer.choices:
            raise BadValue(answer.no_room)
        found.setdefault(plan_text(answer.choices[0].plan), answer.choices[0].plan)
    return list(found.values())


def engine_service(
    pricer: StepPricer, longest: float, kv_blocks: int | None, prefix_caching: bool
) -> PricedService:
    """An engine ready to serve by what its steps cost: its caches counted, its steps priced."""
    software = pricer.engine
    rules = Scheduling(
        tokens=int(np.asarray(software.max_num_batched_tokens)),
        sequences=int(np.asarray(software.max_num_seqs)),
        mixed=bool(np.asarray(software.chunked_prefill) > 0),
        request_time=float(np.asarray(software.frontend_latency)),
        token_time=float(np.asarray(software.tokenize)),
        ahead=bool(np.asarray(software.async_scheduling) > 0),
        looks=int(np.asarray(software.recv_interval)),
        wait_steps=int(np.asarray(software.attention_dp_wait)) if pricer.shares_experts else 0,
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
    engines = int(engines_apart(pricer.plan, pricer.model))
    return PricedService(
        system=pricer.system,
        model=pricer.model,
        plan=pricer.plan,
        engine=software,
        rules=rules,
        room=room,
        table=table,
        engines=engines,
        ranks=max(int(pricer.lanes) // engines, 1),
        prefix_caching=prefix_caching,
    )
