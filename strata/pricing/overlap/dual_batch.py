"""Two half batches beside each other: collectives of one run beside the kernels of the other (dual-batch
overlap).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from strata.arrays import Number, namespace
from strata.pricing.kernels.device import Device
from strata.pricing.overlap.equations import exposed, slowed, while_sending
from strata.pricing.overlap.fused import tile_link
from strata.pricing.price import ZERO, Price, price_where, total_price
from strata.pricing.pricers import PricedOp, Rank
from strata.workload.graph import Block, Collective, Op, is_collective


@dataclass(frozen=True, eq=False, slots=True)
class Halves:
    """A block at the full batch, and its ops at half of it."""

    block: Block
    starts_layer: bool
    full: tuple[PricedOp, ...]
    half: tuple[PricedOp, ...]


def dual_batch_overlap(layers: list[Halves], rank: Rank) -> list[list[PricedOp]]:
    """The ops of layers whose batch is cut in two: collectives of one half run beside kernels of the other,
    where that is quicker.

    A layer is attention and what follows it (`seen_of_halves`); where no layer has two parts, each is a layer
    by itself. Small kernels are not half as long at half
    the batch: halves are priced as they are, and taken for all layers of a step or for none. Layers of
    several kinds of attention are paired with the mean of them.
    """
    device = rank.device
    loads = [_load(h, rank) for h in layers]
    mixing = [(h.block.times, load) for h, load in zip(layers, loads, strict=True) if h.starts_layer]
    attention = _mean(mixing) if mixing else HalfLoad(0.0, 0.0, 0.0, ZERO)
    made: list[list[PricedOp]] = [[] for _ in layers]
    seen: list[tuple[Number, Shown]] = []
    for place, (h, load) in enumerate(zip(layers, loads, strict=True)):
        if not h.starts_layer:
            found = _shown(_sum(load, attention), h.block.times, device)
            made[place] = [_doubled(op, price, found, device) for op, price in h.half]
            seen.append((h.block.times, found))
    if not seen:
        seen = [
            (h.block.times, _shown(load, h.block.times, device))
            for h, load in zip(layers, loads, strict=True)
        ]
    count = sum((c for c, _ in seen), 0.0)
    usual = Shown(*(sum((c * getattr(s, f.name) for c, s in seen), 0.0) / count for f in fields(Shown)))
    for place, h in enumerate(layers):
        if h.starts_layer:
            made[place] = [_doubled(op, price, usual, device) for op, price in h.half]
    return _quicker(layers, made, device.software.for_bounds)


@dataclass(frozen=True, eq=False, slots=True)
class HalfLoad:
    """One half of a layer, or of a part of it: time of its collectives, their bytes through memory and cores,
    and its kernels.
    """

    sending: Number
    moved: Number
    cores: Number
    work: Price


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """What two halves leave to see: the share of communication that nothing covers, cores it takes, its bytes
    for a second of work.
    """

    left: Number
    cores: Number
    rate: Number


def _load(h: Halves, rank: Rank) -> HalfLoad:
    sending: Number = 0.0
    moved: Number = 0.0
    cores: Number = 0.0
    for op, price in h.half:
        if is_collective(op):
            link = tile_link(op, rank.placement.groups[op.group], rank.fabric)
            sending, moved = sending + _raw(op, price), moved + link.moved
            cores = namespace(cores, link.cores).maximum(cores, link.cores)
    return HalfLoad(
        sending, moved, cores, total_price([(1.0, p) for op, p in h.half if not is_collective(op)])
    )


def _raw(op: Collective, price: Price) -> Number:
    """Time of a half's collective; weights that are gathered serve both halves."""
    return 0.5 * price.upper if op.prefetch else price.time


def _mean(parts: list[tuple[Number, HalfLoad]]) -> HalfLoad:
    """The mean of so many of each."""
    count = sum((c for c, _ in parts), 0.0)
    sending, moved, cores = (
        sum((c * getattr(load, name) for c, load in parts), 0.0) / count
        for name in ("sending", "moved", "cores")
    )
    return HalfLoad(sending, moved, cores, total_price([(c / count, load.work) for c, load in parts]))


def _sum(one: HalfLoad, other: HalfLoad) -> HalfLoad:
    cores = namespace(one.cores, other.cores).maximum(one.cores, other.cores)
    return HalfLoad(one.sending + other.sending, one.moved + other.moved, cores, one.work + other.work)


def seen_of_halves(busy: Number, sending: Number, layers: Number) -> Number:
    r"""Communication of one of two half batches that nothing covers, in a layer whose halves run beside each
    other [s].

    .. math:: s = \max(0, n - c) + \frac{\min(c, n)}{2 L}, \quad T = 2 (c + s) = 2 \max(c, n) + \frac{\min(c, n)}{L}

    kernels c of a layer at half the batch, as slow as communication beside them leaves them; its collectives
    n, at half the batch too. Once in L layers the first half has nothing to run beside.

    >>> float(seen_of_halves(2.0, 1.0, 50.0)), float(seen_of_halves(1.0, 2.0, 50.0))
    (0.01, 1.01)
    """
    return exposed(sending, busy) + namespace(busy, sending).minimum(busy, sending) / (2.0 * layers)


def _shown(layer: HalfLoad, count: Number, device: Device) -> Shown:
    cores = while_sending(layer.cores, layer.work.time, layer.sending)
    busy = slowed(layer.work, cores, layer.moved, device.bandwidth).time
    xp = namespace(busy, layer.sending, count)
    left = seen_of_halves(busy, layer.sending, count)
    rate = layer.moved / xp.where(layer.work.time > 0.0, layer.work.time, 1.0)
    return Shown(left / xp.where(layer.sending > 0.0, layer.sending, 1.0), cores, rate)


def _doubled(op: Op, price: Price, seen: Shown, device: Device) -> PricedOp:
    """An op of both halves."""
    if is_collective(op):
        time = 2.0 * seen.left * _raw(op, price)
        return op, replace(price.times(1.0 if op.prefetch else 2.0), time=time, network=time, lower=0.0)
    return op, slowed(price, seen.cores, seen.rate * price.time, device.bandwidth).times(2.0)


def _quicker(layers: list[Halves], halved: list[list[PricedOp]], each: bool) -> list[list[PricedOp]]:
    """The halves where all layers together are quicker that way, else the whole batch; `each` layer for
    itself where bounds are asked for.
    """
    gains = [
        h.block.times * sum((p.time - q.time for (_, p), (_, q) in zip(h.full, new, strict=True)), 0.0)
        for h, new in zip(layers, halved, strict=True)
    ]
    return [
        [
            (
                op,
                price_where(
                    (gain if each else sum(gains, 0.0)) > 0.0, replace(new, saved=old.time - new.time), old
                ),
            )
            for (op, old), (_, new) in zip(h.full, found, strict=True)
        ]
        for h, found, gain in zip(layers, halved, gains, strict=True)
    ]
