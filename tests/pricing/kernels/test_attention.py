"""Attention kernels: bare and as frameworks serve them, prompts and steps, one and many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import strata as st
from strata.pricing.kernels.attention import attention_kernel
from strata.pricing.kernels.attention_shape import (
    AttentionBlocks,
    AttentionShape,
    attention_blocks,
    attention_core_time,
)
from strata.pricing.kernels.device import device

SIZES = ("sequences", "queries", "span", "cached", "heads", "kv_heads")
SHAPES = np.array(
    [
        [1, 8192, 4096.5, 8192, 32, 8],
        [64, 1, 4096, 4096, 32, 8],
        [1, 1, 131072, 131072, 8, 1],
        [7, 100, 50.5, 100, 12, 12],
        [300, 2, 600, 601, 96, 8],
    ],
    float,
)
CHIPS = ("h200", "a100-80", "b200", "mi325x", "tpu-v4")


def shaped(*sizes: Any, widths: tuple[float, float, float] = (128.0, 128.0, 256.0)) -> AttentionShape:
    key, value, kv = widths
    return AttentionShape(
        **dict(zip(SIZES, sizes, strict=True)),
        key_dim=key,
        value_dim=value,
        kv_width=kv,
        activation="bf16",
        kv="bf16",
    )


def priced(shape: Any, chip: Any, kind: str = "bare", warm: Any = 0.0) -> Any:
    served = None if kind == "bare" else getattr(chip, kind)
    return attention_kernel(shaped(*shape), device(chip), served=served, warm=warm)


@pytest.mark.parametrize("kind", ["bare", "paged", "latent"])
@pytest.mark.parametrize("name", CHIPS)
def test_many_equal_one_by_one_and_none_beats_the_roofline(name: str, kind: str):
    chip = st.chip(name)
    warm = np.array([0.0, 1.0, 0.5, 0.0, 0.0])
    many = priced(SHAPES.T, chip, kind, warm=warm)
    for i, shape in enumerate(SHAPES):
        one = priced([float(x) for x in shape], chip, kind, warm=float(warm[i]))
        assert one.time == pytest.approx(many.time[i], rel=1e-12)
        assert one.time >= one.lower


@pytest.mark.parametrize("kind", ["bare", "paged"])
@pytest.mark.parametrize(
    "path",
    [
        "compute.matrix_rate.bf16",
        "compute.special_rate",
        "memory.bandwidth",
        "cache.bandwidth",
        "cache.core_bandwidth",
    ],
)
def test_a_faster_part_never_makes_attention_slower(path: str, kind: str):
    slow = st.chip("h200")
    value = slow
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    fast = st.chip("h200", **{path: 1.7 * value})
    for warm in (0.0, 1.0):
        assert np.all(
            priced(SHAPES.T, fast, kind, warm=warm).time
            <= priced(SHAPES.T, slow, kind, warm=warm).time * (1 + 1e-12)
        )


def test_queries_of_grouped_heads_share_a_block_and_cores_share_a_cache():
    d = device(st.chip("h200"))
    step = attention_blocks(shaped(1.0, 1.0, 65536.0, 65536.0, 64.0, 8.0), d)
    assert (step.count, step.splits, step.rows) == (8, 132 // 8, 64)
    prompt = attention_blocks(shaped(2.0, 1000.0, 500.5, 1000.0, 64.0, 8.0), d)
    assert (prompt.count, prompt.splits, prompt.rows) == (2 * 64 * 8, 1, 128)


def test_blocks_of_a_prompt_that_outnumber_the_cores_end_half_a_block_apart():
    """132 blocks of 16 key blocks at most run side by side; the 133rd adds its share and half of the longest."""
    full, more = (
        attention_core_time(
            AttentionBlocks(count=n, splits=1.0, rows=128.0, keys=1088.0),
            per_key=1e-8,
            start=0.0,
            cached=2048.0,
            port=0.0,
            cores=132.0,
        )
        for n in (132.0, 133.0)
    )
    assert full == pytest.approx(2048e-8)
    assert more == pytest.approx(133 / 132 * 1088e-8 + 0.5 * 2048e-8)


def test_keys_in_the_cache_are_not_read_from_memory():
    chip = st.chip("b200")
    shape = [16.0, 1.0, 4096.0, 4096.0, 32.0, 8.0]
    cold, kept = (priced(shape, chip, "paged", warm=w) for w in (0.0, 1.0))
    assert kept.memory_bytes < 0.01 * cold.memory_bytes
    assert kept.time < cold.time


def test_latent_heads_share_one_cache():
    """128 heads over a latent of 512 + 64: one block, its cache read once, far more work for each byte than
    grouped heads.
    """
    chip = st.chip("h200")
    shape = shaped(64.0, 1.0, 4096.0, 4096.0, 128.0, 1.0, widths=(576.0, 512.0, 576.0))
    price = attention_kernel(shape, device(chip), served=chip.latent)
    assert price.memory_bytes == pytest.approx(64 * 4096 * 576 * 2, rel=0.1)
    assert price.flop / price.memory_bytes > 200


@pytest.mark.parametrize("chip_name", ["a100", "h100", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("engine_name", ["vllm", "sglang", "trtllm", "ideal"])
def test_more_tokens_of_a_sequence_are_never_cheaper(chip_name, engine_name):
    """Steps that verify guesses read the same cache as those that generate one token, and do more."""
    batch, context, tokens = np.meshgrid([1.0, 4.0, 16.0], [512.0, 8192.0], [1.0, 2.0, 3.0, 4.0, 8.0, 16.0])
    for name in ("llama-3.1-8b", "qwen3-8b"):
        work = st.decode(batch, context, tokens=tokens)
        time = st.evaluate(f"1x{chip_name}", name, work, st.plan(), engine_name).metrics.step_time
        assert np.all(np.diff(time, axis=-1) >= -1e-9 * time[..., 1:])
