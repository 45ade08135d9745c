"""Prices of communication: collectives, transports, packets. As `st.network`: its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from strata.calls import if_function

if TYPE_CHECKING:
    from strata.pricing.network.collective_cost import CollectiveCost, collective
    from strata.pricing.network.concurrent import ConcurrentCollectives, concurrent_collectives
    from strata.pricing.network.link_sharing import (
        DeviceMapping,
        best_mapping,
        device_mappings,
        fabric_grid,
        package_grid,
    )

_HOME = {
    "CollectiveCost": "strata.pricing.network.collective_cost",
    "collective": "strata.pricing.network.collective_cost",
    "ConcurrentCollectives": "strata.pricing.network.concurrent",
    "concurrent_collectives": "strata.pricing.network.concurrent",
    "DeviceMapping": "strata.pricing.network.link_sharing",
    "best_mapping": "strata.pricing.network.link_sharing",
    "device_mappings": "strata.pricing.network.link_sharing",
    "fabric_grid": "strata.pricing.network.link_sharing",
    "package_grid": "strata.pricing.network.link_sharing",
}
__all__ = [
    "CollectiveCost",
    "ConcurrentCollectives",
    "DeviceMapping",
    "best_mapping",
    "collective",
    "concurrent_collectives",
    "device_mappings",
    "fabric_grid",
    "package_grid",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return if_function(getattr(import_module(_HOME[name]), name))


def __dir__() -> list[str]:
    return __all__
