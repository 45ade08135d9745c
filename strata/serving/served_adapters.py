"""A deployment that serves adapters of its model: what they take of its caches, how long one is fetched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, inf

from strata.errors import BadValue, require
from strata.serving.pools import cache_bytes
from strata.serving.priced_service import PricedService
from strata.simulate.server.adapters import AdapterRules
from strata.workload.adapted_model import adapter_bytes
from strata.workload.adapters import Lora


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
