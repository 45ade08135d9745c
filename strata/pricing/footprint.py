"""Memory of one device: weights, cache, states and activations of its blocks, and what inference holds of
them (training: training_memory.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strata.arrays import Array, Number, choose, namespace
from strata.mapping.layout import Sharding
from strata.mapping.plan_layout import TENSOR_GROUP
from strata.mapping.trainer import WORKING
from strata.precision import bytes_of
from strata.pricing.kept_tensors import KeptTensors, kept_tensors, tensor_bytes
from strata.workload.graph import Block, Graph, Op
from strata.workload.ops import is_product


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Footprint:
    """Bytes one copy of a block keeps on a device."""

    weights: Number = 0.0
    parameters: Number = 0.0
    expert_share: Number = 0.0  # part of weights and parameters that belongs to routed experts
    trained: Number = 0.0  # parameters with gradients and optimiser state: all but frozen ones
    trained_experts: Number = 0.0  # of these, those of routed experts
    tied: Number = 0.0  # weights another block stores, which a pipeline may put on another device
    tied_parameters: Number = 0.0
    narrow: Number = 0.0  # trained parameters of products that read a narrower format than WORKING
    narrow_weights: Number = 0.0  # and their bytes
    cache: Number = 0.0
    state: Number | None = None  # that layers keep in place of a cache; None where no layer does
    scratch: Number = 0.0  # alive while the block runs
    kept: KeptTensors = field(default_factory=KeptTensors)  # for the backward pass, in training
    boundary: Number = 0.0  # what is kept where the block's layer is recomputed: what it takes in
    repeats: Number = 1.0  # time steps, each of which keeps activations


def footprint_of(block: Block, sharding: Sharding, training: bool, page: Number = 1.0) -> Footprint:
    """What one copy of a block keeps: its weights, the cache of its attention in pages, its states, its
    activations.
    """
    sums: dict[str, Number] = dict.fromkeys(
        ("weights", "parameters", "trained", "tied", "tied_parameters", "narrow", "narrow_weights"), 0.0
    )
    routed: Number = 0.0
    trained_experts: Number = 0.0
    cache: Number = 0.0
    state: Number | None = None
    widest: Number = 0.0
    forward, experts = block.direction == "forward", False
    for op in block.ops:
        if forward:
            elements = op.weight_elements()
            for purpose, size in _weights_of(op).items():
                sums[purpose] = sums[purpose] + size
            if op.category == "experts":
                routed, experts = routed + elements, True
                trained_experts = trained_experts + op.trained_elements()
        if not training:
            cache = cache + op.cache_bytes(page)
            held = op.state_bytes()
            if held is not None:
                state = held if state is None else state + held
        written = _written(op, sharding)
        widest = namespace(widest, written).maximum(widest, written)
    return Footprint(
        **sums,
        expert_share=routed / sums["parameters"] if experts else 0.0,
        trained_experts=trained_experts,
        cache=cache,
        state=state,
        scratch=2.0 * widest,
        kept=kept_tensors(block, sharding) if training and forward and block.keeps else KeptTensors(),
        boundary=block.entry.bytes() if block.entry is not None and block.output is not None else 0.0,
        repeats=block.repeats,
    )


def _weights_of(op: Op) -> dict[str, Number]:
    """Weights and parameters of an op, by what a trainer keeps of them."""
    elements, stored = op.weight_elements(), op.weight_bytes()
    found = {"weights": stored, "parameters": elements, "trained": op.trained_elements()}
    # what is frozen is held as it is stored: nothing updates it, and no second copy of it is cached
    # (Megatron-Bridge's recipes of LoRA: disable_parameter_transpose_cache)
    if not op.frozen and not (isinstance(elements, float) and elements == 0.0):
        xp, narrow = namespace(stored, elements), stored < bytes_of(WORKING) * elements
        found |= {"narrow": xp.where(narrow, elements, 0.0), "narrow_weights": xp.where(narrow, stored, 0.0)}
    if is_product(op) and op.tied:
        found |= {"tied": op.tied_bytes(), "tied_parameters": op.tied_bytes() / bytes_of(op.weight)}
    return found


def _written(op: Op, sharding: Sharding) -> Number:
    """Bytes an op leaves: sums over a tensor group are kept in pieces where it divides the sequence."""
    return tensor_bytes(op, sharding) if op.category == "matmul" else op.output_bytes()


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


def memory_by_purpose(
    held: list[tuple[Block, Footprint]], counts: list[Number], sharding: Sharding, *, pipelined: bool
) -> dict[str, Number]:
    """Bytes by purpose in inference on the stage that holds most; counts: how often each block stands in a
    stage (leading axis).
    """
    weights: Number = 0.0
    cache: Number = 0.0
    states: Number = 0.0
    scratch: Number = 0.0
    for (_, one), count in zip(held, counts, strict=True):
        weights = weights + count * stored_weights(one, sharding)
        if pipelined:  # a head tied to the embedding needs its own copy where another stage holds that
            stages = sharding.stages
            weights = weights + count * namespace(stages, one.tied).where(stages > 1, one.tied, 0.0)
        cache = cache + count * one.cache
        if one.state is not None:
            states = states + count * one.state
        alive = one.scratch + gathered_weights(one, sharding)
        scratch = namespace(scratch, alive).maximum(scratch, alive)
    parts = {"weights": weights, "cache": cache * sharding.microbatches}
    if any(one.state is not None for _, one in held):
        parts["state"] = states * sharding.microbatches
    if pipelined:
        parts = fullest_stage(parts)
    return {**parts, "scratch": scratch}


def fullest_stage(parts: dict[str, Number]) -> dict[str, Number]:
    """Of bytes by purpose of stages (leading axis) those of the stage with the largest sum."""
    xp = namespace(*parts.values())
    summed: Array = xp.asarray(sum(parts.values(), 0.0))
    wide = (xp.broadcast_to(v, summed.shape) for v in parts.values())
    return dict(zip(parts, choose(1.0 / (summed + 1.0), *wide), strict=True))


def resident_bytes(graph: Graph, sharding: Sharding) -> dict[str, Number]:
    """Bytes of one device that lie beside all blocks, divided over a tensor group: a vision tower, as vLLM
    shards it (mm_encoder_tp_mode "weights", its default). Every stage of a pipeline counts them, though only
    the first holds them.
    """
    parts = sharding.degrees.get(TENSOR_GROUP, 1.0)
    return {purpose: held / parts for purpose, held in graph.resident.items()}
