"""A service simulated request by request, on one pool or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from strata.base.errors import BadValue, UnknownName, require
from strata.base.records import readable
from strata.serving.pools import cache_bytes, send_time
from strata.serving.priced_service import ObservedReplica, PricedService
from strata.serving.simulated_result import LATENCIES, Served
from strata.serving.simulator.fleet import Fleet, Load
from strata.serving.simulator.pool import AdapterRules, KvLink, Pool, Router
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.saturation import SteadyShare
from strata.serving.simulator.scheduling import Request
from strata.serving.simulator.statistics import LatencyStatistics
from strata.workload.adapted_model import adapter_bytes
from strata.workload.lora import Lora

SENT = (0.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)  # tokens of caches at which sending is priced


def cache_link(reader: PricedService) -> KvLink:
    """How long caches of prompts take from a service that reads them; each of its lanes has a link."""
    ranks = float(reader.plan.tp) * float(reader.plan.pp)
    times = [
        send_time(reader.within or reader.system, float(cache_bytes(reader.model, n)), ranks, reader.engine)
        if n
        else 0.0
        for n in SENT
    ]
    return KvLink(SENT, times, lanes=reader.engines * reader.ranks * reader.copies)


@readable("name", "services", "serves", "router")
@dataclass(frozen=True, eq=False, kw_only=True)
class ServicePool:
    """Deployments of one model behind a router of their own, and which requests they take."""

    services: list[PricedService]
    name: str = ""
    router: str = "least-loaded"
    serves: frozenset[str] = frozenset()  # models that requests ask for; none named: all
    most_waiting: float = inf  # requests beyond which others are refused
    admission: str = "at-once"  # when caches are handed on, where prompts are read apart
    adapters: AdapterRules | None = None

    def __post_init__(self) -> None:
        require(bool(self.services), "a pool has at least one deployment", pool=self.name or "unnamed")
        require(self.most_waiting >= 1, "a pool lets at least one request wait", waiting=self.most_waiting)

    @property
    def asked_for(self) -> frozenset[str]:
        """All names that requests may ask for."""
        return self.serves | (self.adapters.names if self.adapters is not None else frozenset())


Deployments = Sequence[PricedService] | Sequence[ServicePool]


def as_pools(deployments: Deployments, router: str = "least-loaded") -> list[ServicePool]:
    """Pools as they are; deployments by themselves are one."""
    pools = [d for d in deployments if isinstance(d, ServicePool)]
    services = [d for d in deployments if isinstance(d, PricedService)]
    require(not pools or not services, "deployments are all in pools, or none is", pools=len(pools))
    return pools or [ServicePool(services=services, router=router)]


def check_asked(pools: Sequence[ServicePool], load: Load) -> None:
    """Raise where pools serve different models and requests do not say which they want."""
    if len({pool.asked_for for pool in pools}) < 2:
        return
    first = next(iter(load.arrivals()), None)
    if first is not None and not first.model:
        names = "/".join(sorted(set().union(*(pool.asked_for for pool in pools))))
        raise BadValue(
            f"requests name no model, and pools serve {names}: give a load with models=NAME:SHARE/..., or a "
            "trace with a column model"
        )


def fleet_pools(found: Served, pools: Sequence[ServicePool]) -> tuple[Pool, ...]:
    """The pools of a simulated service: each whole, or apart by what its deployments do."""
    made: list[Pool] = []
    first = 0
    for told in pools:
        places = range(first, first + len(told.services))
        first += len(told.services)
        pairs = zip(found.replicas, found.owner, strict=True)
        own = [(r, found.services[i]) for r, i in pairs if i in places]
        made += _parts(told, own)
    return tuple(made)


def _parts(told: ServicePool, own: list[tuple[ObservedReplica, PricedService]]) -> list[Pool]:
    roles = {s.rules.role for s in told.services}
    if roles == {"both"}:
        return [_pool(told, own, "both")]
    if roles != {"prefill", "decode"}:
        raise BadValue(
            f"a fleet does all of it, or prefill and decode apart, but got {', '.join(sorted(roles))}"
        )
    after = _pool(told, own, "decode")
    reader = next(s for s in told.services if s.rules.role == "prefill")
    return [_pool(told, own, "prefill", then=after, link=cache_link(reader), admission=told.admission), after]


def _pool(
    told: ServicePool, every: list[tuple[ObservedReplica, PricedService]], role: str, **more: Any
) -> Pool:
    own = [(r, s) for r, s in every if s.rules.role == role]
    replicas: list[Replica] = [r for r, _ in own]
    strengths = [s.strength for _, s in own]
    alike = max(strengths) <= (1.0 + 1e-9) * min(strengths)
    weights = () if alike else [v / max(strengths) for v in strengths]
    return Pool(
        name=told.name,
        models=told.serves,
        most_waiting=told.most_waiting if role != "decode" else inf,
        adapters=told.adapters,
        context=min(s.context for _, s in own),
        replicas=replicas,
        router=Router(replicas, told.router, weights=weights),
        role=role,
        **more,
    )


def with_adapters(
    service: PricedService, names: Iterable[str], lora: Lora, *, slots: int, bandwidth: float
) -> tuple[PricedService, AdapterRules]:
    """A deployment with room for `slots` adapters at once, which its caches lack, and the rules of a pool
    that serves `names`.

    `bandwidth`: over which each device fetches its part of an adapter [B/s]. Price the service itself with
    `adapted_model` so that its steps run adapters.
    """
    require(0 < bandwidth < inf, "adapters are fetched at a positive bandwidth", bandwidth=bandwidth)
    model, room = service.model, service.room
    size = adapter_bytes(model, lora)
    taken = ceil(slots * size / float(cache_bytes(model, float(room.page))))
    if taken >= room.blocks:
        raise BadValue(
            f"{slots} adapters of {size / 1e6:.4g} MB take {taken} blocks of the cache, of which "
            f"{service.system.name} has {room.blocks} a rank"
        )
    parts = float(service.plan.tp) * float(service.plan.pp)
    rules = AdapterRules(names=frozenset(names), slots=slots, fetch_time=size / parts / bandwidth)
    return replace(service, room=replace(room, blocks=room.blocks - taken)), rules


Progress = Callable[[float, int], bool]  # the clock [s] and how many are served; False ends the run


def simulate_services(
    services: Deployments,
    load: Load,
    *,
    router: str = "least-loaded",
    slo: dict[str, float] | None = None,
    keep: bool = False,
    until: float = inf,
    steady: SteadyShare | None = None,
    progress: Progress | None = None,
) -> Served:
    """Serve a load on deployments that are priced already, all behind one router; or on pools of them
    (`ServicePool`), each behind its own, which requests choose by the model they ask for.

    `steady` ends the run once it knows whether requests keep the limits, and says how many of the first do
    not count.
    """
    checked_limits(slo)
    require(bool(services), "a fleet has at least one deployment", services=0)
    pools = as_pools(services, router)
    check_asked(pools, load)
    every = [s for pool in pools for s in pool.services]
    found = Served(services=every, slo=dict(slo or {}), gaps=LatencyStatistics())
    found.pools = [pool.name for pool in pools for _ in pool.services]
    tell = found.steps.append if keep else None
    for i, service in enumerate(every):
        made = service.replicas(len(found.replicas), found.gaps, tell)
        found.replicas += made
        found.owner += [i] * len(made)
    found.steady = steady
    return _run(found, load, pools, keep=keep, until=until, progress=progress)


def checked_limits(slo: dict[str, float] | None) -> None:
    """Limits that have a name and are positive."""
    for name, limit in (slo or {}).items():
        if name not in LATENCIES:
            raise UnknownName("limit", name, LATENCIES)
        require(limit > 0, "limits on latency are positive", **{name: limit})


def _run(
    run: Served, load: Load, pools: list[ServicePool], *, keep: bool, until: float, progress: Progress | None
) -> Served:
    several = len(set().union(*(pool.asked_for for pool in pools))) > 1
    record, steady = _recorder(run, several, keep), run.steady
    done: list[Request] = []

    def each(clock: float) -> bool:
        run.stopped = progress is not None and not progress(clock, run.completed)
        if steady is not None:
            since = fleet.saturated_from
            run.given_up = steady.over(fleet.present, since is not None and since < 0.5 * clock)
        return not (run.stopped or run.given_up)

    fleet = Fleet(pools=fleet_pools(run, pools), load=load, record=record, refuse=record)
    if steady is not None:
        fleet.record = fleet.refuse = _judge(run, steady, fleet, done)
    try:
        fleet.run(until, each)
    except KeyboardInterrupt:
        run.stopped = True
    run.end, run.saturated_from = fleet.clock, fleet.saturated_from
    if steady is not None:
        steady.finish(run.saturated)
        run.given_up = run.given_up and steady.verdict != "kept"
        for request in done[steady.warm_up :]:
            record(request)
        run.begin = max([0.0, *[max(r.last, r.arrival) for r in done[: steady.warm_up][-1:]]])
    run.overloads, run.refusals = list(fleet.overloads), dict(fleet.refusals)
    run.preemptions = sum(rank.preemptions for r in run.replicas for rank in r.ranks)
    return run


def _judge(run: Served, steady: SteadyShare, fleet: Fleet, done: list[Request]) -> Callable[[Request], None]:
    """Tells how late a request is against the limits, and keeps it until the warm-up is known."""
    limits, means, clients = list(run.slo.items()), list(steady.means.items()), steady.clients

    def judge(r: Request) -> None:
        refused = r.state == "refused"
        late = inf if refused else max([getattr(r, name) / limit for name, limit in limits], default=0.0)
        ratios = [inf if refused else getattr(r, name) / limit for name, limit in means]
        steady.add(late, r.ttft if clients and not refused else fleet.present, ratios)
        done.append(r)

    return judge


def _recorder(run: Served, several: bool, keep: bool) -> Callable[[Request], None]:
    """Counts a request that is done, or was refused."""
    ttft, tpot, latency, queued = (run.times[name].add for name in LATENCIES)
    limits = [(LATENCIES.index(name), limit) for name, limit in run.slo.items()]

    def record(r: Request) -> None:
        if keep:
            run.records.append(r)
        if r.state == "refused":
            run.refused += 1
            if several:
                run.of_model(r.model).refused += 1
            return
        arrival, first, last, each = r.arrival, r.first, r.last, r.output - 1
        values = (
            first - arrival,
            (last - first) / each if each else 0.0,
            last - arrival,
            r.scheduled - arrival,
        )
        ttft(values[0])
        if each:  # one token has none after it
            tpot(values[1])
        latency(values[2])
        queued(values[3])
        run.completed += 1
        run.input_tokens += r.input
        run.output_tokens += r.output
        run.cached_tokens += r.cached
        run.good += not limits or all([values[i] <= limit for i, limit in limits])
        if several:
            run.of_model(r.model).add(r)

    return record
