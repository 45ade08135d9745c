"""Inputs as a case, and graphs of a step and of one rank, worked out once for all evaluations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from strata.base.errors import BadValue
from strata.base.memo import Memo, is_settled, value_key
from strata.case import Case
from strata.hardware.fabric import with_library
from strata.hardware.money import Economics
from strata.hardware.system import System, as_system, economics_of
from strata.mapping.divide import as_divided
from strata.mapping.kernel_parallel import Strategy
from strata.mapping.layout import Layout, Sharding
from strata.mapping.plan import Plan, division
from strata.mapping.shard import shard
from strata.software.engine import Engine, as_engine, trainer_of
from strata.software.trainer import LIBRARY_EXCHANGE
from strata.workload.graph import Graph
from strata.workload.program import program as make_program
from strata.workload.protocol import Program
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
