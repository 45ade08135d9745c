"""Matrix products: the best of a few output tiles, waves over cores, traffic through cache and DRAM."""

from __future__ import annotations

import numpy as np

from strata.arrays import Number, candidate_axis, ceil_div, choose, floor_div, namespace
from strata.precision import bytes_of
from strata.pricing.device import Device, MatrixRate
from strata.pricing.price import Price, roofline
from strata.workload.graph import ExpertMatMul, MatMul, total
from strata.workload.moe import expert_load

# Output tiles tried for each product (rows, columns): the shapes GPU libraries ship, large to small.
TILES = np.array([(256, 128), (128, 256), (128, 128), (64, 256), (128, 64), (64, 128), (64, 64), (64, 32)], float)
EXPERT_TILES = np.array([(128, 256), (128, 128), (64, 128), (64, 64)], float)
SPLIT_DEPTH = 512.0  # least depth of one part when a product is cut along k: four steps of 128
ACCUMULATOR = 4.0  # bytes of a partial sum


def tile_time(
    m: Number, n: Number, k: Number, batch: Number, tm: Number, tn: Number, device: Device, bytes_in: tuple[Number, Number], rate: Number
) -> tuple[Number, Number, Number]:
    r"""Compute time, cache time [s] and cache bytes of a product cut into tiles of tm x tn.

    .. math::
        T_c = \left\lceil \frac{t s}{p} \right\rceil \frac{2 t_m t_n k}{s R / p}, \quad
        T_l = \frac{t (t_m a + t_n w) k}{B_l \min(1, t s / p)}, \quad
        t = b \lceil m/t_m \rceil \lceil n/t_n \rceil

    products b of m x n x k; cores p with rate R together [FLOP/s]; s parts along k, as many as leave no core idle; a, w
    bytes an element of activations and weights; cache bandwidth B_l [B/s], of which idle cores draw nothing.
    Whole tiles are computed, so padding costs time. No partial overlap between tiles of a core.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> compute, cache, moved = tile_time(4096.0, 4096.0, 4096.0, 1.0, 128.0, 256.0, device(chip("h200")), (2.0, 2.0), 7e14)
    >>> 1.9e-4 < float(compute) < 2.2e-4, float(moved)
    (True, 1610612736.0)
    """
    xp = namespace(m, n, k, batch, device.cores, rate)
    cores = device.cores
    tiles = ceil_div(m, tm) * ceil_div(n, tn) * batch
    parts = xp.maximum(xp.minimum(floor_div(cores, tiles), floor_div(k, SPLIT_DEPTH)), 1.0)
    busy = tiles * parts
    compute = ceil_div(busy, cores) * (2.0 * tm * tn) / parts * (k * cores / rate)
    moved = tiles * (xp.minimum(tm, m) * bytes_in[0] + xp.minimum(tn, n) * bytes_in[1]) * k
    # All parts but the one that stays in registers are written out and read back.
    moved = moved + (parts - 1.0) * (2.0 * ACCUMULATOR * batch * m * n)
    cache = moved / xp.minimum(busy * (device.cache_bandwidth / cores), device.cache_bandwidth)
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
    xp = namespace(m, n, k, batch, device.cores, unit.sustained)
    tm, tn = xp.asarray(TILES[:, 0]), xp.asarray(TILES[:, 1])
    m_, n_, k_, b_, rate = candidate_axis(m, n, k, batch, unit.sustained)
    compute, cache, moved = tile_time(m_, n_, k_, b_, tm, tn, _widened(device), (unit.activation, w), rate)
    _, compute, cache, moved = choose(xp.maximum(compute, cache), compute, cache, moved)
    inout = batch * m * (k * unit.activation + n * stored)
    if resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    return _close(device, compute, cache, moved, batch * k * n * w + inout, 2.0 * batch * m * n * k, unit)


def _widened(device: Device) -> Device:
    """The device with a trailing axis on whatever is an array, to broadcast against tile candidates."""
    cores, cache_bandwidth = candidate_axis(device.cores, device.cache_bandwidth)
    if cores is device.cores and cache_bandwidth is device.cache_bandwidth:
        return device
    return Device(
        device.chip, cores, device.bandwidth, cache_bandwidth, device.cache_capacity, device.floor, device.resident, device.weight_only, device.rates
    )


def _close(device: Device, compute: Number, cache: Number, moved: Number, dram: Number, flop: Number, unit: MatrixRate) -> Price:
    """The price from its parts."""
    chip = device.chip
    memory = dram / device.bandwidth
    xp = namespace(compute, memory)
    energy = flop * unit.energy + moved * (chip.energy.cache + 2.0 * chip.energy.sram) + dram * chip.energy.memory
    lower = xp.maximum(flop / unit.peak, dram / chip.memory.bandwidth)
    time = roofline(device.floor, compute, cache, memory)
    return Price(time, compute, cache, memory, 0.0, device.floor, lower, flop, dram, energy)


def price_matmul(op: MatMul, device: Device) -> Price:
    """Price of a product in a graph."""
    return matmul(op.m.size, total(op.n), op.k.size, device, op.weight, op.activation, op.batch.size, device.resident)


def expected_maximum(ranks: Number) -> Number:
    r"""Expected maximum of so many standard normal variables.

    .. math:: z = \Phi^{-1}\!\left(\frac{n - 0.375}{n + 0.25}\right)

    Blom, Statistical Estimates and Transformed Beta-Variables (1958); the inverse by Abramowitz & Stegun 26.2.23, whose
    error is below 4.5e-4.

    >>> [round(float(expected_maximum(n)), 2) for n in (1.0, 8.0, 256.0)]
    [0.0, 1.43, 2.81]
    """
    xp = namespace(ranks)
    tail = 0.625 / (ranks + 0.25)
    t = xp.sqrt(-2.0 * xp.log(tail))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t**2) / (1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3)
    return xp.where(ranks > 1, z, 0.0)


def price_experts(op: ExpertMatMul, device: Device, ranks: Number = 1.0) -> Price:
    """Price of a grouped product on the busiest of `ranks` expert ranks: tiles and weights of the experts it touches."""
    xp = namespace(op.tokens.size, op.experts.size, op.top_k, device.cores)
    unit = device.matrix(op.weight, op.activation)
    a, w, stored = unit.activation, bytes_of(op.weight), bytes_of(op.activation)
    n, k, held = total(op.n), op.k.size, op.experts.size
    load, touched = expert_load(op.tokens.size, op.all_experts, op.top_k, op.skew)
    carried = load * touched
    mean = xp.mean(carried, axis=-1)
    spread = xp.sqrt(xp.mean(xp.square(carried), axis=-1) - mean**2)
    # The busiest rank of the group: its experts' loads add up like independent draws.
    excess = 1.0 + expected_maximum(ranks) * spread / (mean * xp.sqrt(held))
    active = xp.minimum(held * xp.mean(touched, axis=-1) * excess, held)
    tm, tn = xp.asarray(EXPERT_TILES[:, 0]), xp.asarray(EXPERT_TILES[:, 1])
    filled = xp.mean(ceil_div(load[..., None, :], tm[:, None]) * touched[..., None, :], axis=-1)
    held_, excess_, k_, n_, cores, l2 = candidate_axis(
        xp.asarray(held), xp.asarray(excess), *(xp.asarray(v) for v in (k, n, device.cores, device.cache_bandwidth))
    )
    tiles = held_ * excess_ * filled * ceil_div(n_, tn)
    compute = xp.maximum(ceil_div(tiles, cores), 1.0) * 2.0 * tm * tn * k_ * cores / candidate_axis(xp.asarray(unit.sustained))[0]
    rows = mean * held * excess
    per_tile = candidate_axis(xp.asarray(rows * n))[0] / (tiles * tn)  # mean useful rows of a tile
    moved = tiles * (per_tile * a + xp.minimum(tn, n_) * w) * k_
    cache = moved / (l2 * xp.minimum(tiles / cores, 1.0))
    slowest = xp.maximum(compute, cache)
    _, compute, cache, moved = choose(slowest, compute, cache, moved)
    inout = rows * (k * a + n * stored)
    if device.resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    return _close(device, compute, cache, moved, active * k * n * w + inout, op.flop(), unit)
