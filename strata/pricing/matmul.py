"""Matrix products: the best of a few output tiles, waves over cores, traffic through cache and DRAM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strata.arrays import Number, ceil_div, choose, lead, namespace, rank_of
from strata.precision import bytes_of
from strata.pricing.device import Device, MatrixRate, on_chip
from strata.pricing.price import Price, roofline
from strata.workload.graph import MatMul, total

# Output tiles tried for each product (rows, columns): shapes GPU libraries ship, large to small. Short sides shrink a tile.
TILES = np.array([(256, 128), (128, 256), (128, 128), (64, 256), (64, 128), (64, 64), (64, 32)], float)
SPLIT_DEPTH = 384.0  # least depth of one part when a product is cut along k: three steps of 128
ACCUMULATOR = 4.0  # bytes of a partial sum


@dataclass(frozen=True, eq=False, slots=True)
class Tiled:
    """A product in tiles: time on the cores, time and bytes through the cache, and whether cores wait for their operands."""

    cores: Number
    cache: Number
    moved: Number
    starved: Number


def padded(extent: Number, grain: Number) -> Number:
    """Rows or columns a matrix unit works on: whole instructions, the finer side of which takes the short extent.

    >>> float(padded(3.0, 8.0)), float(padded(64.0, 8.0))
    (8.0, 64.0)
    """
    return ceil_div(extent, grain) * grain


def tile_times(
    m: Number, n: Number, k: Number, batch: Number, tm: Number, tn: Number, device: Device, unit: MatrixRate, w: Number, o: Number
) -> Tiled:
    r"""Time on the cores, cache time [s] and cache bytes of a product cut into tiles of tm x tn, the better of two schedules.

    .. math::
        t = b \lceil m/t_m \rceil \lceil n/t_n \rceil, \quad
        \tau = \max\left(\frac{2 \hat t_m \hat t_n k}{R / p}, \frac{(\hat t_m a + \hat t_n w) k}{\beta}\right), \quad
        \epsilon = \tau_0 + \frac{\hat t_m \hat t_n o}{\beta}

        T_{whole} = \lceil t/p \rceil (\tau + \epsilon), \quad
        T_{cut} = \max\left(\frac{t}{p}, \frac{d}{k}\right) \tau + \max\left(\frac{t}{p}, 1\right) \epsilon + \sigma

    b products of m x n x k; p cores of rate R together [FLOP/s], each drawing at most β from the cache [B/s]; a, w, o bytes
    an element of activations, weights and results. A tile is computed in whole instructions (hats), so padding costs time,
    and ends with a start and a write of its own (ε). Whole tiles go to cores in waves; or products are cut along k so that
    every core gets an equal share, of at least d of the depth, and the parts are added up in time σ.

    Osama et al., Stream-K, PPoPP 2023 (arXiv 2301.03598): work-centric shares against waves of tiles.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> d = device(chip("h200"))
    >>> unit = d.matrix("bf16", "bf16")
    >>> times = tile_times(1024.0, 2304.0, 16384.0, 1.0, 128.0, 256.0, d, unit, 2.0, 2.0)
    >>> 0.9e-4 < float(times.cores) < 1.4e-4  # 72 tiles on 132 cores, cut to fill them
    True
    """
    xp = namespace(m, n, k, batch, tm, device.cores, unit.sustained)
    rows, columns = xp.minimum(tm, padded(m, device.grain)), xp.minimum(tn, padded(n, device.grain))
    tiles = ceil_div(m, tm) * ceil_div(n, tn) * batch
    per_core = tiles / device.cores
    tensor = rows * columns * (2.0 * k * device.cores / unit.sustained)
    load = (rows * unit.activation + columns * w) * k
    port = load / device.core_bandwidth
    work = xp.maximum(tensor, port)
    store = rows * columns * o
    ends = device.tile + store / device.core_bandwidth
    whole = ceil_div(tiles, device.cores) * (work + ends)
    cut = xp.maximum(per_core, xp.minimum(SPLIT_DEPTH / k, 1.0)) * work + xp.maximum(per_core, 1.0) * ends + device.split
    parted = cut < whole
    moved = tiles * (load + store) + xp.where(parted, 2.0 * ACCUMULATOR, 0.0) * (batch * m * n)
    return Tiled(xp.where(parted, cut, whole), moved / device.cache_bandwidth, moved, port > tensor)


def matmul(
    m: Number, n: Number, k: Number, device: Device, weight: str, activation: str, batch: Number = 1.0, resident: bool = False, warm: Number = 0.0
) -> Price:
    r"""Price of out[b, m, n] = in[b, m, k] weight[b, k, n], with the best of `TILES`.

    .. math:: T = \max(T_p, T_l, T_m) + T_0, \quad T_m = b (m k a + k n w + m n a) / B

    DRAM bandwidth B [B/s], sustained; floor T_0 of a kernel. With `resident` the activations come from and go to the
    cache as far as they fit half of it; `warm` is the share of the weights that lies in the cache already.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> price = matmul(1.0, 8192.0, 8192.0, device(chip("h200")), "bf16", "bf16")
    >>> bool(price.memory > price.compute), bool(price.time > price.lower)
    (True, True)
    """
    unit = device.matrix(weight, activation)
    w, stored = bytes_of(weight), bytes_of(activation)
    given = (m, n, k, batch, device.cores, device.cache_bandwidth, device.core_bandwidth, device.grain, device.tile, device.split, unit.sustained)
    xp, rank = namespace(*given), rank_of(*given)
    tm, tn = lead(TILES[:, 0], rank, xp), lead(TILES[:, 1], rank, xp)
    found = tile_times(m, n, k, batch, tm, tn, device, unit, w, stored)
    cores, cache, moved, starved = choose(xp.maximum(found.cores, found.cache), found.cores, found.cache, found.moved, found.starved)
    inout = batch * m * (k * unit.activation + n * stored)
    if resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    compute, cache = credited(cores, cache, starved)
    return close_price(device, compute, cache, moved, (1.0 - warm) * batch * k * n * w + inout, 2.0 * batch * m * n * k, unit)


def credited(cores: Number, cache: Number, starved: Number) -> tuple[Number, Number]:
    """Compute and cache time: cores that wait for their operands count as cache."""
    xp = namespace(cores, cache, starved)
    return xp.where(starved, 0.0, cores), xp.where(starved, xp.maximum(cores, cache), cache)


def close_price(device: Device, compute: Number, cache: Number, moved: Number, dram: Number, flop: Number, unit: MatrixRate) -> Price:
    """The price from its parts."""
    chip = device.chip
    memory = dram / device.bandwidth
    xp = namespace(compute, memory)
    energy = flop * unit.energy + moved * on_chip(chip) + dram * chip.energy.memory
    lower = xp.maximum(flop / unit.peak, dram / chip.memory.bandwidth)
    return Price(
        **roofline(device.floor, device.launch, compute, cache, memory), lower=lower, flop=flop, memory_bytes=dram, cache_bytes=moved, energy=energy
    )


def price_matmul(op: MatMul, device: Device) -> Price:
    """Price of a product in a graph."""
    return matmul(op.m.size, total(op.n), op.k.size, device, op.weight, op.activation, op.batch.size, device.resident)
