"""Strata predicts and optimises AI systems that do not exist yet. Nouns are frozen records, verbs are pure functions.

>>> import strata as st
>>> r = st.evaluate(st.system("8xh200"), st.model("llama-3-70b"), st.decode(batch=64, context=2048), st.plan(tp=8))
>>> r.fits, r.bound_by
(True, 'memory')
"""

from strata.errors import Infeasible, StrataError
from strata.evaluate import Result, evaluate, reasons
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import Fabric, fabric, sized
from strata.hardware.manufacture import area, cost
from strata.hardware.silicon import Silicon
from strata.hardware.system import System, economics, system
from strata.hardware.temperatures import Temperatures, heat
from strata.hardware.topology import Topology, topology
from strata.mapping.engine import Engine, engine
from strata.mapping.plan import Plan, plan, plans
from strata.pricing.communication import Communication, collective
from strata.pricing.contention import Together, together
from strata.pricing.kernel import Kernel, kernel
from strata.search.plans import best_plans
from strata.search.sensitivity import sensitivity
from strata.workload.model import Model, model
from strata.workload.tasks import Workload, decode, prefill, serve, train
from strata.workload.transformer import trace

__version__ = "0.1.0"
__all__ = [
    "Chip", "Communication", "Engine", "Fabric", "Infeasible", "Kernel", "Model", "Plan", "Result", "Silicon", "StrataError", "System", "Temperatures", "Together", "Topology", "Workload", "area", "best_plans", "chip", "collective", "cost", "decode", "economics", "engine",
    "evaluate", "fabric", "heat", "kernel", "model", "plan", "plans", "prefill", "reasons", "sensitivity", "serve", "sized", "system", "together", "topology", "trace", "train",
]  # fmt: skip
