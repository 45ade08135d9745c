"""The one screen: a case becomes a graph, a rank's graph, a placement, a priced step, and metrics.

trace -> shard -> place -> price -> summarise, for one point or for a box of them, in one set of equations.
"""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import map_leaves
from strata.base.batch import as_float64_box, run_box
from strata.base.errors import require
from strata.base.stages import run_compiled
from strata.case import Case
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.mapping.kernel_parallel import Strategy
from strata.mapping.layout import STAGES, Layout
from strata.mapping.place import place
from strata.mapping.plan import Plan
from strata.mapping.plan_layout import TRAINING_GROUPS
from strata.pricing.metrics import Summary, summarise
from strata.pricing.pricers import KernelPrices, Pricing, Structure
from strata.pricing.step import Step, price
from strata.result import Result
from strata.sharded import case_of, groups_of_plan, sharded, step_graph, system_under_engine
from strata.software.engine import Engine
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


def evaluate(
    system: System | str,
    program: Program | str,
    workload: Workload,
    plan: Plan | Layout | Strategy | str | None = None,
    engine: Engine | str = "ideal",
    *,
    economics: Economics | None = None,
    backend: str = "numpy",
) -> Result:
    """Predict a workload of a program (a model, by its name) on a system under a plan, layout or strategy.

    Any number may be an array; the result then is a box.

    >>> r = evaluate("8xh200", "llama-3-70b", __import__("strata").decode(batch=64, context=2048), "tp=8")
    >>> r.fits, r.bound_by, 5e3 < r.metrics.tokens_per_s < 2e4
    (True, 'memory', True)
    """
    return evaluate_case(case_of(system, program, workload, plan, engine, economics), backend)


def evaluate_case(case: Case, backend: str = "numpy") -> Result:
    """The result of a case, on NumPy or compiled by JAX."""
    require(backend in ("numpy", "jax"), "backend must be numpy or jax", backend=backend)
    given, shape = as_float64_box(case)
    active = groups_of_plan(given.plan)
    if backend == "jax":
        return Result(case, shape, run_compiled(summary_of, given, shape, active, len(shape)), evaluate_case)
    if shape:
        box = run_box(lambda part: summary_of(part, active, len(shape)), given, shape)
        return Result(case, shape, box, evaluate_case)
    summary, steps = summarised(given, Structure(active))
    return Result(case, shape, map_leaves(float, summary), evaluate_case, tuple(steps))


def summary_of(case: Case, active: frozenset[str], rank: int) -> Summary:
    """Metrics alone, of a box of so many axes under plans with these groups."""
    return summarised(case, Structure(active, rank))[0]


def summarised(case: Case, structure: Structure) -> tuple[Summary, list[Step]]:
    """Every step of a workload priced, and their metrics: pure and array-safe, the batched core."""
    prompts, generations = case.workload.steps()
    prefill = None if prompts is None else step_of(case, prompts, structure)
    decode = [(weight, step_of(case, work, structure)) for weight, work in generations]
    summary = summarise(case, decode, prefill)
    return summary, ([] if prefill is None else [prefill]) + [step for _, step in decode]


def step_of(case: Case, work: Workload, structure: Structure) -> Step:
    """One step: what must be computed, divided, laid on the fabric, and priced."""
    given = pricing_of(case, work, structure)
    return price(given, KernelPrices(held=given.held))


def pricing_of(case: Case, work: Workload, structure: Structure) -> Pricing:
    """What a step is priced with: the graph of one rank, laid on the fabric."""
    graph = step_graph(case.program, work)
    if not (graph.sequence.prefix or graph.sequence.period):  # no layers, which alone are cut into stages
        structure = replace(structure, active=structure.active - {STAGES})
    active = structure.active
    training = any(block.direction == "backward" for block in graph.blocks)
    rank = sharded(case, work, graph, active, training)
    idle = frozenset() if training else TRAINING_GROUPS - ({"expert_dp"} if "fsdp" in active else set())
    system = system_under_engine(case, work)
    return Pricing(
        graph=rank.graph,
        unsharded_graph=graph,
        sharding=rank.sharding,
        placement=place(case.plan, system.fabric, active - idle),
        system=system,
        engine=case.engine,
        work=work,
        structure=structure,
        halves=rank.halves,
        held=rank.held,
    )
