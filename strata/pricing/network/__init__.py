"""Prices of communication: collectives, transports, packets. As `st.network`: its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strata.pricing.network.collective_cost import CollectiveCost, collective
    from strata.pricing.network.concurrent import ConcurrentCollectives, concurrent_collectives

_HOME = {
    "CollectiveCost": "strata.pricing.network.collective_cost",
    "collective": "strata.pricing.network.collective_cost",
    "ConcurrentCollectives": "strata.pricing.network.concurrent",
    "concurrent_collectives": "strata.pricing.network.concurrent",
}
__all__ = [
    "CollectiveCost",
    "ConcurrentCollectives",
    "collective",
    "concurrent_collectives",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
