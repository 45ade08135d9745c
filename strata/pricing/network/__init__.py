"""Prices of communication: collectives, transports, packets. As `st.network`: its public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.base.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.pricing.network.algorithm_names import LibrarySetting
    from strata.pricing.network.collective_cost import CollectiveCost, collective
    from strata.pricing.network.concurrent import ConcurrentCollectives, concurrent_collectives
    from strata.pricing.network.expert_exchange import ExchangeCost, expert_exchange_cost

__all__ = [
    "CollectiveCost",
    "ConcurrentCollectives",
    "ExchangeCost",
    "LibrarySetting",
    "collective",
    "concurrent_collectives",
    "expert_exchange_cost",
]
load_on_first_use(__name__)
