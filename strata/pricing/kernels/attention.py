"""Attention kernels: scores, softmax and values in one pass, the cache read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from strata.arrays import Number, ceil_div, floor_div, namespace
from strata.hardware.chip import Chip
from strata.hardware.chip_parts import ServedAttention
from strata.precision import as_measured, bytes_of
from strata.pricing.kernels.attention_energy import gradient_sum_bytes, score_energy
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.dram_access import dram_time, kv_cache_stream
from strata.pricing.kernels.product import product_bound
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import ZERO, Price
from strata.workload.ops import Attention

QUERY_ROWS = 128.0  # query rows one core takes at a time in a long pass
KEY_ROWS = 128.0  # keys of a block: a causal pass computes it whole, and a cache is not cut finer
# new tokens of a sequence up to which latent attention runs its kernels for generated tokens: drafts that are
# verified
FEW_QUERIES = 16.0
# Bytes that a backward pass moves for each element of the queries outside its products: results times their
# gradients row by row (4), sums of the queries' gradients in fp32 set to zero and rounded (4 + 6); where
# heads share keys and values, gradients of every head's copy written and added up (8). As cuDNN's kernels on
# an H200 are profiled.
BACKWARD_BYTES, SHARED_BYTES = 14.0, 8.0
BACKWARD_KERNELS = 5.0  # of which one is the products
# cores end evenly spread over the time of the last and longest block: half of it is waited for on average
TAIL = 0.5


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AttentionShape:
    """Softmax attention of `queries` new tokens of each sequence, over `span` of the `cached` ones each.

    `kv_width` elements are stored for one token and key head, in the format `kv`; `products` is the format of
    the products where it is narrower than the activations'.
    """

    sequences: Number
    queries: Number
    span: Number
    cached: Number
    heads: Number
    kv_heads: Number
    key_dim: Number
    value_dim: Number
    kv_width: Number
    activation: str
    kv: str
    products: str = ""
    backward: bool = False

    @property
    def sizes(self) -> tuple[Number, ...]:
        """What makes it an array of shapes."""
        return self.sequences, self.queries, self.span, self.cached, self.heads, self.kv_heads

    @property
    def formats(self) -> tuple[str, str]:
        """Formats of the products and of the activations."""
        return self.products or self.activation, self.activation

    @property
    def kv_bytes(self) -> Number:
        """Bytes of the keys and values that are read."""
        return self.sequences * self.cached * self.kv_heads * self.kv_width * bytes_of(self.kv)

    @property
    def query_bytes(self) -> Number:
        """Bytes of queries and results; gradients of both in a backward pass."""
        narrow, wide = bytes_of(self.products or self.activation), bytes_of(self.activation)
        width = self.key_dim * narrow + self.value_dim * wide
        return self.sequences * self.queries * self.heads * width * (2.0 if self.backward else 1.0)

    @property
    def flop_per_pair(self) -> Number:
        """Operations of a query and a key: backward does 2.5 times the products."""
        return (2.5 if self.backward else 1.0) * 2.0 * (self.key_dim + self.value_dim)

    @property
    def few_queries(self) -> Number:
        """New tokens up to which a pass counts as a step: queries brought into the latent are of generated
        tokens.
        """
        xp = namespace(self.key_dim, self.kv_width)
        return xp.where(self.key_dim == self.kv_width, FEW_QUERIES, 1.0)


def attention_shape(op: Attention) -> AttentionShape:
    """The shape of an attention op of a graph."""
    return AttentionShape(
        sequences=op.sequences.size,
        queries=op.queries.size,
        span=op.span.size,
        cached=op.cached.size,
        heads=op.heads.size,
        kv_heads=op.kv_heads.size,
        key_dim=op.key_dim,
        value_dim=op.value_dim,
        kv_width=op.kv_width,
        activation=op.activation,
        kv=op.kv,
        products=op.products,
        backward=op.backward,
    )


def price_attention(op: Attention, device: Device) -> Price:
    """Price of an attention op of a graph: bare, or as a serving framework runs it."""
    framework = device.chip.latent if op.latent else device.chip.paged
    served, shape = framework if device.software.served and not op.backward else None, attention_shape(op)
    # Trainers round what goes into the kernel and widen what comes out; in inference the cache holds keys as
    # they are multiplied, and measured kernels have queries rounded in them.
    casts = attention_casts(shape, device) if device.software.trains else ZERO
    if op.backward and device.chip.compute.attention_backward is not None:
        return attention_backward(shape, device) + casts
    return attention_kernel(shape, device, served=served) + casts


def attention_casts(shape: AttentionShape, device: Device) -> Price:
    r"""Price of rounding what goes into attention's products and of widening what comes out, where these are
    in a narrower format than the activations around them.

    .. math:: T = T_{stream}\left((b_w + b_n) (q + k + v + o)\right)

    queries, keys, values and results, or the gradients of all four in a backward pass; b_w and b_n bytes of
    an element in the wider and the narrower format.

    Transformer Engine, attention with fp8_dpa: operands in bf16 are cast before the fused kernel, its results
    after it.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 1.0, "queries": 8192.0, "span": 4096.5, "cached": 8192.0, "heads": 64.0}
    >>> widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> of = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16", products="fp8")
    >>> 0.1e-3 < float(attention_casts(of, device(chip("h200"))).time) < 0.2e-3
    True
    """
    if not shape.products or shape.products == shape.activation:
        return ZERO
    rows, keys = (
        shape.sequences * shape.queries * shape.heads,
        shape.sequences * shape.cached * shape.kv_heads,
    )
    elements = rows * (shape.key_dim + shape.value_dim) + keys * shape.kv_width
    narrow, wide = bytes_of(shape.products) * elements, bytes_of(shape.activation) * elements
    return vector_kernel(wide, narrow, 0.0, 0.0, device)


def attention_backward(shape: AttentionShape, device: Device) -> Price:
    r"""Price of the backward pass of softmax attention: five products for two, with more vector work between
    them, and the passes around them.

    .. math:: T = T_{attention}(\eta r, \epsilon s) + T_{stream}(e (14 + 8 [h > h_{kv}]))

    products at r of the forward pass's rate η, vector work of s times its ε that shows
    (`compute.attention_backward`, or `_narrow` of it, and `compute.softmax_backward`); e elements of the
    queries, with the bytes that pass once beside the products.

    Dao, FlashAttention-2, arXiv 2307.08691, sec. 3.1.2: scores are computed again, and gradients of queries
    added up in memory.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 1.0, "queries": 4096.0, "span": 2048.5, "cached": 4096.0, "heads": 32.0}
    >>> widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> shape = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16", backward=True)
    >>> 0.7e-3 < float(attention_backward(shape, device(chip("h200"))).time) < 0.9e-3  # measured: 0.84 ms
    True
    """
    chip = device.chip
    rate, vector = chip.compute.attention_backward, chip.compute.softmax_backward
    if shape.products and chip.compute.attention_backward_narrow is not None:
        rate = chip.compute.attention_backward_narrow
    usual = standalone_attention(chip, shape.kv)
    used = replace(
        usual,
        efficiency=usual.efficiency * (1.0 if rate is None else rate),
        softmax_exposed=usual.softmax_exposed * (1.0 if vector is None else vector),
    )
    xp = namespace(shape.heads, shape.kv_heads)
    each = BACKWARD_BYTES + xp.where(shape.heads > shape.kv_heads, SHARED_BYTES, 0.0)
    moved = each * shape.sequences * shape.queries * shape.heads * shape.key_dim
    beside = vector_kernel(0.5 * moved, 0.5 * moved, 0.0, 0.0, device)
    price = attention_kernel(shape, device, kernels=used)
    cut = attention_blocks(shape, device)
    joule = gradient_sum_bytes(cut.count * cut.keys, shape.key_dim) * device.byte_energy
    return price.replaced(energy=price.energy + joule) + beside


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AttentionBlocks:
    """How queries and keys are cut: blocks of queries, parts of the cache for each (split-KV), query rows of
    a block, and keys it walks on average.
    """

    count: Number
    splits: Number
    rows: Number
    keys: Number


def attention_kernel(
    shape: AttentionShape,
    device: Device,
    *,
    served: ServedAttention | None = None,
    kernels: ServedAttention | None = None,
    warm: Number = 0.0,
) -> Price:
    r"""Price of softmax attention over a cache, as one fused kernel, or as a serving framework calls it
    (`served`).

    .. math::
        T = \max\left(T_c, \frac{m}{L}, t_m + \min(t_m, \rho)\right) + T_0 + \sigma, \quad
        t_m = \frac{b}{B}

    time of the cores T_c (`attention_core_time`); bytes m from the shared cache at L, and b from DRAM at B.
    Tokens that follow others take a served model up to ρ until their reads fill DRAM's queues. Floor T_0; a
    cache cut into parts is merged in σ. `warm`: share of keys and values in the cache; other `kernels`.

    Dao, FlashAttention-2, arXiv 2307.08691, secs. 3.1 to 3.3: blocks, work split over the cache, five
    products for two.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d, heads = device(chip("h200")), {"heads": 32.0, "kv_heads": 8.0, "activation": "bf16", "kv": "bf16"}
    >>> heads |= {"key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0, "cached": 8192.0}
    >>> step = attention_kernel(AttentionShape(sequences=64.0, queries=1.0, span=8192.0, **heads), d)
    >>> bool(step.memory > step.compute)
    True
    """
    kv, used = shape.kv, served or kernels or standalone_attention(device.chip, shape.kv)
    xp = namespace(*shape.sizes, warm, device.cores, device.bandwidth, device.core_bandwidth)
    cut, prompt = attention_blocks(shape, device), shape.queries > shape.few_queries
    kv_bytes, query_bytes = shape.kv_bytes, shape.query_bytes
    moved = cut.count * shape.span * shape.kv_width * bytes_of(kv) + query_bytes
    dram, half = kv_bytes * (1.0 - warm) + query_bytes, 0.5 * query_bytes
    stream = partial(kv_cache_stream, shape.key_dim, bytes_of(kv), dram - half, half)
    memory = dram_time(device, dram, used.memory_efficiency, stream)
    cache = moved / device.cache_bandwidth
    floor = as_measured(used.floor, kv) + xp.where(cut.splits > 1.0, used.merge, 0.0)
    efficiency = used.efficiency
    if served is not None:
        afresh = prompt & (shape.cached <= shape.queries)  # no tokens before them, whose keys lie in DRAM
        efficiency = xp.where(prompt, efficiency, as_measured(used.step_efficiency, kv))
        memory = memory + xp.minimum(memory, xp.where(afresh, 0.0, used.ramp))
        cache = xp.maximum(cache, warm * kv_bytes / (device.chip.cache.bandwidth * used.cache_efficiency))
        floor = xp.where(prompt, xp.maximum(used.prompt, xp.where(afresh, 0.0, floor)), floor)
    flop = shape.flop_per_pair * shape.sequences * shape.heads * shape.queries * shape.span
    return kernel_price(
        device,
        compute=_core_time(shape, device, cut, used, efficiency),
        cache=cache,
        memory=memory,
        moved=moved,
        dram=dram,
        flop=flop,
        joule=_joule(shape, device, cut, flop),
        lower=product_bound(flop, dram, device.matrix(*shape.formats), device),
        floor=floor,
    )


def worked_flop(shape: AttentionShape, cut: AttentionBlocks) -> Number:
    r"""Operations that the matrix units carry out for an attention, padding included: they spend energy on
    whole instructions, whatever part of their rows is used.

    .. math:: F = f \, w \, \hat r \, \hat s

    f operations a pair of query and key; w blocks of r̂ query rows, whole instructions, over ŝ keys each.

    Chosen over useful operations by leaving whole models of validation/h200/step_power.csv out.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 2.0, "queries": 1.0, "span": 4096.0, "cached": 4096.0, "heads": 32.0}
    >>> widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> step = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16")
    >>> worked = worked_flop(step, attention_blocks(step, device(chip("h200"))))
    >>> worked / (step.flop_per_pair * 2.0 * 32.0 * 4096.0)  # four queries of a group in rows for 64
    16.0
    """
    return shape.flop_per_pair * cut.count * cut.rows * cut.keys


def _joule(shape: AttentionShape, device: Device, cut: AttentionBlocks, flop: Number) -> Number:
    """Energy of matrix units and of what stands between their products [J]; bounds count useful work."""
    energy = device.matrix(*shape.formats).energy
    if device.software.for_bounds:
        return flop * energy
    scores = cut.count * cut.rows * cut.keys
    return worked_flop(shape, cut) * energy + score_energy(scores, device.chip, backward=shape.backward)


def _core_time(
    shape: AttentionShape, device: Device, cut: AttentionBlocks, used: ServedAttention, efficiency: Number
) -> Number:
    """`attention_core_time` of a shape: products and the exponentials they do not hide."""
    products = shape.flop_per_pair / (device.matrix(*shape.formats).peak * efficiency)
    softmax = used.softmax_exposed / device.chip.compute.special_rate
    xp = namespace(*shape.sizes, used.query_block)
    return attention_core_time(
        cut,
        per_key=cut.rows * ((products + softmax) * device.cores),
        start=xp.where(shape.queries > shape.few_queries, used.query_block, 0.0),
        cached=shape.cached,
        port=shape.kv_bytes / (shape.sequences * shape.kv_heads * cut.splits) / device.core_bandwidth,
        cores=device.cores,
    )


def standalone_attention(chip: Chip, kv: str) -> ServedAttention:
    """Attention outside a framework, in its quantities: one kernel, no pages, reads that start at once."""
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


def attention_blocks(shape: AttentionShape, device: Device) -> AttentionBlocks:
    """Blocks of at most 128 query rows.

    Where all queries of the heads that share keys fit one block, or are few, they are packed, and the cache
    is cut into parts of at least 128 tokens until all cores have one; else each head has its own blocks. Rows
    are padded to the matrix unit. A causal block of 128 keys is computed whole, so that the diagonal costs
    half a block.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 2.0, "queries": 1.0, "span": 4096.0, "cached": 4096.0, "heads": 32.0}
    >>> widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> step = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16")
    >>> cut = attention_blocks(step, device(chip("h200")))
    >>> float(cut.count), float(cut.splits), float(cut.rows)
    (16.0, 8.0, 64.0)
    """
    queries, heads, kv_heads, few = shape.queries, shape.heads, shape.kv_heads, shape.few_queries
    xp = namespace(*shape.sizes, device.cores)
    group = queries * (heads / kv_heads)
    packed = (group <= QUERY_ROWS) | (queries <= few)
    count = shape.sequences * xp.where(
        packed, kv_heads * ceil_div(group, QUERY_ROWS), heads * ceil_div(queries, QUERY_ROWS)
    )
    parts = xp.minimum(floor_div(device.cores, count), floor_div(shape.cached, KEY_ROWS))
    grain = device.chip.compute.tile_m
    rows = xp.minimum(xp.where(packed, group, queries), QUERY_ROWS)
    return AttentionBlocks(
        count=count,
        splits=xp.where(packed, xp.maximum(parts, 1.0), 1.0),
        rows=xp.minimum(ceil_div(rows, grain) * grain, xp.maximum(QUERY_ROWS, grain)),
        # A short pass over the cache (decode) has no diagonal to pad.
        keys=shape.span + xp.where(queries > few, 0.5 * KEY_ROWS, 0.0),
    )


def attention_core_time(
    cut: AttentionBlocks, *, per_key: Number, start: Number, cached: Number, port: Number, cores: Number
) -> Number:
    r"""Time the cores need for blocks of unequal length [s].

    .. math:: T_c = \max\left(\frac{w}{p} \left(\tau + \frac{t \hat s}{n}\right)
        + \frac{\ell}{2} [w > p], \; \ell\right), \quad
        \ell = \max\left(\tau + \frac{t}{n} \min(c, 2 \hat s), \; t_b\right)

    w blocks in n parts each on p cores; a block starts and ends in τ and takes t for each of ŝ keys on
    average. The longest, ℓ, sees the whole cache c, and draws its bytes in t_b. With more blocks than cores,
    half of the longest is waited for at the end: cores that take blocks in turn end up to ℓ apart (Graham,
    SIAM J. Appl. Math. 17 (1969): list scheduling).

    >>> one = AttentionBlocks(count=1.0, splits=1.0, rows=128.0, keys=512.0)
    >>> time = attention_core_time(one, per_key=1e-8, start=1e-6, cached=1024.0, port=0.0, cores=132.0)
    >>> round(time * 1e6, 2)
    11.24
    """
    xp = namespace(cut.count, cut.splits, cut.keys, per_key, start, cached, port, cores)
    work = cut.count * cut.splits
    each = per_key / cut.splits
    longest = xp.maximum(start + each * xp.minimum(cached, 2.0 * cut.keys), port)
    return xp.maximum(
        work * (start + each * cut.keys) / cores + xp.where(work > cores, TAIL * longest, 0.0), longest
    )
