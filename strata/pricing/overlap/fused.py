"""Collectives fused with the kernels that feed them or that they feed: tile by tile, on the cores and links
both share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strata.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.mapping.place import GroupLayout
from strata.memo import Memo, is_settled, value_key
from strata.pricing.kernels.device import Device
from strata.pricing.network.algorithm_names import cheapest
from strata.pricing.network.algorithms import group_link
from strata.pricing.network.collectives import Crossing, crossings, level_bytes, over_nodes
from strata.pricing.network.level_parts import Level
from strata.pricing.network.levels import slowest
from strata.pricing.overlap.equations import MEETINGS, in_pieces, own_first, slowed
from strata.pricing.price import Price
from strata.workload.graph import Collective

SUMMED = ("all_reduce", "reduce_scatter")  # patterns whose parts are added up when they have come
LEAST = 1e-6  # of a buffer: what it takes is latency


@dataclass(frozen=True, eq=False, slots=True)
class Link:
    """A collective as tiles take it: time on the links, meetings and hops, cores it takes, and what it costs
    elsewhere.
    """

    sending: Number  # bytes over the links [s]; infinite where no kernel can do it
    waiting: Number  # meetings of the ranks, or hops, that no piece hides [s]
    cores: Number  # share taken
    moved: Number  # bytes through the memory of a rank
    summed: Number  # bytes read and written once more to add parts up
    ranks: Number


def tile_link(op: Collective, layouts: tuple[GroupLayout, ...], fabric: Fabric) -> Link:
    """What a collective asks for when tiles carry it: dimension by dimension as the library does it, and over
    nodes on all levels at once, so that the slowest rules.
    """
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
    """Bytes a rank sends: to experts a message for each of a token's picks, as kernels without a second copy
    at the far side do.
    """
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
    every = sum((p.time for p in work), 0.0)
    shares = [p.time / namespace(every).where(every > 0.0, every, 1.0) for p in work]
    slower = [
        slowed(p, link.cores, link.moved * share, device.bandwidth)
        for p, share in zip(work, shares, strict=True)
    ]
    busy = sum((p.time for p in slower), 0.0)
    if feeds:
        together = in_pieces(busy, link.sending, pieces)
    elif op.pattern == "all_gather":
        together = own_first(link.sending, busy, namespace(link.ranks, pieces).minimum(link.ranks, pieces))
    else:
        together = in_pieces(link.sending, busy, pieces)
    return slower, together + link.waiting + link.summed / device.bandwidth - busy
