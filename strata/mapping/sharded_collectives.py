"""Collectives that a division adds to a graph: of weights and their gradients, and of rows of tokens to their
experts and back.

Tokens are exchanged between ranks of experts (`ep`) and gathered among ranks that hold parts of the same
expert (`expert_tp`); where experts are cut over several data parallel ranks (`expert_tp_dp`), these gather
the tokens of all of them. Results go the same ways back, as sums.
"""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import Number, namespace
from strata.base.precision import bytes_of
from strata.mapping.layout import WEIGHT_GRADIENTS, Conversion, Sharding, conversions, module_of
from strata.software.trainer import WORKING, Trainer, gathered_bytes
from strata.workload.expert_ops import Combine, Dispatch, ExpertMatMul
from strata.workload.graph import Block, Collective, Exchange, Op, Tensor

# ranks of a tensor group hold the same tokens, and each brings back what its own experts made of them
PARTIAL_OVER = "tp"
SUFFIXES = {
    "all_reduce": "sum",
    "reduce_scatter": "scatter",
    "all_gather": "gather",
    "all_to_all": "exchange",
}


def held_before(made: list[Conversion], sharding: Sharding) -> list[Number]:
    """What a rank holds before each of several conversions, over what it held before the first."""
    sizes: list[Number] = [1.0]
    for one in made:
        degree = sharding.degrees[one.group]
        grown = {"all_gather": degree, "reduce_scatter": 1.0 / degree}.get(one.pattern, 1.0)
        sizes.append(sizes[-1] * grown)
    return sizes[:-1]


def relaid(op: Op, sharding: Sharding, place: int | None = None) -> list[Collective]:
    """The weight an op reads, or at a place what the forward pass left, brought from where its module's
    forward ops have it to where the op wants it.
    """
    tensor = op.read_weight() if place is None else op.kept_operand(place)
    if tensor is None:
        return []
    name, inputs = (f"{op.name}_weight", ()) if place is None else (op.name, (op.inputs[place],))
    have, want = (sharding.by_axis(module, tensor.axes) for module in (module_of(op), op.module))
    made, held = conversions(have, (), want), tensor.bytes()
    for group in (group for on in want.values() for group in on):
        held = held * sharding.degrees[group]
    for group in (group for on in have.values() for group in on):
        held = held / sharding.degrees[group]
    return _collectives(made, op, sharding, held, (name, "", inputs, f"{name}_moved"))


def summed_gradient(op: Op, partial: tuple[str, ...], sharding: Sharding) -> list[Collective]:
    """A weight's gradient added up between ranks, and brought to where the weight lies."""
    sums = [
        Collective(
            name=f"{op.name}_sum_{group}", module=op.module, inputs=(op.output,), output=op.output,
            pattern="all_reduce", group=group, payload=op.output_bytes(),
        )
        for group in partial
    ]  # fmt: skip
    if not op.module.endswith(WEIGHT_GRADIENTS):
        return sums
    have, want = (sharding.by_axis(module, op.result_axes()) for module in (op.module, module_of(op)))
    made, words = conversions(have, (), want), (op.name, "_stored", (op.output,), op.output)
    return sums + _collectives(made, op, sharding, op.output_bytes(), words)


def sharded_weights(
    ops: list[Op], sharding: Sharding, training: bool
) -> tuple[list[Collective], list[Collective]]:
    """Sharded weights of a block brought together before it runs, beside the work of the block before, and
    their gradients summed in shards, beside the gradients of the next.

    Ranks shard what they all hold: data parallel ones where nothing is trained, as a trainer's ranks of one
    sequence hold the same weights too. Experts are held by fewer ranks, and sharded over those. A trainer
    gathers and sums in formats of its own, once for each micro-batch (Zhao et al., PyTorch FSDP, arXiv
    2304.11277, sec. 3.2; --reshard-after-forward).
    """
    routed = [op for op in ops if op.routed]
    rest = [op for op in ops if not op.routed]
    groups, ranks = ("dp", "expert_dp"), sharding.replicas
    if training:
        groups, ranks = ("dp_shard", "expert_shard"), sharding.state_replicas
    if groups[0] not in sharding.active:
        return [], []
    held = [("weights", groups[0], rest)]
    if routed and (training or groups[1] in sharding.active):
        held.append(("experts", groups[1] if groups[1] in sharding.active else groups[0], routed))
    sharded = (sharding.zero > 2) & (ranks > 1)

    def move(name: str, pattern: str, group: str, held: Number) -> Collective:
        where = sharded & (sharding.degrees[group] > 1)
        share = namespace(where, held).where(where, held, 0.0)
        return Collective(name=name, output=name, pattern=pattern, group=group, payload=share, prefetch=True)

    trainer = sharding.trainer if training else None
    if trainer is None:
        found = [(name, group, sum((op.weight_bytes() for op in own), 0.0)) for name, group, own in held]
        return [move(f"gather_{name}", "all_gather", group, size) for name, group, size in found], []
    gathers, scatters, summed = [], [], bytes_of(trainer.reduced_gradients)
    for name, group, own in held:
        size, count = _gathered(own, trainer), sum((op.weight_elements() for op in own), 0.0)
        gathers.append(move(f"gather_{name}", "all_gather", group, size))
        scatters.append(move(f"scatter_{name}", "reduce_scatter", group, count * summed))
    return gathers, scatters


def _gathered(ops: list[Op], trainer: Trainer) -> Number:
    """Bytes of the weights of some ops as a trainer gathers them."""
    size: Number = 0.0
    for op in ops:
        stored, elements = op.weight_bytes(), op.weight_elements()
        narrow = namespace(stored, elements).where(stored < bytes_of(WORKING) * elements, 1.0, 0.0)
        size = size + elements * gathered_bytes(trainer, narrow)
    return size


def _collectives(
    made: list[Conversion],
    op: Op,
    sharding: Sharding,
    held: Number,
    words: tuple[str, str, tuple[str, ...], str],
) -> list[Collective]:
    """Conversions of a tensor of `held` bytes; words: name and ending, what each takes and gives."""
    name, ending, inputs, output = words
    found = []
    if sharding.deepflow:  # gathered whole and halved, in place of an exchange
        made = [replace(one, pattern="all_gather") if one.pattern == "all_to_all" else one for one in made]
    for one, size in zip(made, held_before(made, sharding), strict=True):
        whole = sharding.degrees[one.group] if one.gathered else 1.0
        if one.pattern == "all_gather" and not one.gathered:
            whole = 0.5 * sharding.degrees[one.group]
        found.append(
            Collective(
                name=f"{name}_{SUFFIXES[one.pattern]}{ending}", module=op.module, inputs=inputs,
                output=output, pattern=one.pattern, group=one.group, payload=held * size * whole,
            )
        )  # fmt: skip
    return found


def once_block(block: Block, ops: list[Collective]) -> Block:
    """A block of the collectives that stand once beside all time steps of another."""
    return Block(
        name=f"{block.name}.once", ops=tuple(ops), count=block.count, role=block.role,
        direction=block.direction, gradient_of=block.gradient_of or block.name,
    )  # fmt: skip


def expert_collectives(
    op: Dispatch | Combine, experts: ExpertMatMul, sharding: Sharding, stream: Tensor, training: bool
) -> tuple[list[Collective], list[Collective]]:
    """Collectives before and after an op that moves rows between tokens and experts; stream: a rank's tokens
    as products read them; training: the trainer says which kernels carry them.
    """
    sends = op.route == "dispatch"
    suffix, pattern = ("gather", "all_gather") if sends else ("scatter", "reduce_scatter")
    tensor = op.output if sends else op.inputs[0]
    found: list[Collective] = []
    degrees, ranks = sharding.degrees, sharding.exchange_ranks
    apart = ranks > 1
    xp = namespace(ranks, op.width)

    def collective(
        name: str, kind: str, group: str, payload: Number, exchange: Exchange | None = None
    ) -> Collective:
        return Collective(
            name=f"{op.name}_{name}",
            module=op.module,
            inputs=(tensor,),
            output=tensor,
            pattern=kind,
            group=group,
            payload=payload,
            exchange=exchange,
        )

    if "ep" in sharding.active:
        # The ranks of a tensor group share out what they all hold.
        tokens = stream.extents[0].size / degrees.get("tp", 1.0)
        payload = exchange_bytes(tokens, ranks, op.top_k, op.width * bytes_of(op.precision))
        exchange = Exchange(
            direction=op.route,
            trains=training,
            tokens=tokens,
            top_k=experts.top_k,
            experts=experts.all_experts,
            width=op.width,
            element=bytes_of(op.precision),
            groups=experts.groups,
            top_groups=experts.top_groups,
            generates=experts.generates,
        )
        found.append(collective("exchange", "all_to_all", "ep", payload, exchange))
        if "expert_tp" in sharding.active:
            each = xp.where(apart, payload * degrees["expert_tp"], 0.0)
            found.append(collective(suffix, pattern, "expert_tp", each))
    if "expert_tp_dp" in sharding.active:
        every = experts.tokens.size * op.width * bytes_of(op.precision)
        found.append(collective(f"{suffix}_all", pattern, "expert_tp_dp", xp.where(apart, 0.0, every)))
    if sharding.sequence_group:
        # experts inside the group that holds parts of sequences: all its ranks need the tokens of each other
        every = xp.where(apart, 0.0, stream.bytes())
        found.append(collective(f"{suffix}_tokens", pattern, sharding.sequence_group, every))
    return ([], found) if sends else (found[::-1], [])


def exchange_bytes(tokens: Number, ranks: Number, top_k: Number, row: Number) -> Number:
    r"""Bytes one rank sends to bring tokens to their experts, or their results back: one copy to each
    distinct rank.

    .. math:: n = T R \left(1 - (1 - 1/R)^k\right) b

    tokens T of the rank; R ranks of which k uniform picks hit :math:`R (1 - (1 - 1/R)^k)` distinct ones; b
    bytes of a row.

    >>> round(exchange_bytes(64.0, 8.0, 8.0, 7168.0) / (64 * 7168), 3)  # copies of a token
    5.251
    """
    copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** top_k)
    return tokens * copies * row
