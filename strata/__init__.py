"""Strata predicts and optimises AI systems that do not exist yet. Nouns are frozen records, verbs are pure
functions.

>>> import strata as st
>>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")
>>> r.fits, r.bound_by
(True, 'memory')
"""

from strata.case import Case
from strata.errors import Infeasible, StrataError
from strata.evaluate import evaluate, evaluate_case
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, fabric, sized
from strata.hardware.silicon.area import area
from strata.hardware.silicon.cost import cost
from strata.hardware.silicon.manufacturing import Silicon
from strata.hardware.system import System, economics, system
from strata.hardware.thermal.report import Temperatures, heat
from strata.hardware.topology import Topology, topology
from strata.mapping.engine import Engine, engine
from strata.mapping.layout import Layout, layout
from strata.mapping.plan import Plan, plan
from strata.mapping.plans import plans
from strata.pricing.kernel import Kernel, kernel
from strata.pricing.network.collective_cost import CollectiveCost, collective
from strata.pricing.network.concurrent import ConcurrentCollectives, concurrent_collectives
from strata.result import Result, reasons
from strata.search.goal import Goal, goal
from strata.search.outcome import SearchOutcome
from strata.search.plan_for import PlanRanking, plan_for
from strata.search.plans import best_plans
from strata.search.run import Search, search
from strata.search.sensitivity import sensitivity
from strata.search.space import Space, space
from strata.search.sweep import Sweep, sweep
from strata.serving.curve import Curve, Requests, curve
from strata.serving.frontier import ServingFrontier, serving_frontier
from strata.serving.load import LoadMetrics, closed_load, goodput, largest_concurrency, open_load
from strata.serving.pools import Disaggregation, disaggregate
from strata.serving.speculation import Drafting, Speculation, best_window, speculate
from strata.serving.under_load import UnderLoad, serve_under_load
from strata.workload.model import Model, model
from strata.workload.program import Program, program
from strata.workload.routing import Routing, read_routing, routing
from strata.workload.tasks import Workload, decode, forward, mixed, prefill, serve, train

__version__ = "0.1.0"
__all__ = [
    "Chip",
    "CollectiveCost",
    "ConcurrentCollectives",
    "Curve",
    "Disaggregation",
    "Drafting",
    "Engine",
    "Fabric",
    "Goal",
    "Infeasible",
    "Kernel",
    "LoadMetrics",
    "Model",
    "Plan",
    "PlanRanking",
    "Requests",
    "Result",
    "Routing",
    "Search",
    "SearchOutcome",
    "ServingFrontier",
    "Silicon",
    "Space",
    "Speculation",
    "StrataError",
    "Sweep",
    "System",
    "Temperatures",
    "Topology",
    "UnderLoad",
    "Workload",
    "area",
    "best_plans",
    "best_window",
    "chip",
    "closed_load",
    "collective",
    "concurrent_collectives",
    "cost",
    "curve",
    "decode",
    "disaggregate",
    "economics",
    "engine",
    "evaluate",
    "fabric",
    "goal",
    "goodput",
    "heat",
    "kernel",
    "largest_concurrency",
    "mixed",
    "model",
    "open_load",
    "plan",
    "plan_for",
    "plans",
    "prefill",
    "read_routing",
    "reasons",
    "routing",
    "search",
    "sensitivity",
    "serve",
    "serve_under_load",
    "serving_frontier",
    "sized",
    "space",
    "speculate",
    "sweep",
    "system",
    "topology",
    "trace",
    "train",
]  # fmt: skip
