"""price(): a rank's graph becomes one step: blocks priced once, stages and micro-batches added up, the clock
that is held.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from strata.arrays import Mask, Number, namespace
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.layout import Sharding
from strata.mapping.place import Placement
from strata.pricing.block import PricedBlock, one_by_one, overlapped, price_block, two_halves
from strata.pricing.footprint import GRADIENT_BYTES, memory_by_purpose, resident_bytes
from strata.pricing.fused_tensors import tensor_sizes
from strata.pricing.host import chip_under_engine, launch_times, with_host, with_sampling
from strata.pricing.kernels.device import device, software_of
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.memory_ring import with_ring_memory
from strata.pricing.overlap.equations import beside, price_where
from strata.pricing.pipeline import (
    decode_cycle,
    ends_apart_counts,
    line_time,
    pipeline_time,
    stage_counts,
    stage_nodes,
)
from strata.pricing.power_cap import optimistic_price, step_capped
from strata.pricing.price import ZERO, Price, bound_times, kinds_at_clock, network_price, total_price
from strata.pricing.pricers import Rank
from strata.workload.graph import Collective, Graph, is_collective
from strata.workload.tasks import Workload

OP_KINDS = ("matmul", "experts", "attention", "vector", "collective")


@dataclass(frozen=True, eq=False)
class Structure:
    """What is fixed for a batch and hashed by a compiler: which collectives exist, and how many axes the box
    has.
    """

    active: frozenset[str]
    rank: int = 0
    for_bounds: bool = False  # prices below which no design of a box can be (search/bounds.py)
    slowest: bool = False  # of several ways to run a step the slowest, above which no design of a box can be

    @property
    def pipelined(self) -> bool:
        return "pp" in self.active


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step: its time, its parts for one device, and what it holds in memory."""

    time: Number  # until every sequence has its result
    stage: Number  # the slowest pipeline stage, one micro-batch
    microbatches: Number
    price: Price  # mean device: work of all micro-batches
    time_by_kind: dict[str, Number]  # mean device, by category of op
    time_by_bound: dict[str, Number]  # by what binds a mean device and what it waits for: adds up to the time
    lower: Number
    upper: Number
    memory: dict[str, Number]  # largest device, bytes by purpose
    flop: Number  # useful operations of the whole system
    items: Number  # what the step yields
    item: str  # what one is called
    formats: tuple[tuple[str, str], ...]  # of its products
    clock: Number  # what limits of power and heat leave of the highest clock
    static: Number  # power of a device that flows whatever the load, at its temperature [W]
    logic: Number  # hottest place of logic and of DRAM [K]; nan where the chip's cooling is not described
    dram: Number
    within_limits: Number  # 1 where a device keeps its limits of power and heat at that clock
    blocks: tuple[PricedBlock, ...] = field(default=())


@dataclass(frozen=True, eq=False, kw_only=True)
class Pricing:
    """What the step of a rank's graph is priced with."""

    graph: Graph  # of one rank
    whole: Graph  # undivided
    sharding: Sharding
    placement: Placement
    system: System
    engine: Engine
    work: Workload
    structure: Structure
    halves: Graph | None = None  # of one rank at half the batch, where two halves may run beside each other

    @property
    def training(self) -> bool:
        return any(block.direction == "backward" for block in self.graph.blocks)


def price(given: Pricing) -> Step:
    """Price one step. Pure and array-safe: the same code for one point and for a batch.

    Kernels are fused, and communication runs beside computation as the engine has it, where a step is quicker
    that way: more work at once draws more power, so that a step at its power limit can be slower. Tiles or
    halves hide beside kernels one by one; fused kernels pass their tiles on to the links already.
    """
    engine, training, sharding = given.engine, given.training, given.sharding
    rank, slowest = rank_in_step(given), given.structure.slowest

    def priced(graph: Graph, page: Number) -> tuple[PricedBlock, ...]:
        sizes = tensor_sizes(graph) if rank.device.fuses else None
        return tuple(
            price_block(b, rank, sharding, training=training, page=page, sizes=sizes) for b in graph.blocks
        )

    def apart(blocks: tuple[PricedBlock, ...]) -> tuple[PricedBlock, ...]:
        return tuple(one_by_one(b, rank, sharding, training=training) for b in blocks)

    blocks = priced(given.graph, engine.page)
    hiding = training and engine.overlap != "none"  # it has no other way to run: bounds take it so too
    plain = _step(given, rank, blocks, hiding=hiding)
    blocks = apart(blocks)
    if rank.device.fuses and not given.structure.for_bounds:
        plain = _quicker(_step(given, rank, blocks, hiding=hiding), plain, slowest)
    if engine.overlap == "none" or training or not given.structure.active:
        return plain
    if engine.overlap == "dual_batch" and given.halves is not None:
        halves = apart(priced(given.halves, 1.0))
        overlapping = two_halves(blocks, halves, given.graph.sequence, rank)
    else:
        overlapping = tuple(overlapped(b, rank, sharding) for b in blocks)
    found = _quicker(_step(given, rank, overlapping, hiding=True), plain, slowest)
    return replace(found, price=replace(found.price, saved=plain.price.time - found.price.time))


def rank_in_step(given: Pricing) -> Rank:
    """One rank as an engine's kernels find it in a step of this kind."""
    chip, engine = chip_under_engine(given.system.chip, given.engine), given.engine
    launch, expert_launch = launch_times(chip, engine, given.work)
    software = software_of(
        engine,
        launch=launch,
        expert_launch=expert_launch,
        weight_only=given.graph.weight_only,
        for_bounds=given.structure.for_bounds,
    )
    dev = device(chip, software)
    return Rank(device=dev, placement=given.placement, fabric=with_ring_memory(given.system.fabric, dev))


def _quicker(one: Step, other: Step, slowest: bool = False) -> Step:
    """The quicker of two steps at each point, or that which keeps the limits of power and heat; or the slower
    one.
    """
    kept, before = one.within_limits, other.within_limits
    quicker = (kept > before) | ((kept == before) & (one.time < other.time))
    better = one.time > other.time if slowest else quicker
    xp = namespace(one.time, other.time)

    def pick(a: Any, b: Any) -> Any:
        if isinstance(a, dict):
            return {key: pick(a[key], b[key]) for key in a}
        if isinstance(a, str):
            return a
        if isinstance(a, tuple):  # blocks are looked at for single points only
            return a if isinstance(better, bool | np.bool_) and better else b
        return price_where(better, a, b) if isinstance(a, Price) else xp.where(better, a, b)

    return Step(**{f.name: pick(getattr(one, f.name), getattr(other, f.name)) for f in fields(Step)})


def _step(given: Pricing, rank: Rank, blocks: tuple[PricedBlock, ...], *, hiding: bool) -> Step:
    """A step of priced blocks: stages of a pipeline, micro-batches, the update, and the clock that all of it
    leaves. `hiding`: collectives run beside kernels, by tiles or by halves.
    """
    sharding, structure, training = given.sharding, given.structure, given.training
    stages, pieces = sharding.stages, sharding.microbatches
    send = stage_send(given, rank)
    counts = _stage_counts(given, blocks)
    forward, backward = _stage_times(blocks, counts, send)
    slowest = forward + backward
    mean, kinds = _mean_device(blocks, send, sharding, training, structure.pipelined)
    if given.work.phase == "decode":
        time = decode_cycle(slowest, stages, pieces)
    elif sharding.deepflow:
        time = _deepflow_time(given, blocks, counts, send)
    else:
        time = pipeline_time(slowest, stages, pieces, sharding.virtual_stages * sharding.handovers)
    if training:
        extra = _update(given, rank, blocks, backward, _busy_backward(blocks, counts, sharding, structure))
        mean, time = mean + extra, time + extra.time
        kinds["collective"] = kinds.get("collective", 0.0) + extra.network
        kinds["vector"] = kinds.get("vector", 0.0) + extra.time - extra.network
    host = (given.engine, given.graph, given.work, sharding)
    if structure.for_bounds:
        mean = optimistic_price(mean, time, _apart(given, hiding))
    else:
        mean = with_sampling(mean, rank.device.chip, *host)
    held = step_capped(mean, rank.device.chip, time, with_host(time, *host) - time)
    stretch, kinds = held.price.time / mean.time, kinds_at_clock(kinds, mean, held.price)
    full, mean, time = mean, held.price, time * stretch
    hosted = with_host(time, *host)
    memory = memory_by_purpose(
        [(b.block, b.held) for b in blocks],
        counts,
        sharding,
        training=training,
        pipelined=structure.pipelined,
    )
    xp = namespace(mean.lower, mean.upper, time)
    return Step(
        time=hosted,
        stage=slowest * stretch,
        microbatches=pieces,
        price=mean,
        time_by_kind=kinds,
        time_by_bound=bound_times(full, mean, time, hosted),
        lower=xp.minimum(mean.lower, time),
        upper=xp.maximum(mean.upper + (time - mean.time), time) + (hosted - time),
        memory={**memory, **resident_bytes(given.graph, sharding), "reserve": given.engine.reserve},
        flop=given.whole.flop(),
        items=given.whole.items,
        item=given.whole.item,
        formats=given.whole.formats,
        clock=held.share,
        static=held.static,
        logic=held.logic,
        dram=held.dram,
        within_limits=1.0 if structure.for_bounds else held.holds,
        blocks=blocks,
    )


def _apart(given: Pricing, hiding: bool) -> Mask:
    """Whether no communication of a step runs beside its kernels: neither tiles nor halves, no gathered
    weights, no ring.
    """
    zero = given.sharding.zero
    if hiding:
        return zero < 0
    apart = zero < 3
    for alternative in given.sharding.alternatives:
        if alternative.ring and alternative.mask is not None:
            apart = apart & (
                not alternative.mask if isinstance(alternative.mask, bool) else ~alternative.mask
            )
    return apart


def stage_send(given: Pricing, rank: Rank) -> Price:
    """One micro-batch's activations to the next stage, and their gradients back in training: what layers take
    in.
    """
    if not given.structure.pipelined:
        return ZERO
    order = given.graph.sequence
    entries = (b.entry for b in given.graph.blocks if b.entry is not None and order.starts_layer(b.name))
    op = Collective(name="to_next_stage", pattern="send", group="pp", payload=next(entries).bytes())
    once = price_collective(op, rank.placement.groups["pp"], rank.fabric)
    return once.times(given.sharding.handovers * (2.0 if given.training else 1.0))


def _stage_counts(given: Pricing, blocks: tuple[PricedBlock, ...]) -> list[Number]:
    """How often each block stands in the stages that can be slowest (leading axis), or in all without a
    pipeline.
    """
    if not given.structure.pipelined:
        return [b.block.count for b in blocks]
    order, stages = given.graph.sequence, given.sharding.stages
    nodes = stage_nodes(stages, order.layers, len(order.period), given.structure.rank)
    if given.sharding.deepflow:
        inner = stage_nodes(stages, order.layers, len(order.period), given.structure.rank, ends=1.0)
        nodes = namespace(nodes, inner).concatenate([nodes, inner])
    counted = ends_apart_counts if given.sharding.deepflow else stage_counts
    return [counted(order, b.block.gradient_of or b.block.name, stages, nodes) for b in blocks]


def _deepflow_time(
    given: Pricing, blocks: tuple[PricedBlock, ...], counts: list[Number], send: Price
) -> Number:
    """Time of an LSTM's step as DeepFlow's program has it: each pass a wave of time steps over stages, then
    sums of gradients, those of every block on links of their own.
    """
    sharding, pipelined = given.sharding, given.structure.pipelined
    found: Number = 0.0
    last: Number = 0.0
    for direction in ("forward", "backward"):
        total: Number = 0.0
        by_stage: Number = 0.0
        for b, count in zip(blocks, counts, strict=True):
            if b.block.direction != direction:
                continue
            if all(is_collective(op) for op in b.block.ops):  # once, beside all time steps
                held = namespace(count).max(count, axis=0) if pipelined else count
                last = namespace(last, held, b.price.time).maximum(last, held * b.price.time)
                continue
            total = total + block_runs(b, b.block.count) * b.price.time
            by_stage = by_stage + block_runs(b, count) * b.price.time
        if not pipelined:
            found = found + total
            continue
        passes = 2.0 if given.training else 1.0
        hand_over = send.time / (passes * sharding.handovers)
        slowest = namespace(by_stage).max(by_stage, axis=0)
        if given.training or direction == "forward":
            found = found + line_time(total, slowest, sharding.stages, sharding.handovers, hand_over)
    return found + last


def _stage_times(blocks: tuple[PricedBlock, ...], counts: list[Number], send: Price) -> tuple[Number, Number]:
    """Forward and backward time of the slowest stage for one micro-batch; what is recomputed belongs to the
    backward pass.
    """
    sums: dict[str, Number] = {"forward": 0.0, "backward": 0.0}
    for b, count in zip(blocks, counts, strict=True):
        runs = block_runs(b, count)
        sums[b.block.direction] = sums[b.block.direction] + runs * b.price.time
        if b.again is not ZERO:
            sums["backward"] = sums["backward"] + runs * b.again.time
    forward, backward = sums["forward"], sums["backward"]
    if send is ZERO:
        return forward, backward
    xp = namespace(forward, backward)
    slowest, share = xp.max(forward + backward, axis=0), xp.max(forward, axis=0)
    return share + send.time, slowest - share


def block_runs(b: PricedBlock, count: Number) -> Number:
    """How often so many copies of a block run."""
    repeats = b.block.repeats
    return count if isinstance(repeats, float) and repeats == 1.0 else count * repeats


def _mean_device(
    blocks: tuple[PricedBlock, ...], send: Price, sharding: Sharding, training: bool, pipelined: bool
) -> tuple[Price, dict[str, Number]]:
    """Work of a mean device over the step, and its time by category of op."""
    pieces, stages = sharding.microbatches, sharding.stages
    parts = total_price([(b.block.times, b.price + b.again if training else b.price) for b in blocks])
    kinds: dict[str, Number] = {}
    for b in blocks:
        for kind, time in b.time_by_kind.items():
            kinds[kind] = kinds.get(kind, 0.0) + b.block.times * time
    if not pipelined:
        return parts.times(pieces), {kind: time * pieces for kind, time in kinds.items()}
    kinds["collective"] = kinds.get("collective", 0.0) + send.time * stages
    mean = (parts + send.times(stages)).times(pieces / stages)
    return mean, {kind: time * pieces / stages for kind, time in kinds.items()}


def _busy_backward(
    blocks: tuple[PricedBlock, ...], counts: list[Number], sharding: Sharding, structure: Structure
) -> Number:
    """Time of a backward pass in which the links that gradients need are taken: its own collectives and those
    of recomputed layers.
    """
    again = namespace(sharding.recompute).where(sharding.recompute > 1, 1.0, 0.0)
    busy: Number = 0.0
    for b, count in zip(blocks, counts, strict=True):
        busy = busy + block_runs(b, count) * b.busy * (1.0 if b.block.direction == "backward" else again)
    return namespace(busy).max(busy, axis=0) if structure.pipelined else busy


def _update(
    given: Pricing, rank: Rank, blocks: tuple[PricedBlock, ...], backward: Number, busy: Number
) -> Price:
    """Gradients summed over data parallel ranks, and the optimiser.

    The sum runs beside the last backward pass, as far as that pass leaves the links free.
    """
    update, sent = update_parts(given, rank, blocks)
    if sent is ZERO:
        return update
    left = beside(sent.time, backward, busy)
    return update + network_price(left, sent.energy, upper=sent.time)


def update_parts(given: Pricing, rank: Rank, blocks: tuple[PricedBlock, ...]) -> tuple[Price, Price]:
    """The optimiser on a mean device, and the whole sum of its gradients over data parallel ranks."""
    sharding = given.sharding
    forward = [b for b in blocks if b.block.direction == "forward"]
    held = sum((b.block.count * b.held.parameters for b in forward), 0.0) / sharding.stages
    experts = sum((b.block.count * b.held.parameters * b.held.expert_share for b in forward), 0.0)
    experts = experts / sharding.stages
    zero, groups = sharding.zero, sharding.expert_replicas
    xp = namespace(zero, groups)
    copies, expert_copies = (xp.where(zero > 0, c, 1.0) for c in (sharding.state_replicas, groups))
    owned = (held - experts) / copies + experts / expert_copies
    # Adam reads gradient, weight copy and two moments and writes three of them and the working weight: 16 +
    # 14 bytes.
    update = vector_kernel(16.0 * owned, 14.0 * owned, 12.0 * owned, owned, rank.device)
    if "dp" not in given.structure.active or sharding.gradient_sums:
        return update, ZERO
    summed = (held - xp.where(groups > 1, 0.0, experts)) * GRADIENT_BYTES
    op = Collective(name="sum_gradients", pattern="all_reduce", group="dp", payload=summed)
    return update, price_collective(op, rank.placement.groups["dp"], rank.fabric)
