"""Strata predicts and optimises AI systems that do not exist yet. Nouns are frozen records, verbs are pure
functions.

>>> import strata as st
>>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")
>>> r.fits, r.bound_by
(True, 'memory')

Around this core stand groups of their own: `st.hardware`, `st.network`, `st.serving`, `st.search`,
`st.training`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strata.base.errors import StrataError
from strata.base.lazy import load_on_first_use
from strata.base.records import Infeasible

if TYPE_CHECKING:
    from strata import hardware, search, serving, training
    from strata.adapters.chakra.out import chakra_traces
    from strata.adapters.post_training.recipe import post_training_recipe
    from strata.adapters.post_training.run import post_training
    from strata.case import Case
    from strata.evaluate import evaluate, evaluate_case
    from strata.hardware.chip import chip
    from strata.hardware.fabric import fabric
    from strata.hardware.generate.recipe import generate, generation
    from strata.hardware.system import System, system
    from strata.mapping.kernel_parallel import Strategy, layout_of, parse_strategy, strategies
    from strata.mapping.layout import Layout, layout
    from strata.mapping.plan import Plan, plan
    from strata.mapping.plans import plans
    from strata.pricing import network
    from strata.pricing.kernel import Kernel, kernel
    from strata.result import Result, reasons
    from strata.search.plan_for import plan_for
    from strata.search.sweep import sweep
    from strata.serving.deployment import simulate
    from strata.serving.under_load import serve_under_load
    from strata.simulate.step import simulate_step
    from strata.software.engine import Engine, engine
    from strata.training.run import train_run
    from strata.workload.dataflow import Dataflow
    from strata.workload.dataflow_builder import dataflow
    from strata.workload.expert_ops import Routing, read_routing, routing
    from strata.workload.lora import Lora
    from strata.workload.model import Model, model
    from strata.workload.program import program
    from strata.workload.protocol import Program
    from strata.workload.tasks import Workload, decode, forward, mixed, prefill, serve, train

__version__ = "0.1.0"
__all__ = [
    "Case",
    "Dataflow",
    "Engine",
    "Infeasible",
    "Kernel",
    "Layout",
    "Lora",
    "Model",
    "Plan",
    "Program",
    "Result",
    "Routing",
    "StrataError",
    "Strategy",
    "System",
    "Workload",
    "chakra_traces",
    "chip",
    "dataflow",
    "decode",
    "engine",
    "evaluate",
    "evaluate_case",
    "fabric",
    "forward",
    "generate",
    "generation",
    "hardware",
    "kernel",
    "layout",
    "layout_of",
    "mixed",
    "model",
    "network",
    "parse_strategy",
    "plan",
    "plan_for",
    "plans",
    "post_training",
    "post_training_recipe",
    "prefill",
    "program",
    "read_routing",
    "reasons",
    "routing",
    "search",
    "serve",
    "serve_under_load",
    "serving",
    "simulate",
    "simulate_step",
    "strategies",
    "sweep",
    "system",
    "train",
    "train_run",
    "training",
]


def _with_plan(given: dict[str, Any]) -> None:
    """No plan means the best legal one, as on the command line."""
    if not given.get("plan"):
        from strata.search.inputs import usual_plan

        asked = {key: given[key] for key in ("system", "program", "workload", "engine") if key in given}
        given["plan"] = usual_plan(**asked)


_GROUPS = {name: f"strata.{name}" for name in ("hardware", "search", "serving", "training")}
load_on_first_use(__name__, _GROUPS | {"network": "strata.pricing.network"}, before={"evaluate": _with_plan})
