"""Attention kernels: scores, softmax and values in one pass; or one by one, scores in DRAM between them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from strata.base.arrays import Number, namespace
from strata.base.precision import as_measured, bytes_of
from strata.hardware.chip import Chip
from strata.hardware.chip_parts import ServedAttention
from strata.pricing.kernels.attention_shape import (
    AttentionBlocks,
    AttentionShape,
    attention_blocks,
    attention_core_time,
    attention_shape,
    gradient_sum_bytes,
    score_energy,
    worked_flop,
)
from strata.pricing.kernels.device import Device, kernel_price
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.traffic import dram_time, kv_cache_stream, product_bound
from strata.pricing.kernels.vector import SLOT_FLOP, vector_kernel
from strata.pricing.price import ZERO, Price, total_price
from strata.workload.ops import Attention

# Bytes that a backward pass moves for each element of the queries outside its products: results times their
# gradients row by row (4), sums of the queries' gradients in fp32 set to zero and rounded (4 + 6); where
# heads share keys and values, gradients of every head's copy written and added up (8). As cuDNN's kernels on
# an H200 are profiled.
BACKWARD_BYTES, SHARED_BYTES = 14.0, 8.0
BACKWARD_KERNELS = 5.0  # of which one is the products


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


MASK = 1.0  # bytes of a dropout mask for each score
SOFTMAX_FLOP, SOFTMAX_SPECIAL = 6.0, 1.0  # of a score: scale, maximum, difference, sum, quotient; exponential
# Issue slots of a vector lane to draw a score's random number, drop or scale it and write its mask. PyTorch
# 2.11 on an H200, 5.4e8 scores of fp16: 6.15e11 a second, where the backward pass over the same bytes is a
# stream.
DROPOUT_SLOTS = 54.0
# Passes over scores beside the products, as elements read and written, bytes of masks, and operations of a
# score (or the issue slots that take as long). Forward: scale, mask and softmax in one kernel, then dropout.
# Backward: dropout, then softmax, which reads the gradient and its own result.
FORWARD_PASSES = ((1.0, 1.0, 0.0, SOFTMAX_FLOP), (1.0, 1.0, MASK, SLOT_FLOP * DROPOUT_SLOTS))
BACKWARD_PASSES = ((1.0, 1.0, MASK, 2.0), (2.0, 1.0, 0.0, SOFTMAX_FLOP))


def unfused_attention(shape: AttentionShape, device: Device) -> Price:
    r"""Price of attention whose scores lie in DRAM between kernels.

    .. math:: T = \sum_j T_{bmm}(b h, q, s, d)
        + \sum_i b h q s \max\left(\frac{e_i w + m_i}{B}, \frac{2 \sigma_i}{R_v}\right)

    b sequences of h heads, q queries over s keys each; two batched products forward and four backward, all
    over the whole square, causal or not; passes that move e scores of w bytes and m bytes of masks each, with
    σ issue slots a score for the random numbers of dropout, at two operations a slot of the vector rate R_v.

    Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198, sec.
    4.1 and fig. 3: the ops of self attention and what each keeps.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 1.0, "queries": 2048.0, "span": 1024.0, "cached": 2048.0, "heads": 12.0}
    >>> widths = {"kv_heads": 12.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> one = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16")
    >>> price = unfused_attention(one, device(chip("a100")))
    >>> bool(price.time > 12 * 2048**2 * 17 / 2.04e12)
    True
    """
    heads, rows, keys = shape.sequences * shape.heads, shape.queries, shape.cached
    a, scores, width = shape.activation, heads * rows * keys, bytes_of(shape.activation)
    first, second = shape.key_dim, shape.value_dim

    def product(m: Number, n: Number, k: Number) -> Price:
        return matmul(m, n, k, device, a, a, batch=heads)

    if shape.backward:
        products = [
            product(rows, keys, second),  # gradients of probabilities
            product(keys, second, rows),  # of values
            product(rows, first, keys),  # of queries
            product(keys, first, rows),  # of keys
        ]
    else:
        products = [product(rows, keys, first), product(rows, second, keys)]
    passes = BACKWARD_PASSES if shape.backward else FORWARD_PASSES
    kernels = [
        vector_kernel(
            scores * (read * width + (mask if shape.backward else 0.0)),
            scores * (written * width + (0.0 if shape.backward else mask)),
            scores * flop,
            scores * (0.0 if mask or shape.backward else SOFTMAX_SPECIAL),
            device,
        )
        for read, written, mask, flop in passes
    ]
    return total_price([(1.0, price) for price in (*products, *kernels)])


def unfused_kernels(backward: bool) -> float:
    """Kernels that the host launches for attention as products: the products and the passes over scores.

    >>> unfused_kernels(False), unfused_kernels(True)
    (4.0, 6.0)
    """
    return 4.0 + len(BACKWARD_PASSES) if backward else 2.0 + len(FORWARD_PASSES)
