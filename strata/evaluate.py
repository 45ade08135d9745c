"""The one screen: a case becomes a graph, a rank's graph, a placement, a priced step, and metrics.

trace -> shard -> place -> price -> summarise, for one point or for a box of them, in one set of equations.
Graphs of a step and of one rank are worked out once for all evaluations. One step can be looked at by itself:
what it is priced with, its price whether or not it fits, and its memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import map_leaves
from strata.batch import as_float64_box, run_box
from strata.case import Case
from strata.errors import BadValue, require
from strata.hardware.fabric import with_library
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system, economics_of
from strata.mapping.divide import as_divided
from strata.mapping.engine import Engine, as_engine, trainer_of
from strata.mapping.kernel_parallel import Strategy
from strata.mapping.layout import STAGES, Layout, Sharding
from strata.mapping.place import place
from strata.mapping.plan import Plan, division
from strata.mapping.plan_layout import TRAINING_GROUPS
from strata.mapping.shard import shard
from strata.mapping.trainer import LIBRARY_EXCHANGE
from strata.memo import Memo, is_settled, value_key
from strata.pricing.metrics import Summary, summarise
from strata.pricing.pricers import KernelPrices, Pricing, Structure
from strata.pricing.stage_costs import memory_by_stage, memory_in_step
from strata.pricing.step import Step, price
from strata.result import Result
from strata.stages import run_compiled
from strata.workload.graph import Graph
from strata.workload.program import Program
from strata.workload.program import program as make_program
from strata.workload.tasks import Workload

_PLANS, _ACTIVE = Memo(1024), Memo(1024)
_GRAPHS, _RANKS, _SHARDED = Memo(64), Memo(128), Memo(512)


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardedGraph:
    """A graph as a plan divides it: how, that of one rank, of one at half the batch where two halves may run
    beside each other, and what its blocks hold, as far as that was asked.
    """

    sharding: Sharding
    graph: Graph
    halves: Graph | None
    held: dict[Any, Any]


def case_of(
    system: System | str,
    program: Program | str,
    workload: Workload,
    plan: Plan | Layout | Strategy | str | None,
    engine: Engine | str,
    economics: Economics | None = None,
) -> Case:
    """What is asked, its names read, its plan looked at."""
    code = make_program(program) if isinstance(program, str) else program
    known = as_system(system)
    return Case(
        system=known, program=code, workload=workload, plan=_checked(code, plan), engine=as_engine(engine),
        economics=economics or economics_of(known),
    )  # fmt: skip


def _checked(program: Program, plan: Plan | Layout | Strategy | str | None) -> Plan | Layout:
    """A division of a program, looked at; a plan that was found right before is right."""
    if isinstance(plan, Plan) and _PLANS.of(value_key(plan), lambda: division(program, plan) is plan):
        return plan
    return division(program, plan)


def groups_of_plan(plan: Plan | Layout) -> frozenset[str]:
    """The groups of ranks that a plan makes, of several members at any point."""
    return _ACTIVE.of(value_key(plan), plan.active)


def step_graph(program: Program, work: Workload) -> Graph:
    """The graph of a step, undivided: one for all plans and systems."""
    key = value_key(work) if is_settled(program) else None
    return _GRAPHS.of(key and (program, key), lambda: program.trace(work))


def sharded(case: Case, work: Workload, graph: Graph, active: frozenset[str], training: bool) -> ShardedGraph:
    """The graph of a rank: one for all systems on which a plan divides it."""
    trainer = trainer_of(case.engine) if training else None
    by_halves = case.engine.overlap == "dual_batch" and bool(active) and isinstance(case.plan, Plan)

    def divided() -> ShardedGraph:
        sharding = case.plan.sharding(graph, work, active)
        if training:
            sharding = replace(sharding, trainer=trainer)
        rank_graph, held = rank_of_graph(sharding)
        if not any(ops for block in rank_graph.blocks for _, ops in block.at_nodes()):
            raise BadValue(
                f"{case.program.name} has nothing to run here: all its kernels are collectives over one rank"
            )
        halves = None
        if by_halves and isinstance(case.plan, Plan):
            half_batch = replace(case.plan, microbatches=2.0 * sharding.microbatches)
            halves = rank_of_graph(half_batch.sharding(graph, work, active))[0]
        return ShardedGraph(sharding=sharding, graph=rank_graph, halves=halves, held=held)

    def rank_of_graph(sharding: Sharding) -> tuple[Graph, dict[Any, Any]]:
        cut = as_divided(sharding)
        key = value_key(work, replace(cut, trainer=None)) if known else None
        return _RANKS.of(key and (fixed, key), lambda: (shard(graph, cut), {}))

    fixed = (case.program,) if trainer is None else (case.program, trainer)
    known = is_settled(*fixed)
    key = value_key(work, case.plan, active, by_halves) if known else None
    return _SHARDED.of(key and (fixed, key), divided)


def system_under_engine(case: Case, work: Workload) -> System:
    """The system whose fabric an engine's library of collectives runs on."""
    kernels = work.phase == "train" and trainer_of(case.engine).expert_exchange != LIBRARY_EXCHANGE
    fabric = with_library(case.system.fabric, case.engine.collectives, experts=kernels)
    return replace(case.system, fabric=fabric)


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
    prompt, generating = case.workload.steps()
    prefill = None if prompt is None else step_of(case, prompt, structure)
    decode = [(weight, step_of(case, work, structure)) for weight, work in generating]
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
        whole=graph,
        sharding=rank.sharding,
        placement=place(case.plan, system.fabric, active - idle),
        system=system,
        engine=case.engine,
        work=work,
        structure=structure,
        halves=rank.halves,
        held=rank.held,
    )


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
