"""The price of one step of a phase on one system under one plan: blocks priced once, stages and micro-batches
added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from strata.arrays import Number, choose, namespace
from strata.hardware.fabric import with_library
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.place import Placement, place
from strata.mapping.plan import Plan
from strata.mapping.shard import microbatches, shard
from strata.precision import bytes_of
from strata.pricing.block import PricedBlock, dual, price_block
from strata.pricing.footprint import GRADIENT_BYTES, training_state
from strata.pricing.host import chip_under_engine, launch_times, with_host
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.vector import vector
from strata.pricing.network.collectives import price_collective
from strata.pricing.overlap.equations import beside, price_where
from strata.pricing.pipeline import decode_cycle, pipeline_time, stage_bounds, stage_counts, stage_nodes
from strata.pricing.power_cap import optimistic_price, power_capped
from strata.pricing.price import ZERO, Price, total_price
from strata.workload.graph import Collective, Graph, Vector
from strata.workload.model import Model
from strata.workload.tasks import Workload
from strata.workload.transformer import trace

OP_KINDS = ("matmul", "experts", "attention", "vector", "collective")


@dataclass(frozen=True, eq=False)
class Structure:
    """What is fixed for a batch and hashed by a compiler: which collectives exist, and how many axes the box
    has.
    """

    active: frozenset[str]
    rank: int = 0
    for_bounds: bool = False  # prices below which no design of a box can be (search/bounds.py)

    @property
    def pipelined(self) -> bool:
        return "pp" in self.active


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its time, its parts for one device, and what it holds in memory."""

    time: Number  # until every sequence has its result
    stage: Number  # the slowest pipeline stage, one micro-batch
    pieces: Number  # micro-batches
    price: Price  # mean device: work of all micro-batches
    kinds: dict[str, Number]  # mean device time by kind of op
    lower: Number
    upper: Number
    memory: dict[str, Number]  # largest device, bytes by purpose
    flop: Number  # useful operations of the whole system
    clock: Number  # what limits of power and heat leave of the highest clock
    static: Number  # power of a device that flows whatever the load, at its temperature [W]
    logic: Number  # hottest place of logic and of DRAM [K]; nan where the chip's cooling is not described
    dram: Number
    holds: Number  # 1 where a device keeps its limits of power and heat at that clock
    blocks: tuple[PricedBlock, ...] = field(default=())


def price_step(
    system: System, model: Model, work: Workload, plan: Plan, engine: Engine, structure: Structure
) -> Step:
    """Trace, shard, place and price one step. Pure and array-safe: the same code for one point and for a
    batch.

    Communication runs beside computation as the engine has it, where a step is quicker that way: more work at
    once draws more power, so that a step at its power limit can be slower.
    """
    if engine.overlap == "none" or work.phase == "train" or not structure.active:
        return _price_step(system, model, work, plan, engine, structure)
    hiding, plain = (
        _price_step(system, model, work, plan, replace(engine, overlap=o), structure)
        for o in (engine.overlap, "none")
    )
    found = _quicker(hiding, plain)
    return replace(found, price=replace(found.price, saved=plain.price.time - found.price.time))


def _quicker(one: Step, other: Step) -> Step:
    """The quicker of two steps at each point."""
    better = one.time < other.time
    xp = namespace(one.time, other.time)

    def pick(a: Any, b: Any) -> Any:
        if isinstance(a, dict):
            return {key: pick(a[key], b[key]) for key in a}
        if isinstance(a, tuple):  # blocks are looked at for single points only
            return a if isinstance(better, bool | np.bool_) and better else b
        return price_where(better, a, b) if isinstance(a, Price) else xp.where(better, a, b)

    return Step(*(pick(getattr(one, f.name), getattr(other, f.name)) for f in fields(Step)))


def _device(system: System, model: Model, work: Workload, engine: Engine, structure: Structure) -> Device:
    """The chip as an engine's kernels find it in a step of this kind."""
    launch, expert_launch = launch_times(system.chip, engine, work)
    return device(
        system.chip,
        launch=launch,
        expert_launch=expert_launch,
        weight_only=model.weight_only,
        served=engine.kernels == "served",
        separate_quantize_share=engine.separate_quantize_share,
        fused=engine.fused,
        pads_remote_experts=engine.pads_remote_experts,
        shared_expert_stream=engine.shared_expert_stream,
        for_bounds=structure.for_bounds,
    )


def _price_step(
    system: System, model: Model, work: Workload, plan: Plan, engine: Engine, structure: Structure
) -> Step:
    training = work.phase == "train"
    system = replace(
        system,
        chip=chip_under_engine(system.chip, engine),
        fabric=with_library(system.fabric, engine.collectives),
    )
    whole = trace(model, work)
    graph = shard(whole, plan, work, structure.active)
    placement = place(plan, system.fabric, structure.active)
    dev = _device(system, model, work, engine, structure)
    blocks = tuple(
        price_block(b, dev, placement, system, plan, training, engine.page, engine.overlap)
        for b in graph.blocks
    )
    pieces = microbatches(plan, work)
    if engine.overlap == "dual_batch" and structure.active and not training:
        halves = shard(whole, replace(plan, microbatches=2.0 * pieces), work, structure.active)
        blocks = dual(
            blocks,
            tuple(price_block(b, dev, placement, system, plan, training) for b in halves.blocks),
            dev,
            placement,
            system.fabric,
        )
    send = _send(graph, placement, system, plan, structure, training)
    stages = _stages(model, plan, blocks, structure)
    forward, backward = _stage_times(blocks, stages, send)
    memory = _memory(blocks, stages, work, plan, engine, pieces, structure.pipelined)
    parts = total_price([(b.block.count, b.price + b.again if training else b.price) for b in blocks])
    mean = (
        (parts + send.times(plan.pp)).times(pieces / plan.pp) if structure.pipelined else parts.times(pieces)
    )
    kinds = _kinds(blocks, pieces, plan, send)
    slowest = forward + backward
    decoding = work.phase == "decode"
    time = (
        decode_cycle(slowest, plan.pp, pieces)
        if decoding
        else pipeline_time(slowest, plan.pp, pieces, plan.virtual_stages)
    )
    if training:
        extra = _update(
            blocks,
            system,
            dev,
            placement,
            plan,
            structure,
            backward,
            _busy_backward(blocks, stages, plan, structure),
        )
        mean, time = mean + extra, time + extra.time
        kinds["collective"] = kinds.get("collective", 0.0) + extra.network
        kinds["vector"] = kinds.get("vector", 0.0) + extra.time - extra.network
    mean = optimistic_price(mean, time, _apart(plan, engine)) if structure.for_bounds else mean
    held = power_capped(mean, system.chip, time / mean.time)
    stretch, kinds = held.price.time / mean.time, _slowed(kinds, mean, held.price)
    mean, time, slowest = held.price, time * stretch, slowest * stretch
    lower = namespace(mean.lower, time).minimum(mean.lower, time)
    upper = namespace(mean.upper, time).maximum(mean.upper + (time - mean.time), time)
    hosted = with_host(time, engine, graph, work, plan)
    return Step(
        hosted,
        slowest,
        pieces,
        mean,
        kinds,
        lower,
        upper + (hosted - time),
        memory,
        whole.flop(),
        held.share,
        held.static,
        held.logic,
        held.dram,
        1.0 if structure.for_bounds else held.holds,
        blocks,
    )


def _apart(plan: Plan, engine: Engine) -> Number:
    """Whether no communication of a step runs beside its kernels: neither tiles nor halves, no gathered
    weights, no ring.
    """
    return (plan.zero < 3) & (plan.cp_mode != 1.0) if engine.overlap == "none" else plan.zero < 0


def _slowed(kinds: dict[str, Number], full: Price, held: Price) -> dict[str, Number]:
    """Times by kind of op at the clock that is held: collectives keep theirs, the rest shares what was lost."""
    on_chip = full.time - full.network
    xp = namespace(on_chip)
    stretch = (held.time - held.network) / xp.where(on_chip > 0.0, on_chip, 1.0)
    return {kind: time if kind == "collective" else time * stretch for kind, time in kinds.items()}


def _send(
    graph: Graph, placement: Placement, system: System, plan: Plan, structure: Structure, training: bool
) -> Price:
    """One micro-batch's activations to the next stage, and their gradients back in training."""
    if not structure.pipelined:
        return ZERO
    norm = next(
        op
        for block in graph.blocks
        for op in block.ops
        if op.name == "attention_norm" and isinstance(op, Vector)
    )
    payload = norm.elements() * bytes_of(norm.precision)
    op = Collective("to_next_stage", "", (), "hidden", "send", "pp", payload)
    price = price_collective(op, placement.groups["pp"], system.fabric)
    return price.times(2.0) if training else price


def _stages(model: Model, plan: Plan, blocks: tuple[PricedBlock, ...], structure: Structure) -> list[Number]:
    """How often each block stands in the stages that can be slowest (leading axis), or in the whole model
    without a pipeline.
    """
    if not structure.pipelined:
        return [b.block.count for b in blocks]
    nodes = stage_nodes(plan.pp, model.layers, len(model.pattern.period), structure.rank)
    xp = namespace(nodes)
    start, size = stage_bounds(model.layers, plan.pp, nodes)
    counts = []
    for b in blocks:
        if b.block.part == -1:
            counts.append(xp.where(nodes == 0.0, 1.0, 0.0))
        elif b.block.part == -2:
            counts.append(xp.where(nodes == plan.pp - 1.0, 1.0, 0.0))
        else:
            counts.append(stage_counts(model.pattern, b.block.part, b.block.layer, start, size))
    return counts


def _stage_times(blocks: tuple[PricedBlock, ...], counts: list[Number], send: Price) -> tuple[Number, Number]:
    """Forward and backward time of the slowest stage for one micro-batch; what is recomputed belongs to the
    backward pass.
    """
    sums: dict[str, Number] = {"forward": 0.0, "backward": 0.0}
    pipelined = send is not ZERO
    for b, count in zip(blocks, counts, strict=True):
        sums[b.block.passes] = sums[b.block.passes] + count * b.price.time
        if b.again is not ZERO:
            sums["backward"] = sums["backward"] + count * b.again.time
    forward, backward = sums["forward"], sums["backward"]
    if not pipelined:
        return forward, backward
    xp = namespace(forward, backward)
    slowest = xp.max(forward + backward, axis=0)
    share = xp.max(forward, axis=0)
    return share + send.time, slowest - share


def _kinds(blocks: tuple[PricedBlock, ...], pieces: Number, plan: Plan, send: Price) -> dict[str, Number]:
    """Mean device time by kind of op over the step."""
    sums: dict[str, Number] = {}
    for b in blocks:
        for kind, time in b.kinds.items():
            sums[kind] = sums.get(kind, 0.0) + b.block.count * time
    if send is not ZERO:
        sums["collective"] = sums.get("collective", 0.0) + send.time * plan.pp
        return {kind: time * pieces / plan.pp for kind, time in sums.items()}
    return {kind: time * pieces for kind, time in sums.items()}


def _memory(
    blocks: tuple[PricedBlock, ...],
    counts: list[Number],
    work: Workload,
    plan: Plan,
    engine: Engine,
    pieces: Number,
    pipelined: bool,
) -> dict[str, Number]:
    """Bytes by purpose on the stage that holds most."""
    training = work.phase == "train"
    weights: Number = 0.0
    state: Number = 0.0
    cache: Number = 0.0
    kept: Number = 0.0
    scratch: Number = 0.0
    for b, count in zip(blocks, counts, strict=True):
        weights = weights + count * (b.held.weights if training else _sharded(b, plan))
        if pipelined:  # a head tied to the embedding needs its own copy where another stage holds that
            weights = weights + count * namespace(plan.pp, b.held.tied).where(plan.pp > 1, b.held.tied, 0.0)
        if training and b.block.passes == "forward":
            state = state + count * _state(b, plan)
        cache = cache + count * b.held.cache
        if b.block.passes == "forward":
            kept = kept + count * _kept(b, plan)
        alive = b.held.scratch if training else b.held.scratch + _brought(b, plan)
        scratch = namespace(scratch, alive).maximum(scratch, alive)
    if training:
        in_flight = namespace(plan.pp, pieces).minimum(plan.pp, pieces)
        parts = {"weights": state, "activations": kept * in_flight}
    else:
        parts = {"weights": weights, "cache": cache * pieces}
    if pipelined:
        xp = namespace(*parts.values())
        summed: Number = sum(parts.values(), 0.0)
        parts = dict(
            zip(
                parts,
                choose(1.0 / (summed + 1.0), *(xp.broadcast_to(v, summed.shape) for v in parts.values())),
                strict=True,
            )
        )
    return {**parts, "scratch": scratch, "reserve": engine.reserve}


def _sharded(b: PricedBlock, plan: Plan) -> Number:
    """Weights of one repetition of a block that a device stores in inference: with zero=3 its share of what
    several hold.
    """
    xp = namespace(plan.zero, plan.dp, plan.moe_groups)
    routed, sharded = b.held.expert_share, (plan.zero > 2) & (plan.dp > 1)
    held = (1.0 - routed) / xp.where(sharded, plan.dp, 1.0) + routed / xp.where(sharded, plan.moe_groups, 1.0)
    return b.held.weights * held


def _brought(b: PricedBlock, plan: Plan) -> Number:
    """Weights brought together for the block that runs and for the next, beside the shares that devices store
    [B].
    """
    return 2.0 * (b.held.weights - _sharded(b, plan))


def _state(b: PricedBlock, plan: Plan) -> Number:
    """Weights, gradients and optimiser state of one repetition of a block; copies of experts are fewer than
    copies of the rest.
    """
    rest = 1.0 - b.held.expert_share
    dense = training_state(b.held.parameters * rest, b.held.weights * rest, plan.zero, plan.dp * plan.cp)
    if isinstance(b.held.expert_share, float) and b.held.expert_share == 0.0:
        return dense
    return dense + training_state(
        b.held.parameters * b.held.expert_share,
        b.held.weights * b.held.expert_share,
        plan.zero,
        plan.moe_groups,
    )


def _kept(b: PricedBlock, plan: Plan) -> Number:
    """Activations of one block kept for its backward pass: all, or only its input where layers are
    recomputed.
    """
    kept = b.held.activations
    if isinstance(kept, float) and kept == 0.0:
        return 0.0
    entry = next((op for op in b.block.ops if isinstance(op, Vector)), None)
    # Each half of a layer keeps its own input, the residual stream.
    boundary = (
        0.5 * entry.elements() * bytes_of(entry.precision)
        if entry is not None and b.block.part >= 0
        else kept
    )
    return namespace(plan.recompute, kept).where(plan.recompute > 1, boundary, kept)


def _busy_backward(
    blocks: tuple[PricedBlock, ...], counts: list[Number], plan: Plan, structure: Structure
) -> Number:
    """Time of a backward pass in which the links that gradients need are taken: its own collectives and those
    of recomputed layers.
    """
    again = namespace(plan.recompute).where(plan.recompute > 1, 1.0, 0.0)
    busy: Number = 0.0
    for b, count in zip(blocks, counts, strict=True):
        busy = busy + count * b.busy * (1.0 if b.block.passes == "backward" else again)
    return namespace(busy).max(busy, axis=0) if structure.pipelined else busy


def _update(
    blocks: tuple[PricedBlock, ...],
    system: System,
    dev: Device,
    placement: Placement,
    plan: Plan,
    structure: Structure,
    backward: Number,
    busy: Number,
) -> Price:
    """Gradients summed over data parallel ranks, and the optimiser.

    The sum runs beside the last backward pass, as far as that pass leaves the links free.
    """
    forward = [b for b in blocks if b.block.passes == "forward"]
    held = sum((b.block.count * b.held.parameters for b in forward), 0.0) / plan.pp
    experts = sum((b.block.count * b.held.parameters * b.held.expert_share for b in forward), 0.0) / plan.pp
    xp = namespace(plan.zero, plan.dp, plan.moe_groups)
    copies, expert_copies = (xp.where(plan.zero > 0, c, 1.0) for c in (plan.dp * plan.cp, plan.moe_groups))
    owned = (held - experts) / copies + experts / expert_copies
    # Adam reads gradient, weight copy and two moments and writes three of them and the working weight: 16 +
    # 14 bytes.
    update = vector(16.0 * owned, 14.0 * owned, 12.0 * owned, owned, dev)
    if "dp" not in structure.active:
        return update
    op = Collective(
        "sum_gradients",
        "",
        (),
        "gradients",
        "all_reduce",
        "dp",
        (held - xp.where(plan.moe_groups > 1, 0.0, experts)) * GRADIENT_BYTES,
    )
    price = price_collective(op, placement.groups["dp"], system.fabric)
    left = beside(price.time, backward, busy)
    return update + Price(
        time=left, network=left, upper=price.time, link_energy=price.energy, energy=price.energy
    )
