"""Requests under load: queues, limits on latency, pools, speculation, the frontier. As `st.serving`: its public names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strata.serving.curve import Curve, Requests, curve
    from strata.serving.frontier import ServingFrontier, serving_frontier
    from strata.serving.load import LoadMetrics, closed_load, goodput, largest_concurrency, open_load
    from strata.serving.pools import Disaggregation, disaggregate
    from strata.serving.speculation import Drafting, Speculation, best_window, speculate
    from strata.serving.under_load import UnderLoad, serve_under_load

_HOME = {
    "Curve": "strata.serving.curve",
    "Requests": "strata.serving.curve",
    "curve": "strata.serving.curve",
    "ServingFrontier": "strata.serving.frontier",
    "serving_frontier": "strata.serving.frontier",
    "LoadMetrics": "strata.serving.load",
    "closed_load": "strata.serving.load",
    "goodput": "strata.serving.load",
    "largest_concurrency": "strata.serving.load",
    "open_load": "strata.serving.load",
    "Disaggregation": "strata.serving.pools",
    "disaggregate": "strata.serving.pools",
    "Drafting": "strata.serving.speculation",
    "Speculation": "strata.serving.speculation",
    "best_window": "strata.serving.speculation",
    "speculate": "strata.serving.speculation",
    "UnderLoad": "strata.serving.under_load",
    "serve_under_load": "strata.serving.under_load",
}
__all__ = [
    "Curve",
    "Disaggregation",
    "Drafting",
    "LoadMetrics",
    "Requests",
    "ServingFrontier",
    "Speculation",
    "UnderLoad",
    "best_window",
    "closed_load",
    "curve",
    "disaggregate",
    "goodput",
    "largest_concurrency",
    "open_load",
    "serve_under_load",
    "serving_frontier",
    "speculate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
