"""Grouped products of routed experts: uneven loads, experts nobody asks for, and the busiest rank."""

from __future__ import annotations

import numpy as np

from strata.arrays import Number, ceil_div, choose, namespace
from strata.precision import bytes_of
from strata.pricing.device import Device
from strata.pricing.matmul import close_price, padded
from strata.pricing.price import Price
from strata.workload.graph import ExpertMatMul, total
from strata.workload.moe import expert_load

EXPERT_TILES = np.array([(128, 256), (128, 128), (64, 128), (64, 64)], float)


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
    r"""Price of a grouped product on the busiest of `ranks` expert ranks: tiles and weights of the experts it touches.

    As `matmul`, with :math:`\overline{\lceil x / t_m \rceil}` tiles of rows for an expert, averaged over the nodes of
    `expert_load`, and the weights of touched experts only. The busiest rank carries :math:`1 + z \sigma / (\mu \sqrt{e})`
    times the mean of its e experts, z the `expected_maximum` of the ranks.
    """
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
    # Tiles: rows from the spread of loads over experts, columns from the width; the load axis goes before candidates see it.
    tm, tn = xp.asarray(EXPERT_TILES[:, 0]), xp.asarray(EXPERT_TILES[:, 1])
    held_, excess_, k_, n_, cores, l2, rate, grain, useful = (
        xp.asarray(v)[..., None]
        for v in (held, excess, k, n, device.cores, device.cache_bandwidth, unit.sustained, device.grain, mean * held * excess * n)
    )
    load_, touched_ = load[..., None, :], touched[..., None, :]
    per_expert = ceil_div(load_, tm[:, None]) * touched_
    filled = xp.mean(per_expert, axis=-1)
    height = xp.mean(per_expert * padded(xp.minimum(load_, tm[:, None]), grain[..., None]), axis=-1) / filled
    tiles = held_ * excess_ * filled * ceil_div(n_, tn)
    width = xp.minimum(tn, n_)
    compute = xp.maximum(ceil_div(tiles, cores), 1.0) * height * padded(width, grain) * (2.0 * k_ * cores / rate)
    moved = (useful / tn * a + tiles * width * w) * k_
    cache = moved / (l2 * xp.minimum(tiles / cores, 1.0))
    _, compute, cache, moved = choose(xp.maximum(compute, cache), compute, cache, moved)
    rows = mean * held * excess
    inout = rows * (k * a + n * stored)
    if device.resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    return close_price(device, compute, cache, moved, active * k * n * w + inout, op.flop(), unit)
