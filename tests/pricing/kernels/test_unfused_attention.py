"""Attention as kernels one by one: more traffic than a fused kernel, and sums by hand."""

import numpy as np

from strata.hardware.chip import chip
from strata.pricing.kernels.attention import attention_kernel, unfused_attention, unfused_kernels
from strata.pricing.kernels.attention_shape import AttentionShape
from strata.pricing.kernels.device import device

WIDTHS = {"key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0, "activation": "bf16", "kv": "bf16"}


def shape(backward: bool = False, queries: float = 2048.0, heads: float = 12.0) -> AttentionShape:
    sizes = {"sequences": 2.0, "queries": queries, "span": queries / 2, "cached": queries}
    return AttentionShape(**sizes, heads=heads, kv_heads=heads, backward=backward, **WIDTHS)


def test_it_is_slower_than_one_fused_kernel_the_longer_the_more() -> None:
    on = device(chip("a100"))
    ratios = [
        [
            float(unfused_attention(shape(b, q), on).time / attention_kernel(shape(b, q), on).time)
            for q in (1024.0, 2048.0, 8192.0)
        ]
        for b in (False, True)
    ]
    for forward_or_back in ratios:
        assert forward_or_back[0] > 1.5
        assert forward_or_back == sorted(forward_or_back)


def test_its_traffic_is_that_of_its_kernels() -> None:
    """Scores of 2 bytes: written, passed over by softmax (4) and dropout (5), read: 13 bytes forward; backward
    2 + 5 + 6 + 2 (values) + 2 + 2 (queries, keys).
    """
    scores, on = 2 * 12 * 2048.0**2, device(chip("a100"))
    operands = 2 * 12 * 2048 * 128 * 2.0
    for backward, each, others in ((False, 13.0, 4.0), (True, 19.0, 8.0)):
        moved = float(unfused_attention(shape(backward), on).memory_bytes)
        np.testing.assert_allclose(moved, scores * each + others * operands, rtol=0.1)


def test_a_batch_equals_single_ones() -> None:
    heads, on = np.array([4.0, 12.0]), device(chip("a100"))
    both = unfused_attention(shape(heads=heads), on).time  # type: ignore[arg-type]
    for i, one in enumerate(heads):
        assert both[i] == unfused_attention(shape(heads=float(one)), on).time


def test_dropout_draws_random_numbers() -> None:
    """PyTorch 2.11 on an H200, 128 heads of 2048 x 2048 scores in fp16: products of 336 and 284 us (width 64),
    dropout 873 us, where streams of its bytes take 620 us; beside these a softmax of at least its bytes.
    """
    on, widths = device(chip("h200")), WIDTHS | {"key_dim": 64.0, "value_dim": 64.0, "kv_width": 128.0}
    sizes = {"sequences": 1.0, "queries": 2048.0, "span": 1024.0, "cached": 2048.0}
    one = AttentionShape(**sizes, heads=128.0, kv_heads=128.0, **widths)
    softmax = 128 * 2048**2 * 4.0 / 4.33e12
    np.testing.assert_allclose(float(unfused_attention(one, on).time), 1493e-6 + softmax, rtol=0.06)


def test_it_is_launched_as_products_and_passes() -> None:
    assert (unfused_kernels(False), unfused_kernels(True)) == (4.0, 6.0)
