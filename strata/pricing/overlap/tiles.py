"""Collectives hidden behind a block's kernels: tile by tile, beside kernels apart, or round a ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strata.base.arrays import Number, namespace
from strata.base.memo import Memo, is_settled, value_key
from strata.base.precision import bytes_of
from strata.hardware.fabric import Fabric
from strata.mapping.place import GroupLayout
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.network.algorithm_names import Level, cheapest, group_link
from strata.pricing.network.collectives import Crossing, crossings, level_bytes, over_nodes
from strata.pricing.network.levels import slowest
from strata.pricing.price import (
    MEETINGS,
    Price,
    exposed,
    in_pieces,
    network_price,
    own_first,
    price_where,
    ring_exposed,
    slowed,
    total_price,
    while_sending,
)
from strata.pricing.pricers import PricedOp, Rank, price_op, takes_tiles, tile_pieces
from strata.workload.expert_ops import SHARED_EXPERT
from strata.workload.graph import Collective, Extent, Op, is_collective
from strata.workload.ops import Attention, is_attention

SUMMED = ("all_reduce", "reduce_scatter")  # patterns whose parts are added up when they have come
LEAST = 1e-6  # of a buffer: what it takes is latency


@dataclass(frozen=True, eq=False, slots=True)
class Link:
    """A collective as tiles take it."""

    sending: Number  # bytes over the links [s]; infinite where no kernel can do it
    waiting: Number  # meetings of the ranks, or hops, that no piece hides [s]
    cores: Number  # share taken
    moved: Number  # bytes through the memory of a rank
    summed: Number  # bytes read and written once more to add parts up
    ranks: Number


def tile_link(op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric) -> Link:
    """What a collective asks for when tiles carry it: by dimension, over nodes on all levels at once."""
    key = value_key(op.pattern, op.payload, op.exchange, layouts) if is_settled(fabric) else None
    return _LINKS.of(key and (fabric, key), lambda: _tile_link(op, layouts, fabric))


_LINKS = Memo(4096)


def _tile_link(op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric) -> Link:
    cores: Number = 0.0
    ranks: Number = 1.0
    passes = 2.0 if op.pattern == "all_reduce" else 1.0
    sends: list[Number] = []
    waits: list[Number] = []
    bytes_sent: list[Number] = []
    for here in crossings(op, layouts, fabric, payload=_payload(op)):
        sent = passes * here.sent()
        one, wait, taken = _in_dimension(op, here, sent)
        sends.append(here.where(one))
        waits.append(here.where(wait))
        bytes_sent.append(here.where(sent))
        there = here.where(taken)
        cores = namespace(cores, there).maximum(cores, there)
        ranks = ranks * here.layout.size
    sending, waiting, crossing = (sum(some, start=0.0) for some in (sends, waits, bytes_sent))
    over = over_nodes(layouts, fabric)
    if over is not None:
        at_once, all_sent = _on_levels(passes, op, over.levels)
        xp = namespace(over.where, at_once, sending, crossing)
        sending = xp.where(over.where, at_once, sending)
        waiting = xp.where(over.where, slowest(waits), waiting)
        crossing = xp.where(over.where, all_sent, crossing)
    summed = op.payload * (1.0 + 1.0 / ranks) if op.pattern in SUMMED else 0.0
    return Link(sending, waiting, cores, 2.0 * crossing, summed, ranks)


def _on_levels(passes: float, op: Collective, levels: Sequence[Level]) -> tuple[Number, Number]:
    """Time of what tiles send over all levels at once [s], and the bytes of a rank."""
    each = [passes * sent for sent in level_bytes(op.pattern, _payload(op), levels)]
    times = [_on_level(sent, one) for sent, one in zip(each, levels, strict=True)]
    return slowest(times), sum((one.where(s) for s, one in zip(each, levels, strict=True)), start=0.0)


def _on_level(sent: Number, level: Level) -> Number:
    """Time of bytes that tiles send over a level's links [s]."""
    tiles = level.transport.tiles
    return float("inf") if tiles is None else level.where(sent / (tiles.share * level.link))


def _payload(op: Collective) -> Number:
    """Bytes a rank sends: to experts a message a pick, of kernels that make no copy at the far side."""
    made = op.exchange
    return op.payload if made is None else made.tokens * made.top_k * made.width * made.element * made.busiest


def _in_dimension(op: Collective, here: Crossing, sent: Number) -> tuple[Number, Number, Number]:
    """Time on the links, time of meetings or hops, and cores taken inside one dimension."""
    transport = here.dimension.transport_model
    if transport is None:
        whole = cheapest(here.times(op))
        hops = cheapest(replace(here, payload=LEAST * here.payload).times(op))
        return namespace(whole, hops).maximum(whole - hops, 0.0), hops, 0.0
    tiles = transport.tiles
    if tiles is None:
        return float("inf"), 0.0, 0.0
    name = op.exchange.direction if op.exchange is not None and op.exchange.direction else op.pattern
    link = group_link(here.layout, here.dimension)
    return sent / (tiles.share * link), MEETINGS[name] * tiles.start, tiles.cores


def fuse(
    op: Collective, link: Link, work: list[Price], pieces: Number, feeds: bool, device: Device
) -> tuple[list[Price], Number]:
    """Kernels that run beside a collective, slowed by it, and the time that it adds to them [s].

    feeds: the kernels make what is sent; else they take in what comes, of a gather their own piece first.
    """
    slower, busy = _slowed_together(work, link.cores, link.moved, device)
    if feeds:
        together = in_pieces(busy, link.sending, pieces)
    elif op.pattern == "all_gather":
        together = own_first(link.sending, busy, namespace(link.ranks, pieces).minimum(link.ranks, pieces))
    else:
        together = in_pieces(link.sending, busy, pieces)
    return slower, together + link.waiting + link.summed / device.bandwidth - busy


@dataclass(frozen=True)
class Pair:
    """A collective and the ops that may run beside it, by their places in a block."""

    collective: int
    beside: tuple[int, ...]
    # feeds: the ops make what is sent; fed: they read what comes; apart: neither waits for the other
    role: str
    between: tuple[int, ...] = ()  # collectives that part them wherever they carry anything


def pairs(ops: tuple[Op, ...]) -> list[Pair]:
    """Which collectives of a block may overlap with which of its ops, first come first served: an op hides
    one at most.

    Sums with the product before them, gathers and exchanges with the product or attention that reads them,
    tokens on their way to experts with the experts all tokens share.
    """
    sent = [(i, op) for i, op in enumerate(ops) if is_collective(op) and not (op.prefetch or op.overlaps)]
    return [pair for i, op in sent if (pair := _neighbours(i, op, ops)).beside]


def _neighbours(i: int, op: Collective, ops: tuple[Op, ...]) -> Pair:
    shared = tuple(j for j, kernel in enumerate(ops) if kernel.role == SHARED_EXPERT)
    if op.exchange is not None and op.exchange.direction == "dispatch" and shared:
        return Pair(i, shared, "apart")
    made = _maker(op.inputs[0], ops[:i]) if op.inputs else -1
    # routed and shared results are added: what comes last of them can feed the sum
    if shared and made in shared:
        made = next((j for j, kernel in enumerate(ops) if kernel.route == "combine"), made)
    if made >= 0 and ops[made].multiplies:
        return Pair(i, (made,), "feeds")
    if made >= 0 and ops[made].route == "combine":
        product = _maker(ops[made].inputs[0], ops[:made])
        if product >= 0:
            between = tuple(j for j in range(product + 1, made) if is_collective(ops[j]))
            return Pair(i, (product, made), "feeds", between)
    if op.pattern in ("all_gather", "all_to_all"):
        for j in range(i + 1, len(ops)):
            if op.output in ops[j].inputs and takes_tiles(ops[j]):
                return Pair(i, (j,), "fed")
    return Pair(i, (), "")


def _maker(tensor: str, ops: tuple[Op, ...]) -> int:
    """The place of the kernel that made a tensor, or -1."""
    makers = (j for j, op in enumerate(ops) if op.output == tensor and not is_collective(op))
    return max(makers, default=-1)


def overlap_by_tile(
    priced: list[PricedOp], rank: Rank, chosen: list[tuple[Pair, Number]] | None = None
) -> list[PricedOp]:
    """The ops of a block with each collective beside its neighbours wherever that is quicker than one after
    the other; `chosen`: pairs with 1 where the software runs them so, else all there are.

    Some of a batch's plans lack some of its collectives: those carry nothing there, part nothing and take no
    op.
    """
    device, made = rank.device, list(priced)
    free: list[Number] = [1.0] * len(priced)  # 0 where an op hides a collective already, point by point
    if chosen is None:
        chosen = [(pair, 1.0) for pair in pairs(tuple(op for op, _ in priced))]
    for pair, on in chosen:
        op, alone = priced[pair.collective]
        assert is_collective(op)
        link = tile_link(op, rank.placement.groups[op.group], rank.fabric)
        work = [priced[j][1] for j in pair.beside]
        if pair.role == "apart":
            slower, added = kernels_apart(alone.time, link.cores, link.moved, work, device)
        else:
            pieces = tile_pieces(priced[pair.beside[0]][0], device, link.ranks)
            slower, added = fuse(op, link, work, pieces, pair.role == "feeds", device)
        before = total_price([(1.0, p) for p in work])
        after = total_price([(1.0, p) for p in slower])
        gain = before.time + alone.time - after.time - added
        better = (gain > 0.0) & (on > 0.0) & (alone.time > 0.0)
        for j in (pair.collective, *pair.beside):
            better = better & (free[j] > 0.0)
        for j in pair.between:
            better = better & (priced[j][1].time <= 0.0)
        for j, new in zip(pair.beside, slower, strict=True):
            made[j] = (priced[j][0], price_where(better, new, made[j][1]))
        # a bound may not depend on which of two collectives came first
        for j in (pair.collective, *(() if device.software.for_bounds else pair.beside)):
            free[j] = namespace(free[j], gain).where(better, 0.0, free[j])
        lower = hidden_bound(alone.lower, before.lower, added)
        hidden = replace(alone, time=added, network=added, lower=lower, saved=gain)
        made[pair.collective] = (op, price_where(better, hidden, made[pair.collective][1]))
    return made


def hidden_bound(communication: Number, work: Number, added: Number) -> Number:
    r"""Lower bound of what a collective adds to kernels beside which it runs [s].

    .. math:: \min(\max(0, c - h), a)

    bounds c of the collective and h of the kernels: both at once are bound by the slower of them, not by
    their sum; never more than it is predicted to add, a, which kernels slower than their bound may cover.

    >>> [float(hidden_bound(3.0, work, 1.5)) for work in (1.0, 2.0, 4.0)]
    [1.5, 1.0, 0.0]
    """
    left = exposed(communication, work)
    return namespace(left, added).minimum(left, added)


def kernels_apart(
    sending: Number, cores: Number, moved: Number, work: list[Price], device: Device
) -> tuple[list[Price], Number]:
    """Kernels that no tile of a collective waits for, slowed while it lasts, and what of it is left [s]."""
    share = while_sending(cores, sum((p.time for p in work), 0.0), sending)
    slower, busy = _slowed_together(work, share, moved, device)
    return slower, exposed(sending, busy)


def _slowed_together(
    work: list[Price], cores: Number, moved: Number, device: Device
) -> tuple[list[Price], Number]:
    """Kernels that share out by their times what communication moves beside them, and their time then [s]."""
    every = sum((p.time for p in work), 0.0)
    parts = [p.time / namespace(every).where(every > 0.0, every, 1.0) for p in work]
    slower = [slowed(p, cores, moved * part, device.bandwidth) for p, part in zip(work, parts, strict=True)]
    return slower, sum((p.time for p in slower), 0.0)


MERGE_FLOP = 4.0  # of an element: two factors of exponentials' sums, a product and an addition
SUM = "fp32"  # format in which results of parts are added up


def is_ring_step(op: Op) -> bool:
    """Whether it is passed round in steps beside another op."""
    return is_collective(op) and bool(op.overlaps)


def rings_shown(priced: list[PricedOp], rank: Rank, training: bool) -> list[PricedOp]:
    """Ops with what goes round shown as far as the op behind does not cover it; training prices its parts."""
    made = dict(enumerate(priced))
    places = {op.name: place for place, (op, _) in enumerate(priced)}
    for place, (op, price) in enumerate(priced):
        if not (is_collective(op) and op.overlaps):
            continue
        over = places[op.overlaps]
        kernel, whole = made[over]
        if training and is_attention(kernel):
            parts = _in_parts(kernel, op.steps, rank)
            whole = price_where(op.payload > 0.0, parts, whole)
            made[over] = (kernel, whole)
        left = ring_exposed(price.time, whole.time, op.steps)
        made[place] = (op, network_price(left, price.energy, upper=price.time))
    return [made[place] for place in range(len(priced))]


def _in_parts(op: Attention, steps: Number, rank: Rank) -> Price:
    """Attention over one rank's keys after another's, and its results merged: forward each part's output is
    scaled by its share of the exponentials and added up, backward gradients of queries, keys and values are.

    Transformer Engine, context_parallel.py (cp_comm_type "p2p"): a kernel for each step, then a correction.
    """
    count = steps + 1.0
    part = replace(op, span=_over(op.span, count), cached=_over(op.cached, count))
    out = op.sequences.size * op.queries.size * op.heads.size * op.value_dim
    keys = op.sequences.size * part.cached.size * op.kv_heads.size * op.kv_width
    summed = out + keys if op.backward else out
    wide, narrow = bytes_of(SUM), bytes_of(op.activation)
    merge = vector_kernel(summed * (narrow + wide), summed * wide, MERGE_FLOP * summed, 0.0, rank.device)
    return price_op(part, rank).times(count) + merge.times(steps)


def _over(extent: Extent, count: Number) -> Extent:
    return replace(extent, unit=extent.unit / count)
