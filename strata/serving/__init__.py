"""Requests under load: queues, limits, pools, speculation, frontier. As `st.serving`: its public names."""

from typing import TYPE_CHECKING

from strata.base.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.adapters.launchers.commands import LaunchCommand, launch_command, launch_commands
    from strata.search.served_options import read_pools
    from strata.serving.curve import Curve, curve
    from strata.serving.deployment import Deployment, attention_ffn_service, served, simulate
    from strata.serving.drafts import DraftComparison, compare_drafts
    from strata.serving.load import closed_load, goodput, largest_concurrency, open_load
    from strata.serving.load_metrics import FirstToken, LoadMetrics, ServingLimits
    from strata.serving.pools import Disaggregation, disaggregate
    from strata.serving.priced_service import PricedService, promising_plans
    from strata.serving.requests import Requests
    from strata.serving.served_plans import ServedPlan, ServedPlans, served_plans
    from strata.serving.simulated import ServicePool, simulate_services, with_adapters
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
    from strata.serving.simulated_fleet import FleetAnswer, fleet_for, services_capped
    from strata.serving.simulated_plans import answered_plans
    from strata.serving.simulated_result import Served
    from strata.serving.simulator.arrivals import Lengths
    from strata.serving.simulator.load import ClosedLoad, OpenLoad, RecordedLoad, SessionLoad
    from strata.serving.simulator.load_text import load_of
    from strata.serving.simulator.trace import TraceLoad, write_trace
    from strata.serving.speculation import Drafting, Speculation, best_window, named_drafting, speculate
    from strata.serving.under_load import ServingFrontier, UnderLoad, serve_under_load, serving_frontier

load_on_first_use(__name__)
