"""A service simulated request by request: the engine's steps priced once, every request served on them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from strata.errors import UnknownName, require
from strata.serving.simulated_pools import Deployments, ServicePool, as_pools, check_asked, fleet_pools
from strata.serving.simulated_result import LATENCIES, Served
from strata.simulate.server.fleet import Fleet, Load
from strata.simulate.server.request import Request
from strata.simulate.server.saturation import SteadyShare
from strata.simulate.server.statistics import LatencyStatistics

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
