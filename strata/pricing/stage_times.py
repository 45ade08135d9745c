"""Times of the stages of a pipeline: which blocks each holds, what it sends, and what a mean device does."""

from __future__ import annotations

from collections.abc import Sequence

from strata.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.pricing.block import PricedBlock
from strata.pricing.given import Pricing
from strata.pricing.network.collectives import price_collective
from strata.pricing.pipeline import ends_apart_counts, line_time, stage_counts, stage_nodes
from strata.pricing.price import ZERO, Price, total_price
from strata.pricing.pricers import Rank
from strata.workload.graph import Block, Collective, is_collective


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


def stage_counts_of(given: Pricing, blocks: tuple[PricedBlock, ...]) -> list[Number]:
    """How often each block stands in the stages that can be slowest (leading axis), or in all without a
    pipeline.
    """
    if not given.structure.pipelined:
        return [b.block.count for b in blocks]
    return counts_at_stages(given, [b.block for b in blocks], stage_places(given))


def stage_places(given: Pricing) -> Number:
    """The stages that can be slowest or fullest (leading axis), counted from 0; 0 without a pipeline."""
    if not given.structure.pipelined:
        return 0.0
    order, stages = given.graph.sequence, given.sharding.stages
    nodes = stage_nodes(stages, order.layers, len(order.period), given.structure.rank)
    if given.sharding.deepflow:
        inner = stage_nodes(stages, order.layers, len(order.period), given.structure.rank, ends=1.0)
        nodes = namespace(nodes, inner).concatenate([nodes, inner])
    return nodes


def counts_at_stages(given: Pricing, blocks: Sequence[Block], nodes: Number) -> list[Number]:
    """How often each block stands in some stages of a pipeline (leading axis)."""
    order, stages = given.graph.sequence, given.sharding.stages
    counted = ends_apart_counts if given.sharding.deepflow else stage_counts
    return [counted(order, b.gradient_of or b.name, stages, nodes) for b in blocks]


def deepflow_time(
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


def stage_times(blocks: tuple[PricedBlock, ...], counts: list[Number], send: Price) -> tuple[Number, Number]:
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


def mean_device(
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
