"""Fused partitions under layouts that are given: those of a plan, or those a program names itself.

What the search over layouts cannot divide op by op (routed experts of language models) is divided by a plan;
the partitions of every block are still the best there are, with their proof.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from strata.base.errors import BadValue
from strata.evaluate import evaluate, pricing_of
from strata.hardware.system import System, as_system
from strata.mapping.layout import STAGES, Layout
from strata.mapping.plan import Plan, divides_itself, division, division_text
from strata.optimise.fuse import fuse_kernels
from strata.optimise.fusion.fusion_graph import TILES, MapSpace, fused_space
from strata.optimise.joint import ProgramMapping, map_settings
from strata.optimise.layout import LayoutSetting, first_step
from strata.optimise.layouts.layout_degrees import DegreeCandidate, group_time
from strata.optimise.mappings.joint_problem import LayerMapping, MappedBlock, MapSettings, block_problems
from strata.optimise.mappings.joint_search import MappedStep
from strata.pricing.fusion_rules import FusionRules, fusion_rules
from strata.pricing.pipeline import pipeline_time
from strata.pricing.pricers import Pricing, Structure, rank_in_step
from strata.result import why_infeasible
from strata.search.plan_for import plan_for
from strata.software.engine import Engine
from strata.workload.graph import is_collective
from strata.workload.program import program as make_program
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


def map_planned(
    program: Program | str,
    system: System | str,
    workload: Workload,
    *,
    plan: str | Plan | Layout = "",
    rules: str | FusionRules = "strata",
    tiles: Sequence[int] = TILES,
    engine: Engine | str = "ideal",
    together: float = 1.0,
) -> ProgramMapping:
    """The best fused partitions of every block under the layouts of a plan, with their proof; "" takes the
    best legal plan of a language model.

    >>> import strata as st
    >>> found = map_planned("mixtral-8x7b", "8xsn10", st.decode(batch=1, context=2048), plan="tp=8")
    >>> found.optimal, found.given, found.best.candidate.mesh["tp"]
    (True, 'tp=8', 8.0)
    """
    began, machine = time.perf_counter(), as_system(system)
    code = make_program(program) if isinstance(program, str) else program
    pricing, division, memory = planned_pricing(machine, code, workload, plan, engine)
    told = map_settings(code, pricing.work, fusion_rules(rules), tiles, (), together)
    best, bound, reason = planned_step(pricing, told, division, memory)
    return ProgramMapping(
        best=best,
        bound=bound,
        candidates=1,
        bounded=0,
        nodes=0,
        layouts=1,
        space=None if best is None else planned_space(best.layer.blocks),
        seconds=time.perf_counter() - began,
        reason=reason,
        stopped=False,
        collectives=tuple(op for _, op in pricing.graph.ops() if is_collective(op)),
        given=division_text(division),
    )


def routes_tokens(program: Program, workload: Workload) -> bool:
    """Whether a program sends tokens to experts of their own choice, which only plans divide."""
    return any(op.route for _, op in program.trace(first_step(workload)).ops())


def planned_pricing(
    system: System, program: Program, workload: Workload, plan: str | Plan | Layout, engine: Engine | str
) -> tuple[Pricing, Plan | Layout, float]:
    """The graph of one rank under a plan, that plan, and the bytes a device needs; the best legal plan where
    none is named.
    """
    if workload.phase == "train":
        raise BadValue(
            "training is not mapped under a plan's layouts, prefill and decode are; "
            "`strata predict` prices it"
        )
    if not plan and not divides_itself(program):
        found = plan_for(system, program, workload, engine, top=1, at_once=True).nearest
    else:
        found = evaluate(system, program, workload, division(program, plan), engine)
    if not found.fits:
        raise BadValue(why_infeasible(found))
    structure = Structure(found.plan.active(), 0)
    pricing = pricing_of(found.case, first_step(workload), structure)
    return pricing, found.plan, float(found.metrics.memory_used)


def planned_step(
    pricing: Pricing, told: MapSettings, plan: Plan | Layout, memory: float
) -> tuple[MappedStep | None, float, str]:
    """The step with the best partitions of every block, the time below which none is, and why none fits."""
    work, rank = pricing.work, rank_in_step(pricing)
    setting = LayoutSetting(graph=pricing.unsharded_graph, work=work, mesh={}, rank=rank)
    blocks: list[MappedBlock] = []
    for one in block_problems(pricing.graph, setting, told, pricing.sharding):
        fused = fuse_kernels(one.problem)
        if not fused.feasible:
            return None, float("inf"), f"block {one.block}: {fused.reason}"
        blocks.append(MappedBlock(block=one.block, times=one.times, problem=one.problem, fusion=fused))
    stages, pieces = float(pricing.sharding.stages), float(pricing.sharding.microbatches)
    layers = float(pricing.unsharded_graph.sequence.layers) or 1.0
    share, send = float(np.ceil(layers / stages)) / layers, 0.0
    entry = next((b.entry for b in pricing.graph.blocks if b.entry is not None), None)
    if STAGES in pricing.placement.groups and entry is not None:
        send = group_time("send", STAGES, entry.bytes(), pricing.placement, rank.fabric)
    whole, least = (
        share * sum(b.times * t for b, t in zip(blocks, times, strict=True))
        for times in ([b.fusion.time for b in blocks], [b.fusion.lower_bound for b in blocks])
    )
    layer = LayerMapping(
        layout=plan if isinstance(plan, Layout) else Layout({}),
        options={},
        blocks=tuple(blocks),
        time=whole / share,
        kept=memory,
    )
    mesh = {name: float(n) for name, n in mesh_degrees(plan).items()}
    made = MappedStep(
        candidate=DegreeCandidate(mesh=mesh, microbatches=pieces, placement=pricing.placement),
        layer=layer,
        step=float(pipeline_time(whole + send, stages, pieces)),
        stage=whole,
        send=send,
        gradients=0.0,
        memory=memory,
    )
    return made, float(pipeline_time(least + send, stages, pieces)), ""


def mesh_degrees(plan: Plan | Layout) -> dict[str, float]:
    """Degrees of a plan or layout that divide something, by name."""
    if isinstance(plan, Layout):
        return {name: float(np.max(n)) for name, n in plan.mesh.items()}
    names = ("tp", "cp", "dp", "pp", "ep", "moe_tp")
    return {name: float(getattr(plan, name)) for name in names}


def planned_space(blocks: Sequence[MappedBlock]) -> MapSpace | None:
    """How many partitions of all blocks there are under one layout; None where they are too many to count."""
    found = fused_space(b.problem for b in blocks)
    if found is None:
        return None
    counts = f"{found[1]}, for every block, under one layout"
    return MapSpace(candidates=1, layouts=1, fusions=found[0], mappings=found[0], counts=counts)
