"""Caches divided over compute dies, a shared level behind them, and sums of blocks scaled outside matrix
units.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.hardware.chip import chip
from strata.hardware.hierarchy import memory_levels
from strata.pricing.kernels.device import device, far_level, rescaled_rate
from strata.pricing.kernels.graph_product import quantize_activations
from strata.pricing.kernels.matmul import die_fills, matmul
from strata.pricing.kernels.traffic import Product
from strata.pricing.kernels.vector import price_vector

MI300X = chip("mi300x")
SIZES = some.floats(16.0, 32768.0)
TWO = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}


def test_levels_of_an_mi300x():
    assert [level.name for level in memory_levels(MI300X)] == ["local", "cache", "Infinity Cache", "HBM3"]
    cache, far = MI300X.cache, far_level(MI300X)
    assert cache.capacity / cache.dies == 4 * 2**20 and far.capacity == 256 * 2**20
    assert device(MI300X).cache_capacity == far.capacity


def test_chips_without_such_a_level_are_as_they_were():
    h200 = device(chip("h200"))
    assert h200.far_bandwidth is None and h200.stream_bandwidth == h200.cache_bandwidth
    assert h200.cache_capacity == chip("h200").cache.capacity


@given(SIZES, SIZES, SIZES)
def test_every_die_fetches_what_it_needs(m, n, k):
    one = Product(m=m, n=n, k=k, **TWO)
    single, eight = (
        float(die_fills(one, device(chip("mi300x", **{"cache.dies": dies})))) for dies in (1.0, 8.0)
    )
    whole = one.weights + one.activations
    assert whole * (1 - 1e-12) <= single <= eight * (1 + 1e-12)


@settings(max_examples=30)
@given(SIZES, SIZES, SIZES, some.floats(1.0, 4.0))
def test_a_faster_level_behind_is_never_slower(m, n, k, factor):
    base = float(far_level(MI300X).bandwidth)
    times = [
        float(matmul(m, n, k, device(chip("mi300x", **{"levels.0.bandwidth": rate})), "fp8", "bf16").time)
        for rate in (base / factor, base)
    ]
    assert times[1] <= times[0] * (1 + 1e-12)


def test_a_batch_of_chips_is_so_many_single_ones():
    rates, sizes = np.array([2e12, 17e12]), np.array([64.0, 4096.0])
    batch = matmul(
        sizes[:, None], 8192.0, 1024.0, device(chip("mi300x", **{"levels.0.bandwidth": rates})), "fp8", "bf16"
    )
    for i, m in enumerate(sizes):
        for j, rate in enumerate(rates):
            alone = device(chip("mi300x", **{"levels.0.bandwidth": float(rate)}))
            single = matmul(float(m), 8192.0, 1024.0, alone, "fp8", "bf16").time
            assert batch.time[i, j] == pytest.approx(single, rel=1e-12)


def test_larger_tiles_where_registers_hold_them():
    shape, formats = (8192.0, 8192.0, 8192.0), ("bf16", "bf16")
    large, small = (
        device(chip("mi355x", **{"compute.tile_results": results})) for results in (65536.0, 32768.0)
    )
    plain = device(chip("mi355x", **{"compute.tile_results": 65535.0}))
    assert matmul(*shape, large, *formats).time < matmul(*shape, small, *formats).time
    assert matmul(*shape, plain, *formats).time == matmul(*shape, small, *formats).time
    assert matmul(*(np.array([x]) for x in shape), large, *formats).time[0] == pytest.approx(
        float(matmul(*shape, large, *formats).time), rel=1e-12
    )


def test_scales_of_blocks_cost_vector_operations():
    """Twice the matrix units do not double a product whose sums the vector units scale: MI355X against
    MI300X.
    """
    old = chip("mi300x")
    new = chip("mi355x", **{"compute.rescale.fp8_block": old.compute.rescale["fp8_block"]})
    rates = [rescaled_rate(0.833 * c.compute.matrix_rate["fp8"], "fp8_block", c) for c in (old, new)]
    assert 1.0 < rates[1] / rates[0] < 1.4
    assert new.compute.matrix_rate["fp8"] / old.compute.matrix_rate["fp8"] > 1.9
    assert rescaled_rate(1e15, "fp8", new) == 1e15 and rescaled_rate(1e15, "fp8_block", chip("h200")) == 1e15


@pytest.mark.parametrize(("name", "system"), [("llama-3-70b", "4xmi300x"), ("deepseek-v3", "8xmi355x")])
def test_under_jax(name, system):
    pytest.importorskip("jax")
    question = (st.system(system), st.model(name), st.decode(batch=np.array([8.0, 256.0]), context=2048.0))
    plan = st.plan(tp=4) if name == "llama-3-70b" else st.plan(tp=8)
    by_numpy, by_jax = (st.evaluate(*question, plan, backend=b) for b in ("numpy", "jax"))
    assert by_jax.metrics.step_time == pytest.approx(by_numpy.metrics.step_time, rel=1e-9)


@pytest.mark.parametrize("name", ["mi300x", "mi325x", "mi355x"])
def test_small_kernels_take_what_is_published(name):
    """Norms of a few rows 4 to 5 us (vLLM pull request 40009), rounding 4 us (SGLang pull request 36559)."""
    blocks = {b.name: b for b in st.program("deepseek-v3").trace(st.decode(4.0, 1024.0)).blocks}
    (norm,) = [op for b in blocks.values() for op in b.ops if op.name == "attention_norm"][:1]
    here = device(chip(name))
    assert 4e-6 < float(price_vector(norm, here).time) < 6e-6
    assert float(quantize_activations(4 * 7168.0, "fp8_block", here, True).time) == pytest.approx(
        4e-6, rel=0.1
    )
