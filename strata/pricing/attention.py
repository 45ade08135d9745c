"""Attention kernels: scores, softmax and values in one pass, the cache read once."""

from __future__ import annotations

from strata.arrays import Number, ceil_div, floor_div, namespace
from strata.precision import bytes_of
from strata.pricing.device import Device, on_chip
from strata.pricing.price import Price, roofline
from strata.workload.graph import Attention

QUERY_ROWS = 128.0  # query rows one core takes at a time in a long pass
KEY_ROWS = 256.0  # cached tokens below which cutting the cache over cores no longer pays


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
        T = \max\left(\frac{F}{R u}, \frac{E}{X}, \frac{b}{B u}\right) + T_0, \quad
        F = 2 (d_k + d_v) \hat{r} s h_{kv}, \quad u = \frac{w}{p \lceil w / p \rceil}

    Query rows of the heads that share keys are packed and padded to the matrix unit (:math:`\hat r`); s tokens attended; E
    exponentials at rate X; b bytes of queries, outputs and cache; w pieces of work over p cores: blocks of 128 query rows,
    or parts of the cache of at least 256 tokens where there are fewer. Backward does 2.5 times the products
    (Dao, FlashAttention-2, arXiv 2307.08691, sec. 3.2: five products for two).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.device import device
    >>> d = device(chip("h200"))
    >>> long = attention(1.0, 8192.0, 4096.5, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    >>> step = attention(64.0, 1.0, 8192.0, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    >>> bool(long.compute > long.memory), bool(step.memory > step.compute)
    (True, True)
    """
    chip = device.chip
    xp = namespace(sequences, queries, span, heads, kv_heads, device.cores, device.bandwidth)
    unit = device.matrix(products or activation, activation)
    share = heads / kv_heads
    rows = queries * share
    padded = ceil_div(rows, chip.compute.tile_m) * chip.compute.tile_m
    pieces = sequences * kv_heads * ceil_div(rows, QUERY_ROWS)
    # Where there is too little work for every core, the cache is cut as well.
    parts = xp.maximum(xp.minimum(floor_div(device.cores, pieces), floor_div(cached, KEY_ROWS)), 1.0)
    work = pieces * parts
    use = work / (device.cores * ceil_div(work, device.cores))
    factor = 2.5 if backward else 1.0
    pairs = sequences * kv_heads * padded * span
    per_pair = factor * 2.0 * (key_dim + value_dim)
    matrix = per_pair * pairs / unit.sustained
    special = sequences * heads * queries * span / chip.compute.special_rate
    compute = xp.maximum(matrix, special) / use
    inout = sequences * queries * heads * (key_dim + value_dim) * bytes_of(activation) * (2.0 if backward else 1.0)
    cache_bytes = sequences * cached * kv_heads * kv_width * bytes_of(kv)
    dram = cache_bytes + inout
    memory = dram / (device.bandwidth * xp.minimum(work / device.cores, 1.0))
    moved = sequences * kv_heads * ceil_div(rows, QUERY_ROWS) * span * kv_width * bytes_of(kv) + inout
    cache = moved / device.cache_bandwidth
    flop = per_pair * sequences * heads * queries * span
    energy = flop * unit.energy + moved * on_chip(chip) + dram * chip.energy.memory
    lower = xp.maximum(flop / unit.peak, dram / chip.memory.bandwidth)
    # A cut cache is merged by a second, small kernel.
    floor = device.floor * xp.where(parts > 1.0, 2.0, 1.0)
    return Price(
        **roofline(floor, device.launch, compute, cache, memory), lower=lower, flop=flop, memory_bytes=dram, cache_bytes=moved, energy=energy
    )
