"""Grouped products of routed experts: uneven loads, experts nobody asks for, and the busiest rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from strata.arrays import Number, ceil_div, choose, lead, namespace, rank_of
from strata.precision import bytes_of
from strata.pricing.device import Device
from strata.pricing.matmul import close_price, credited, padded
from strata.pricing.price import Price
from strata.workload.graph import ExpertMatMul, total
from strata.workload.moe import expert_load

ROWS = np.array([128.0, 64.0])  # rows of a tile
TILES = np.array([(0, 256), (0, 128), (1, 128), (1, 64)])  # index into ROWS, columns


def expected_maximum(ranks: Number) -> Number:
    r"""Expected maximum of so many standard normal variables.

    .. math:: z = \Phi^{-1}\!\left(\frac{n - 0.375}{n + 0.25}\right)

    Blom, Statistical Estimates and Transformed Beta-Variables (1958); the inverse by Abramowitz & Stegun 26.2.23, whose
    error is below 4.5e-4.

    >>> [round(float(expected_maximum(n)), 2) for n in (1.0, 8.0, 256.0)]
    [0.0, 1.43, 2.82]
    """
    xp = namespace(ranks)
    tail = 0.625 / (ranks + 0.25)
    t = xp.sqrt(-2.0 * xp.log(tail))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t**2) / (1 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3)
    return xp.where(ranks > 1, z, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """What routing leaves on the busiest rank, whatever the width of its products."""

    tokens: Number  # token rows of all its experts
    experts: Number  # experts with at least one token
    tiles: Number  # tiles of rows, for each entry of ROWS (leading axis)
    height: Number  # mean rows computed in such a tile (leading axis)


def busiest_load(op: ExpertMatMul, ranks: Number, grain: Number, rank: int) -> Load:
    r"""Load of the busiest of `ranks` expert ranks.

    An expert fills :math:`\overline{\lceil x / t_m \rceil}` tiles, averaged over the nodes of `expert_load`, never the
    ceiling of a mean. The busiest rank carries :math:`1 + z \sigma / (\mu \sqrt{e})` times the mean of its e experts, with
    mean :math:`\mu` and deviation :math:`\sigma` of one expert's tokens and z the `expected_maximum` of the ranks.
    """
    held = op.experts.size
    load, touched = expert_load(op.tokens.size, op.all_experts, op.top_k, op.skew, rank)
    xp = namespace(load, held, ranks)
    carried = load * touched
    mean = xp.mean(carried, axis=0)
    variance = xp.mean(carried * carried, axis=0) - mean**2
    spread = xp.sqrt(xp.where(variance > 1e-9 * mean**2, variance, 0.0))  # equal loads have none, but for rounding
    excess = 1.0 + expected_maximum(ranks) * spread / (mean * xp.sqrt(held))
    tm = lead(ROWS, 1 + rank, xp)
    each = ceil_div(load, tm) * touched
    filled = xp.mean(each, axis=1)
    height = xp.mean(each * xp.minimum(tm, padded(load, grain)), axis=1) / filled
    share = held * excess
    experts = xp.minimum(share * xp.mean(touched, axis=0), held)
    return Load(mean * share, experts, filled * share, height)


def _shared_load(op: ExpertMatMul, device: Device, ranks: Number, rank: int) -> Load:
    """The load of a layer, worked out once for its products: they share their extents, which are kept so that ids stay theirs."""
    key = (id(op.tokens), id(op.experts), rank)
    if key not in device.loads:
        device.loads[key] = (op.tokens, op.experts, busiest_load(op, ranks, device.grain, rank))
    load: Load = device.loads[key][2]
    return load


def price_experts(op: ExpertMatMul, device: Device, ranks: Number = 1.0) -> Price:
    """Price of a grouped product on the busiest of `ranks` expert ranks: as `matmul`, with the weights of touched experts."""
    chip = device.chip
    unit = device.matrix(op.weight, op.activation)
    rate = unit.sustained * chip.compute.grouped_efficiency
    a, w, stored = unit.activation, bytes_of(op.weight), bytes_of(op.activation)
    n, k, cores, l2 = total(op.n), op.k.size, device.cores, device.cache_bandwidth
    rank = rank_of(
        op.tokens.size,
        op.experts.size,
        op.all_experts,
        op.top_k,
        op.skew,
        ranks,
        n,
        k,
        cores,
        l2,
        device.core_bandwidth,
        device.tile,
        unit.sustained,
        device.grain,
    )
    load = _shared_load(op, device, ranks, rank)
    xp = namespace(load.tokens, load.tiles, n, k, cores)
    tn = lead(TILES[:, 1] * 1.0, rank, xp)
    tiles = load.tiles[TILES[:, 0]] * ceil_div(n, tn)
    height, width = load.height[TILES[:, 0]], xp.minimum(tn, padded(n, device.grain))
    tensor = height * width * (2.0 * k * cores / rate)
    port = (height * a + width * w) * k / device.core_bandwidth
    ends = device.tile + height * width * stored / device.core_bandwidth
    busy = xp.maximum(ceil_div(tiles, cores), 1.0) * (xp.maximum(tensor, port) + ends)
    moved = (load.tokens * n / tn * a + tiles * width * w) * k + load.tokens * n * stored
    cache = moved / l2 + 0.0 * busy
    busy, cache, moved, starved = choose(xp.maximum(busy, cache), busy, cache, moved, port > tensor)
    compute, cache = credited(busy, cache, starved)
    inout = load.tokens * (k * a + n * stored)
    if device.resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    weights = load.experts * k * n * w
    # Row after row of an expert's tiles reads its weights again where they are larger than the cache.
    again = xp.where(k * n * w > device.cache_capacity, xp.maximum(load.tiles[0] / load.experts, 1.0), 1.0)
    grouped = replace(device, floor=chip.overhead.grouped, bandwidth=chip.memory.bandwidth * chip.memory.grouped_efficiency)
    return close_price(grouped, compute, cache, moved, weights * again + inout, op.flop(), unit)
