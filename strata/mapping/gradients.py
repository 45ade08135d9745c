"""Collectives of weights and their gradients: brought to where a gradient op is laid out, summed, and brought
back to where the weight lies.
"""

from __future__ import annotations

from dataclasses import replace

from strata.arrays import Number, namespace
from strata.mapping.layout import WEIGHT_GRADIENTS, Conversion, Sharding, conversions, module_of
from strata.mapping.trainer import WORKING, Trainer, gathered_bytes
from strata.precision import bytes_of
from strata.workload.graph import Block, Collective, Op

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
    routed = [op for op in ops if op.category == "experts"]
    rest = [op for op in ops if op.category != "experts"]
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
