"""What a pipeline's stages cost: passes of a step through them, all micro-batches, and a training step's by
themselves; the bytes that each holds, and levers where a training step does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from strata.base.arrays import Number, namespace
from strata.base.shipped import needed_model
from strata.base.units import show
from strata.hardware.chip import Chip
from strata.mapping.layout import DEEPFLOW
from strata.mapping.plan import Plan
from strata.mapping.training_plan import OFFLOAD, RECOMPUTE, SCHEDULE
from strata.pricing import pipeline, pipeline_schedules
from strata.pricing.block import PricedBlock, PricedBlocks
from strata.pricing.footprint import (
    Footprint,
    footprint_of,
    fullest_stage,
    memory_by_purpose,
    resident_bytes,
)
from strata.pricing.overlap.halves import is_exchange
from strata.pricing.power_cap import power_capped, time_at_clock
from strata.pricing.price import ZERO, Price, total_price
from strata.pricing.pricers import Pricing
from strata.pricing.training_memory import (
    NOTHING,
    held_blocks,
    kept_activations,
    training_memory,
    update_memory,
)
from strata.software.engine import Engine, trainer_of
from strata.workload.graph import Block

if TYPE_CHECKING:
    from strata.pricing.step import Step

LAYERS, HEAD = ("attention", "ffn"), "head"  # roles of blocks; the embedding belongs to no pass here
PASSES = ("forward", "inputs", "weights")


def stage_times(
    given: Pricing, blocks: PricedBlocks, counts: list[Number], send: Price
) -> tuple[Number, Number]:
    """Forward and backward time of the slowest stage, a micro-batch; what is recomputed is backward."""
    share = pipeline.again_share(given) if given.training else 1.0
    sums: dict[str, Number] = {"forward": 0.0, "backward": 0.0}
    for b, count in zip(blocks, counts, strict=True):
        runs = pipeline.block_runs(b, count)
        sums[b.block.direction] = sums[b.block.direction] + runs * b.price.time
        if b.again is not ZERO:
            sums["backward"] = sums["backward"] + runs * b.again.time * share
    forward, backward = sums["forward"], sums["backward"]
    if send is ZERO:
        return forward, backward
    xp = namespace(forward, backward)
    slowest, ahead = xp.max(forward + backward, axis=0), xp.max(forward, axis=0)
    return ahead + send.time, slowest - ahead


def is_dualpipe(given: Pricing) -> Number:
    """1 where the plan's schedule is DualPipe."""
    schedule = given.sharding.training.schedule
    return namespace(schedule).where(schedule == float(SCHEDULE.index(pipeline_schedules.DUALPIPE)), 1.0, 0.0)


def stage_passes(
    given: Pricing, blocks: PricedBlocks, counts: list[Number]
) -> pipeline_schedules.StagePasses:
    """Passes of the stages of a training pipeline for one micro-batch, without what they hand over."""
    sharding, nodes = given.sharding, pipeline.stages_seen(given)
    last = sharding.stages - 1.0
    apart = not given.structure.active.isdisjoint(
        (pipeline_schedules.ZERO_BUBBLE, pipeline_schedules.DUALPIPE)
    )
    here, every = pipeline.again_share(given, nodes), pipeline.again_share(given)
    dual = pipeline_schedules.DUALPIPE in given.structure.active
    there = pipeline.again_share(given, last - nodes) if dual else 1.0
    passes: dict[str, Number] = dict.fromkeys(PASSES, 0.0)
    sums: dict[str, Number] = dict.fromkeys(PASSES, 0.0)
    before: Number = 0.0
    mirrored: Number = 0.0
    saved: Number = 0.0
    paired = is_dualpipe(given) if dual else 0.0
    for b, count, at in zip(blocks, counts, pipeline.counts_before_stages(given, blocks, nodes), strict=True):
        runs = pipeline.block_runs(b, count)
        once: Number = 0.0
        hidden = paired * exchange_saved(b) if dual else 0.0
        saved = saved + b.block.times * hidden
        for name, time in block_passes(b, apart=apart, hidden=hidden).items():
            again = name == "again"
            kind = "inputs" if again else name
            passes[kind] = passes[kind] + runs * (time if not again else time * here)
            whole = time * every if again else time
            sums[kind] = sums[kind] + b.block.times * whole
            once = once + whole
            if dual:
                other = pipeline.block_runs(
                    b, pipeline.split_counts(given, pipeline.place_of(b), last - nodes)
                )
                mirrored = mirrored + other * (time * there if again else time)
        before = before + pipeline.block_runs(b, at) * once
    return pipeline_schedules.StagePasses(
        **passes,
        before=before,
        behind=last - nodes,
        every=(sums["forward"], sums["inputs"], sums["weights"]),
        mirrored=mirrored,
        saved=saved / sharding.stages if dual else 0.0,
    )


def exchange_saved(b: PricedBlock) -> Number:
    """Time of a block's exchanges that another micro-batch's kernels hide, less what these lose by it [s]."""
    return sum((price.saved for op, price in b.ops if is_exchange(op)), 0.0)


def block_passes(b: PricedBlock, *, apart: bool, hidden: Number = 0.0) -> dict[str, Number]:
    """Times of a block in its passes, and of what it repeats [s]; `apart`: gradients to weights alone."""
    if b.block.direction == "forward":
        return {"forward": b.price.time + hidden} | ({} if b.again is ZERO else {"again": b.again.time})
    if not apart:
        return {"inputs": b.price.time + hidden}
    weights = weight_time(b)
    return {"inputs": b.price.time + hidden - weights, "weights": weights}


def weight_time(b: PricedBlock) -> Number:
    """Time of a backward block's gradients to weights, with their share of what it waits for the host."""
    if b.block.nodes:
        return 0.0
    every = sum((price.time for _, price in b.ops), 0.0)
    own = sum((price.time for op, price in b.ops if op.weight_gradient), 0.0)
    return own * b.price.time / namespace(every).where(every > 0.0, every, 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class PassTimes:
    """The passes of all micro-batches through all stages [s]."""

    time: Number
    slowest: Number  # all passes of the slowest stage, one micro-batch, with what it waits for
    backward: Number  # of these, backward
    waits: Number = 1.0  # 1 where stages wait for hand-overs between passes
    exposed: dict[str, Number]  # of the time, what no kernel covers: the bubble of training, and hand-overs


def pass_times(given: Pricing, blocks: PricedBlocks, counts: list[Number], send: Price) -> PassTimes:
    """The passes of a step: of training under the plan's schedule, of decoding in a cycle."""
    sharding = given.sharding
    stages, pieces = sharding.stages, sharding.microbatches
    if given.training and given.structure.pipelined and not sharding.deepflow:
        return pipeline_times(given, blocks, counts, send)
    forward, backward = stage_times(given, blocks, counts, send)
    slowest = forward + backward
    if given.work.phase == "decode":
        time = pipeline.decode_cycle(slowest, stages, pieces)
    elif sharding.deepflow:
        time = needed_model("pass times", DEEPFLOW)(given, blocks, counts, send)
    else:
        time = pipeline.pipeline_time(slowest, stages, pieces, sharding.virtual_stages * sharding.handovers)
    return PassTimes(time=time, slowest=slowest, backward=backward, exposed={})


def pipeline_times(given: Pricing, blocks: PricedBlocks, counts: list[Number], send: Price) -> PassTimes:
    """Passes of training under the plan's schedule.

    Stages that wait for hand-overs do so for each chunk of each micro-batch, both ways; else only while the
    pipeline fills and drains.
    """
    sharding, trainer = given.sharding, given.engine.training
    stages, pieces, schedule = sharding.stages, sharding.microbatches, sharding.training.schedule
    passes = stage_passes(given, blocks, counts)
    overlapped = 1.0 if trainer is None else trainer.overlap_p2p
    waits = pipeline_schedules.waits_for_hand_overs(schedule, sharding.virtual_stages, overlapped)
    chunks = sharding.virtual_stages * sharding.handovers
    xp = namespace(stages, send.time, waits, chunks)
    # one way, all chunks of a stage; `send` is both ways over all hand-overs of one chunk
    one_way = xp.where(stages > 1.0, 0.5 * send.time * sharding.virtual_stages, 0.0)
    among = given.structure.active
    held = held_by_messages(given)
    joined = pipeline_schedules.with_hand_overs(passes, waits * one_way, stages, held)
    time = pipeline_schedules.scheduled_time(joined, schedule, stages, pieces, chunks, among)
    time = time + pipeline_schedules.fill_of_hand_overs(one_way, waits, stages, chunks)
    slowest, forward = joined.slowest, namespace(joined.forward).max(joined.forward, axis=0)
    sent = 2.0 * one_way * (waits * pieces + 1.0 / chunks) + 4.0 * held * pieces
    p2p = sent * (stages - 1.0) / stages
    bubble = time - pieces * (sum(passes.every) / stages - passes.saved) - p2p
    return PassTimes(
        time=time,
        slowest=slowest,
        backward=slowest - forward,
        waits=waits,
        exposed={"bubble": xp.maximum(bubble, 0.0), "p2p": p2p},
    )


def held_by_messages(given: Pricing) -> Number:
    """What messages one way, of all chunks of a stage, hold the stages at both of their ends for [s]."""
    trainer, stages = given.engine.training, given.sharding.stages
    if trainer is None or trainer.message_hold is None:
        return 0.0
    held = trainer.message_hold * given.sharding.virtual_stages
    return namespace(stages, held).where(stages > 1.0, held, 0.0)


def training_passes(step: Step, chip: Chip) -> tuple[Number, Number, Number]:
    """Time of layers forward, loss forward, and both backward with recomputing [s], at their common clock."""
    forward: list[tuple[Number, Price]] = []
    loss: list[tuple[Number, Price]] = []
    backward: list[tuple[Number, Price]] = []
    for b in step.blocks:
        if b.block.role not in (*LAYERS, HEAD):
            continue
        if b.block.direction == "backward":
            backward.append((b.block.times, b.price))
        elif b.block.role == HEAD:
            loss.append((b.block.times, b.price))
        else:
            forward.append((b.block.times, b.price))
            backward.append((b.block.times, b.again))
    prices = [total_price(parts) for parts in (forward, loss, backward)]
    whole = total_price([(1.0, price) for price in prices])
    clock = power_capped(whole, chip, briefly=True).share
    ahead, head, back = (time_at_clock(price, clock) for price in prices)
    return ahead, head, back


def kept_by_layers(step: Step, recomputed: bool, engine: Engine) -> Number:
    """Bytes that the layers keep for their backward pass: all that it reads, or what they take in."""
    layers = [b for b in step.blocks if b.block.role in LAYERS and b.block.direction == "forward"]
    if recomputed:  # a layer keeps what it takes in; of its blocks each has an entry
        return sum((b.block.times * b.held.boundary for b in layers if b.block.role == LAYERS[0]), 0.0)
    facts = trainer_of(engine).memory or NOTHING
    return sum((b.block.times * kept_activations(b.held, 0.0, facts, False) for b in layers), 0.0)


def step_memory(
    given: Pricing, held: list[tuple[Block, Footprint]], counts: list[Number]
) -> dict[str, Number]:
    """Bytes by purpose on the device that holds most; counts as of `stage_counts_of`."""
    pipelined = given.structure.pipelined
    if not given.training:
        return memory_by_purpose(held, counts, given.sharding, pipelined=pipelined)
    blocks = held_blocks(held, counts, given.graph.sequence)
    found = training_memory(blocks, given.sharding, given.engine, pipeline.stages_seen(given))
    return fullest_stage(found) if pipelined else found


def _held(given: Pricing, page: Number = 1.0) -> list[tuple[Block, Footprint]]:
    return [(b, footprint_of(b, given.sharding, True, page)) for b in given.graph.blocks]


def memory_beside(given: Pricing) -> dict[str, Number]:
    """Bytes that lie beside all blocks: of towers, and what the engine keeps free."""
    return resident_bytes(given.graph, given.sharding) | {"reserve": given.engine.reserve}


def _counts(given: Pricing, nodes: Number) -> list[Number]:
    if not given.structure.pipelined:
        return [b.count for b in given.graph.blocks]
    return pipeline.counts_at_stages(given, given.graph.blocks, nodes)


def memory_in_step(given: Pricing) -> dict[str, Number]:
    """Bytes by purpose on the device that holds most, of a training step that is not priced."""
    held = _held(given, given.engine.kv_block_size)
    return step_memory(given, held, _counts(given, pipeline.stages_seen(given))) | memory_beside(given)


def memory_by_stage(given: Pricing) -> dict[str, Number]:
    """Bytes by purpose of every stage of a training step of one point, on a leading axis."""
    stages = np.arange(float(given.sharding.stages))
    held = held_blocks(_held(given), _counts(given, stages), given.graph.sequence)
    found = training_memory(held, given.sharding, given.engine, stages)
    return {purpose: size + 0.0 * stages for purpose, size in (found | memory_beside(given)).items()}


def first_stage_at_update(given: Pricing) -> Number:
    """Bytes that a framework counts as allocated on the first stage while optimiser state is updated."""
    first = 0.0 * pipeline.stages_seen(given)
    held = held_blocks(_held(given), _counts(given, first), given.graph.sequence)
    found = update_memory(held, given.sharding, given.engine, first)
    return np.asarray(found)[0] if given.structure.pipelined else found


MOST_LEVERS = 5  # that are told


def training_levers(
    plan: Plan,
    memory: dict[str, float],
    limit: float,
    needed: Callable[[Plan], float],
    microbatches: float,
    sequences: float,
) -> tuple[str, ...]:
    """Words on memory that does not fit: its largest purpose, then levers, those that suffice first.

    needed: bytes under another plan, infinite where that is not legal; sequences: of one data parallel rank.
    """
    used = sum(memory.values())
    largest = max(memory, key=lambda purpose: memory[purpose])
    found: list[tuple[bool, float, str, float]] = []
    for words, other in changed_plans(plan, microbatches, sequences):
        left = needed(other)
        if left < used:
            found.append((left > limit, len(found) if left <= limit else left, words, left))
    told = [f"(most of it is {largest}: {show(memory[largest], 'B')})"]
    for over, _, words, left in sorted(found)[:MOST_LEVERS]:
        margin = f"{show(abs(limit - left), 'B')} {'too much still' if over else 'to spare'}"
        told.append(f"{words}: {show(left, 'B')} ({margin})")
    return tuple(told)


def changed_plans(plan: Plan, microbatches: float, sequences: float) -> Iterator[tuple[str, Plan]]:
    """Plans one lever away, as words and plan; those that cost least time first."""
    dp, shards = float(plan.dp), float(plan.dp * plan.cp)
    for level in (1.0, 2.0, 3.0):
        if shards > 1 and level > plan.zero:
            yield f"zero={level:g}", replace(plan, zero=level)
    if plan.tp > 1 and not plan.sp:
        yield "sp=1", replace(plan, sp=1.0)
    if microbatches > 0 and sequences / microbatches >= 2 and sequences % (2 * microbatches) == 0:
        yield f"microbatches={2 * microbatches:g}", replace(plan, microbatches=2.0 * microbatches)
    for place, word in enumerate(RECOMPUTE):
        if place > plan.recompute:
            yield f"recompute={word}", replace(plan, recompute=float(place), recompute_layers=0.0)
    if plan.recompute_layers > 0:
        yield "recompute_layers=0 (all)", replace(plan, recompute_layers=0.0)
    for name in ("tp", "pp"):
        if dp % 2 == 0:
            more = 2.0 * float(getattr(plan, name))
            kept = 2.0 * microbatches if sequences >= 2 * microbatches else microbatches
            degrees = {name: more, "dp": dp / 2.0, "microbatches": kept}
            yield f"{name}={more:g} dp={dp / 2.0:g}", replace(plan, **degrees)
    for place, word in enumerate(OFFLOAD):
        if place > plan.offload:
            yield f"offload={word}", replace(plan, offload=float(place))
