"""Time and room of a partition: kernels fused on one chip, tiles streaming through them.

The kernels of a graph run in partitions, one after the other. Inside one, each kernel has a share of the
cores and hands tiles to the next; tensors that cross a partition's border go through DRAM. Formulation: Ko et
al., DFModel (2024), section V; its program's own choices are switches (`FusionRules`).
"""

from __future__ import annotations

from collections.abc import Collection

from strata.arrays import Number, ceil_div, namespace
from strata.errors import BadValue

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


def tile_columns(columns: Number, tiles: Number) -> Number:
    r"""Columns of one of n tiles along the streamed axis.

    .. math:: N' = \lceil N / n \rceil

    >>> tile_columns(2048.0, 8.0)
    256.0
    """
    return ceil_div(columns, tiles)


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
    return tiles * ceil_div(tile_columns(columns, tiles), grain) / ceil_div(columns, grain)


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


def transfer_time(moved: Number, bandwidth: Number) -> Number:
    r"""Memory time of a partition [s].

    .. math:: M = B / B_\text{DRAM}

    >>> transfer_time(25.165824e6, 100e9)
    0.00025165824
    """
    return moved / bandwidth


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


def partition_time(critical: Number, start: Number, micro_batches: Number) -> Number:
    r"""Time of a partition for one micro-batch [s].

    .. math:: T = T_c + T_0 / m

    Critical time, and the chip's kernel start T_0, paid once for m micro-batches.

    >>> partition_time(1e-3, 4e-6, 4.0)
    0.001001
    """
    return critical + start / micro_batches


def partition_dram(held: Number, live: Number, micro_batches: Number) -> Number:
    r"""DRAM in use while a partition runs [B].

    .. math:: D = h + m\, L

    What the chip holds all the time (weights of all its layers, other data), and the tensors alive (made
    before or now, needed now or later) of m micro-batches.

    >>> partition_dram(110.0, 3.0, 4.0)
    122.0
    """
    return held + micro_batches * live
