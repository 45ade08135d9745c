"""Attention kernels: scores, softmax and values in one pass, the cache read once."""

from __future__ import annotations

from strata.arrays import Number, ceil_div, floor_div, namespace
from strata.precision import bytes_of
from strata.pricing.device import Device, on_chip
from strata.pricing.price import Price, roofline
from strata.workload.graph import Attention

QUERY_ROWS = 128.0  # query rows one core takes at a time in a long pass
KEY_ROWS = 128.0  # keys of a block: a causal pass computes it whole, and a cache is not cut finer


def price_attention(op: Attention, device: Device) -> Price:
    """Price of an attention op of a graph."""
    return attention(
        op.sequences.size, op.queries.size, op.span.size, op.cached.size, op.heads.size, op.kv_heads.size,
        op.key_dim, op.value_dim, op.kv_width, device, op.activation, op.kv, backward=op.backward, products=op.products,
    )  # fmt: skip


def attention(
    sequences: Number, queries: Number, span: Number, cached: Number, heads: Number, kv_heads: Number,
    key_dim: Number, value_dim: Number, kv_width: Number, device: Device, activation: str, kv: str, *, backward: bool = False, products: str = "",
) -> Price:  # fmt: skip
    r"""Price of softmax attention over a cache, as one fused kernel.

    .. math::
        T = \max\left(\frac{W}{p} + \left(\left\lceil \frac{w}{p} \right\rceil - 1\right) \tau_q, \; L, \; \frac{b}{B}\right) + T_0 + \sigma,
        \quad W = \hat r \hat s \left(\frac{2 (d_k + d_v)}{R/p} + \frac{\alpha}{X/p}\right)

    Query rows of the heads that share keys are packed and padded to the matrix unit (:math:`\hat r`); a causal block of 128
    keys is computed whole, so s tokens attended cost half a block more (:math:`\hat s`); α of the exponentials, at rate X, is
    not hidden by the products, at sustained rate R. w blocks of 128 query rows, or parts of the cache of at least 128 tokens
    where there are fewer blocks than cores p; L is the longest of them alone, or its bytes at what one core draws. Each wave
    of blocks after the first starts anew (τ_q); a cut cache is merged in time σ. Backward does 2.5 times the products.

    Dao, FlashAttention-2, arXiv 2307.08691, secs. 3.1 to 3.3: blocks, work split over the cache, five products for two.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> d = device(chip("h200"))
    >>> long = attention(1.0, 8192.0, 4096.5, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    >>> step = attention(64.0, 1.0, 8192.0, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    >>> bool(long.compute > long.memory), bool(step.memory > step.compute)
    (True, True)
    """
    chip = device.chip
    xp = namespace(sequences, queries, span, cached, heads, kv_heads, device.cores, device.bandwidth, device.core_bandwidth)
    unit = device.matrix(products or activation, activation)
    rows = queries * (heads / kv_heads)
    blocks = sequences * kv_heads * ceil_div(rows, QUERY_ROWS)
    parts = xp.maximum(xp.minimum(floor_div(device.cores, blocks), floor_div(cached, KEY_ROWS)), 1.0)
    work = blocks * parts
    height = xp.minimum(ceil_div(rows, chip.compute.tile_m) * chip.compute.tile_m, QUERY_ROWS)
    # A short pass over the cache (decode) has no diagonal to pad.
    width = span + xp.where(queries > 1.0, 0.5 * KEY_ROWS, 0.0)
    per_pair = (2.5 if backward else 1.0) * 2.0 * (key_dim + value_dim)
    sustained = unit.peak * chip.compute.attention_efficiency
    pair = (per_pair / sustained + chip.compute.softmax_exposed / chip.compute.special_rate) * device.cores
    block = height * pair  # time of one block for each key, on one core
    cache_bytes = sequences * cached * kv_heads * kv_width * bytes_of(kv)
    port = cache_bytes / (sequences * kv_heads * parts) / device.core_bandwidth
    longest = xp.maximum(block * xp.minimum(cached, 2.0 * width) / parts, port)
    waves = (ceil_div(work, device.cores) - 1.0) * chip.overhead.query_block
    compute = xp.maximum(blocks * block * width / device.cores + waves, longest)
    inout = sequences * queries * heads * (key_dim + value_dim) * bytes_of(activation) * (2.0 if backward else 1.0)
    dram = cache_bytes + inout
    moved = blocks * span * kv_width * bytes_of(kv) + inout
    memory = dram / (chip.memory.bandwidth * chip.memory.attention_efficiency)
    cache = moved / device.cache_bandwidth
    flop = per_pair * sequences * heads * queries * span
    energy = flop * unit.energy + moved * on_chip(chip) + dram * chip.energy.memory
    lower = xp.maximum(flop / unit.peak, dram / chip.memory.bandwidth)
    floor = chip.overhead.attention + xp.where(parts > 1.0, chip.overhead.merge, 0.0)
    return Price(
        **roofline(floor, device.launch, compute, cache, memory), lower=lower, flop=flop, memory_bytes=dram, cache_bytes=moved, energy=energy
    )
