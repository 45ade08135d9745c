"""Memory of one device: weights, cache, states, activations, and what a backward pass finds of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strata.base.arrays import Array, Number, choose, namespace
from strata.base.precision import bytes_of
from strata.mapping.layout import Sharding
from strata.mapping.plan_layout import TENSOR_GROUP
from strata.mapping.training_plan import TrainingPlan, recompute_share
from strata.software.trainer import WORKING
from strata.workload.expert_ops import is_routed
from strata.workload.graph import Block, Graph, Op, total
from strata.workload.ops import Attention, Vector, is_attention, is_product, is_vector

STATISTIC = bytes_of("fp32")  # of a row: a norm's scale, attention's sum of exponentials
KEPT = "forward:"  # how a gradient names a tensor of the forward pass


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class KeptTensors:
    """Bytes that one copy of a block keeps for its backward pass, and what its gradients take meanwhile."""

    activations: Number = 0.0  # tensors that gradients read, with the statistics of rows
    statistics: Number = 0.0  # of these, attention's sums of exponentials: a recomputed attention keeps none
    scores: Number = 0.0  # of attention, in elements: kept where it is no fused kernel
    attention_again: Number = 0.0  # 1 where selective recomputation repeats attention, else 0
    again: Number = 0.0  # of the activations, what other modules that it names make anew
    gated: Number = 0.0  # of the activations, what only a gated activation reads
    gated_again: Number = 0.0  # 1 where selective recomputation makes that anew, else 0
    gates: Number = 0.0  # results between an activation and a product, where they are kernels apart
    attended: Number = 0.0  # results of attention: a second copy where the product after it wants them turned
    attended_kept: Number = 0.0  # of the activations, these results as gradients read them
    unturned: Number = 0.0  # of the activations, queries and keys that lie with values as they were made
    weighted: Number = 0.0  # of the activations, results of experts that only their weights' gradient reads
    weighted_again: Number = 0.0  # 1 where selective recomputation makes these anew, else 0
    logits: Number = 0.0  # what the program's last op, its loss, reads (not among the activations)
    logit_size: Number = 2.0  # bytes of one of them
    gradients: Number = 0.0  # gradients of activations alive at once, at most
    products: Number = 0.0  # gradients of its products' weights, one of each shape


def kept_tensors(block: Block, sharding: Sharding) -> KeptTensors:
    """Tensors of a forward block that the gradients of its ops read.

    Inputs of products (for gradients of weights), what norms and activations read, queries, keys, values and
    result of attention. A tensor that two gradients read counts once, one that none reads not at all. Values
    are no copy: a rotation of queries and keys leaves them in the buffer of the product before, which stays
    whole for them; attention in a narrower format keeps rounded copies of all three in place of both.
    """
    made = {op.output: op for op in block.ops if op.kind != "collective"}
    ends = block.output is None and block.entry is not None
    last = list(made.values())[-1] if ends and made else None  # sums over ranks may stand behind it
    final = set(last.inputs) if last is not None else set()
    read_by, training = _readers(block), sharding.training
    found = _read_again(block, sharding, made, read_by, final)
    logits = sum(
        (tensor_bytes(made[name], sharding) for name in read_by if name in final and name in made), 0.0
    )
    wide = next((_element_size(made[name]) for name in final if name in made), bytes_of("bf16"))
    inside, found = _of_attention(block, made, found, training)
    rows, gates = _of_vectors(block, last, made, found, read_by, training)
    # what nothing but the sum of experts' results reads, for gradients of their weights
    combined = {n for n, ops in read_by.items() if all(is_routed(op) and op.route == "combine" for op in ops)}
    weighted = {name: made[name] for name in found if name in made and name in combined}
    products = filter(is_product, block.ops)
    others = {name: made[name] for name in found if name in made and not is_attention(made[name])}
    again = (found[name] * recompute_share(block, op, training) for name, op in others.items())
    return KeptTensors(
        **inside,
        **gates,
        again=sum(again, 0.0),
        activations=sum(found.values(), 0.0) + inside["statistics"] + rows,
        weighted=sum((found[name] for name in weighted), 0.0),
        weighted_again=next((recompute_share(block, op, training) for op in weighted.values()), 0.0),
        logits=logits,
        logit_size=wide,
        gradients=_alive(block, made, final, sharding),
        products=bytes_of("bf16") * sum((op.k.size * total(op.n) for op in products if op.stored), 0.0),
    )


def _of_attention(
    block: Block, made: dict[str, Op], found: dict[str, Number], training: TrainingPlan
) -> tuple[dict[str, Number], dict[str, Number]]:
    """What a block's attention keeps, by fields of `KeptTensors`; and kept tensors without its copies."""
    fields = ("statistics", "scores", "attended", "attended_kept", "unturned", "attention_again")
    kept: dict[str, Number] = dict.fromkeys(fields, 0.0)
    for op in block.ops:
        if not is_attention(op):
            continue
        own = op.sequences.size * op.queries.size * op.heads.size
        kept["attention_again"] = recompute_share(block, op, training)
        kept["statistics"] = kept["statistics"] + STATISTIC * own
        kept["scores"] = kept["scores"] + own * op.cached.size
        kept["attended"] = kept["attended"] + op.output_bytes()
        kept["attended_kept"] = kept["attended_kept"] + found[op.output]
        if _rotated(op, made):
            found = _without_copies(op, made, found)
            kept["unturned"] = kept["unturned"] + _before_rotation(op, made, found)
    return kept, found


def _of_vectors(
    block: Block,
    last: Op | None,
    made: dict[str, Op],
    found: dict[str, Number],
    read_by: dict[str, list[Op]],
    training: TrainingPlan,
) -> tuple[Number, dict[str, Number]]:
    """Statistics of rows that norms keep, and what gated activations keep, by fields of `KeptTensors`."""
    rows: Number = 0.0
    kept: dict[str, Number] = dict.fromkeys(("gates", "gated", "gated_again"), 0.0)
    for op in block.ops:
        if not is_vector(op) or op is last:
            continue
        if op.needs_whole or op.adds:
            rows = rows + STATISTIC * op.m.size
        elif op.pieces > 1.0 and _gated(op):
            kept["gates"] = kept["gates"] + op.partial_bytes()
            for name in op.inputs:
                if name in found and name in made and read_by[name] == [op]:
                    kept["gated"] = kept["gated"] + found[name]
                    kept["gated_again"] = recompute_share(block, made[name], training)
    return rows, kept


def _read_again(
    block: Block,
    sharding: Sharding,
    made: dict[str, Op],
    read_by: dict[str, list[Op]],
    final: set[str],
) -> dict[str, Number]:
    """Tensors that gradients read, but for logits, with their bytes as they are stored."""
    found: dict[str, Number] = {}
    for name, readers in read_by.items():
        if name in made and name not in final:
            found[name] = _stored_for(readers, tensor_bytes(made[name], sharding))
        elif name not in made and block.entry is not None and name == block.entry.name:
            found[name] = _stored_for(readers, block.entry.bytes())
    return found


def _without_copies(op: Attention, made: dict[str, Op], found: dict[str, Number]) -> dict[str, Number]:
    """Kept tensors without what a rotation before attention would count twice."""
    if _rounded_share(op) < 1.0:
        return {name: size for name, size in found.items() if name not in made[op.inputs[0]].inputs}
    values = op.sequences.size * op.queries.size * op.kv_heads.size * op.value_dim
    return found | {op.inputs[0]: found[op.inputs[0]] - values * bytes_of(op.activation)}


def _before_rotation(op: Attention, made: dict[str, Op], found: dict[str, Number]) -> Number:
    """Bytes of queries and keys in the buffer of a product that is kept whole for its values."""
    buffer = sum((found[name] for name in made[op.inputs[0]].inputs if name in found), 0.0)
    if isinstance(buffer, float) and buffer == 0.0:
        return 0.0
    values = op.sequences.size * op.queries.size * op.kv_heads.size * op.value_dim
    return buffer - values * bytes_of(op.activation)


def _readers(block: Block) -> dict[str, list[Op]]:
    """Tensors of the forward pass that gradients read, each with the ops whose gradients do."""
    found: dict[str, list[Op]] = {}
    for op in block.ops:
        names = [name for gradient in op.gradient() for name in gradient.inputs if name.startswith(KEPT)]
        if is_attention(op):
            names.append(KEPT + op.output)
        for name in dict.fromkeys(names):
            found.setdefault(name.removeprefix(KEPT), []).append(op)
    return found


def _stored_for(readers: list[Op], size: Number) -> Number:
    """Bytes of a tensor that gradients read: as it is, and once more as narrower products have rounded it."""
    rounded = [share for share in map(_rounded_share, readers) if share < 1.0]
    if not rounded:
        return size
    return size * rounded[0] + (0.0 if len(rounded) == len(readers) else size)


def _rounded_share(op: Op) -> float:
    """Bytes of an operand as its product, or attention, reads it, over those of activations."""
    if is_attention(op):
        return float(bytes_of(op.products) / bytes_of(op.activation)) if op.products else 1.0
    formats: list[Any] = [getattr(op, name, None) for name in ("weight", "activation")]
    if not op.multiplies or not all(isinstance(f, str) for f in formats):
        return 1.0
    weight, activation = (float(bytes_of(f)) for f in formats)
    return weight / activation


def _rotated(op: Attention, made: dict[str, Op]) -> bool:
    """Whether attention reads, with values of every head, what an op made of a product or of adapted sums."""
    before = made.get(op.inputs[0]) if op.inputs else None
    if op.latent or before is None or not is_vector(before) or before.reads != before.writes:
        return False
    makers = [made[name] for name in before.inputs if name in made]
    return any(is_product(maker) or (is_vector(maker) and maker.adds) for maker in makers)


def _gated(op: Vector) -> bool:
    """Whether it multiplies two operands, one of them after a function of its own."""
    return isinstance(op.reads, float) and isinstance(op.writes, float) and op.reads > op.writes > 0.0


def _element_size(op: Op) -> Number:
    return bytes_of(op.activation) if is_product(op) else bytes_of("bf16")


def tensor_bytes(op: Op, sharding: Sharding) -> Number:
    """Bytes of an op's result as a tensor: what a norm writes beside it, the residual stream, is another one.

    Sums over a tensor group are kept in pieces where it divides the sequence.
    """
    if is_vector(op):
        return op.partial_bytes()
    written, parts = op.output_bytes(), sharding.sequence_parts
    if op.routed or not op.multiplies or (isinstance(parts, float) and parts == 1.0):
        return written
    summed = sharding.spec(op.module, op.contracted_axes())
    return written / parts if any(TENSOR_GROUP in groups for groups in summed.values()) else written


def _alive(block: Block, made: dict[str, Op], final: set[str], sharding: Sharding) -> Number:
    """Most bytes of gradients at once: of an op's result and operands, beside that of the residual stream."""
    stream = block.entry.bytes() if block.entry is not None else 0.0
    most: Number = 0.0
    for op in made.values():
        if final and (op.output in final or final.intersection(op.inputs)):
            continue  # gradients of logits are counted with them
        operands = (tensor_bytes(made[name], sharding) for name in op.inputs if name in made)
        alive = tensor_bytes(op, sharding) + sum(operands, 0.0)
        most = namespace(most, alive).maximum(most, alive)
    return most + stream


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
    """What one copy of a block keeps: weights, cache of its attention in pages, states, activations."""
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
            if op.routed:
                routed, experts = routed + elements, True
                trained_experts = trained_experts + op.trained_elements()
        if not training:
            cache = cache + op.cache_bytes(page)
            held = op.state_bytes()
            if held is not None:
                state = held if state is None else state + held
        # sums over a tensor group are kept in pieces where it divides the sequence
        written = tensor_bytes(op, sharding) if op.multiplies else op.output_bytes()
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


def stored_weights(held: Footprint, sharding: Sharding) -> Number:
    """Weights of a copy of a block that a device stores in inference: with zero=3 its share of them."""
    zero, dp, groups = sharding.zero, sharding.replicas, sharding.expert_replicas
    xp = namespace(zero, dp, groups)
    routed, sharded = held.expert_share, (zero > 2) & (dp > 1)
    share = (1.0 - routed) / xp.where(sharded, dp, 1.0) + routed / xp.where(sharded, groups, 1.0)
    return held.weights * share


def gathered_weights(held: Footprint, sharding: Sharding) -> Number:
    """Weights brought together for the block that runs and the next, beside a device's own shares [B]."""
    return 2.0 * (held.weights - stored_weights(held, sharding))


def memory_by_purpose(
    held: list[tuple[Block, Footprint]], counts: list[Number], sharding: Sharding, *, pipelined: bool
) -> dict[str, Number]:
    """Bytes by purpose in inference on the fullest stage; counts: of each block in a stage (leading axis)."""
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
