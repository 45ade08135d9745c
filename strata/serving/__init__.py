"""Requests under load: queues, limits, pools, speculation, frontier. As `st.serving`: its public names."""

from typing import TYPE_CHECKING

from strata.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.serving.curve import Curve, curve
    from strata.serving.deployment import Deployment, served, simulate
    from strata.serving.drafts import DraftComparison, compare_drafts
    from strata.serving.first_token import FirstToken
    from strata.serving.frontier import ServingFrontier, serving_frontier
    from strata.serving.goals import ServingLimits
    from strata.serving.launch import LaunchCommand, launch_command, launch_commands
    from strata.serving.load import closed_load, goodput, largest_concurrency, open_load
    from strata.serving.load_metrics import LoadMetrics
    from strata.serving.pool_files import read_pools
    from strata.serving.pools import Disaggregation, disaggregate
    from strata.serving.priced_service import PricedService, promising_plans
    from strata.serving.requests import Requests
    from strata.serving.served_apart import attention_ffn_service
    from strata.serving.served_plans import ServedPlan, ServedPlans, served_plans
    from strata.serving.simulated import simulate_services
    from strata.serving.simulated_answers import (
        CostFrontier,
        LargestRate,
        LoadLatency,
        PacedLoad,
        cost_frontier,
        find_rate,
        highest_rate,
        load_latency,
    )
    from strata.serving.simulated_drafts import mtp_drafting
    from strata.serving.simulated_fleet import FleetAnswer, fleet_for, services_capped
    from strata.serving.simulated_plans import answered_plans
    from strata.serving.simulated_pools import ServicePool, with_adapters
    from strata.serving.simulated_result import Served
    from strata.serving.speculation import Drafting, Speculation, best_window, speculate
    from strata.serving.under_load import UnderLoad, serve_under_load
    from strata.simulate.server.load import ClosedLoad, Lengths, OpenLoad, RecordedLoad
    from strata.simulate.server.load_text import load_of
    from strata.simulate.server.sessions import SessionLoad
    from strata.simulate.server.trace import TraceLoad, write_trace

__all__ = [
    "ClosedLoad",
    "CostFrontier",
    "Curve",
    "Deployment",
    "Disaggregation",
    "DraftComparison",
    "Drafting",
    "FirstToken",
    "FleetAnswer",
    "LargestRate",
    "LaunchCommand",
    "Lengths",
    "LoadLatency",
    "LoadMetrics",
    "OpenLoad",
    "PacedLoad",
    "PricedService",
    "RecordedLoad",
    "Requests",
    "Served",
    "ServedPlan",
    "ServedPlans",
    "ServicePool",
    "ServingFrontier",
    "ServingLimits",
    "SessionLoad",
    "Speculation",
    "TraceLoad",
    "UnderLoad",
    "answered_plans",
    "attention_ffn_service",
    "best_window",
    "closed_load",
    "compare_drafts",
    "cost_frontier",
    "curve",
    "disaggregate",
    "find_rate",
    "fleet_for",
    "goodput",
    "highest_rate",
    "largest_concurrency",
    "launch_command",
    "launch_commands",
    "load_latency",
    "load_of",
    "mtp_drafting",
    "open_load",
    "promising_plans",
    "read_pools",
    "serve_under_load",
    "served",
    "served_plans",
    "services_capped",
    "serving_frontier",
    "simulate",
    "simulate_services",
    "speculate",
    "with_adapters",
    "write_trace",
]
load_on_first_use(__name__)
