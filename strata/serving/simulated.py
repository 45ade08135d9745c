"""A service simulated request by request: the engine's steps priced once, every request served on them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from strata.errors import UnknownName, require
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.serving.observed import TokenTimes
from strata.serving.priced_service import price_service
from strata.serving.simulated_pools import Deployments, ServicePool, as_pools, check_asked, fleet_pools
from strata.serving.simulated_result import LATENCIES, ServiceSimulation
from strata.simulate.server.fleet import Fleet, Load
from strata.simulate.server.request import Request
from strata.workload.model import Model

Progress = Callable[[float, int], bool]  # the clock [s] and how many are served; False ends the run


def simulate(
    system: System | str,
    model: Model | str,
    load: Load,
    plan: Plan | str = "",
    engine: Engine | str = "vllm",
    *,
    replicas: int = 1,
    tokens: int | None = None,
    sequences: int | None = None,
    context: int | None = None,
    kv_blocks: int | None = None,
    prefix_caching: bool = True,
    power_cap: float | None = None,
    economics: Economics | None = None,
    router: str = "least-loaded",
    slo: dict[str, float] | None = None,
    keep: bool = False,
    until: float = inf,
    progress: Progress | None = None,
    **more: Any,
) -> ServiceSimulation:
    """Serve every request of a load on a system, step by step; without a plan, under the one that is best for
    its mean request.

    `replicas` such systems stand behind a `router`. `tokens` of a step, `sequences` and `kv_blocks` of a rank
    replace the engine's own; `context` is the longest a sequence may become; `power_cap` limits each device
    [W]; `more`: what else `price_service` takes (drafting, eviction, kv_tiers ...). `slo`: limits on `ttft`,
    `tpot`, `latency` and `queued` [s], which goodput counts. `keep` keeps every request and step;
    `progress` is told the clock and how many are done now and then, and stops the run by returning False.
    Ctrl-C ends the run with what is known so far (`stopped`).

    >>> import strata as st
    >>> short, chat = st.serving.Lengths(mean=512), st.serving.Lengths(mean=64, shape="exponential")
    >>> load = st.serving.OpenLoad(rate=2.0, input=short, output=chat, count=200, seed=1)
    >>> found = st.simulate("8xh200", "llama-3-70b", load, "tp=8", "vllm", slo={"ttft": 1.0})
    >>> found.completed, found.good, found.saturated
    (200, 200, False)
    """
    service = price_service(
        system,
        model,
        plan,
        engine,
        load=load,
        slo=slo,
        tokens=tokens,
        sequences=sequences,
        context=context,
        kv_blocks=kv_blocks,
        prefix_caching=prefix_caching,
        power_cap=power_cap,
        economics=economics,
        replicas=replicas,
        **more,
    )
    return simulate_services(
        [service], load, router=router, slo=slo, keep=keep, until=until, progress=progress
    )


def simulate_services(
    services: Deployments,
    load: Load,
    *,
    router: str = "least-loaded",
    slo: dict[str, float] | None = None,
    keep: bool = False,
    until: float = inf,
    misses: float = inf,
    progress: Progress | None = None,
) -> ServiceSimulation:
    """Serve a load on deployments that are priced already, all behind one router; or on pools of them
    (`ServicePool`), each behind its own, which requests choose by the model they ask for.

    `misses`: requests beyond the limits after which the run is given up, as no more can change the answer.
    """
    checked_limits(slo)
    require(bool(services), "a fleet has at least one deployment", services=0)
    pools = as_pools(services, router)
    check_asked(pools, load)
    every = [s for pool in pools for s in pool.services]
    found = ServiceSimulation(services=every, slo=dict(slo or {}), gaps=TokenTimes())
    found.pools = [pool.name for pool in pools for _ in pool.services]
    tell = found.steps.append if keep else None
    for i, service in enumerate(every):
        made = service.replicas(len(found.replicas), found.gaps, tell)
        found.replicas += made
        found.owner += [i] * len(made)
    return _run(found, load, pools, keep=keep, until=until, misses=misses, progress=progress)


def checked_limits(slo: dict[str, float] | None) -> None:
    """Limits that have a name and are positive."""
    for name, limit in (slo or {}).items():
        if name not in LATENCIES:
            raise UnknownName("limit", name, LATENCIES)
        require(limit > 0, "limits on latency are positive", **{name: limit})


def _run(
    found: ServiceSimulation,
    load: Load,
    pools: list[ServicePool],
    *,
    keep: bool,
    until: float,
    misses: float,
    progress: Progress | None,
) -> ServiceSimulation:
    ttft, tpot, latency, queued = (found.times[name].add for name in LATENCIES)
    limits = [(LATENCIES.index(name), limit) for name, limit in found.slo.items()]
    several = len(set().union(*(pool.asked_for for pool in pools))) > 1

    def record(r: Request) -> None:
        values = (r.ttft, r.tpot, r.latency, r.queued)
        ttft(values[0])
        if r.output > 1:  # one token has none after it
            tpot(values[1])
        latency(values[2])
        queued(values[3])
        found.completed += 1
        found.input_tokens += r.input
        found.output_tokens += r.output
        found.cached_tokens += r.cached
        found.good += all([values[i] <= limit for i, limit in limits])
        if several:
            found.of_model(r.model).add(r)
        if keep:
            found.records.append(r)

    def refuse(r: Request) -> None:
        found.refused += 1
        if several:
            found.of_model(r.model).refused += 1
        if keep:
            found.records.append(r)

    def each(clock: float) -> bool:
        found.stopped = progress is not None and not progress(clock, found.completed)
        found.given_up = found.completed - found.good + found.refused > misses
        return not (found.stopped or found.given_up)

    fleet = Fleet(pools=fleet_pools(found, pools), load=load, record=record, refuse=refuse)
    try:
        fleet.run(until, each)
    except KeyboardInterrupt:
        found.stopped = True
    found.end, found.saturated_from = fleet.clock, fleet.saturated_from
    found.overloads, found.refusals = list(fleet.overloads), dict(fleet.refusals)
    found.preemptions = sum(rank.preemptions for r in found.replicas for rank in r.ranks)
    return found
