"""`python -m benchmarks.gpu`: full evaluations a second of growing boxes on the accelerator that JAX finds
(or on the CPU where there is none).

Every point is a decode step of DeepSeek-V3 on 256 stacked chips with all its metrics, as in `decode_box_jax`
of benchmarks/run.py. All of them are worked out on the device; of each only its largest finite value over the
box comes back, so that the copy of 41 numbers a point to the host is not what is measured. Boxes above
`AT_ONCE` link bandwidths are priced in several calls, each with its own.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from benchmarks.designs import box
from benchmarks.run import ENGINE, MONEY
from strata.base.arrays import enable_jax, map_leaves
from strata.base.batch import as_float64_box, unlabelled
from strata.base.stages import staged
from strata.case import Case
from strata.evaluate import evaluate_case, summarised
from strata.pricing.pricers import Structure

# link bandwidths of a box; with 12 layers and every plan some 1 to 200 million points
LINKS = (32, 256, 1536, 6144)
AT_ONCE = 1536  # of them in one call: some 50 million points
RUNS = 4


def drawn_case(seed: int, links: int) -> tuple[Case, tuple[int, ...]]:
    """A box drawn anew, ready for the compiled core, and its shape."""
    system, program, work, plan = box(seed, links=links)
    case = Case(system=system, program=program, workload=work, plan=plan, engine=ENGINE, economics=MONEY)
    return as_float64_box(case)


def largest(structure: Structure) -> Any:
    """The whole evaluation of a box, compiled; the largest finite value of each of its numbers."""
    jnp = enable_jax().numpy

    def run(case: Case) -> Any:
        found, _ = summarised(case, structure)
        return map_leaves(lambda v: jnp.max(jnp.where(jnp.isfinite(v), v, 0.0)), found)

    return staged(run)


def measured(links: int) -> dict[str, Any]:
    """One size of box: points, seconds to compile, points a second; results agree with NumPy's where a box is
    small enough to look.
    """
    each = min(links, AT_ONCE)
    case, shape = drawn_case(0, each)
    run = largest(Structure(case.plan.active(), len(shape)))
    block = enable_jax().block_until_ready
    start = time.perf_counter()
    found = block(run(unlabelled(case)))
    compiled = time.perf_counter() - start
    if links <= LINKS[0]:
        check(found, case)
    times, calls = [], links // each
    for i in range(RUNS):
        drawn = [unlabelled(drawn_case(1 + i * calls + j, each)[0]) for j in range(calls)]
        start = time.perf_counter()
        block([run(one) for one in drawn])
        times.append(time.perf_counter() - start)
    points = int(np.prod(shape)) * calls
    return {
        "points": points,
        "calls": calls,
        "compile_s": compiled,
        "seconds": min(times),
        "points_per_s": points / min(times),
    }


def check(found: Any, case: Case) -> None:
    """Every number's largest value is NumPy's."""
    expected = evaluate_case(case).summary
    flat = enable_jax().tree_util.tree_leaves
    for ours, theirs in zip(flat(found), flat(expected), strict=True):
        most = float(np.max(np.where(np.isfinite(theirs), theirs, 0.0)))
        # a clock found by halving may differ by one of its last steps
        if abs(float(ours) - most) > 1e-3 * abs(most):
            raise SystemExit(f"the device's largest value is {float(ours)!r}, NumPy's {most!r}")


def main() -> None:
    jax = enable_jax()
    device = jax.devices()[0]
    print(f"{device.platform}: {device.device_kind}")
    for links in [int(n) for n in sys.argv[1:]] or LINKS:
        print(json.dumps(measured(links)), flush=True)


if __name__ == "__main__":
    main()
