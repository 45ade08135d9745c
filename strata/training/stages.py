"""Memory of every pipeline stage of a training step, by purpose."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from strata.batch import as_float64_box
from strata.evaluate import pricing_of
from strata.pricing.given import Structure
from strata.result import Result


def stage_memory(result: Result) -> dict[str, np.ndarray]:
    """Bytes by purpose of every stage of a single result, first stage first.

    >>> import strata as st
    >>> r = st.evaluate("8xh100", "llama-3-8b", st.train(32, 2048), "tp=2,pp=2,dp=2,zero=1", "megatron")
    >>> held = stage_memory(r)
    >>> bool(np.isclose(sum(held.values()).max(), r.metrics.memory_used))
    True
    """
    try:
        by_stage = import_module("strata.pricing.stage_memory").memory_by_stage
    except ImportError:
        return {name: np.array([float(size)]) for name, size in result.summary.memory.items()}
    case, _ = as_float64_box(result.case)
    work = case.workload.steps()[1][-1][1]
    found = by_stage(pricing_of(case, work, Structure(case.plan.active(), 0)))
    return {name: np.atleast_1d(np.asarray(size, float)) for name, size in found.items()}
