"""Memory of every pipeline stage of a training step, by purpose."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from strata.result import Result


def memory_of_stages(result: Result) -> dict[str, np.ndarray]:
    """Bytes by purpose of every stage of a single result, first stage first; the fullest alone where a step
    says no more.

    >>> import strata as st
    >>> r = st.evaluate("8xh100", "llama-3-8b", st.train(32, 2048), "tp=2,pp=2,dp=2,zero=1", "megatron")
    >>> held = memory_of_stages(r)
    >>> bool(np.isclose(sum(held.values()).max(), r.metrics.memory_used))
    True
    """
    by_stage = getattr(import_module("strata.evaluate"), "stage_memory", None)
    if by_stage is None:
        return {name: np.array([float(size)]) for name, size in result.summary.memory.items()}
    return {name: np.atleast_1d(np.asarray(size, float)) for name, size in by_stage(result).items()}
