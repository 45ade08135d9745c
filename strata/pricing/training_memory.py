"""Memory of a training step by purpose and stage, as the schedule keeps it and the allocator wastes it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.precision import bytes_of
from strata.mapping.layout import Sharding
from strata.mapping.training_plan import OFFLOAD, RECOMPUTE, SCHEDULE, recomputed_layers
from strata.pricing.footprint import Footprint
from strata.software.engine import Engine, trainer_of
from strata.software.trainer import WORKING, Trainer, TrainerMemory
from strata.workload.graph import Block, BlockSequence

STATE = ("parameters", "gradients", "optimizer")  # what lies in memory between steps
OUTSIDE = ("communicators", "allocator", "reserve")  # what a framework does not count as allocated
PROCESS_GROUPS = ("tp", "cp", "dp", "pp", "ep")  # of ranks that have a communicator of their own
NARROW_COPIES = 2.0  # a narrow weight is kept along both of its axes: for products of either pass
BUFFERED_LAYERS = 2.0  # of offloaded activations on the device: one that is used, one that moves
GATHERED_BLOCKS = 2.0  # whose weights ZeRO-3 has together: the one that runs and the next
AS_IT_IS = ("activation_input", "attention_result", "qkv_apart")  # None where a trainer does nothing about it
_ABSENT: dict[str, Any] = {one.name: 0.0 for one in fields(TrainerMemory)}
NOTHING = TrainerMemory(**_ABSENT | dict.fromkeys(AS_IT_IS))


@dataclass(frozen=True, eq=False)
class HeldBlock:
    """A forward block with what one copy holds, how often it stands in stages (leading axis), and where."""

    block: Block
    held: Footprint
    count: Number
    layered: bool  # of a layer, not before or after all of them
    starts_layer: bool


def in_flight(
    stages: Number, node: Number, microbatches: Number, chunks: Number = 1.0, schedule: Number = 0.0
) -> Number:
    r"""Micro-batches whose activations a stage keeps at most, counted in all layers of the stage.

    .. math::
        f_{1F1B} = \min(P - j, m), \quad
        f_{v} = \min\Big(\frac{2 (P - j - 1) + (v - 1) P + 1}{v}, m\Big), \quad
        f_{GPipe} = m, \quad f_{ZB} = \min(P, m), \quad f_{Dual} = \min(P + 1, m)

    P stages, stage j counted from 0, m micro-batches, v chunks of a stage. Of a bidirectional pipeline, each
    device works at stages j and P - 1 - j, of which this counts both together.

    Narayanan et al., SC 2021, sec. 2.2 (1F1B and interleaved; Megatron-LM warms up by those chunks); Huang et
    al., GPipe, arXiv 1811.06965, sec. 2.3; Qi et al., Zero Bubble, arXiv 2401.10241, table 1 (H1, as 1F1B's
    first stage); DeepSeek-V3, arXiv 2412.19437, table 2 (DualPipe).

    >>> [float(in_flight(8.0, j, 32.0)) for j in (0.0, 7.0)], float(in_flight(8.0, 0.0, 32.0, 2.0))
    ([8.0, 1.0], 11.5)
    >>> [float(in_flight(8.0, 3.0, 32.0, 1.0, k * 1.0)) for k in range(4)]
    [5.0, 32.0, 8.0, 9.0]
    """
    xp = namespace(stages, node, microbatches, chunks, schedule)
    warm = (2.0 * (stages - node - 1.0) + (chunks - 1.0) * stages + 1.0) / chunks
    usual = xp.where(chunks > 1, warm, stages - node)
    kept = xp.where(schedule == SCHEDULE.index("zero-bubble"), stages, usual)
    kept = xp.where(schedule == SCHEDULE.index("dualpipe"), stages + 1.0, kept)
    kept = xp.where(schedule == SCHEDULE.index("gpipe"), microbatches, kept)
    kept = xp.where(stages > 1, kept, 1.0)  # one stage goes back at once, whatever the schedule
    return xp.minimum(kept, microbatches)


def state_bytes(
    weights: Number, trained: Number, trainer: Trainer, zero: Number, shards: Number
) -> tuple[Number, Number, Number]:
    r"""Bytes of weights, of gradients as they are added up, and of optimiser state on one device.

    .. math:: M = \frac{w}{d_3} + \frac{g n}{d_2} + \frac{o n}{d_1}

    weight bytes w, n trained parameters with g bytes of gradient and o bytes of optimiser state each; each d
    is the number of ranks that shard where the level of ZeRO reaches it, else 1.

    Rajbhandari et al., ZeRO, arXiv 1910.02054, sec. 5 (with the trainer's formats).

    >>> from strata.software.engine import engine
    >>> found = state_bytes(15e9, 7.5e9, trainer_of(engine("megatron")), 1.0, 64.0)
    >>> [round(float(part) / 1e9, 2) for part in found]
    [15.0, 30.0, 1.41]
    """
    xp = namespace(weights, trained, zero, shards)
    return (
        weights / xp.where(zero > 2, shards, 1.0),
        gradient_bytes(trainer) * trained / xp.where(zero > 1, shards, 1.0),
        trainer.optimizer_bytes * trained / xp.where(zero > 0, shards, 1.0),
    )


def gradient_bytes(trainer: Trainer) -> Number:
    """Bytes of a parameter's gradient as it is added up: where no buckets lie beside, it is added up in the
    buffer that crosses between ranks (Megatron-LM, param_and_grad_buffer.py), in the narrower of formats.
    """
    main, crossing = bytes_of(trainer.main_gradients), bytes_of(trainer.reduced_gradients)
    buckets = (trainer.memory or NOTHING).buckets
    return namespace(buckets).where(buckets > 0, main, min(main, crossing))


def block_state(held: Footprint, sharding: Sharding, trainer: Trainer) -> tuple[Number, Number, Number]:
    """Weights, gradients and optimiser state of a copy of a block; experts have fewer replicas."""
    routed, zero, weights = held.expert_share, sharding.zero, working_weights(held, trainer)
    shards = sharding_ranks(sharding, sharding.state_replicas)
    dense = state_bytes(weights * (1.0 - routed), held.trained - held.trained_experts, trainer, zero, shards)
    if isinstance(routed, float) and routed == 0.0:
        return dense
    groups = sharding_ranks(sharding, sharding.expert_replicas)
    experts = state_bytes(weights * routed, held.trained_experts, trainer, zero, groups)
    return dense[0] + experts[0], dense[1] + experts[1], dense[2] + experts[2]


def working_weights(held: Footprint, trainer: Trainer) -> Number:
    """Bytes of weights that a trainer works with: where products read narrower ones, copies of them along
    both axes, beside the wider weights that the optimiser updates, unless those are narrow themselves.
    """
    if isinstance(held.narrow, float) and held.narrow == 0.0:
        return held.weights
    wide = bytes_of(WORKING) if bytes_of(trainer.gathered_parameters) >= bytes_of(WORKING) else 0.0
    return held.weights + (NARROW_COPIES - 1.0) * held.narrow_weights + wide * held.narrow


def sharding_ranks(sharding: Sharding, replicas: Number) -> Number:
    """Ranks that ZeRO shards over: all replicas, or as many of them as the plan says (HSDP)."""
    told = sharding.training.dp_shard
    if isinstance(told, float) and told == 0.0:
        return replicas
    xp = namespace(told, replicas)
    return xp.where(told > 0, xp.minimum(told, replicas), replicas)


def held_blocks(
    blocks: list[tuple[Block, Footprint]], counts: list[Number], order: BlockSequence
) -> list[HeldBlock]:
    """The forward blocks of a step with what they hold, as often as they stand in stages."""
    return [
        HeldBlock(b, one, count, order.in_layers(b.name), order.starts_layer(b.name))
        for (b, one), count in zip(blocks, counts, strict=True)
        if b.direction == "forward"
    ]


def training_memory(
    held: list[HeldBlock], sharding: Sharding, given: Engine, node: Number = 0.0
) -> dict[str, Number]:
    """Bytes by purpose of stages of a training step; node: the stage's number from 0, with a leading axis
    where a pipeline has several.

    Purposes add up to what a device needs at the fullest moment: all micro-batches in flight, and the larger
    of the loss and the widest gradients; or the update, where its gather needs more than that.
    """
    trainer = trainer_of(given)
    facts = trainer.memory if trainer.memory is not None else NOTHING
    parts = _state(held, sharding, trainer) | _activations(held, sharding, trainer, node)
    if trainer.memory is None:
        return parts
    comes = parts["activations"] + parts["logits"] + parts["workspace"]
    lasting, update = communication_buffers(held, sharding, facts)
    xp = namespace(comes, update)
    degrees = (sharding.degrees.get(name, 1.0) for name in PROCESS_GROUPS)
    groups = sum((xp.where(ranks > 1, 1.0, 0.0) for ranks in degrees), 0.0)
    return parts | {
        "communication": parts["communication"] + lasting + xp.maximum(update - comes, 0.0),
        "communicators": facts.communicator * groups,
        "allocator": facts.fragments * comes,
    }


def update_memory(held: list[HeldBlock], sharding: Sharding, given: Engine, node: Number = 0.0) -> Number:
    """Bytes a framework counts as allocated while optimiser state is updated: nothing of a pass is left."""
    every = training_memory(held, sharding, given, node)
    facts = trainer_of(given).memory or NOTHING
    return sum((every[purpose] for purpose in STATE), 0.0) + sum(communication_buffers(held, sharding, facts))


def _state(held: list[HeldBlock], sharding: Sharding, trainer: Trainer) -> dict[str, Number]:
    """Parameters, gradients, optimiser state, and weights that ZeRO-3 brings together."""
    sums: list[Number] = [0.0, 0.0, 0.0]
    gathered: Number = 0.0
    stages, zero = sharding.stages, sharding.zero
    shards = sharding_ranks(sharding, sharding.state_replicas)
    for one in held:
        found = block_state(one.held, sharding, trainer)
        tied = state_bytes(one.held.tied, one.held.tied_parameters, trainer, zero, shards)
        whole = working_weights(one.held, trainer) - found[0]
        gathered = namespace(gathered, whole).maximum(gathered, whole)
        # a head tied to the embedding has its own copy where another stage holds that
        xp = namespace(stages, one.count, *found)
        own = [f + xp.where(stages > 1, t, 0.0) for f, t in zip(found, tied, strict=True)]
        sums = [s + one.count * part for s, part in zip(sums, own, strict=True)]
    training = sharding.training
    xp = namespace(training.schedule, training.offload, *sums)
    # each device of a bidirectional pipeline holds two stages
    copies = xp.where(training.schedule == SCHEDULE.index("dualpipe"), xp.minimum(stages, 2.0), 1.0)
    away = (training.offload == OFFLOAD.index("optimizer")) | (training.offload == OFFLOAD.index("both"))
    return {
        "parameters": copies * sums[0],
        "gradients": copies * sums[1],
        "optimizer": xp.where(away, 0.0, copies * sums[2]),
        "communication": GATHERED_BLOCKS * gathered,
    }


def _activations(
    held: list[HeldBlock], sharding: Sharding, trainer: Trainer, node: Number
) -> dict[str, Number]:
    """Activations in flight, logits, and what the widest gradients and a recomputed layer take meanwhile."""
    training, stages, pieces = sharding.training, sharding.stages, sharding.microbatches
    facts, unfused = trainer.memory or NOTHING, trainer.attention == "unfused"
    ends: Number = 0.0
    logits: Number = 0.0
    widest: Number = 0.0
    buffers: Number = 0.0
    for one in held:
        if not one.layered:
            ends = ends + one.count * kept_activations(one.held, training.recompute, facts, unfused)
        own = one.held.kept
        size = own.logits if facts is NOTHING else own.logits / own.logit_size * facts.logits
        logits = logits + one.count * one.held.repeats * size
        xp = namespace(widest, own.gradients, own.products, one.count)
        widest = xp.maximum(widest, xp.where(one.count > 0, own.gradients, 0.0))
        buffers = buffers + xp.where(one.count > 0, facts.gradient_buffers * own.products, 0.0)
    by_layers, one_layer = layer_activations(held, sharding, trainer)
    xp = namespace(by_layers, one_layer, training.recompute_layers, training.recompute, pieces, stages)
    full = training.recompute == RECOMPUTE.index("full")
    flight = in_flight(stages, node, pieces, sharding.virtual_stages, training.schedule)
    last = xp.where((training.schedule == SCHEDULE.index("gpipe")) & (stages > 1), pieces, 1.0)
    kept = flight * by_layers + last * ends
    away = (training.offload == OFFLOAD.index("activations")) | (training.offload == OFFLOAD.index("both"))
    kept = xp.where(away, xp.minimum(kept, BUFFERED_LAYERS * one_layer + ends), kept)
    work = widest + xp.where(full, one_layer, 0.0)
    return {"activations": kept, "logits": logits, "workspace": buffers + xp.maximum(work - logits, 0.0)}


def layer_activations(held: list[HeldBlock], sharding: Sharding, trainer: Trainer) -> tuple[Number, Number]:
    """Bytes that a stage's layers keep of a micro-batch, recomputed or not; and those of a mean layer."""
    training, facts, unfused = sharding.training, trainer.memory or NOTHING, trainer.attention == "unfused"
    every: Number = 0.0
    entries: Number = 0.0
    layers: Number = 0.0
    for one in held:
        if one.layered:
            every = every + one.count * kept_activations(one.held, training.recompute, facts, unfused)
            if one.starts_layer:
                entries = entries + one.count * one.held.repeats * one.held.boundary
                layers = layers + one.count
    xp = namespace(every, layers, training.recompute_layers, training.recompute)
    full = training.recompute == RECOMPUTE.index("full")
    share = xp.where(full, recomputed_layers(layers, sharding.virtual_stages, training), 0.0)
    return share * entries + (1.0 - share) * every, every / xp.maximum(layers, 1.0)


def kept_activations(held: Footprint, recompute: Number, facts: TrainerMemory, unfused: bool) -> Number:
    """Activations of one block kept for its backward pass unless its layer is recomputed: all, or all but
    what recomputed modules make anew; `unfused`: attention that is not one kernel keeps scores. The result of
    a recomputed attention stays: the product after it reads it.
    """
    kept = held.kept
    every = kept.activations + facts.unfused_gates * kept.gates + facts.attention_copy * kept.attended
    inside = facts.scores * kept.scores if unfused else kept.statistics
    xp = namespace(recompute, every)
    some = recompute == RECOMPUTE.index("selective")
    gone = xp.where(some, kept.attention_again * inside + kept.again, 0.0)
    gone = gone + (1.0 - facts.expert_results) * kept.weighted * xp.where(
        some, 1.0 - kept.weighted_again, 1.0
    )
    if facts.qkv_apart is not None:
        gone = gone + facts.qkv_apart * kept.unturned
    if facts.attention_result is not None:
        gone = gone + kept.attended_kept - facts.attention_result / bytes_of(WORKING) * kept.attended
    if facts.activation_input is not None:
        rounded = 1.0 - facts.activation_input / bytes_of(WORKING)
        gone = gone + rounded * kept.gated * xp.where(some, 1.0 - kept.gated_again, 1.0)
    return held.repeats * (every - kept.statistics + inside - gone)


def communication_buffers(
    held: list[HeldBlock], sharding: Sharding, facts: TrainerMemory
) -> tuple[Number, Number]:
    """Bytes of buffers for gradients and for gathered sequences, which stay, and of the update's gather."""
    ranks, parts = sharding_ranks(sharding, sharding.state_replicas), sharding.sequence_parts
    stages = sharding.stages
    xp = namespace(ranks, parts, stages, *(one.count for one in held), *(one.held.trained for one in held))
    tied = xp.where(stages > 1, 1.0, 0.0)  # a head of another stage than the embedding
    parameters = sum((one.count * (one.held.trained + tied * one.held.tied_parameters) for one in held), 0.0)
    streams = [one.block.entry.bytes() for one in held if one.block.entry is not None]
    whole = streams[0] * parts if streams else 0.0
    lasting = xp.where(sharding.state_replicas > 1, facts.buckets * parameters, 0.0)
    lasting = lasting + xp.where(parts > 1, facts.gather_buffers * whole, 0.0)
    sharded = (sharding.zero > 0) & (sharding.zero < 3) & (ranks > 1)
    return lasting, xp.where(sharded, facts.gathered * parameters * (1.0 + 1.0 / ranks), 0.0)
