"""The price of a block of ops: each op once, what hides beside them, two halves of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.memo import value_key
from strata.mapping.layout import Sharding
from strata.mapping.training_plan import recompute_parts, recompute_share, recomputes_whole
from strata.pricing.footprint import Footprint, footprint_of
from strata.pricing.fused_block import fuse_block
from strata.pricing.kernels.device import Device
from strata.pricing.network.expert_exchange import uneven_routing
from strata.pricing.overlap.halves import (
    Halves,
    beside_other_batch,
    dual_batch_overlap,
    overlap_of_trainer,
    paired_passes,
    switched_off,
)
from strata.pricing.overlap.tiles import is_ring_step, overlap_by_tile, rings_shown
from strata.pricing.price import ZERO, Price, beside, network_price, share_links, total_price
from strata.pricing.pricers import KernelPrices, PricedOp, Rank, price_op
from strata.workload.expert_ops import SHARED_EXPERT
from strata.workload.graph import Block, BlockSequence, Op, is_collective

# parts of a price that are times
CREDITS = ("time", "compute", "cache", "memory", "network", "overhead")
DATA_GROUP = "dp_cp"  # whose links the sums of gradients need


@dataclass(frozen=True, eq=False, kw_only=True)
class PricedNode:
    """Ops of a node of a block, which stands for so many iterations: as they run, and one by one."""

    weight: Number
    ops: list[PricedOp]
    apart: list[PricedOp]


@dataclass(frozen=True, eq=False, kw_only=True)
class PricedBlock:
    """A block with the price of each op, their sum, their time by category of op, and what it holds."""

    block: Block
    ops: tuple[PricedOp, ...]
    price: Price
    time_by_kind: dict[str, Number]
    held: Footprint
    again: Price = ZERO  # what runs a second time before the backward pass, where its layer does
    again_by_kind: dict[str, Number] = field(default_factory=dict)
    # training: time in which its collectives, hidden or not, use links of the data parallel group
    busy: Number = 0.0
    raw: tuple[PricedNode, ...] = ()  # before anything overlaps


PricedBlocks = tuple[PricedBlock, ...]


def price_block(
    block: Block,
    rank: Rank,
    sharding: Sharding,
    *,
    training: bool,
    page: Number = 1.0,
    sizes: dict[str, Number] | None = None,
    known: KernelPrices | None = None,
) -> PricedBlock:
    """Price every op of a block once; communication that may hide costs only what the block's own work does
    not cover. `sizes`: bytes of tensors that other blocks make, for chips that fuse kernels; `known`: what
    kernels of this rank cost, as far as that is known.
    """
    key = value_key(id(block), page, sharding.training, sharding.sequence_parts)
    if key is None and isinstance(page, float):  # arrays: what is known is of this division alone
        key = (id(block), page)
    held = known.held.get(key) if known is not None and key is not None else None
    if held is None:
        held = footprint_of(block, sharding, training, page)
        if known is not None and key is not None:
            known.held[key] = held
    if training and not (isinstance(block.repeats, float) and block.repeats == 1.0):
        # Gradients of weights that run at every time step are added up over these before the main ones.
        software = replace(rank.device.software, main_gradients="")
        rank, known = replace(rank, device=replace(rank.device, software=software)), None
    raw = []
    for weight, ops in block.at_nodes():
        apart = _priced(ops, rank, sharding, known)
        fused = fuse_block(apart, block, rank, sizes) if rank.device.fuses else apart
        raw.append(PricedNode(weight=weight, ops=fused, apart=apart))
    return assembled(block, tuple(raw), held, rank, sharding, training=training)


def _priced(
    ops: tuple[Op, ...], rank: Rank, sharding: Sharding, known: KernelPrices | None
) -> list[PricedOp]:
    device, price = rank.device, price_op if known is None else known.of
    priced = [(op, price(op, rank)) for op in uneven_routing(ops, device, sharding)]
    if any(is_ring_step(op) for op, _ in priced):
        priced = rings_shown(priced, rank, sharding.trainer is not None)
    return overlap_shared_experts(priced, device) if device.software.served else priced


def one_by_one(priced: PricedBlock, rank: Rank, sharding: Sharding, *, training: bool) -> PricedBlock:
    """The same block with its kernels one after the other, none fused."""
    if not rank.device.fuses:
        return priced
    raw = tuple(replace(node, ops=node.apart) for node in priced.raw)
    return assembled(priced.block, raw, priced.held, rank, sharding, training=training)


def overlapped(priced: PricedBlock, rank: Rank, sharding: Sharding) -> PricedBlock:
    """The same block with collectives beside the kernels that feed them or that they feed, tile by tile."""
    return assembled(priced.block, priced.raw, priced.held, rank, sharding, training=False, by_tile=True)


def assembled(
    block: Block,
    raw: tuple[PricedNode, ...],
    held: Footprint,
    rank: Rank,
    sharding: Sharding,
    *,
    training: bool,
    by_tile: bool = False,
) -> PricedBlock:
    """A block from prices of its ops: what hides runs beside kernels and collectives on other links."""
    ops: list[PricedOp] = []
    shown, again = ZERO, ZERO
    busy: Number = 0.0
    kinds: dict[str, Number] = {}
    again_kinds: dict[str, Number] = {}
    for node in raw:
        weight = node.weight
        own, price = _with_prefetched(node, rank, sharding if training else None, by_tile)
        own_kinds = _by_kind(own)
        if training and block.direction == "forward" and block.keeps:
            # weights that are gathered for gradients are there when layers run again
            there = [(op, p) for op, p in own if not _prefetched(op)]
            run_again = total_price([(1.0, p) for _, p in there])
            repeated, extra = _recomputed(block, there, run_again, _by_kind(there), sharding)
            again = again + repeated.times(weight) if block.nodes else repeated
            for kind, time in extra.items():
                again_kinds[kind] = again_kinds.get(kind, 0.0) + (time * weight if block.nodes else time)
        if training and DATA_GROUP in rank.placement.groups:
            busy = busy + weight * _busy(DATA_GROUP, node.apart, rank)
        shown = shown + price.times(weight) if block.nodes else price
        for kind, time in own_kinds.items():
            kinds[kind] = kinds.get(kind, 0.0) + (time * weight if block.nodes else time)
        # a node stands for all iterations of its weight
        ops += [(op, each.times(weight)) for op, each in own] if block.nodes else own
    return PricedBlock(
        block=block,
        ops=tuple(ops),
        price=shown,
        time_by_kind=kinds,
        held=held,
        again=again,
        again_by_kind=again_kinds,
        busy=busy,
        raw=raw,
    )


def _with_prefetched(
    node: PricedNode, rank: Rank, trained: Sharding | None, by_tile: bool
) -> tuple[list[PricedOp], Price]:
    """Ops with what is fetched ahead shown as far as the rest does not cover it; `trained`: how it trains."""
    visible = [(op, p) for op, p in node.apart if not _prefetched(op)]
    priced = overlap_by_tile(node.ops, rank) if by_tile else node.ops
    if trained is not None:
        paired = paired_passes(trained)
        if trained.trainer is not None:
            priced = overlap_of_trainer(priced, rank, trained.trainer)
        if not switched_off(paired):
            priced = beside_other_batch(priced, rank, paired)
    shown = total_price([(1.0, p) for op, p in priced if not _prefetched(op)])
    final = []
    for op, price in priced:
        if is_collective(op) and op.prefetch:
            left = beside(price.time, shown.time, _busy(op.group, visible, rank))
            visible = [*visible, (op, price)]  # the next one that hides finds its links taken
            price = network_price(left, price.energy, upper=price.time)
            shown = shown + price
        final.append((op, price))
    return final, shown


def _prefetched(op: Op) -> bool:
    return is_collective(op) and op.prefetch


def _busy(group: str, ops: list[PricedOp], rank: Rank) -> Number:
    """Time in which collectives keep links busy that a group's own collective needs."""
    busy: Number = 0.0
    shared: dict[str, Number] = {}
    groups = rank.placement.groups
    for op, price in ops:
        if is_collective(op):
            if op.group not in shared:
                shared[op.group] = share_links(groups[group], groups[op.group], rank.fabric)
            # of what goes round beside attention, only what shows is its time
            taken = price.upper if is_ring_step(op) else price.time
            busy = busy + taken * shared[op.group]
    return busy


def _recomputed(
    block: Block, ops: list[PricedOp], whole: Price, kinds: dict[str, Number], sharding: Sharding
) -> tuple[Price, dict[str, Number]]:
    """What a forward block repeats before its backward pass, and its time by category of op."""
    training = sharding.training
    level = training.recompute
    if isinstance(level, float) and level == 0.0:
        return ZERO, {}
    if isinstance(level, float) and level > 1 and recomputes_whole(block):
        return whole, kinds
    # ops of the same modules are repeated by the same plans: they are added up before plans tell them apart
    alike: dict[Any, list[PricedOp]] = {}
    for op, price in ops:
        alike.setdefault(() if is_collective(op) else (recompute_parts(op),), []).append((op, price))
    shares = [(recompute_share(block, some[0][0], training), some) for some in alike.values()]
    some = [(share, made) for share, made in shares if not isinstance(share, float) or share]
    extra: dict[str, Number] = {}
    for share, made in some:
        for kind, time in _by_kind(made).items():
            extra[kind] = extra.get(kind, 0.0) + share * time
    return total_price([(share, total_price([(1.0, p) for _, p in made])) for share, made in some]), extra


def _by_kind(ops: list[PricedOp]) -> dict[str, Number]:
    """Time by category of op."""
    kinds: dict[str, Number] = {}
    for op, price in ops:
        kinds[op.category] = kinds.get(op.category, 0.0) + price.time
    return kinds


def two_halves(blocks: PricedBlocks, halves: PricedBlocks, order: BlockSequence, rank: Rank) -> PricedBlocks:
    """Blocks whose layers run as two half batches beside each other where that is quicker; others whole."""
    inside = [order.in_layers(b.block.name) for b in blocks]
    layers = [
        Halves(b.block, order.starts_layer(b.block.name), b.ops, h.ops)
        for b, h, within in zip(blocks, halves, inside, strict=True)
        if within
    ]
    found = iter(dual_batch_overlap(layers, rank))
    made = []
    for b, within in zip(blocks, inside, strict=True):
        if not within:
            made.append(b)
            continue
        ops = next(found)
        price = total_price([(1.0, p) for _, p in ops])
        made.append(replace(b, ops=tuple(ops), price=price, time_by_kind=_by_kind(ops)))
    return tuple(made)


def left_over(one: Price, other: Price, bandwidth: Number) -> Number:
    r"""Time that kernels add to others beside which they run [s].

    .. math:: T = \max\left(T_1, T_2, C_1 + C_2, \frac{b_1 + b_2}{B}\right) - T_2

    times T_1 and T_2 alone, of which the cores bound C_1 and C_2; bytes b of DRAM, of sustained bandwidth B.
    Launches, floors and waits of one hide behind the other; arithmetic and bytes add up.

    >>> small = Price(time=14e-6, memory=2e-6, overhead=12e-6, memory_bytes=1e7)
    >>> large = Price(time=6e-5, memory=5e-5, memory_bytes=3e8)
    >>> float(left_over(small, large, 7e12)), round(float(left_over(small, large, 4.5e12)) * 1e6, 1)
    (0.0, 8.9)
    """
    xp = namespace(one.time, other.time, one.compute, one.memory_bytes, bandwidth)
    bound = xp.maximum(one.compute + other.compute, (one.memory_bytes + other.memory_bytes) / bandwidth)
    together = xp.minimum(xp.maximum(xp.maximum(one.time, other.time), bound), one.time + other.time)
    return together - other.time


def overlap_shared_experts(priced: list[PricedOp], device: Device) -> list[PricedOp]:
    """Ops with shared experts beside the routed ones, as the engine does (`shared_expert_stream`)."""
    shared = [p for op, p in priced if op.role == SHARED_EXPERT]
    routed = [p for op, p in priced if op.routed]
    if not shared or not routed:
        return priced
    both = [total_price([(1.0, p) for p in part]) for part in (shared, routed)]
    xp = namespace(both[0].time)
    kept = left_over(both[0], both[1], device.bandwidth) / xp.where(both[0].time > 0.0, both[0].time, 1.0)
    share = 1.0 - device.software.shared_expert_stream * (1.0 - kept)
    return [(op, _share_shown(p, share) if op.role == SHARED_EXPERT else p) for op, p in priced]


def _share_shown(price: Price, share: Number) -> Price:
    """A price of which only a share of the time is seen; what it moves and spends stays."""
    return replace(
        price,
        **{name: getattr(price, name) * share for name in CREDITS},
        lower=price.lower * share,
        saved=price.time * (1.0 - share),
    )
