"""Prices of communication: collectives, transports, packets. As `st.network`: its public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.lazy import load_on_first_use

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
load_on_first_use(
    __name__,
    {
        "CollectiveCost": "collective_cost",
        "collective": "collective_cost",
        "ConcurrentCollectives": "concurrent",
        "concurrent_collectives": "concurrent",
        "DeviceMapping": "link_sharing",
        "best_mapping": "link_sharing",
        "device_mappings": "link_sharing",
        "fabric_grid": "link_sharing",
        "package_grid": "link_sharing",
    },
)
