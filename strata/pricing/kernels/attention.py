"""Attention kernels: scores, softmax and values in one pass, the cache read once."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, ceil_div, floor_div, namespace
from strata.hardware.chip import Chip
from strata.hardware.chip_parts import ServedAttention
from strata.precision import bytes_of, rate_of
from strata.pricing.kernels.device import Device, close_price
from strata.pricing.kernels.dram_access import cache_stream, dram_time
from strata.pricing.kernels.matmul import product_bound
from strata.pricing.price import Price
from strata.workload.ops import Attention

QUERY_ROWS = 128.0  # query rows one core takes at a time in a long pass
KEY_ROWS = 128.0  # keys of a block: a causal pass computes it whole, and a cache is not cut finer
# new tokens of a sequence up to which latent attention runs its kernels for generated tokens: guesses that
# are verified
FEW_QUERIES = 16.0
# cores end evenly spread over the time of the last and longest block: half of it is waited for on average
TAIL = 0.5


def price_attention(op: Attention, device: Device) -> Price:
    """Price of an attention op of a graph: bare, or as a serving framework runs it."""
    served = (
        (device.chip.latent if op.latent else device.chip.paged)
        if device.served and not op.backward
        else None
    )
    return attention(
        op.sequences.size,
        op.queries.size,
        op.span.size,
        op.cached.size,
        op.heads.size,
        op.kv_heads.size,
        op.key_dim,
        op.value_dim,
        op.kv_width,
        device,
        op.activation,
        op.kv,
        backward=op.backward,
        products=op.products,
        served=served,
    )


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """How queries and keys are cut: blocks of queries, parts of the cache for each, rows of a block, and keys
    it walks on average.
    """

    count: Number
    parts: Number
    height: Number
    width: Number


def attention(
    sequences: Number,
    queries: Number,
    span: Number,
    cached: Number,
    heads: Number,
    kv_heads: Number,
    key_dim: Number,
    value_dim: Number,
    kv_width: Number,
    device: Device,
    activation: str,
    kv: str,
    *,
    backward: bool = False,
    products: str = "",
    served: ServedAttention | None = None,
    warm: Number = 0.0,
) -> Price:
    r"""Price of softmax attention over a cache, as one fused kernel, or as a serving framework calls it
    (`served`).

    .. math::
        T = \max\left(T_c, \frac{m}{L}, t_m + \min(t_m, \rho)\right) + T_0 + \sigma, \quad t_m = \frac{b}{B}

    time of the cores T_c (`core_time`); bytes m from the shared cache at L, and b from DRAM at B. A step of a
    served model takes up to ρ until its reads fill DRAM's queues. Floor T_0; a cache cut into parts is merged
    in σ. `warm` is the share of the keys and values that lie in the shared cache. Backward does 2.5 times the
    products.

    Dao, FlashAttention-2, arXiv 2307.08691, secs. 3.1 to 3.3: blocks, work split over the cache, five
    products for two.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> long = attention(1.0, 8192.0, 4096.5, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    >>> step = attention(64.0, 1.0, 8192.0, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    >>> bool(long.compute > long.memory), bool(step.memory > step.compute)
    (True, True)
    """
    chip = device.chip
    xp = namespace(
        sequences,
        queries,
        span,
        cached,
        heads,
        kv_heads,
        warm,
        device.cores,
        device.bandwidth,
        device.core_bandwidth,
    )
    used = served or bare(chip, kv)
    unit = device.matrix(products or activation, activation)
    # queries brought into the latent are of generated tokens
    few = xp.where(key_dim == kv_width, FEW_QUERIES, 1.0)
    cut = cut_blocks(sequences, queries, span, cached, heads, kv_heads, device, few)
    prompt = queries > few
    per_pair = (2.5 if backward else 1.0) * 2.0 * (key_dim + value_dim)
    share = (
        used.efficiency
        if served is None
        else xp.where(prompt, used.efficiency, rate_of(used.step_efficiency, kv))
    )
    pair = (per_pair / (unit.peak * share) + used.softmax_exposed / chip.compute.special_rate) * device.cores
    cache_bytes = sequences * cached * kv_heads * kv_width * bytes_of(kv)
    port = cache_bytes / (sequences * kv_heads * cut.parts) / device.core_bandwidth
    compute = core_time(
        cut, cut.height * pair, xp.where(prompt, used.query_block, 0.0), cached, port, device.cores
    )
    wide = bytes_of(activation)
    inout = (
        sequences
        * queries
        * heads
        * (key_dim * bytes_of(products or activation) + value_dim * wide)
        * (2.0 if backward else 1.0)
    )
    dram = cache_bytes * (1.0 - warm) + inout
    moved = cut.count * span * kv_width * bytes_of(kv) + inout
    memory = dram_time(
        device,
        dram,
        used.memory_efficiency,
        lambda: cache_stream(key_dim, bytes_of(kv), dram - 0.5 * inout, 0.5 * inout),
    )
    cache = moved / device.cache_bandwidth
    flop = per_pair * sequences * heads * queries * span
    floor = rate_of(used.floor, kv) + xp.where(cut.parts > 1.0, used.merge, 0.0)
    if served is not None:
        memory = memory + xp.minimum(memory, xp.where(prompt, 0.0, used.ramp))
        cache = xp.maximum(cache, warm * cache_bytes / (chip.cache.bandwidth * used.cache_efficiency))
        floor = xp.where(prompt, used.prompt, floor)
    return close_price(
        device,
        compute=compute,
        cache=cache,
        memory=memory,
        moved=moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy,
        lower=product_bound(flop, dram, unit, device),
        floor=floor,
    )


def bare(chip: Chip, kv: str) -> ServedAttention:
    """Attention outside a framework, in the same quantities: one kernel, no pages, reads that start at once."""
    compute, memory, overhead = chip.compute, chip.memory, chip.overhead
    return ServedAttention(
        efficiency=compute.attention_efficiency,
        step_efficiency={kv: compute.attention_efficiency},
        softmax_exposed=compute.softmax_exposed,
        query_block=overhead.query_block,
        memory_efficiency=memory.attention_efficiency,
        cache_efficiency=chip.cache.efficiency,
        ramp=0.0,
        merge=overhead.merge,
        prompt=0.0,
        floor={kv: overhead.attention},
    )


def cut_blocks(
    sequences: Number,
    queries: Number,
    span: Number,
    cached: Number,
    heads: Number,
    kv_heads: Number,
    device: Device,
    few: Number = 1.0,
) -> Blocks:
    """Blocks of at most 128 query rows.

    Where all queries of the heads that share keys fit one block, or are up to `few`, they are packed, and the
    cache is cut into parts of at least 128 tokens until all cores have one; else each head has its own
    blocks. Rows are padded to the matrix unit. A causal block of 128 keys is computed whole, so that the
    diagonal costs half a block.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> step = cut_blocks(2.0, 1.0, 4096.0, 4096.0, 32.0, 8.0, device(chip("h200")))
    >>> float(step.count), float(step.parts), float(step.height)
    (16.0, 8.0, 64.0)
    """
    xp = namespace(sequences, queries, span, cached, heads, kv_heads, device.cores)
    group = queries * (heads / kv_heads)
    packed = (group <= QUERY_ROWS) | (queries <= few)
    count = sequences * xp.where(
        packed, kv_heads * ceil_div(group, QUERY_ROWS), heads * ceil_div(queries, QUERY_ROWS)
    )
    parts = xp.where(
        packed, xp.maximum(xp.minimum(floor_div(device.cores, count), floor_div(cached, KEY_ROWS)), 1.0), 1.0
    )
    grain = device.chip.compute.tile_m
    rows = xp.minimum(xp.where(packed, group, queries), QUERY_ROWS)
    height = xp.minimum(ceil_div(rows, grain) * grain, xp.maximum(QUERY_ROWS, grain))
    # A short pass over the cache (decode) has no diagonal to pad.
    width = span + xp.where(queries > few, 0.5 * KEY_ROWS, 0.0)
    return Blocks(count, parts, height, width)


def core_time(
    cut: Blocks, per_key: Number, start: Number, cached: Number, port: Number, cores: Number
) -> Number:
    r"""Time the cores need for blocks of unequal length [s].

    .. math:: T_c = \max\left(\frac{w}{p} \left(\tau + \frac{t \hat s}{n}\right) + \frac{\ell}{2} [w > p], \; \ell\right), \quad
        \ell = \max\left(\tau + \frac{t}{n} \min(c, 2 \hat s), \; t_b\right)

    w blocks in n parts each on p cores; a block starts and ends in τ and takes t for each of ŝ keys on
    average. The longest, ℓ, sees the whole cache c, and draws its bytes in t_b. With more blocks than cores,
    half of the longest is waited for at the end: cores that take blocks in turn end up to ℓ apart (Graham,
    SIAM J. Appl. Math. 17 (1969): list scheduling).

    >>> one = Blocks(1.0, 1.0, 128.0, 512.0)
    >>> round(core_time(one, 1e-8, 1e-6, 1024.0, 0.0, 132.0) * 1e6, 2)
    11.24
    """
    xp = namespace(cut.count, cut.parts, cut.width, per_key, start, cached, port, cores)
    work = cut.count * cut.parts
    each = per_key / cut.parts
    longest = xp.maximum(start + each * xp.minimum(cached, 2.0 * cut.width), port)
    return xp.maximum(
        work * (start + each * cut.width) / cores + xp.where(work > cores, TAIL * longest, 0.0), longest
    )
