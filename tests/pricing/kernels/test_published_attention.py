"""Attention of training against what makers of kernels publish."""

from dataclasses import replace

import numpy as np
import pytest
from cases import model, rank_graph

import strata as st
from strata.hardware.chip import chip
from strata.mapping.plan import plan
from strata.pricing.kernels.attention import (
    attention_backward,
    attention_casts,
    attention_kernel,
    price_attention,
)
from strata.pricing.kernels.attention_shape import AttentionShape, attention_shape
from strata.pricing.kernels.device import device

# NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results (cuDNN 9.18 and 9.19), causal, 64 heads of 128
# on 8, one sequence: milliseconds forward and backward by chip, format and tokens.
CUDNN = {
    ("h200", "", 4096.0): (0.465, 1.450),
    ("h200", "fp8", 4096.0): (0.322, 1.459),
    ("h200", "fp8", 2048.0): (0.098, 0.437),
    ("gb200", "", 8192.0): (0.704, 2.150),
    ("gb200", "fp8", 8192.0): (0.591, 1.851),
    ("gb300", "", 8192.0): (0.571, 1.976),
    ("gb300", "fp8", 8192.0): (0.434, 1.728),
}
# ROCm/aiter, op_tests/cpp/mha/README.md: TFLOP/s of both passes, not causal, 64 heads of 128 on 8.
AITER = {
    ("mi300x", 4096.0): (546.3, 524.3),
    ("mi300x", 8192.0): (591.4, 473.0),
    ("mi355x", 4096.0): (1305.8, 1140.1),
    ("mi355x", 8192.0): (1412.9, 1159.3),
}


def shape(tokens, span, products="", backward=False):
    sizes = {"sequences": 1.0, "queries": tokens, "span": span, "cached": tokens, "heads": 64.0}
    widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    return AttentionShape(
        **sizes, **widths, activation="bf16", kv="bf16", products=products, backward=backward
    )


def both(name, *given):
    at = device(chip(name))
    return (
        float(attention_kernel(shape(*given), at).time),
        float(attention_backward(shape(*given, backward=True), at).time),
    )


@pytest.mark.parametrize("case", CUDNN, ids=str)
def test_passes_of_cudnn(case):
    name, products, tokens = case
    found = np.array(both(name, tokens, (tokens + 1.0) / 2.0, products)) * 1e3
    assert found == pytest.approx(np.array(CUDNN[case]), rel=0.25)


@pytest.mark.parametrize("case", AITER, ids=str)
def test_passes_of_aiter(case):
    name, tokens = case
    flop = 4.0 * 64.0 * 128.0 * tokens**2 * np.array([1.0, 2.5])
    assert flop / np.array(both(name, tokens, tokens)) / 1e12 == pytest.approx(
        np.array(AITER[case]), rel=0.15
    )


def test_narrow_products_help_the_forward_pass_of_hopper_alone():
    """Published: 1.4 times as fast forward, no faster backward."""
    (wide, wide_back), (narrow, narrow_back) = (both("h200", 4096.0, 2048.5, p) for p in ("", "fp8"))
    assert wide / narrow > 1.3 and narrow_back == pytest.approx(wide_back, rel=0.05)


def test_casts_stand_beside_narrow_products_only():
    at, tokens = device(chip("h200")), 8192.0
    assert float(attention_casts(shape(tokens, 4096.5), at).time) == 0.0
    moved = 3.0 * tokens * (2 * 64 + 2 * 8) * 128.0  # two bytes of each element in, one out
    least = moved / float(at.chip.memory.bandwidth)
    assert least < float(attention_casts(shape(tokens, 4096.5, "fp8"), at).time) < 1.6 * least


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_cache_is_not_rounded_again_for_every_token(phase):
    """Rounding stands beside the kernels of trainers: a cache holds keys as they are multiplied."""
    made = replace(model("llama-3-8b"), attention_products="fp8")
    graph = rank_graph(made, {"decode": st.decode, "prefill": st.prefill}[phase](8.0, 8192.0), plan(""))
    (op,) = {op.name: op for _, op in graph.ops() if op.category == "attention"}.values()
    assert op.products == "fp8"
    at = device(chip("h200"))
    bare = float(attention_kernel(attention_shape(op), at).time)
    trains = replace(at, software=replace(at.software, trains=True))
    assert float(price_attention(op, at).time) == bare < float(price_attention(op, trains).time)
