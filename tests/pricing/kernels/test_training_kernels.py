"""Kernels of training against times of PyTorch 2.11 on an H200, profiled outside the validation files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strata.hardware.chip import chip
from strata.pricing.kernels.attention import attention_backward, attention_kernel
from strata.pricing.kernels.attention_shape import AttentionShape
from strata.pricing.kernels.device import device
from strata.pricing.kernels.graph_product import (
    biased_results,
    price_matmul,
    price_routed,
    quantize_both_ways,
)
from strata.pricing.kernels.vector import price_loss, price_vector
from strata.pricing.power_cap import power_capped
from strata.software.engine import engine
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Extent
from strata.workload.moe import EAGER_GATED
from strata.workload.ops import CrossEntropy, MatMul, Vector
from strata.workload.transformer import EAGER_LOSS

H200 = chip("h200")
# sequences, tokens, heads, key heads, width of a head: microseconds of scaled_dot_product_attention's backward
# pass (cuDNN, causal)
BACKWARD = [
    ((1, 4096, 32, 8, 128), 844.8),
    ((1, 8192, 32, 8, 128), 2870.2),
    ((4, 2048, 32, 8, 128), 902.9),
    ((8, 1024, 32, 8, 128), 607.1),
    ((2, 4096, 8, 1, 128), 473.8),
    ((2, 4096, 32, 8, 64), 998.4),
    ((1, 8192, 32, 8, 64), 1777.3),
    ((1, 8192, 12, 2, 128), 1091.5),
    ((1, 16384, 32, 8, 128), 10554.8),
]


def shape(sequences, tokens, heads, kv_heads, width):
    sizes = {"sequences": sequences, "queries": tokens, "span": (tokens + 1) / 2, "cached": tokens}
    widths = {"key_dim": width, "value_dim": width, "kv_width": 2 * width}
    numbers = {k: float(v) for k, v in (sizes | widths | {"heads": heads, "kv_heads": kv_heads}).items()}
    return AttentionShape(**numbers, activation="bf16", kv="bf16", backward=True)


def test_backward_attention_is_near_the_measured_times():
    found = [
        power_capped(attention_backward(shape(*s), device(H200)), H200, briefly=True).price.time
        for s, _ in BACKWARD
    ]
    off = np.abs(np.array(found) * 1e6 / [t for _, t in BACKWARD] - 1.0)
    assert off.mean() < 0.06 and off.max() < 0.13


def test_backward_attention_takes_longer_than_its_products_at_the_forward_rate():
    one = shape(2, 4096, 32, 8, 64)
    assert attention_backward(one, device(H200)).time > 1.2 * attention_kernel(one, device(H200)).time


def loss(backward):
    sizes = {"m": Extent(4096.0), "n": (Extent(128256.0),), "reads": 1.0, "writes": 0.0, "precision": "fp32"}
    work = {"flop_per_element": 1.0, "special_per_element": 1.0, "eager": EAGER_LOSS}
    op = CrossEntropy(name="loss", module="", inputs=("logits",), output="token", **sizes, **work)
    return op.gradient()[0] if backward else op


@pytest.mark.parametrize(
    ("fused", "backward", "measured"),
    [(1.0, False, 770.0), (1.0, True, 666.0), (0.0, False, 3555.0), (0.0, True, 3308.0)],
)
def test_a_loss_over_large_vocabularies_is_near_the_profiled_kernels(fused, backward, measured):
    dev = device(H200, trains=True, fused_loss=fused, loss_slots=45.0)
    assert price_loss(loss(backward), dev).time * 1e6 == pytest.approx(measured, rel=0.2)


def test_an_eager_activation_moves_more_than_a_fused_one():
    work = {"reads": 2.0, "writes": 1.0, "flop_per_element": 5.0, "special_per_element": 1.0}
    op = Vector(name="act", module="", inputs=("x",), output="y", precision="bf16", pieces=2.0,
                m=Extent(4096.0), n=(Extent(14336.0),), eager=EAGER_GATED, **work)  # fmt: skip
    fused, eager = (price_vector(op, device(H200, trains=True, fused=f)).time for f in (1.0, 0.0))
    assert fused * 1e6 == pytest.approx(82.0, rel=0.1) and 2.0 < eager / fused < 5.0
    half = price_vector(op, device(H200, trains=True, fused=0.5)).time
    assert half == pytest.approx(0.5 * (fused + eager))


def weight_gradient(weight="bf16"):
    op = MatMul(name="up", module="ffn", inputs=("x",), output="y", m=Extent(4096.0), n=(Extent(28672.0),),
                k=Extent(8192.0), weight=weight, activation="bf16")  # fmt: skip
    return op, *op.gradient()


def test_gradients_added_up_wider_cost_most_as_a_kernel_of_their_own():
    _, _, wgrad = weight_gradient()
    plain, fused, apart = (
        price_matmul(wgrad, device(H200, trains=True, main_gradients=main, fused_gradient_add=add)).time
        for main, add in (("bf16", 1.0), ("fp32", 1.0), ("fp32", 0.0))
    )
    assert plain < fused < apart
    assert apart - plain == pytest.approx(8192 * 28672 * 10 / (4.8e12 * 0.902), rel=0.05)


def test_gradients_of_the_same_width_are_added_by_a_kernel_where_nothing_is_fused():
    _, _, wgrad = weight_gradient()
    fused, apart = (
        price_matmul(wgrad, device(H200, trains=True, main_gradients="bf16", fused_gradient_add=add)).time
        for add in (1.0, 0.0)
    )
    assert apart - fused == pytest.approx(8192 * 28672 * 6 / (4.8e12 * 0.902), rel=0.05)


def test_narrow_products_round_activations_forward_and_gradients_backward_but_once_each():
    forward, dgrad, wgrad = weight_gradient("fp8")
    ready, rounding = (device(H200, trains=True, quantize_bytes=q) for q in (None, 2.0))
    extra = [price_matmul(op, rounding).time - price_matmul(op, ready).time for op in (forward, dgrad, wgrad)]
    expected = [quantize_both_ways(4096.0 * n, "fp8", rounding).time for n in (8192.0, 28672.0)]
    assert extra[:2] == pytest.approx(expected) and extra[2] == 0.0
    wide = replace(forward, weight="bf16")
    assert price_matmul(wide, rounding).time == price_matmul(wide, ready).time


# rows of 2,880 elements in bf16 and experts: ms of adding biases times weights in fp32 expert by expert, forward and
# backward (what Megatron-LM's TEGroupedMLP._apply_bias does)
BIASES = [(65536, 16, 2.343, 3.746), (32768, 2, 1.125, 1.689)]


@pytest.mark.parametrize(("rows", "experts", "forward", "backward"), BIASES)
def test_biases_of_experts(rows, experts, forward, backward):
    sizes = {"tokens": Extent(float(rows)), "top_k": 1.0, "experts": Extent(float(experts)), "skew": 0.0}
    down = ExpertMatMul(
        name="down", module="moe", inputs=("act",), output="out", n=(Extent(2880.0),), k=Extent(2880.0),
        all_experts=float(experts), weight="bf16", activation="bf16", bias=True, weighted_bias=True, **sizes,
    )  # fmt: skip
    kernels, h200 = engine("megatron").training.expert_bias, device(H200, trains=True)
    back, weights = down.gradient()
    found = [1e3 * float(biased_results(op, kernels, h200).time) for op in (down, back)]
    assert found == pytest.approx([forward, backward], rel=0.12)
    charged = device(H200, trains=True, expert_bias=kernels)
    for op, more in ((down, found[0]), (back, found[1]), (weights, 0.0)):
        added = price_routed(op, charged).time - price_routed(op, h200).time
        assert 1e3 * float(added) == pytest.approx(more, abs=1e-6)
