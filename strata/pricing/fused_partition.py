"""The price of fused partitions under rules: many on one chip, or one on a million chips, in a call.

Which kernels lie in a partition is structure (a flag a kernel, or an array of them over partitions); sizes,
times and limits are numbers or arrays. The equations stand in `pricing/fusion.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Mask, Number, namespace, register_pytree
from strata.pricing.fusion import (
    critical_time,
    fill_factor,
    partition_dram,
    partition_sram,
    partition_time,
    partition_traffic,
    transfer_time,
    weight_passes,
)
from strata.pricing.fusion_rules import FusionRules

ROUNDING = 1 + 1e-12  # room for the last bits of sums that just fit


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorUse:
    """A tensor between kernels, by their places: who makes it, who reads it, bytes, and which readers need
    all of it for each tile. The place after the last kernel is the world outside.
    """

    source: int
    targets: tuple[int, ...]
    bytes: Number
    whole: tuple[bool, ...]


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionFlows:
    """Bytes that partitions read and write, and bytes of their buffers: in tiles (to be divided by the number
    of tiles) inside and at the border, and whole.
    """

    read: Number
    written: Number
    internal: Number
    crossing: Number
    whole: Number


def flow_factors(
    tensor: TensorUse, inside: Sequence[Mask], level: Sequence[float], copies: Number
) -> tuple[Number, ...]:
    """How many times a tensor counts in each of the flows of partitions: a matter of structure alone, so that
    it is known once for a million chips (`partition_flows`).

    >>> tensor = TensorUse(source=0, targets=(1,), bytes=8.0, whole=(False,))
    >>> [float(factor) for factor in flow_factors(tensor, (True, True, False), (0.0, 1.0, 0.0), 1.0)]
    [0.0, 0.0, 2.0, 0.0, 0.0]
    """
    made = inside[tensor.source]
    uses: list[Any] = [inside[t] for t in tensor.targets]
    used, all_inside = np.logical_or.reduce(uses), np.logical_and.reduce(uses)
    out, read = made & np.logical_not(all_inside), used & np.logical_not(made)
    deep: Number = 0.0
    held: Any = np.False_
    for use, target, whole in zip(uses, tensor.targets, tensor.whole, strict=True):
        held = held | (use & whole)
        deep = np.maximum(deep, (level[target] - level[tensor.source] + 1.0) * (use & made))
    crossing, tiled = read | out, np.logical_not(held)
    stays = made & used & tiled & ((deep > 2.0) | np.logical_not(crossing))
    borders = crossing & tiled & np.logical_not(stays)
    return 1.0 * read, 1.0 * out, deep * stays, 2.0 * borders, copies * held


def partition_flows(
    tensors: Sequence[TensorUse], inside: Sequence[Mask], level: Sequence[float], copies: Number
) -> PartitionFlows:
    r"""What crosses the border of partitions, and what their buffers hold.

    .. math:: r = \sum_{s \notin P,\, t \in P} b, \quad w = \sum_{s \in P,\, t \notin P} b

    `inside`: for each kernel, and last for the world outside, whether it lies in a partition; `level` of
    each. A tensor that stays in a partition is buffered for the difference of levels + 1 tiles; one that
    crosses, for 2; one that stays and leaves, for the more. What a reader needs whole is held in `copies`.
    DFModel (2024), matrices B and D (equations 1 and 2).

    >>> chain = [TensorUse(source=0, targets=(1,), bytes=8.0, whole=(False,))]
    >>> fused = partition_flows(chain, (True, True, False), (0.0, 1.0, 0.0), 1.0)
    >>> apart = partition_flows(chain, (False, True, False), (0.0, 1.0, 0.0), 1.0)
    >>> float(fused.internal), float(fused.read), float(apart.read), float(apart.crossing)
    (16.0, 0.0, 8.0, 16.0)
    """
    sums: list[Number] = [0.0] * 5
    for tensor in tensors:
        factors = flow_factors(tensor, inside, level, copies)
        sums = [sum_ + tensor.bytes * factor for sum_, factor in zip(sums, factors, strict=True)]
    read_bytes, written, internal, crossing_bytes, whole_bytes = sums
    return PartitionFlows(
        read=read_bytes, written=written, internal=internal, crossing=crossing_bytes, whole=whole_bytes
    )


def live_bytes(tensors: Sequence[TensorUse], done: Sequence[Mask], inside: Sequence[Mask]) -> Number:
    r"""Bytes of tensors in DRAM while partitions run [B]: made before and needed now or later, or made now
    and needed later.

    .. math:: L = \sum_{s \in I,\, t \notin I} b + \sum_{s \in P,\, t \notin I \cup P} b

    `done`: kernels before the partition (I), as `inside` (P). DFModel (2024), matrix L (equation 3).

    >>> chain = [TensorUse(source=0, targets=(1,), bytes=8.0, whole=(False,))]
    >>> float(live_bytes(chain, (True, False, False), (False, True, False)))
    8.0
    """
    total: Number = 0.0
    outside = len(inside) - 1
    for tensor in tensors:
        made = done[tensor.source] | (tensor.source == outside)
        read: list[Any] = [done[t] for t in tensor.targets]
        soon: list[Any] = [done[t] | inside[t] for t in tensor.targets]
        needed, later = (np.logical_not(np.logical_and.reduce(each)) for each in (read, soon))
        total = total + tensor.bytes * ((made & needed) | (inside[tensor.source] & later))
    return total


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionWork:
    """What partitions ask for: flows, their weights and what else they read [B], compute in steady state and
    network time [s], levels of kernels and levels behind whole operands; `alone` where a partition is one
    kernel, `pieces` that it can be taken in then; DRAM that is taken anyway, and by live tensors of one
    micro-batch [B].
    """

    flows: PartitionFlows
    weights: Number
    compute: Number
    network: Number = 0.0
    extra: Number = 0.0
    levels: Number = 1.0
    whole_levels: Number = 0.0
    alone: Number | Mask = 0.0
    pieces: Number = 1.0
    held: Number = 0.0
    live: Number = 0.0


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionLimits:
    """The chip: SRAM and DRAM [B], bandwidth [B/s], start of a kernel [s]."""

    sram: Number
    bandwidth: Number
    capacity: Number = float("inf")
    start: Number = 0.0


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionPrice:
    """Times [s], rooms and traffic [B], and passes over weights of partitions; `fits` where the chip has
    room. `busy`: compute, and communication that only starts after it.
    """

    time: Number
    compute: Number
    busy: Number
    memory: Number
    network: Number
    sram: Number
    dram: Number
    traffic: Number
    passes: Number
    fits: Mask


def price_partition(
    work: PartitionWork, limits: PartitionLimits, rules: FusionRules, tiles: Number, micro_batches: Number
) -> PartitionPrice:
    r"""Time and room of partitions on chips, by the rules.

    .. math:: T = \max(\phi C, M, N) + T_0 / m

    with the terms of `fusion.py`; a single tile computes and communicates in turn (C + N), which only a
    pipeline that fills takes into account; `time` is that of a partition as if it had room.

    >>> from strata.pricing.fusion_rules import fusion_rules
    >>> flows = PartitionFlows(read=4e6, written=6e6, internal=8e6, crossing=2e7, whole=0.0)
    >>> work = PartitionWork(flows=flows, weights=1e6, compute=5e-5, levels=3.0)
    >>> chips = PartitionLimits(sram=np.array([1e6, 1e8]), bandwidth=1e11)
    >>> price = price_partition(work, chips, fusion_rules("dfmodel-2024"), 4.0, 1.0)
    >>> price.time.tolist(), price.sram.tolist(), price.fits.tolist()
    ([0.0001, 0.0001], [8000000.0, 8000000.0], [False, True])
    """
    flows = work.flows
    compute = work.compute
    if rules.fill == "yes":
        # One tile fills no pipeline: kernels without cores of their own then take turns on all of them.
        xp = namespace(tiles, work.levels, work.whole_levels)
        filled = fill_factor(tiles, micro_batches, work.levels, work.whole_levels)
        compute = compute * (filled if rules.compute == "cores" else xp.where(tiles > 1, filled, 1.0))
    internal = flows.internal / tiles
    crossing = flows.crossing / namespace(tiles, work.pieces).maximum(tiles, work.pieces)
    passes: Number = 1.0
    if rules.weight_tiling != "none":
        xp = namespace(work.weights, internal, flows.whole, limits.sram, work.alone)
        most = weight_passes(work.weights, internal + crossing + flows.whole, limits.sram)
        passes = xp.where(work.alone > 0, most, 1.0)
    sram = partition_sram(internal, crossing, flows.whole, work.weights, passes)
    charged = work.weights / micro_batches if rules.weight_traffic == "read" else 0.0
    repeats = rules.weight_tiling == "all"
    traffic = partition_traffic(flows.read, flows.written, passes, charged, work.extra, repeats)
    memory = transfer_time(traffic, limits.bandwidth)
    busy = compute
    if rules.fill == "yes" and rules.overlap == "all":
        # Nothing else is there to work on while the only tile is on its way to other chips.
        xp = namespace(tiles, micro_batches, work.network)
        busy = compute + xp.where(tiles * micro_batches > 1, 0.0, work.network)
    critical = critical_time(busy, memory, work.network, rules.overlap)
    dram = partition_dram(work.held, work.live, micro_batches)
    return PartitionPrice(
        time=partition_time(critical, limits.start if rules.start == "yes" else 0.0, micro_batches),
        compute=compute,
        busy=busy,
        memory=memory,
        network=work.network,
        sram=sram,
        dram=dram,
        traffic=traffic,
        passes=passes,
        fits=(sram <= limits.sram * ROUNDING) & (dram <= limits.capacity * ROUNDING),
    )
