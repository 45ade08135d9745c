"""One step looked at by itself: what it is priced with, its price whether or not it fits, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.base.batch import as_float64_box, run_box
from strata.base.errors import require
from strata.case import Case
from strata.evaluate import pricing_of, step_of
from strata.hardware.system import System
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan
from strata.pricing.pricers import Pricing, Structure
from strata.pricing.stage_costs import memory_by_stage, memory_in_step
from strata.pricing.step import Step
from strata.result import Result
from strata.sharded import case_of
from strata.software.engine import Engine, as_engine
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


def memory_needed(
    system: System, program: Program, workload: Workload, plan: Plan, engine: Engine | str
) -> tuple[np.ndarray, float]:
    """Bytes that the fullest device needs in a training step under each plan of a box, whether they fit or
    not, and those that it may fill: as `evaluate` says, without prices.

    >>> import strata as st
    >>> asked = (st.system("8xh200"), st.model("llama-3-8b"), st.train(8, 2048), st.plan("pp=8"), "megatron")
    >>> used, limit = memory_needed(*asked)
    >>> bool(used == st.evaluate(*asked).metrics.memory_used), round(limit / 1e9)
    (True, 151)
    """
    case, shape, structure = _opened(system, program, workload, plan, engine)

    def held(part: Case) -> Any:
        return sum(memory_in_step(pricing_of(part, part.workload.steps()[1][-1][1], structure)).values(), 0.0)

    limit = float(np.min(system.chip.memory.capacity * as_engine(engine).gpu_memory_utilization))
    return np.asarray(run_box(held, case, shape) if shape else held(case)), limit


def stage_memory(result: Result) -> dict[str, np.ndarray]:
    """Bytes of every stage of one training step, by purpose.

    >>> import strata as st
    >>> found = stage_memory(st.evaluate("8xh200", "llama-3-8b", st.train(8, 2048), "pp=8", "megatron"))
    >>> bool(found["activations"][0] > found["activations"][7])
    True
    """
    require(result.workload.phase == "train", "stages keep micro-batches in training alone")
    work = result.workload.steps()[1][-1][1]
    given = pricing_of(result.case, work, Structure(result.case.plan.active()))
    return {purpose: np.asarray(size) for purpose, size in memory_by_stage(given).items()}


def step_pricing(
    system: System, program: Program, workload: Workload, plan: Plan | Layout, engine: Engine | str
) -> Pricing:
    """What one step is priced with, of a box too; a workload of several steps has none."""
    case, _, structure = _opened(system, program, workload, plan, engine)
    return pricing_of(case, case.workload, structure)


def priced_step(
    system: System, program: Program, workload: Workload, plan: Plan | Layout, engine: Engine | str
) -> Step:
    """One step, whether or not it fits: a run that was measured is priced in any case.

    >>> import strata as st
    >>> asked = (st.system("1xh100"), st.model("llama-3-70b"), st.decode(1, 2048), st.plan(), "ideal")
    >>> float(priced_step(*asked).time) < float("inf"), float(st.evaluate(*asked).metrics.step_time)
    (True, inf)
    """
    case, _, structure = _opened(system, program, workload, plan, engine)
    return step_of(case, case.workload, structure)


def _opened(*asked: Any) -> tuple[Case, tuple[int, ...], Structure]:
    """A case with arrays as the core takes them, their shape, and what is fixed for them."""
    case, shape = as_float64_box(case_of(*asked))
    return case, shape, Structure(case.plan.active(), len(shape))
