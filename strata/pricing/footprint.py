"""Memory of one device: weights, cache, states, activations, and what training adds."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Array, Number, choose, namespace
from strata.mapping.layout import Sharding
from strata.workload.graph import Block, Graph, Op

# Mixed-precision Adam keeps an fp32 copy of the weights and two fp32 moments, and adds up gradients in fp32
# (Rajbhandari et al., ZeRO, arXiv 1910.02054, sec. 3.1; Megatron accumulates gradients in fp32).
OPTIMISER_BYTES, GRADIENT_BYTES = 12.0, 4.0
SEQUENCE_GROUP = "tp"  # whose sums sequence parallelism keeps in pieces


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Footprint:
    """Bytes one copy of a block keeps on a device."""

    weights: Number = 0.0
    parameters: Number = 0.0
    expert_share: Number = 0.0  # part of weights and parameters that belongs to routed experts
    trained: Number = 0.0  # parameters with gradients and optimiser state: all but frozen ones
    trained_experts: Number = 0.0  # of these, those of routed experts
    tied: Number = 0.0  # weights another block stores, which a pipeline may put on another device
    cache: Number = 0.0
    state: Number | None = None  # that layers keep in place of a cache; None where no layer does
    activations: Number = 0.0  # kept for the backward pass
    boundary: Number = 0.0  # of these, what is kept where the block is recomputed
    scratch: Number = 0.0  # alive while the block runs


def footprint_of(block: Block, sharding: Sharding, training: bool, page: Number = 1.0) -> Footprint:
    """What one copy of a block keeps: its weights, the cache of its attention in pages, its states, its
    activations.
    """
    weights: Number = 0.0
    parameters: Number = 0.0
    routed: Number = 0.0
    trained: Number = 0.0
    trained_experts: Number = 0.0
    tied: Number = 0.0
    cache: Number = 0.0
    state: Number | None = None
    kept: Number = 0.0
    widest: Number = 0.0
    forward, experts = block.direction == "forward", False
    for op in block.ops:
        if forward:
            elements = op.weight_elements()
            weights, parameters = weights + op.weight_bytes(), parameters + elements
            trained, tied = trained + op.trained_elements(), tied + op.tied_bytes()
            if op.category == "experts":
                routed, experts = routed + elements, True
                trained_experts = trained_experts + op.trained_elements()
        if not training:
            cache = cache + op.cache_bytes(page)
            held = op.state_bytes()
            if held is not None:
                state = held if state is None else state + held
        written = _written(op, sharding)
        kept = kept + written
        widest = namespace(widest, written).maximum(widest, written)
    boundary = 0.5 * block.entry.bytes() if block.entry is not None and block.output is not None else kept
    return Footprint(
        weights=weights,
        parameters=parameters,
        expert_share=routed / parameters if experts else 0.0,
        trained=trained,
        trained_experts=trained_experts,
        tied=tied,
        cache=cache,
        state=state,
        activations=kept * block.repeats if training and block.keeps else 0.0,  # of every time step
        boundary=boundary,
        scratch=2.0 * widest,
    )


def _written(op: Op, sharding: Sharding) -> Number:
    """Bytes an op leaves: sums over a tensor group are kept in pieces where it divides the sequence."""
    written, parts = op.output_bytes(), sharding.sequence_parts
    if op.category != "matmul" or (isinstance(parts, float) and parts == 1.0):
        return written
    summed = sharding.spec(op.module, op.contracted_axes())
    return written / parts if any(SEQUENCE_GROUP in groups for groups in summed.values()) else written


def training_state(parameters: Number, weights: Number, zero: Number, replicas: Number) -> Number:
    r"""Bytes of weights, gradients and optimiser state of one device under ZeRO.

    .. math:: M = \frac{w}{d_3} + \frac{4 n}{d_2} + \frac{12 n}{d_1}

    parameters n; weight bytes w; each d is the number of replicas where the ZeRO level reaches it, else 1.

    Rajbhandari et al., ZeRO, arXiv 1910.02054, sec. 5 (with fp32 gradients).

    >>> [round(float(training_state(7.5e9, 15e9, zero, 64.0) / 1e9), 1) for zero in (0.0, 1.0)]
    [135.0, 46.4]
    """
    xp = namespace(parameters, zero, replicas)
    return (
        weights / xp.where(zero > 2, replicas, 1.0)
        + GRADIENT_BYTES * parameters / xp.where(zero > 1, replicas, 1.0)
        + OPTIMISER_BYTES * parameters / xp.where(zero > 0, replicas, 1.0)
    )


def stored_weights(held: Footprint, sharding: Sharding) -> Number:
    """Weights of one copy of a block that a device stores in inference: with zero=3 its share of what several
    hold.
    """
    zero, dp, groups = sharding.zero, sharding.replicas, sharding.expert_replicas
    xp = namespace(zero, dp, groups)
    routed, sharded = held.expert_share, (zero > 2) & (dp > 1)
    share = (1.0 - routed) / xp.where(sharded, dp, 1.0) + routed / xp.where(sharded, groups, 1.0)
    return held.weights * share


def gathered_weights(held: Footprint, sharding: Sharding) -> Number:
    """Weights brought together for the block that runs and for the next, beside the shares that devices store
    [B].
    """
    return 2.0 * (held.weights - stored_weights(held, sharding))


def block_state(held: Footprint, sharding: Sharding) -> Number:
    """Weights, gradients and optimiser state of one copy of a block; experts have fewer replicas than the
    rest.
    """
    rest, routed = 1.0 - held.expert_share, held.expert_share
    zero = sharding.zero
    dense = training_state(
        held.trained - held.trained_experts, held.weights * rest, zero, sharding.state_replicas
    )
    if isinstance(routed, float) and routed == 0.0:
        return dense
    experts = training_state(held.trained_experts, held.weights * routed, zero, sharding.expert_replicas)
    return dense + experts


def kept_activations(held: Footprint, sharding: Sharding) -> Number:
    """Activations of one block kept for its backward pass: all, or only its entry where layers are
    recomputed.

    Each half of a layer keeps its own entry, the residual stream.
    """
    kept = held.activations
    if isinstance(kept, float) and kept == 0.0:
        return 0.0
    return namespace(sharding.training.recompute, kept).where(
        sharding.training.recompute > 1, held.boundary, kept
    )


def memory_by_purpose(
    held: list[tuple[Block, Footprint]],
    counts: list[Number],
    sharding: Sharding,
    *,
    training: bool,
    pipelined: bool,
) -> dict[str, Number]:
    """Bytes by purpose on the stage that holds most; counts: how often each block stands in a stage (leading
    axis).
    """
    weights: Number = 0.0
    state: Number = 0.0
    cache: Number = 0.0
    states: Number = 0.0
    kept: Number = 0.0
    scratch: Number = 0.0
    for (block, one), count in zip(held, counts, strict=True):
        weights = weights + count * (one.weights if training else stored_weights(one, sharding))
        if pipelined:  # a head tied to the embedding needs its own copy where another stage holds that
            stages = sharding.stages
            weights = weights + count * namespace(stages, one.tied).where(stages > 1, one.tied, 0.0)
        if block.direction == "forward":
            if training:
                state = state + count * block_state(one, sharding)
            kept = kept + count * kept_activations(one, sharding)
        cache = cache + count * one.cache
        if one.state is not None:
            states = states + count * one.state
        alive = one.scratch if training else one.scratch + gathered_weights(one, sharding)
        scratch = namespace(scratch, alive).maximum(scratch, alive)
    if training:
        in_flight = namespace(sharding.stages, sharding.microbatches).minimum(
            sharding.stages, sharding.microbatches
        )
        parts = {"weights": state, "activations": kept * in_flight}
    else:
        parts = {"weights": weights, "cache": cache * sharding.microbatches}
        if any(one.state is not None for _, one in held):
            parts["state"] = states * sharding.microbatches
    if pipelined:
        xp = namespace(*parts.values())
        summed: Array = xp.asarray(sum(parts.values(), 0.0))
        wide = (xp.broadcast_to(v, summed.shape) for v in parts.values())
        parts = dict(zip(parts, choose(1.0 / (summed + 1.0), *wide), strict=True))
    return {**parts, "scratch": scratch}


def resident_bytes(graph: Graph, sharding: Sharding) -> dict[str, Number]:
    """Bytes of one device that lie beside all blocks, divided over a tensor group: a vision tower, as vLLM
    shards it (mm_encoder_tp_mode "weights", its default). Every stage of a pipeline counts them, though only
    the first holds them.
    """
    parts = sharding.degrees.get(SEQUENCE_GROUP, 1.0)
    return {purpose: held / parts for purpose, held in graph.resident.items()}
