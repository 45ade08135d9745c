"""Matrix products: the best of a few output tiles, waves over cores, traffic through cache and DRAM."""

from __future__ import annotations

import numpy as np

from strata.arrays import Number, ceil_div, choose, floor_div, lead, namespace, rank_of
from strata.precision import bytes_of
from strata.pricing.device import Device, MatrixRate, on_chip
from strata.pricing.price import Price, roofline
from strata.workload.graph import MatMul, total

# Output tiles tried for each product (rows, columns): shapes GPU libraries ship, large to small. Short sides shrink a tile.
TILES = np.array([(256, 128), (128, 256), (128, 128), (64, 128), (64, 64), (64, 32)], float)
SPLIT_DEPTH = 512.0  # least depth of one part when a product is cut along k: four steps of 128
ACCUMULATOR = 4.0  # bytes of a partial sum


def padded(extent: Number, grain: Number) -> Number:
    """Rows or columns a matrix unit works on: whole instructions, the finer side of which takes the short extent.

    >>> float(padded(3.0, 8.0)), float(padded(64.0, 8.0))
    (8.0, 64.0)
    """
    return ceil_div(extent, grain) * grain


def tile_time(
    m: Number, n: Number, k: Number, batch: Number, tm: Number, tn: Number, device: Device, bytes_in: tuple[Number, Number], rate: Number
) -> tuple[Number, Number, Number]:
    r"""Compute time, cache time [s] and cache bytes of a product cut into tiles of tm x tn.

    .. math::
        T_c = \left\lceil \frac{t s}{p} \right\rceil \frac{2 \hat t_m \hat t_n k}{s R / p}, \quad
        T_l = \frac{t (t_m a + t_n w) k}{B_l \min(1, t s / p)}, \quad
        t = b \lceil m/t_m \rceil \lceil n/t_n \rceil

    products b of m x n x k; cores p with rate R together [FLOP/s]; s parts along k, as many as leave no core idle; a, w
    bytes an element of activations and weights; cache bandwidth B_l [B/s], of which idle cores draw nothing.
    A tile is computed in whole instructions (hats), so padding costs time. No partial overlap between tiles of a core.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> compute, cache, moved = tile_time(4096.0, 4096.0, 4096.0, 1.0, 128.0, 256.0, device(chip("h200")), (2.0, 2.0), 7e14)
    >>> 1.9e-4 < float(compute) < 2.2e-4, float(moved)
    (True, 1610612736.0)
    """
    xp = namespace(m, n, k, batch, tm, device.cores, rate)
    share = device.cores / batch  # cores for each of the products
    rows, columns = xp.minimum(tm, padded(m, device.grain)), xp.minimum(tn, padded(n, device.grain))
    tiles = ceil_div(m, tm) * ceil_div(n, tn)
    parts = xp.maximum(xp.minimum(floor_div(share, tiles), floor_div(k, SPLIT_DEPTH)), 1.0)
    busy = tiles * parts
    compute = ceil_div(busy, share) * rows * columns / parts * (2.0 * k * device.cores / rate)
    # All parts but the one that stays in registers are written out and read back.
    moved = tiles * (rows * bytes_in[0] + columns * bytes_in[1]) * (k * batch) + (parts - 1.0) * (2.0 * ACCUMULATOR * batch * m * n)
    cache = moved / xp.minimum(busy * (device.cache_bandwidth / share), device.cache_bandwidth)
    return compute, cache, moved


def matmul(m: Number, n: Number, k: Number, device: Device, weight: str, activation: str, batch: Number = 1.0, resident: bool = False) -> Price:
    r"""Price of out[b, m, n] = in[b, m, k] weight[b, k, n], with the best of `TILES`.

    .. math:: T = \max(T_c, T_l, T_m) + T_0, \quad T_m = b (m k a + k n w + m n a) / B

    DRAM bandwidth B [B/s], sustained; floor T_0 of a kernel. With `resident` the activations come from and go to the
    cache as far as they fit half of it.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> price = matmul(1.0, 8192.0, 8192.0, device(chip("h200")), "bf16", "bf16")
    >>> bool(price.memory > price.compute), bool(price.time > price.lower)
    (True, True)
    """
    unit = device.matrix(weight, activation)
    w, stored = bytes_of(weight), bytes_of(activation)
    given = (m, n, k, batch, device.cores, device.cache_bandwidth, device.grain, unit.sustained)
    xp, rank = namespace(*given), rank_of(*given)
    tm, tn = lead(TILES[:, 0], rank, xp), lead(TILES[:, 1], rank, xp)
    compute, cache, moved = tile_time(m, n, k, batch, tm, tn, device, (unit.activation, w), unit.sustained)
    compute, cache, moved = choose(xp.maximum(compute, cache), compute, cache, moved)
    inout = batch * m * (k * unit.activation + n * stored)
    if resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    return close_price(device, compute, cache, moved, batch * k * n * w + inout, 2.0 * batch * m * n * k, unit)


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
