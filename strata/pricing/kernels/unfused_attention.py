"""Attention as kernels one by one: batched products with a matrix of scores in DRAM between them, as trainers
ran it before fused attention.
"""

from __future__ import annotations

from strata.arrays import Number
from strata.precision import bytes_of
from strata.pricing.kernels.attention import AttentionShape
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import SLOT_FLOP, vector_kernel
from strata.pricing.price import Price, total_price

MASK = 1.0  # bytes of a dropout mask for each score
# Passes over the scores beside the products, as elements read and written and bytes of masks. Forward: scale,
# mask and softmax in one kernel, then dropout. Backward: dropout, then softmax, which reads the gradient and
# its own result.
FORWARD_PASSES = ((1.0, 1.0, 0.0), (1.0, 1.0, MASK))
BACKWARD_PASSES = ((1.0, 1.0, MASK), (2.0, 1.0, 0.0))
SOFTMAX_FLOP, SOFTMAX_SPECIAL = 6.0, 1.0  # of a score: scale, maximum, difference, sum, quotient; exponential

# Issue slots of a vector lane to draw a score's random number, drop or scale it and write its mask. PyTorch
# 2.11 on an H200, 5.4e8 scores of fp16: 6.15e11 a second, where the backward pass over the same bytes is a
# stream.
DROPOUT_SLOTS = 54.0


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
            scores * _score_flop(mask > 0.0, shape.backward),
            scores * (0.0 if mask or shape.backward else SOFTMAX_SPECIAL),
            device,
        )
        for read, written, mask in passes
    ]
    return total_price([(1.0, price) for price in (*products, *kernels)])


def _score_flop(drops: bool, backward: bool) -> float:
    """Operations of a pass for each score, or the issue slots that take as long."""
    if not drops:
        return SOFTMAX_FLOP
    return 2.0 if backward else SLOT_FLOP * DROPOUT_SLOTS


def unfused_kernels(backward: bool) -> float:
    """Kernels that the host launches for attention as products: the products and the passes over scores.

    >>> unfused_kernels(False), unfused_kernels(True)
    (4.0, 6.0)
    """
    return 4.0 + len(BACKWARD_PASSES) if backward else 2.0 + len(FORWARD_PASSES)
