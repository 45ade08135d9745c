"""Collectives fused with the kernels that feed them or that they feed: tile by tile, on the cores and links
both share.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, namespace
from strata.hardware.fabric import Dimension, Fabric
from strata.mapping.place import GroupLayout
from strata.pricing.kernels.device import Device
from strata.pricing.network.algorithms import group_link
from strata.pricing.network.collectives import WHOLE, cheapest, dimension_ways
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


def tile_link(op: Collective, spreads: tuple[GroupLayout, ...], fabric: Fabric) -> Link:
    """What a collective asks for when tiles carry it, dimension by dimension as the library does it."""
    sending: Number = 0.0
    waiting: Number = 0.0
    cores: Number = 0.0
    crossing: Number = 0.0
    inner: Number = 1.0
    ranks: Number = 1.0
    passes = 2.0 if op.pattern == "all_reduce" else 1.0
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        payload = _payload(op) if op.pattern in WHOLE else op.payload / inner
        sent = passes * (spread.size - 1.0) / spread.size * payload
        one, wait, taken = _in_dimension(op, payload, sent, spread, dimension)
        xp = namespace(spread.size, one, sending, taken)
        crosses = spread.size > 1.0
        sending = sending + xp.where(crosses, one, 0.0)
        waiting = waiting + xp.where(crosses, wait, 0.0)
        cores = xp.maximum(cores, xp.where(crosses, taken, 0.0))
        crossing = crossing + xp.where(crosses, sent, 0.0)
        inner = inner * spread.members
        ranks = ranks * spread.size
    summed = op.payload * (1.0 + 1.0 / ranks) if op.pattern in SUMMED else 0.0
    return Link(sending, waiting, cores, 2.0 * crossing, summed, ranks)


def _payload(op: Collective) -> Number:
    """Bytes a rank sends: to experts a message for each of a token's picks, as kernels without a second copy
    at the far side do.
    """
    made = op.exchange
    return op.payload if made is None else made.tokens * made.top_k * made.width * made.element * made.busiest


def _in_dimension(
    op: Collective, payload: Number, sent: Number, spread: GroupLayout, dimension: Dimension
) -> tuple[Number, Number, Number]:
    """Time on the links, time of meetings or hops, and cores taken inside one dimension."""
    if dimension.transport_model is None:
        whole = cheapest(dimension_ways(op, payload, spread, dimension))
        hops = cheapest(dimension_ways(op, LEAST * payload, spread, dimension))
        return namespace(whole, hops).maximum(whole - hops, 0.0), hops, 0.0
    by = dimension.transport_model.tiles
    if by is None:
        return float("inf"), 0.0, 0.0
    name = op.exchange.direction if op.exchange is not None and op.exchange.direction else op.pattern
    return sent / (by.share * group_link(spread, dimension)), MEETINGS[name] * by.start, by.cores


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
