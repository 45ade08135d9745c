"""Pools of a simulated fleet: all replicas behind one router, or those that read prompts apart from those
that generate, with caches sent in between.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strata.errors import BadValue, require
from strata.hardware.system import System, as_system
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.serving.pools import cache_bytes, pool, send_time
from strata.serving.priced_service import PricedService, price_service
from strata.serving.simulated_result import ServiceSimulation
from strata.simulate.server.kv_link import KvLink
from strata.simulate.server.pool import Pool
from strata.simulate.server.router import Router
from strata.workload.model import Model
from strata.workload.model import model as make_model

SENT = (0.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)  # tokens of caches at which sending is priced


def disaggregated_services(
    system: System | str,
    model: Model | str,
    prefill_plan: Plan | str,
    decode_plan: Plan | str,
    engine: Engine | str = "vllm",
    **asked: Any,
) -> list[PricedService]:
    """Parts of a system that read prompts and that generate, each as large as its plan; `asked` as in
    `price_service`.

    >>> pair = disaggregated_services("8xh200", "llama-3-70b", "tp=4", "tp=4", "vllm")
    >>> [s.text for s in pair]
    ['4 of 8xh200 prefill (tp=4)', '4 of 8xh200 decode (tp=4)']
    """
    whole = as_system(system)
    served = make_model(model) if isinstance(model, str) else model
    degrees = [make_plan(p) if isinstance(p, str) else p for p in (prefill_plan, decode_plan)]
    sizes = [int(float(p.devices)) for p in degrees]
    require(
        sum(sizes) <= float(whole.devices),
        f"pools of {sizes[0]} and {sizes[1]} devices pass those of {whole.name}",
        devices=float(whole.devices),
    )
    return [
        replace(price_service(pool(whole, size), served, degree, engine, role=role, **asked), within=whole)
        for size, degree, role in zip(sizes, degrees, ("prefill", "decode"), strict=True)
    ]


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


def fleet_pools(found: ServiceSimulation, router: str) -> tuple[Pool, ...]:
    """The pools of a simulated service: by what its deployments do."""
    roles = {s.rules.role for s in found.services}
    if roles == {"both"}:
        return (_pool(found, "both", router),)
    if roles != {"prefill", "decode"}:
        raise BadValue(
            f"a fleet does all of it, or prefill and decode apart, but got {', '.join(sorted(roles))}"
        )
    after = _pool(found, "decode", router)
    reader = next(s for s in found.services if s.rules.role == "prefill")
    return (_pool(found, "prefill", router, then=after, link=cache_link(reader)), after)


def _pool(found: ServiceSimulation, role: str, router: str, **more: Any) -> Pool:
    pairs = [(r, found.services[i]) for r, i in zip(found.replicas, found.owner, strict=True)]
    own = [(r, s) for r, s in pairs if s.rules.role == role]
    replicas = [r for r, _ in own]
    strengths = [s.strength for _, s in own]
    alike = max(strengths) <= (1.0 + 1e-9) * min(strengths)
    weights = () if alike else [v / max(strengths) for v in strengths]
    return Pool(
        context=min(s.context for _, s in own),
        replicas=list(replicas),
        router=Router(list(replicas), router, weights=weights),
        role=role,
        **more,
    )
