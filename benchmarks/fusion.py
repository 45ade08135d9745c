"""Rows on fusion inside a chip: the exact solver against CP-SAT, and evaluations with fused kernels against
those kernel by kernel.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import strata as st
from strata.optimise.fuse import fuse_kernels
from strata.optimise.fusion.fuse_cpsat import fuse_by_cpsat

LAYER = Path(__file__).parents[1] / "tests" / "optimise" / "gpt_layer.py"
SYSTEM, MODEL, PLAN = "16xsn40l", "llama-3-8b", "tp=16"
POINTS = 100_000
CPSAT_SECONDS = 60.0


def seconds_of(function: Callable[[], Any], repeats: int) -> float:
    """The shortest of several runs, in time of this process."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def add_solvers(add: Callable[..., None]) -> None:
    """Seconds in which the best partitions of a GPT layer are proved: tiles free, and CP-SAT's at the number
    of tiles that turned out best. Where CP-SAT was stopped it had not finished: the ratio is a lower bound.
    """
    spec = importlib.util.spec_from_file_location("gpt_layer", LAYER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for kernels, backward in ((18, False), (41, True)):
        problem = module.gpt_layer(8, backward=backward)
        found = fuse_kernels(problem)
        tiles = found.partitions[0].tiles
        fixed = module.gpt_layer(8, backward=backward, tiles=(tiles,))
        start = time.process_time()  # as ours: others' work on the machine counts in neither
        other = fuse_by_cpsat(fixed, seconds=CPSAT_SECONDS)
        took = time.process_time() - start
        state = "proved" if other.optimal else f"stopped, {other.gap:.1%} from its bound"
        add(
            f"fuse_gpt_{kernels}_kernels",
            seconds_of(lambda p=problem: fuse_kernels(p), 3),  # type: ignore[misc]
            "s",
            f"CP-SAT, one worker, at {tiles:g} tiles only: {state}",
            took,
            smaller=True,
            optimal=found.optimal,
            time_over_baseline=found.time / other.time,
        )


def add_fused(add: Callable[..., None]) -> None:
    """Evaluations of a decode on 16 SN40L with kernels fused, one point and a list of them, over those kernel
    by kernel.
    """
    apart, fused = st.engine("ideal", kernels="unfused"), st.engine("ideal")
    one = st.decode(batch=1.0, context=2048.0)
    many = st.decode(batch=np.random.default_rng(0).uniform(1.0, 256.0, POINTS), context=2048.0)
    for name, work, points, repeats in (("single", one, 1, 20), ("batch", many, POINTS, 2)):

        def run(engine: st.Engine, work: Any = work) -> Any:
            return st.evaluate(SYSTEM, MODEL, work, PLAN, engine)

        run(fused), run(apart)
        took, usual = (seconds_of(lambda e=e: run(e), repeats) for e in (fused, apart))  # type: ignore[misc]
        add(
            f"decode_fused_{name}",
            points / took,
            "evaluations/s",
            "the same with engine.fusion=none",
            points / usual,
            points=points,
        )


def add_fusion(add: Callable[..., None]) -> None:
    """All rows on fusion."""
    add_solvers(add)
    add_fused(add)
