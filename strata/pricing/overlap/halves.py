"""Collectives beside another half batch (dual-batch overlap) or micro-batch, and what trainers hide."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from strata.base.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.mapping.plan_layout import TENSOR_GROUP
from strata.mapping.training_plan import SCHEDULE
from strata.pricing.kernels.device import Device
from strata.pricing.overlap.tiles import Pair, hidden_bound, kernels_apart, overlap_by_tile, pairs, tile_link
from strata.pricing.price import ZERO, Price, exposed, price_where, slowed, total_price, while_sending
from strata.pricing.pricers import PricedOp, Rank
from strata.software.trainer import Trainer
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
    by itself. Small kernels are not half as long at half the batch: halves are priced as they are, and taken
    for all layers of a step or for none. Layers of several kinds of attention are paired with the mean of
    them.
    """
    device = rank.device
    loads = [_load(h, rank) for h in layers]
    mixing = [(h.block.times, load) for h, load in zip(layers, loads, strict=True) if h.starts_layer]
    attention = _mean(mixing) if mixing else HalfLoad(0.0, 0.0, 0.0, ZERO)
    each = [
        None if h.starts_layer else _shown(_sum(load, attention), h.block.times, device)
        for h, load in zip(layers, loads, strict=True)
    ]
    seen = [(h.block.times, one) for h, one in zip(layers, each, strict=True) if one is not None]
    if not seen:
        both = zip(layers, loads, strict=True)
        seen = [(h.block.times, _shown(load, h.block.times, device)) for h, load in both]
    count = sum((c for c, _ in seen), 0.0)
    usual = Shown(*(sum((c * getattr(s, f.name) for c, s in seen), 0.0) / count for f in fields(Shown)))
    made = [
        [_doubled(op, price, one or usual, device) for op, price in h.half]
        for h, one in zip(layers, each, strict=True)
    ]
    return _quicker_halves(layers, made, device.software.for_bounds)


@dataclass(frozen=True, eq=False, slots=True)
class HalfLoad:
    """One half of a layer, or of a part of it: its collectives (`sent_at_once`) and its kernels."""

    sending: Number
    moved: Number
    cores: Number
    work: Price


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """What two halves leave to see of communication."""

    left: Number  # share that nothing covers
    cores: Number
    rate: Number  # bytes for a second of work


def _load(h: Halves, rank: Rank) -> HalfLoad:
    sent = [(op, _raw(op, price)) for op, price in h.half if is_collective(op)]
    work = total_price([(1.0, p) for op, p in h.half if not is_collective(op)])
    return HalfLoad(*sent_at_once(sent, rank), work)


def sent_at_once(sent: list[tuple[Collective, Number]], rank: Rank) -> tuple[Number, Number, Number]:
    """Time of collectives [s], their bytes through the memory, and the most cores that one takes."""
    sending: Number = 0.0
    moved: Number = 0.0
    cores: Number = 0.0
    for op, time in sent:
        link = tile_link(op, rank.placement.groups[op.group], rank.fabric)
        sending, moved = sending + time, moved + link.moved
        cores = namespace(cores, link.cores).maximum(cores, link.cores)
    return sending, moved, cores


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


def _quicker_halves(layers: list[Halves], halved: list[list[PricedOp]], each: bool) -> list[list[PricedOp]]:
    """The halves where all layers together are quicker so, else the whole batch; in bounds `each` alone."""
    gains = [
        h.block.times * sum((p.time - q.time for (_, p), (_, q) in zip(h.full, new, strict=True)), 0.0)
        for h, new in zip(layers, halved, strict=True)
    ]
    every = sum(gains, 0.0)
    return [
        [
            (op, price_where((gain if each else every) > 0.0, replace(new, saved=old.time - new.time), old))
            for (op, old), (_, new) in zip(h.full, found, strict=True)
        ]
        for h, found, gain in zip(layers, halved, gains, strict=True)
    ]


DUALPIPE = SCHEDULE[-1]


def overlap_of_trainer(priced: list[PricedOp], rank: Rank, trainer: Trainer) -> list[PricedOp]:
    """The ops of a training block with its collectives beside kernels, as far as the software has them so."""
    ops = tuple(op for op, _ in priced)
    bulk = 1.0 if trainer.async_tp is None else trainer.async_tp
    chosen = [] if switched_off(bulk) else [(pair, bulk) for pair in _beside_gradients(ops)]
    if not switched_off(trainer.tp_comm_overlap):
        tiles = (pair for pair in pairs(ops) if _of_tensor_group(ops[pair.collective]))
        chosen += [(pair, trainer.tp_comm_overlap) for pair in tiles]
    return overlap_by_tile(priced, rank, chosen) if chosen else priced


def paired_passes(sharding: Sharding) -> Number:
    """1 where passes of two micro-batches run beside each other: by DualPipe, or by the software's flag."""
    trainer, schedule = sharding.trainer, sharding.training.schedule
    flag = 0.0 if trainer is None else trainer.overlap_moe_expert_parallel_comm
    flag = 0.0 if flag is None else flag
    if DUALPIPE not in sharding.active:
        return flag
    xp = namespace(schedule, flag)
    return xp.maximum(flag, xp.where(schedule == float(SCHEDULE.index(DUALPIPE)), 1.0, 0.0))


def switched_off(switch: Number) -> bool:
    """Whether no point of a batch has it: then it need not be priced. Numbers of a compiler are open."""
    if switch.__class__ is float:
        return switch == 0.0
    return isinstance(switch, float | int | np.ndarray | np.number) and not np.any(switch)


def _of_tensor_group(op: Op) -> bool:
    return is_collective(op) and op.group == TENSOR_GROUP


def _beside_gradients(ops: tuple[Op, ...]) -> list[Pair]:
    """Collectives of a tensor group with the product of a gradient that does not wait for them: sums of an
    input's gradient with the product for the weight, a gather of the saved input with that for the input.

    Megatron-LM, core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.
    """
    found = []
    for i, op in enumerate(ops):
        if not (_of_tensor_group(op) and is_collective(op)) or not op.inputs:
            continue
        other = _other_gradient(op, ops)
        if other >= 0:
            found.append(Pair(i, (other,), "apart"))
    return found


def _other_gradient(op: Collective, ops: tuple[Op, ...]) -> int:
    """The product of a gradient beside which a collective may run: of the same result's gradient as the
    product that made what is summed, or that reads what is gathered; -1 where there is none.
    """
    saved = ":" in op.output  # left by the forward pass
    for mine in ops:
        if is_collective(mine) or not mine.backward or mine.routed or not mine.multiplies:
            continue
        if saved and not (mine.weight_gradient and op.output in mine.inputs):
            continue
        if not saved and (mine.weight_gradient or mine.output != op.inputs[0]):
            continue
        arrives = {tensor for tensor in mine.inputs if ":" not in tensor}
        for place, kernel in enumerate(ops):
            pair = kernel.multiplies and not kernel.routed and kernel.backward
            if pair and kernel.weight_gradient != mine.weight_gradient and arrives & set(kernel.inputs):
                return place
    return -1


def is_exchange(op: Op) -> bool:
    """Whether it carries tokens to experts or back."""
    return is_collective(op) and op.exchange is not None


def beside_other_batch(priced: list[PricedOp], rank: Rank, on: Number) -> list[PricedOp]:
    """A block of experts whose exchanges run beside kernels of another micro-batch's pass over such a block,
    as long as its own and slowed by the cores and bytes that exchanges take; `on` where passes run so
    (`paired_passes`). What an exchange `saved` is net of what kernels lose by it: without, both take so much
    longer.

    Megatron-LM, --overlap-moe-expert-parallel-comm: forward of one micro-batch and backward of another;
    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, sec. 3.2.1 and fig. 4 (DualPipe). All of a
    layer's kernels, attention's too, would hide more: measured runs that set the flag are slower than that.
    """
    kernels = [place for place, (op, _) in enumerate(priced) if not is_collective(op)]
    exchanges = [(op, p.time) for op, p in priced if is_collective(op) and op.exchange is not None]
    sent, moved, cores = sent_at_once(exchanges, rank)
    if isinstance(sent, float) and sent == 0.0:
        return priced
    work = [priced[place][1] for place in kernels]
    slower, left = kernels_apart(sent, cores, moved, work, rank.device)
    before, after = (sum((p.time for p in some), 0.0) for some in (work, slower))
    bound = sum((p.lower for p in work), 0.0)
    xp = namespace(sent, left, before, after)
    better = (on > 0.0) & (after + left < before + sent)
    safe = xp.where(sent > 0.0, sent, 1.0)
    share, gain = left / safe, (before + sent - after - left) / safe
    made = list(priced)
    for place, new in zip(kernels, slower, strict=True):
        made[place] = (priced[place][0], price_where(better, new, priced[place][1]))
    for place, (op, price) in enumerate(priced):
        if is_exchange(op):
            seen = price.time * share
            lower = hidden_bound(price.lower, bound, seen)
            saved = gain * price.time
            hidden = replace(price, time=seen, network=seen, lower=lower, saved=saved)
            made[place] = (op, price_where(better, hidden, price))
    return made
