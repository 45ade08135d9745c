"""Time and room of partitions under rules: kernels fused on one chip, tiles streaming through them; many on
one chip, or one on a million chips, in a call.

The kernels of a graph run in partitions, one after the other. Inside one, each kernel has a share of the
cores and hands tiles to the next; tensors that cross a partition's border go through DRAM. Which kernels lie
in a partition is structure (a flag a kernel, or an array of them over partitions). Formulation: Ko et al.,
DFModel (2024), section V; its program's own choices are switches (`FusionRules`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.base.arrays import Mask, Number, ceil_div, namespace
from strata.base.errors import BadValue
from strata.params import record
from strata.pricing.fusion_rules import FusionRules

STREAM_AXES = ("tokens", "sequences", "queries", "samples")  # of which tiles of shipped programs are parts


def is_streamed(axis: str, streams: Collection[str] = STREAM_AXES) -> bool:
    """Whether tiles are parts of an axis, or of one of the axes of a product.

    >>> is_streamed("sequence*samples"), is_streamed("heads")
    (True, False)
    """
    return any(name in streams for name in axis.split("*"))


def core_cycles(
    rows: Number, columns: Number, depth: Number, lanes: Number, stages: Number, array: tuple[Number, Number]
) -> Number:
    r"""Cycles of one tile of a kernel on lanes x stages cores, each an array of W x H multipliers.

    .. math:: c = \left\lceil \frac{M}{l W} \right\rceil \left\lceil \frac{N'}{s H} \right\rceil K

    M rows, N' columns of the tile, depth K; `array` is (W, H). Element-wise work has depth 1 and uses one row
    of each array: pass (W, 1) and one stage. DFModel (2024), program; after SCALE-Sim's fold counts.

    >>> core_cycles(1536.0, 512.0, 12288.0, 48.0, 13.0, (32.0, 6.0)) / 12288.0  # 1 x 7 folds
    7.0
    >>> core_cycles(12288.0, 512.0, 1.0, 64.0, 1.0, (32.0, 1.0)) / 512.0  # element-wise: 6 rows a lane
    6.0
    """
    width, height = array
    return ceil_div(rows, lanes * width) * ceil_div(columns, stages * height) * depth


def pipelined_time(cycles: Number, tiles: Number, clock: Number) -> Number:
    r"""Compute time of a partition in steady state [s]: its slowest kernel, for every tile.

    .. math:: C = \max_k c_k \; n / f

    >>> pipelined_time(86016.0, 4.0, 1.25e9)
    0.0002752512
    """
    return cycles * tiles / clock


def utilised_time(flop: Number, peak: Number, utilisation: Number) -> Number:
    r"""Compute time of a partition whose kernels all reach a stated share of the peak [s].

    .. math:: C = \frac{\sum_k F_k}{u P}

    >>> utilised_time(2.7648e14, 307.2e12, 0.9)
    1.0
    """
    return flop / (utilisation * peak)


def padded_work(columns: Number, tiles: Number, grain: Number) -> Number:
    r"""Work of a product in n tiles over that of it at once, where an array pads short tiles.

    .. math:: \frac{n \lceil N' / g \rceil}{\lceil N / g \rceil}, \quad N' = \lceil N / n \rceil

    N columns along the streamed axis, g of them to a matrix instruction.

    >>> padded_work(2048.0, 64.0, 32.0), padded_work(2048.0, 256.0, 32.0)
    (1.0, 4.0)
    """
    return tiles * ceil_div(ceil_div(columns, tiles), grain) / ceil_div(columns, grain)


def weight_passes(weights: Number, buffers: Number, capacity: Number) -> Number:
    r"""Passes f in which a kernel alone on the chip takes weights that exceed the SRAM.

    .. math:: f = \left\lceil \frac{W}{S - b} \right\rceil

    1 where they fit beside its buffers b, and where not even the buffers do: then no passes help.

    >>> weight_passes(600.0, 20.0, 320.0), weight_passes(300.0, 20.0, 320.0), weight_passes(1.0, 320.0, 320.0)
    (2.0, 1.0, 1.0)
    """
    xp = namespace(weights, buffers, capacity)
    room = capacity - buffers
    return xp.where(room > 0, xp.maximum(ceil_div(weights, xp.where(room > 0, room, 1.0)), 1.0), 1.0)


def partition_traffic(
    read: Number, written: Number, passes: Number, weights: Number, extra: Number, repeats_writes: bool
) -> Number:
    r"""Bytes between a partition and DRAM for one micro-batch.

    .. math:: B = f (r + w) + W + x \quad\text{or}\quad f r + w + W + x

    r and w of tensors that cross its border, f passes over weights that exceed the SRAM, W of weights (as far
    as they are charged: divided by the micro-batches that stream through while they stay), x of what kernels
    read besides (embedding rows, a KV cache). With weights tiled along the output only reads repeat;
    DFModel's program repeats both (`repeats_writes`).

    >>> partition_traffic(3.0, 1.0, 2.0, 5.0, 0.0, True), partition_traffic(3.0, 1.0, 2.0, 5.0, 0.0, False)
    (13.0, 12.0)
    """
    streamed = passes * (read + written) if repeats_writes else passes * read + written
    return streamed + weights + extra


def partition_sram(
    internal: Number, crossing: Number, whole: Number, weights: Number, passes: Number
) -> Number:
    r"""SRAM a partition holds [B].

    .. math:: S = \sum_\text{internal} d\, b / n + \sum_\text{crossing} 2\, b / n + \sum_\text{whole} b + W / f

    Buffers of tensors inside (depth d = difference of levels + 1 tiles), of crossing ones (2 tiles), of
    operands held whole, and its weights. `internal`, `crossing` and `whole` are these sums.

    >>> partition_sram(10.0, 4.0, 0.0, 100.0, 2.0)
    64.0
    """
    return internal + crossing + whole + weights / passes


def fill_factor(tiles: Number, micro_batches: Number, levels: Number, whole_levels: Number) -> Number:
    r"""Compute time of a pipeline of tiles over that of its steady state: it fills and drains once for all
    micro-batches. DRAM runs ahead of it, so that its time does not stretch.

    .. math:: \phi = \frac{n m + (d - 1) + n d_w}{n m}

    n tiles of each of m micro-batches, d levels of kernels; each of d_w levels behind an operand that must be
    whole waits for all n tiles. Hennessy & Patterson: a pipeline of d stages finishes n items in n + d - 1.

    >>> fill_factor(8.0, 1.0, 5.0, 0.0), fill_factor(8.0, 4.0, 5.0, 1.0)
    (1.5, 1.375)
    """
    run = tiles * micro_batches
    return (run + (levels - 1.0) + tiles * whole_levels) / run


def critical_time(compute: Number, memory: Number, network: Number, overlap: str) -> Number:
    r"""Time of a partition whose compute, DRAM and network take so long each [s].

    .. math:: T = \max(C, M, N) \quad\text{or}\quad \max(C, M) + N \quad\text{or}\quad C + M + N

    for overlap "all", "network apart", "none" (DFModel 2024, section V-B4, and its program's settings).

    >>> [critical_time(3.0, 4.0, 2.0, how) for how in ("all", "network apart", "none")]
    [4.0, 6.0, 9.0]
    """
    xp = namespace(compute, memory, network)
    if overlap == "all":
        return xp.maximum(xp.maximum(compute, memory), network)
    if overlap == "network apart":
        return xp.maximum(compute, memory) + network
    if overlap == "none":
        return compute + memory + network
    raise BadValue(f"overlap is all, network apart or none, but got '{overlap}'")


def partition_dram(held: Number, live: Number, micro_batches: Number) -> Number:
    r"""DRAM in use while a partition runs [B].

    .. math:: D = h + m\, L

    What the chip holds all the time (weights of all its layers, other data), and the tensors alive (made
    before or now, needed now or later) of m micro-batches.

    >>> partition_dram(110.0, 3.0, 4.0)
    122.0
    """
    return held + micro_batches * live


ROUNDING = 1 + 1e-12  # room for the last bits of sums that just fit


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorUse:
    """A tensor between kernels, by their places; the one after the last kernel is the world outside."""

    source: int
    targets: tuple[int, ...]
    bytes: Number
    whole: tuple[bool, ...]  # of each reader: it needs all of it for each tile


@record
class PartitionFlows:
    """Bytes that partitions read and write, and bytes of their buffers."""

    read: Number
    written: Number
    internal: Number  # to be divided by the number of tiles, as those at the border
    crossing: Number
    whole: Number


FLOWS = tuple(one.name for one in fields(PartitionFlows))


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
    sums: list[Number] = [0.0 for _ in FLOWS]
    for tensor in tensors:
        factors = flow_factors(tensor, inside, level, copies)
        sums = [sum_ + tensor.bytes * factor for sum_, factor in zip(sums, factors, strict=True)]
    return PartitionFlows(**dict(zip(FLOWS, sums, strict=True)))


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


@record
class PartitionWork:
    """What partitions ask for in bytes, time [s] and levels of kernels."""

    flows: PartitionFlows
    weights: Number
    compute: Number  # in steady state
    network: Number = 0.0
    extra: Number = 0.0  # what else they read
    levels: Number = 1.0
    whole_levels: Number = 0.0  # behind whole operands
    alone: Number | Mask = 0.0  # where a partition is one kernel, and pieces that it can be taken in then
    pieces: Number = 1.0
    held: Number = 0.0  # DRAM that is taken anyway, and by live tensors of one micro-batch
    live: Number = 0.0


@record
class PartitionLimits:
    """The chip: SRAM and DRAM [B], bandwidth [B/s], start of a kernel [s]."""

    sram: Number
    bandwidth: Number
    capacity: Number = float("inf")
    start: Number = 0.0


@record
class PartitionPrice:
    """Times [s], rooms and traffic [B], passes over weights of partitions; `fits` where there is room."""

    time: Number
    compute: Number
    busy: Number  # compute, and communication that only starts after it
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

    .. math:: T = \max(\phi C, M, N) + T_0 / m, \quad M = B / B_\text{DRAM}

    filled compute φ C (`fill_factor`), DRAM M for the traffic B (`partition_traffic`) and network N
    (`critical_time`), and the chip's kernel start T_0, paid once for m micro-batches. A single tile computes
    and communicates in turn (C + N), which only a pipeline that fills takes into account; `time` is that of a
    partition as if it had room.

    >>> from strata.pricing.fusion_rules import fusion_rules
    >>> flows = PartitionFlows(read=4e6, written=6e6, internal=8e6, crossing=2e7, whole=0.0)
    >>> work = PartitionWork(flows=flows, weights=1e6, compute=5e-5, levels=3.0)
    >>> chips = PartitionLimits(sram=np.array([1e6, 1e8]), bandwidth=1e11)
    >>> price = price_partition(work, chips, fusion_rules("dfmodel-2024"), 4.0, 1.0)
    >>> price.time.tolist(), price.sram.tolist(), price.fits.tolist()
    ([0.0001, 0.0001], [8000000.0, 8000000.0], [False, True])
    """
    flows, compute = work.flows, work.compute
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
    memory = traffic / limits.bandwidth
    busy = compute
    if rules.fill == "yes" and rules.overlap == "all":
        # Nothing else is there to work on while the only tile is on its way to other chips.
        xp = namespace(tiles, micro_batches, work.network)
        busy = compute + xp.where(tiles * micro_batches > 1, 0.0, work.network)
    critical = critical_time(busy, memory, work.network, rules.overlap)
    dram = partition_dram(work.held, work.live, micro_batches)
    return PartitionPrice(
        time=critical + (limits.start if rules.start == "yes" else 0.0) / micro_batches,
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
