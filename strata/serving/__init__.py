"""Requests under load: queues, limits, pools, speculation, frontier. As `st.serving`: its public names."""

from strata.serving.curve import Curve, curve
from strata.serving.drafts import DraftComparison, compare_drafts
from strata.serving.first_token import FirstToken
from strata.serving.frontier import ServingFrontier, serving_frontier
from strata.serving.load import closed_load, goodput, largest_concurrency, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.pools import Disaggregation, disaggregate
from strata.serving.requests import Requests
from strata.serving.served_plans import ServedPlan, ServedPlans, ServingLimits, served_plans
from strata.serving.speculation import Drafting, Speculation, best_window, speculate
from strata.serving.under_load import UnderLoad, serve_under_load

__all__ = [
    "Curve",
    "Disaggregation",
    "DraftComparison",
    "Drafting",
    "FirstToken",
    "LoadMetrics",
    "Requests",
    "ServedPlan",
    "ServedPlans",
    "ServingFrontier",
    "ServingLimits",
    "Speculation",
    "UnderLoad",
    "best_window",
    "closed_load",
    "compare_drafts",
    "curve",
    "disaggregate",
    "goodput",
    "largest_concurrency",
    "open_load",
    "serve_under_load",
    "served_plans",
    "serving_frontier",
    "speculate",
]
