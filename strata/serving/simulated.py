"""A service simulated request by request: the engine's steps priced once, every request served on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from strata.errors import BadValue
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine, as_engine
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.records import readable
from strata.serving.requests import Requests
from strata.serving.steps import ServedSteps
from strata.simulate.server.fleet import Fleet, Load, Router
from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.rank import Scheduling
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request
from strata.simulate.server.statistics import LatencyStatistics
from strata.simulate.server.step_table import KvRoom, StepPricer, StepTable, kv_room
from strata.workload.model import Model
from strata.workload.model import model as make_model

LONGEST = 8192.0  # tokens of a sequence that steps are priced for, unless told
USUAL = 2048.0  # tokens of a sequence at which blocks are counted
LATENCIES = ("ttft", "tpot", "latency", "queued")


@readable("rate", "tokens_per_s", "completed")
@dataclass(eq=False, kw_only=True)
class ServiceSimulation:
    """What became of the requests."""

    system: System
    model: Model
    plan: Plan
    engine: Engine
    rules: Scheduling
    room: KvRoom
    replicas: list[Replica]
    step_errors: dict[str, float]  # what lines between priced steps leave, relative
    times: dict[str, LatencyStatistics]
    slo: dict[str, float] = field(default_factory=dict)  # limits on latencies to be kept [s]
    completed: int = 0
    refused: int = 0
    good: int = 0  # completed within the limits
    input_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    cached_tokens: int = 0
    end: float = 0.0  # of the last event [s]
    stopped: bool = False  # before all were served
    records: list[Request] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests completed [1/s]."""
        return self.completed / self.end if self.end else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Tokens generated [1/s]."""
        return self.output_tokens / self.end if self.end else 0.0

    @property
    def goodput(self) -> float:
        """Requests completed within the limits [1/s]."""
        return self.good / self.end if self.end else 0.0

    @property
    def utilisation(self) -> float:
        """Share of the time in which replicas stepped."""
        return sum(r.busy for r in self.replicas) / (self.end * len(self.replicas)) if self.end else 0.0


def simulate(
    system: System | str,
    model: Model | str,
    load: Load,
    plan: Plan | str = "",
    engine: Engine | str = "vllm",
    *,
    tokens: int | None = None,
    sequences: int | None = None,
    context: int | None = None,
    kv_blocks: int | None = None,
    prefix_caching: bool = True,
    skew: float = 0.0,
    router: str = "least-loaded",
    slo: dict[str, float] | None = None,
    keep: bool = False,
    until: float = float("inf"),
    progress: Callable[[float, int], bool] | None = None,
) -> ServiceSimulation:
    """Serve every request of a load on a system, step by step.

    `tokens` of a step, `sequences` of a rank and `kv_blocks` of a rank replace the engine's own; `context` is
    the longest a sequence may become; `skew` the exponent of the power law by which text asks for experts.
    `keep` keeps every request; `progress` is told the clock and how many
    are done now and then, and stops the run by returning False.
    """
    software = as_engine(engine)
    changes = {k: float(v) for k, v in (("tokens", tokens), ("sequences", sequences)) if v is not None}
    pricer = StepPricer(
        system=as_system(system),
        model=make_model(model) if isinstance(model, str) else model,
        plan=make_plan(plan) if isinstance(plan, str) else plan,
        engine=replace(software, **changes),
        routed={"skew": skew} if skew else {},
    )
    found = _service(pricer, float(context or LONGEST), kv_blocks, prefix_caching)
    found.slo.update(slo or {})
    return _run(found, load, Router(found.replicas, router), keep=keep, until=until, progress=progress)


def _service(
    pricer: StepPricer, longest: float, kv_blocks: int | None, prefix_caching: bool
) -> ServiceSimulation:
    """An engine ready to serve: its steps priced, its caches empty."""
    software = pricer.engine
    rules = Scheduling(
        tokens=int(np.asarray(software.tokens)),
        sequences=int(np.asarray(software.sequences)),
        mixed=bool(np.asarray(software.mixed) > 0),
        request_time=float(np.asarray(software.request)),
        ahead=bool(np.asarray(software.asynchronous or 0.0) > 0),
        whole_prompt=bool(np.asarray(software.whole_prompt or 0.0) > 0),
    )
    room = kv_room(pricer, context=min(longest, USUAL))
    room = room if kv_blocks is None else replace(room, blocks=kv_blocks)
    if room.blocks < 1:
        where = f"{pricer.system.name} with {plan_text(pricer.plan)}"
        raise BadValue(f"{pricer.model.name} leaves no room for a request on {where}")
    most = min(rules.sequences, max(room.blocks // (1 + room.fixed), 1))
    table = StepTable(pricer, sequences=most, context=longest, tokens=rules.tokens)
    return ServiceSimulation(
        system=pricer.system,
        model=pricer.model,
        plan=pricer.plan,
        engine=software,
        rules=rules,
        room=room,
        replicas=_replicas(pricer, table, room, rules, prefix_caching),
        step_errors=table.errors(),
        times={name: LatencyStatistics() for name in LATENCIES},
    )


def _replicas(
    pricer: StepPricer, table: StepTable, room: KvRoom, rules: Scheduling, reuses: bool
) -> list[Replica]:
    steps = ServedSteps(
        system=pricer.system,
        model=pricer.model,
        requests=Requests(1.0, 2.0),
        plan=pricer.plan,
        engine=pricer.engine,
        pieces=1.0,
        drafting=None,
    )
    count = int(np.asarray(steps.replicas))
    ranks = max(int(pricer.lanes) // count, 1)
    return [
        Replica(i, table, [KvPool(room.blocks, room.page, room.fixed, reuses) for _ in range(ranks)], rules)
        for i in range(count)
    ]


def _run(
    found: ServiceSimulation,
    load: Load,
    router: Router,
    *,
    keep: bool,
    until: float,
    progress: Callable[[float, int], bool] | None,
) -> ServiceSimulation:
    times = [found.times[name].add for name in LATENCIES]
    limits = [(name, found.slo[name]) for name in LATENCIES if name in found.slo]

    def record(r: Request) -> None:
        values = (r.ttft, r.tpot, r.latency, r.queued)
        for add, value in zip(times, values, strict=True):
            add(value)
        found.completed += 1
        found.input_tokens += r.input
        found.output_tokens += r.output
        found.cached_tokens += r.cached
        found.good += all(values[LATENCIES.index(name)] <= limit for name, limit in limits)
        if keep:
            found.records.append(r)

    def refuse(r: Request) -> None:
        found.refused += 1

    def each(clock: float) -> bool:
        going = progress is None or progress(clock, found.completed)
        found.stopped = not going
        return going

    fleet = Fleet(replicas=found.replicas, router=router, load=load, record=record, refuse=refuse)
    fleet.run(until, each)
    found.end = fleet.clock
    found.preemptions = sum(rank.preemptions for r in found.replicas for rank in r.ranks)
    return found
