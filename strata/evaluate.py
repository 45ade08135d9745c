"""The one screen: a case becomes a graph, a rank's graph, a placement, a priced step, and metrics.

trace -> shard -> place -> price -> summarise, for one point or for a box of them, in one set of equations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.arrays import cores, enable_jax, map_leaves
from strata.batch import as_float64_box, is_list, run_box, unlabelled
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
from strata.pricing.given import Pricing, Structure
from strata.pricing.pricers import KernelPrices
from strata.pricing.stage_memory import memory_by_stage, memory_in_step
from strata.pricing.step import Step, price
from strata.pricing.summary import Summary, summarise
from strata.result import Result
from strata.stages import staged
from strata.workload.graph import Graph
from strata.workload.program import Program
from strata.workload.program import program as make_program
from strata.workload.tasks import Workload

# Points that compiled code prices at once: of a list on a CPU, at least and at most of a box.
LIST_AT_ONCE, BOX_AT_LEAST, AT_MOST = 1 << 15, 1 << 16, 1 << 22


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
    return evaluate_case(_case(system, program, workload, plan, engine, economics), backend)


def evaluate_case(case: Case, backend: str = "numpy") -> Result:
    """The result of a case, on NumPy or compiled by JAX."""
    require(backend in ("numpy", "jax"), "backend must be numpy or jax", backend=backend)
    door, shape = as_float64_box(case)
    active = _ACTIVE.of(value_key(door.plan), door.plan.active)
    if backend == "jax":
        compiled = _compiled(active, len(shape))
        limit, workers = _at_once(shape)
        found = run_box(
            lambda c: _to_numpy(compiled(c)), unlabelled(door), shape, limit, even=True, workers=workers
        )
        return Result(case, shape, found, evaluate_case)
    structure = Structure(active, len(shape))
    if not shape:
        found, steps = summarised(door, structure)
        return Result(case, shape, map_leaves(float, found), evaluate_case, tuple(steps))
    return Result(case, shape, run_box(lambda c: summarised(c, structure)[0], door, shape), evaluate_case)


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
    door, shape, structure = _opened(system, program, workload, plan, engine)

    def held(part: Case) -> Any:
        return sum(memory_in_step(pricing_of(part, part.workload.steps()[1][-1][1], structure)).values(), 0.0)

    limit = float(np.min(system.chip.memory.capacity * as_engine(engine).gpu_memory_utilization))
    return np.asarray(run_box(held, door, shape) if shape else held(door)), limit


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


def _case(
    system: System | str,
    program: Program | str,
    workload: Workload,
    plan: Plan | Layout | Strategy | str | None,
    engine: Engine | str,
    economics: Economics | None = None,
) -> Case:
    """What is asked, its names read."""
    code = make_program(program) if isinstance(program, str) else program
    known = as_system(system)
    return Case(
        system=known, program=code, workload=workload, plan=_checked(code, plan), engine=as_engine(engine),
        economics=economics or economics_of(known),
    )  # fmt: skip


def _opened(*asked: Any) -> tuple[Case, tuple[int, ...], Structure]:
    """A case with arrays as the core takes them, their shape, and what is fixed for them."""
    door, shape = as_float64_box(_case(*asked))
    return door, shape, Structure(door.plan.active(), len(shape))


def summarised(case: Case, structure: Structure) -> tuple[Summary, list[Step]]:
    """Every step of a workload priced, and their metrics: pure and array-safe, the batched core."""
    reading, generating = case.workload.steps()
    prefill = None if reading is None else step_of(case, reading, structure)
    steps = [(weight, step_of(case, work, structure)) for weight, work in generating]
    found = summarise(case, steps, prefill)
    return found, ([] if prefill is None else [prefill]) + [step for _, step in steps]


def step_of(case: Case, work: Workload, structure: Structure) -> Step:
    """One step: what must be computed, divided, laid on the fabric, and priced."""
    given = pricing_of(case, work, structure)
    return price(given, KernelPrices(held=given.held))


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


def pricing_of(case: Case, work: Workload, structure: Structure) -> Pricing:
    """What a step is priced with: the graph of one rank, laid on the fabric."""
    engine = case.engine
    system = _with_library(case, engine, work)
    graph = _traced(case.program, work)
    if not (graph.sequence.prefix or graph.sequence.period):  # no layers, which alone are cut into stages
        structure = replace(structure, active=structure.active - {STAGES})
    active = structure.active
    training = any(block.direction == "backward" for block in graph.blocks)
    divided = _divided(case, work, graph, active, training)
    idle = frozenset() if training else TRAINING_GROUPS - ({"expert_dp"} if "fsdp" in active else set())
    placement = place(case.plan, system.fabric, active - idle)
    return Pricing(
        graph=divided.graph,
        whole=graph,
        sharding=divided.sharding,
        placement=placement,
        system=system,
        engine=engine,
        work=work,
        structure=structure,
        halves=divided.halves,
        held=divided.held,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Divided:
    """A graph as a plan divides it: how, that of one rank, of one at half the batch where two halves may run
    beside each other, and what its blocks hold, as far as that was asked.
    """

    sharding: Sharding
    graph: Graph
    halves: Graph | None
    held: dict[Any, Any]


_GRAPHS, _RANKS, _DIVIDED = Memo(64), Memo(128), Memo(512)
_PLANS, _ACTIVE = Memo(1024), Memo(1024)


def _checked(program: Program, plan: Plan | Layout | Strategy | str | None) -> Plan | Layout:
    """A division of a program, looked at; a plan that was found right before is right."""
    if isinstance(plan, Plan) and _PLANS.of(value_key(plan), lambda: division(program, plan) is plan):
        return plan
    return division(program, plan)


def _traced(program: Program, work: Workload) -> Graph:
    """The graph of a step, undivided: one for all plans and systems."""
    key = value_key(work) if is_settled(program) else None
    return _GRAPHS.of(key and (program, key), lambda: program.trace(work))


def _divided(case: Case, work: Workload, graph: Graph, active: frozenset[str], training: bool) -> Divided:
    """The graph of a rank: one for all systems on which a plan divides it."""
    trainer = trainer_of(case.engine) if training else None
    by_halves = case.engine.overlap == "dual_batch" and bool(active) and isinstance(case.plan, Plan)

    def made() -> Divided:
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
        return Divided(sharding=sharding, graph=rank_graph, halves=halves, held=held)

    def rank_of_graph(sharding: Sharding) -> tuple[Graph, dict[Any, Any]]:
        cut = as_divided(sharding)
        key = value_key(work, replace(cut, trainer=None)) if known else None
        return _RANKS.of(key and (fixed, key), lambda: (shard(graph, cut), {}))

    fixed = (case.program,) if trainer is None else (case.program, trainer)
    known = is_settled(*fixed)
    key = value_key(work, case.plan, active, by_halves) if known else None
    return _DIVIDED.of(key and (fixed, key), made)


def _with_library(case: Case, engine: Engine, work: Workload) -> System:
    """The system whose fabric an engine's library of collectives runs on."""
    kernels = work.phase == "train" and trainer_of(engine).expert_exchange != LIBRARY_EXCHANGE
    fabric = with_library(case.system.fabric, engine.collectives, experts=kernels)
    return replace(case.system, fabric=fabric)


@lru_cache(maxsize=64)
def _compiled(active: frozenset[str], rank: int) -> Any:
    structure = Structure(active, rank)
    return staged(lambda case: summarised(case, structure)[0])


def _at_once(shape: tuple[int, ...]) -> tuple[int, int]:
    """Points that compiled code prices at once, and how many such chunks side by side.

    On a CPU every core has its own: of a list what stays in its caches, of a box its share, so that small
    axes stay whole.
    """
    if enable_jax().default_backend() != "cpu":
        return AT_MOST, 1
    workers = cores()
    share = -(-math.prod(shape) // workers)
    return (LIST_AT_ONCE if is_list(shape) else min(max(share, BOX_AT_LEAST), AT_MOST)), workers


def _to_numpy(tree: Any) -> Any:
    jax = enable_jax()
    return jax.tree_util.tree_map(np.asarray, tree)
