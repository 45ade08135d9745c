"""The end of a training step: gradients summed over ranks, updated weights sent, and the optimiser."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from strata.base.arrays import Mask, Number, has_axes, namespace
from strata.base.precision import bytes_of
from strata.hardware.fabric import Fabric
from strata.mapping.layout import Sharding
from strata.mapping.place import GroupLayout
from strata.mapping.plan_layout import ENDS, SUMS_OF_EXPERTS, SUMS_OF_WEIGHTS
from strata.pricing.block import PricedBlocks
from strata.pricing.network.collectives import price_collective
from strata.pricing.optimiser import optimiser_price, rounded_weights
from strata.pricing.pipeline import block_runs
from strata.pricing.price import ZERO, Price, exposed, network_price
from strata.pricing.pricers import Pricing, Rank, Structure
from strata.software.engine import trainer_of
from strata.software.trainer import WORKING, Trainer, gathered_bytes
from strata.workload.graph import Collective

NORM_BYTES = 4.0  # one number, the norm of all gradients


@dataclass(frozen=True, eq=False, kw_only=True)
class Sums:
    """Collectives of the weights that one rank holds, whole and bucket by bucket."""

    gradients: Price = ZERO
    last_gradients: Price = ZERO  # of one bucket
    parameters: Price = ZERO
    first_parameters: Price = ZERO
    cores: Number = 0.0  # share of a chip's cores that they take from kernels they run beside

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            cores=namespace(self.cores, other.cores).maximum(self.cores, other.cores),
            gradients=self.gradients + other.gradients,
            last_gradients=self.last_gradients + other.last_gradients,
            parameters=self.parameters + other.parameters,
            first_parameters=self.first_parameters + other.first_parameters,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class UpdateParts:
    """What ends a training step, as if nothing ran beside anything."""

    optimiser: Price  # the update, and the norm of gradients before it
    sums: Sums
    often: Number  # times that gradients are summed in a step
    ends: Price  # gradients of a tied embedding, between the first and the last stage


@dataclass(frozen=True, eq=False, kw_only=True)
class Update:
    """What the end of a training step adds to it: its price, and which of that is communication, by name."""

    price: Price
    exposed: dict[str, Number]


def busy_pass(
    blocks: PricedBlocks,
    counts: list[Number],
    sharding: Sharding,
    structure: Structure,
    direction: str = "backward",
) -> Number:
    """Time of a pass in which the links of gradients and weights are taken, by recomputed layers too."""
    again = namespace(sharding.training.recompute).where(sharding.training.recompute > 1, 1.0, 0.0)
    busy: Number = 0.0
    for b, count in zip(blocks, counts, strict=True):
        if direction in ("backward", b.block.direction):
            if isinstance(b.busy, float) and b.busy == 0.0:
                continue
            own = b.busy if b.block.direction == direction else b.busy * again
            busy = busy + block_runs(b, count) * own
    return namespace(busy).max(busy, axis=0) if structure.pipelined and has_axes(busy) else busy


def exposed_beside_chunks(
    sent: Number, work: Number, stages: Number, chunks: Number, piece: Number
) -> Number:
    r"""What is seen of gradients that cross beside the last backward pass, or of weights beside the first
    forward pass [s].

    .. math:: T = \max\left(b, \frac{s - w}{v}, s - w \frac{1 + P (v - 1)}{v}\right)

    s all that a rank sends; w the pass of its layers, less what that pass itself needs the links for; v
    chunks of layers, between which the other micro-batches of a round of P pass; b the one bucket that no
    work is left to cover (0 where nothing is sent). Of chunks, the first to be complete has the longest to
    send, and both ends of a line rule.

    Li et al., PyTorch Distributed, arXiv 2006.15704, sec. 3.2 (buckets); Narayanan et al., SC 2021, sec. 2.2
    (order of chunks).

    >>> [float(exposed_beside_chunks(s, 4.0, 4.0, 1.0, 0.5)) for s in (3.0, 6.0)]
    [0.5, 2.0]
    >>> float(exposed_beside_chunks(6.0, 4.0, 4.0, 2.0, 0.5))
    1.0
    """
    xp = namespace(sent, work, stages, chunks, piece)
    first = (sent - work) / chunks
    last = sent - work * ((1.0 + stages * (chunks - 1.0)) / chunks)
    return xp.maximum(xp.maximum(first, last), piece)


def lost_beside(cores: Number, sent: Number, work: Number) -> Number:
    r"""Time that kernels lose to sums and gathers beside them [s].

    .. math:: T = s \min(n, w)

    share s of the cores that communication takes while it sends for n beside work w: what is lost meanwhile
    is done later by all of them (`while_sending`).

    >>> [round(float(lost_beside(0.15, sent, 4.0)), 2) for sent in (2.0, 9.0)]
    [0.3, 0.6]
    """
    return cores * namespace(sent, work).minimum(sent, work)


def update_price(
    given: Pricing,
    rank: Rank,
    blocks: PricedBlocks,
    counts: list[Number],
    passes: tuple[Number, Number],
) -> Update:
    """The end of a step as it is seen: gradients cross beside the last backward pass, updated weights beside
    the first forward pass of the next step, as far as these leave the links free and the trainer lets them.

    The first stage of a pipeline counts: its passes come first and end last. `passes`: its forward and
    backward time for one micro-batch. Gradients that are sharded as they are made (ZeRO-2) cross beside every
    backward pass.
    """
    sharding, structure = given.sharding, given.structure
    parts = update_parts(given, rank, blocks, counts)
    trainer, sums = trainer_of(given.engine), parts.sums
    price, found = parts.optimiser + parts.ends, {"gradients": parts.ends.time, "parameters": 0.0}
    if sums.gradients is ZERO and sums.parameters is ZERO:
        return Update(price=price, exposed=found)
    xp = namespace(sharding.stages, sharding.microbatches)
    shape = xp.minimum(sharding.stages, sharding.microbatches), sharding.virtual_stages
    rows = (
        ("gradients", "backward", passes[1], sums.gradients, sums.last_gradients, parts.often),
        ("parameters", "forward", passes[0], sums.parameters, sums.first_parameters, 1.0),
    )
    flags = {"gradients": trainer.overlap_grad_reduce, "parameters": trainer.overlap_param_gather}
    for name, direction, work, whole, piece, often in rows:
        if whole is ZERO:
            continue
        free = exposed(work, busy_pass(blocks, counts, sharding, structure, direction))
        hidden = exposed_beside_chunks(whole.time, free, *shape, piece.time)
        hidden = hidden + lost_beside(sums.cores, whole.time, work)
        seen = often * namespace(flags[name], hidden, whole.time).where(flags[name] > 0, hidden, whole.time)
        found[name] = found[name] + seen
        price = price + network_price(seen, often * whole.energy, upper=often * whole.time)
    return Update(price=price, exposed=found)


def update_parts(
    given: Pricing, rank: Rank, blocks: PricedBlocks, counts: list[Number] | None = None
) -> UpdateParts:
    """What ends a step on a device of the first stage, or, without counts of its blocks, on a mean one."""
    sharding, trainer = given.sharding, trainer_of(given.engine)
    held, experts, most = _held(blocks, counts, given)
    zero, degrees, xp = sharding.zero, sharding.degrees, namespace(sharding.zero)
    names = sum_groups(rank.placement.groups)
    shards = {kind: xp.where(zero > 0, degrees.get(own[1], 1.0), 1.0) for kind, own in names.items()}
    owned = (most[0] - most[1]) / shards["dense"] + most[1] / shards["experts"]
    optimiser = optimiser_price(owned, trainer, given, rank)
    optimiser = optimiser + rounded_weights(given, rank, trainer, blocks, counts)
    if sharding.gradient_sums:
        return UpdateParts(optimiser=optimiser, sums=Sums(), often=1.0, ends=ZERO)
    sums, optimiser = Sums(), optimiser + _norm(given, rank)
    narrow = _narrow_share(blocks, trainer)
    for kind, count in (("dense", held - experts), ("experts", experts)):
        if names[kind][0] in rank.placement.groups and not (isinstance(count, float) and count == 0.0):
            whole = _first_weights(given, blocks) if kind == "dense" else 0.0
            sums = sums + _sums((count, whole), names[kind], shards[kind], narrow, given, rank)
    often = xp.where((zero > 1) & (zero <= 2), sharding.microbatches, 1.0)
    return UpdateParts(optimiser=optimiser, sums=sums, often=often, ends=_ends(given, rank, blocks, trainer))


def sum_groups(groups: Collection[str]) -> dict[str, tuple[str, str, str]]:
    """The groups that weights are summed over, and experts, which may have groups of their own."""
    # inference gathers sharded experts over the first of these, whichever ranks hold the rest
    apart = SUMS_OF_EXPERTS[1 if SUMS_OF_WEIGHTS[1] in groups else 0] in groups
    return {"dense": SUMS_OF_WEIGHTS, "experts": SUMS_OF_EXPERTS if apart else SUMS_OF_WEIGHTS}


def _held(
    blocks: PricedBlocks, counts: list[Number] | None, given: Pricing
) -> tuple[Number, Number, tuple[Number, Number]]:
    """Trained parameters of the first or mean stage, and experts' among them; and of the fullest one."""
    every, pipelined = [b.block.count for b in blocks], given.structure.pipelined
    rows = every if counts is None else counts
    held: Number = 0.0
    experts: Number = 0.0
    for b, count in zip(blocks, rows, strict=True):
        if b.block.direction == "forward":
            held = held + count * b.held.trained
            if not (isinstance(b.held.expert_share, float) and b.held.expert_share == 0.0):
                experts = experts + count * b.held.trained_experts
    if counts is None:
        held, experts = held / given.sharding.stages, experts / given.sharding.stages
    if counts is None or not pipelined:
        return held, experts, (held, experts)
    xp = namespace(held, experts)
    rows, of_experts = xp.asarray(held), xp.asarray(experts)
    if of_experts.ndim == 0:  # there are none
        return rows[0], 0.0, (xp.max(rows, axis=0), 0.0)
    return rows[0], of_experts[0], (xp.max(rows, axis=0), xp.max(of_experts, axis=0))


def _first_weights(given: Pricing, blocks: PricedBlocks) -> Number:
    """Trained parameters before all layers (an embedding): the last gradients, the first updated weights."""
    first = given.graph.sequence.first
    there = (b for b in blocks if b.block.direction == "forward" and b.block.name in first)
    return sum((b.held.trained for b in there), 0.0)


def _narrow_share(blocks: PricedBlocks, trainer: Trainer) -> Number:
    """Share of trained parameters whose products read a narrow format, where a trainer sends these so."""
    if bytes_of(trainer.gathered_parameters) >= bytes_of(WORKING):
        return 0.0
    held = [(b.block.count, b.held) for b in blocks if b.block.direction == "forward"]
    narrow = sum((count * one.narrow for count, one in held), 0.0)
    every = sum((count * one.trained for count, one in held), 0.0)
    return narrow / namespace(every).maximum(every, 1.0)


def _sums(
    held: tuple[Number, Number],
    names: tuple[str, str, str],
    shards: Number,
    narrow: Number,
    given: Pricing,
    rank: Rank,
) -> Sums:
    """Collectives of so many parameters, and those of them that one bucket has at an end, since it holds
    tensors whole: summed whole where every rank updates all (ZeRO-0), else summed in shards, these summed
    over their copies (HSDP), and gathered when they are updated. Weights that are sharded themselves (ZeRO-3)
    cross in their blocks. `narrow`: share of them in a narrow format.
    """
    trainer = trainer_of(given.engine)
    count, end = held
    zero = given.sharding.zero
    xp = namespace(count, zero)
    ranks = given.sharding.degrees[names[0]]
    width = {"gradients": bytes_of(trainer.reduced_gradients), "parameters": gathered_bytes(trainer, narrow)}
    flags = {"gradients": trainer.overlap_grad_reduce, "parameters": trainer.overlap_param_gather}
    whole, piece = dict.fromkeys(flags, ZERO), dict.fromkeys(flags, ZERO)
    cores: Number = 0.0
    for name, pattern, group, where, parts in weight_moves(names, zero, shards):
        if group not in rank.placement.groups or _nowhere(where):
            continue
        sent = xp.where(where, count / parts, 0.0)
        pieces = buckets(count, ranks, flags[name], trainer)
        one = _priced(f"{pattern}_{name}", pattern, group, sent * width[name] / pieces, rank)
        if name == "parameters" and trainer.param_gather_rate is not None:
            one = network_price(one.time / trainer.param_gather_rate, one.energy)
        taken = xp.where(where, _cores_taken(rank.placement.groups[group], rank.fabric), 0.0)
        cores = namespace(cores, taken).maximum(cores, taken)
        whole[name] = whole[name] + one.times(pieces)
        if trainer.bucket is not None:
            safe = xp.where(count > 0.0, count, 1.0)
            piece[name] = piece[name] + one.times(xp.maximum(end * pieces / safe, 1.0))
    return Sums(
        gradients=whole["gradients"],
        last_gradients=piece["gradients"],
        parameters=whole["parameters"],
        first_parameters=piece["parameters"],
        cores=cores,
    )


def _priced(name: str, pattern: str, group: str, payload: Number, rank: Rank) -> Price:
    op = Collective(name=name, pattern=pattern, group=group, payload=payload)
    return price_collective(op, rank.placement.groups[group], rank.fabric)


def weight_moves(
    names: tuple[str, str, str], zero: Number, shards: Number
) -> tuple[tuple[str, str, str, Mask, Number], ...]:
    """Collectives that end a step under a level of ZeRO: of gradients or parameters, pattern, group of
    `names`, where there is one, and the parts of what a rank holds that it moves.
    """
    every, shard, copies = names
    return (
        ("gradients", "all_reduce", every, zero < 1, 1.0),
        ("gradients", "reduce_scatter", shard, (zero > 0) & (zero <= 2), 1.0),
        ("gradients", "all_reduce", copies, zero > 0, shards),
        ("parameters", "all_gather", shard, (zero > 0) & (zero <= 2), 1.0),
    )


def _cores_taken(layouts: tuple[GroupLayout, ...], fabric: Fabric) -> Number:
    """Share of a chip's cores that a library's kernels take, the largest of the dimensions they cross."""
    taken: Number = 0.0
    for layout, dimension in zip(layouts, fabric.dimension, strict=True):
        transport = dimension.transport_model
        if transport is not None and transport.tiles is not None:
            xp = namespace(layout.size, taken)
            taken = xp.maximum(taken, xp.where(layout.size > 1, transport.tiles.cores, 0.0))
    return taken


def buckets(count: Number, ranks: Number, overlapped: Number, trainer: Trainer) -> Number:
    r"""Buckets in which so many parameters cross; one where nothing runs beside them, or without buckets.

    .. math:: n = \max\left(1, \frac{N}{\max(b, b_r R)}\right)

    parameters N; a bucket has at least b of them, and b_r for each of R ranks, so that large groups do not
    wait for latencies.

    Megatron-LM, DistributedDataParallelConfig.bucket_size.

    >>> from strata.software.engine import engine
    >>> [float(buckets(1e9, ranks, 1.0, engine("megatron").training)) for ranks in (8.0, 100.0)]
    [25.0, 10.0]
    """
    if trainer.bucket is None:
        return 1.0
    least: Number = 0.0 if trainer.bucket_per_rank is None else trainer.bucket_per_rank
    xp = namespace(count, ranks, overlapped, trainer.bucket, least)
    many = xp.maximum(count / xp.maximum(trainer.bucket, least * ranks), 1.0)
    return xp.where(overlapped > 0, many, 1.0)


def _nowhere(where: Mask) -> bool:
    """Whether no point of a batch has a collective, as far as is known at a glance."""
    return where is False or (
        getattr(where, "shape", None) == () and type(where).__module__ == "numpy" and not where
    )


def _ends(given: Pricing, rank: Rank, blocks: PricedBlocks, trainer: Trainer) -> Price:
    """A tied head's gradients, summed over both ends with all others (Megatron-LM, finalize_model_grads)."""
    if ENDS not in rank.placement.groups:
        return ZERO
    tied: Number = 0.0
    for b in blocks:
        if b.block.direction == "forward" and not (isinstance(b.held.tied, float) and b.held.tied == 0.0):
            for op in b.block.ops:
                tied = tied + op.tied_bytes() / bytes_of(getattr(op, "weight", trainer.main_gradients))
    if isinstance(tied, float) and tied == 0.0:
        return ZERO
    stages = given.sharding.stages
    payload = namespace(stages, tied).where(stages > 1, tied * bytes_of(trainer.main_gradients), 0.0)
    return _priced("sum_embeddings", "all_reduce", ENDS, payload, rank)


def _norm(given: Pricing, rank: Rank) -> Price:
    """The norm of all gradients: one number summed over the ranks that hold different ones."""
    found = ZERO
    for group in ("tp", "dp_shard", "pp"):
        if group in rank.placement.groups:
            zero = given.sharding.zero
            payload = namespace(zero).where(zero > 0, NORM_BYTES, 0.0) if group == "dp_shard" else NORM_BYTES
            found = found + _priced("norm", "all_reduce", group, payload, rank)
    return found
