"""Products on systolic and dataflow arrays: laws, numbers worked by hand, and numbers of SCALE-Sim, DFModel
and DeepFlow.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import strata as st
from strata.base.arrays import enable_jax
from strata.params import names
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.systolic import (
    CHOICES,
    array_cycles,
    array_times,
    block_traffic,
    dataflow_traffic,
    dataflows,
    resident_block,
)
from strata.pricing.kernels.traffic import Product

ARRAYS = [name for name in names("chip") if st.chip(name).kind != "gpu"]
MORE = {
    "compute.matrix_rate.bf16": 1.3,
    "compute.sram_capacity": 2.0,
    "compute.sram_bandwidth": 1.5,
    "cache.capacity": 2.0,
    "cache.bandwidth": 1.5,
    "cache.core_bandwidth": 1.5,
    "memory.bandwidth": 1.5,
}


def shapes(count=4000, seed=3, most=16384.0):
    """Products of every size and aspect, small ones and edges of arrays included."""
    rng = np.random.default_rng(seed)
    spread = [np.exp(rng.uniform(0.0, np.log(most), count)).round() for _ in range(3)]
    edges = rng.choice([1.0, 4.0, 31.0, 32.0, 33.0, 127.0, 128.0, 129.0, 256.0, 4096.0], (3, count // 4))
    return [np.concatenate(pair) for pair in zip(spread, edges, strict=True)]


def product(name, m, n, k, changes=None, **options):
    return matmul(m, n, k, device(st.chip(name, **(changes or {}))), "bf16", "bf16", **options)


def shaped(m, n, k, a=2.0, w=2.0, o=2.0):
    return Product(m=m, n=n, k=k, input_bytes=a, weight_bytes=w, output_bytes=o)


def test_there_are_chips_of_both_kinds():
    assert {st.chip(name).kind for name in ARRAYS} == {"systolic", "dataflow"}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_array_makes_the_peak(name):
    """Cells x cores x clock are the quoted peak, so that rows and columns are those behind it."""
    c = st.chip(name).compute
    assert 2 * c.array_rows * c.array_columns * c.cores * c.clock == pytest.approx(
        c.matrix_rate["bf16"], rel=0.005
    )


def test_a_chip_of_arrays_needs_their_sides(tmp_path):
    (tmp_path / "odd.toml").write_text('base = "mi325x"\nname = "odd"\nkind = "systolic"\n')
    with pytest.raises(st.StrataError, match=r"needs compute\.array_rows and compute\.array_columns"):
        st.chip(str(tmp_path / "odd.toml"))


# ---------------------------------------------------------------------------------------------------------
# laws


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_never_below_the_roofline_and_within_its_bounds(name, resident):
    m, n, k = shapes()
    price = product(name, m, n, k, resident=resident)
    peak = st.chip(name).compute.matrix_rate["bf16"]
    assert (
        np.all(price.time >= price.lower)
        and np.all(price.time >= 2 * m * n * k / peak)
        and np.all(price.time <= price.upper * (1 + 1e-12))
    )
    least = 2.0 * k * n + (0.0 if resident else 2.0 * m * (k + n))
    assert np.all(price.memory_bytes >= least * (1 - 1e-12)) and np.all(
        price.cache_bytes >= 2.0 * (k * n + m * k + m * n) * (1 - 1e-12)
    )


@pytest.mark.parametrize("path", MORE)
@pytest.mark.parametrize("name", ARRAYS)
def test_more_of_anything_is_never_slower_and_more_memory_never_more_traffic(name, path):
    m, n, k = shapes()
    old = st.chip(name)
    value = (
        old.compute.matrix_rate["bf16"]
        if path.endswith("bf16")
        else getattr(getattr(old, path.split(".")[0]), path.split(".")[1])
    )
    less, more = product(name, m, n, k), product(name, m, n, k, {path: value * MORE[path]})
    assert np.all(more.time <= less.time * (1 + 1e-9)) and np.all(
        more.memory_bytes <= less.memory_bytes * (1 + 1e-9)
    )


@pytest.mark.parametrize("name", ARRAYS)
def test_more_memory_never_means_more_traffic_of_any_choice(name):
    """Of each choice by itself, at any level; which one is quickest may change."""
    s = dataflows(shaped(*shapes(2000), w=1.0), 1, np)
    c = st.chip(name).compute
    sizes = np.geomspace(1e3, 1e10, 40)
    bytes_in = [block_traffic(s, size, c.array_rows, c.array_columns) for size in sizes]
    assert all(np.all(b <= a * (1 + 1e-12)) for a, b in pairwise(bytes_in))


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("name", ARRAYS)
def test_padding_never_helps(name, axis):
    sides = shapes()
    for more in (1.0, 5.0, 64.0):
        longer = [s + more if i == axis else s for i, s in enumerate(sides)]
        short, padded = product(name, *sides), product(name, *longer)
        assert np.all(padded.time >= short.time * (1 - 1e-9)) and np.all(
            padded.memory_bytes >= short.memory_bytes * (1 - 1e-9)
        )


@pytest.mark.parametrize("name", ARRAYS)
def test_a_product_and_its_transpose_cost_the_same(name):
    m, n, k = shapes()
    one, other = product(name, m, n, k), product(name, n, m, k)
    np.testing.assert_allclose(one.time, other.time, rtol=1e-12)
    np.testing.assert_allclose(one.memory_bytes, other.memory_bytes, rtol=1e-12)


@pytest.mark.parametrize("name", ARRAYS)
def test_large_products_come_near_the_sustained_peak(name):
    dev = device(st.chip(name))
    side = 81920.0  # a multiple of every array, 320 too
    found = array_times(shaped(side, side, side), dev, dev.matrix("bf16", "bf16"))
    assert 2 * side**3 / found.compute == pytest.approx(dev.matrix("bf16", "bf16").sustained, rel=0.001)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_batch_equals_single_answers(name):
    m, n, k = shapes(60)
    many = product(name, m, n, k, resident=True)
    for i in range(0, len(m), 3):
        one = product(name, float(m[i]), float(n[i]), float(k[i]), resident=True)
        for f in ("time", "compute", "cache", "memory", "memory_bytes", "cache_bytes", "energy"):
            assert float(getattr(one, f)) == pytest.approx(float(getattr(many, f)[i]), rel=1e-12), f


def test_a_box_of_chips_equals_single_answers():
    sides = np.array([8.0, 32.0, 128.0])[:, None]
    box = product(
        "tpu-v4",
        np.array([1.0, 300.0, 5000.0]),
        700.0,
        900.0,
        {"compute.array_rows": sides, "compute.array_columns": sides},
    )
    for i, side in enumerate(sides[:, 0]):
        for j, m in enumerate((1.0, 300.0, 5000.0)):
            one = product(
                "tpu-v4", m, 700.0, 900.0, {"compute.array_rows": side, "compute.array_columns": side}
            )
            assert float(one.time) == pytest.approx(box.time[i, j], rel=1e-12)


def test_jax_gives_the_same():
    jax = pytest.importorskip("jax")
    enable_jax()
    m, n, k = shapes(200)
    traced = jax.jit(lambda *sides: product("sn10", *sides).time)(*map(jax.numpy.asarray, (m, n, k)))
    np.testing.assert_allclose(np.asarray(traced), product("sn10", m, n, k).time, rtol=1e-12)


def test_several_products_are_as_many_times_one_but_for_the_ends():
    one, many = product("tpu-v4", 512.0, 1024.0, 1024.0), product("tpu-v4", 512.0, 1024.0, 1024.0, batch=64.0)
    floor = st.chip("tpu-v4").overhead.kernel
    assert many.memory_bytes == 64 * one.memory_bytes and one.time - floor < (many.time - floor) < 64 * (
        one.time - floor
    )


def test_weights_that_stay_on_the_chip_are_not_read_again():
    cold, warm = (product("sn40l", 16.0, 8192.0, 8192.0, resident=True, warm=w) for w in (0.0, 1.0))
    assert cold.memory_bytes == 8192 * 8192 * 2 and warm.memory_bytes == 0 and warm.time < cold.time / 5


# -------------------------------------------------------------------------------------------- worked by hand


def counted(kind, m, n, k, rows, columns):
    """Elements moved by the plain loops of a dataflow, counted block by block: what stays, operands read,
    sums written and read.
    """
    p, q, t = {"weights": (k, n, m), "activations": (k, m, n), "results": (m, n, k)}[kind]
    kept = streamed = sums = 0
    for i in range(0, p, rows):
        for j in range(0, q, columns):
            high, wide = min(rows, p - i), min(columns, q - j)
            kept += high * wide
            if kind == "results":
                streamed += t * (high + wide)
            else:
                streamed += t * high
                sums += t * wide * (1 if i + rows >= p else 0)  # a result leaves once
                # a partial sum of 4 bytes: written before, read now
                sums += 8 * t * wide * (0 if i == 0 else 1)
    return kept + streamed + sums


@pytest.mark.parametrize(
    ("m", "n", "k", "rows", "columns"),
    [(7, 9, 11, 3, 4), (12, 8, 16, 4, 4), (5, 5, 5, 8, 8), (1, 30, 20, 6, 7)],
)
def test_traffic_is_what_plain_loops_move(m, n, k, rows, columns):
    s = dataflows(shaped(float(m), float(n), float(k), 1.0, 1.0, 1.0), 0, np)
    found = dataflow_traffic(s, np.ceil(s.rows / rows), np.ceil(s.columns / columns))
    for kind in ("weights", "activations", "results"):
        assert found[CHOICES.index(kind)] == counted(kind, m, n, k, rows, columns)


def test_blocks_fill_their_memory_and_end_at_the_matrix():
    s = dataflows(shaped(*shapes(500)), 1, np)
    for elements in (1e2, 1e4, 1e6, 1e9):
        high, wide = resident_block(s, elements)
        assert (
            np.all(high * wide <= np.maximum(elements, 1.0) * (1 + 1e-9))
            and np.all(high <= s.rows)
            and np.all(wide <= s.columns)
        )
        full = (high * wide >= elements * (1 - 1e-9)) | ((high == s.rows) & (wide == s.columns))
        assert np.all(full)


def test_a_small_product_on_the_tpu_by_hand():
    """128 x 128 x 128 on arrays of 128 x 128: one fold of 128 steps, 2 R + C - 2 = 382 clocks of ends, at 0.9
    of 275 TFLOP/s.
    """
    dev = device(st.chip("tpu-v4"))
    found = array_times(shaped(128.0, 128.0, 128.0), dev, dev.matrix("bf16", "bf16"))
    clock = 0.9 * 275e12 / (2 * 128 * 128 * 8)
    assert (
        found.compute * clock == pytest.approx(128 + 382) and found.dram == found.moved == 3 * 128 * 128 * 2
    )


def test_a_single_row_loads_weights_as_fast_as_the_arrays_take_them():
    """4096 x 4096 weights are 1024 folds, 128 on each of 8 arrays, 128 clocks each to load; the row itself
    streams meanwhile.
    """
    dev = device(st.chip("tpu-v4"))
    found = array_times(shaped(1.0, 4096.0, 4096.0), dev, dev.matrix("bf16", "bf16"))
    clock = 0.9 * 275e12 / (2 * 128 * 128 * 8)
    assert found.compute * clock == pytest.approx(128 * 128 + 382)


# ------------------------------------------------------------------------------------------ numbers of others

# SCALE-Sim v2, weight stationary on 256 x 256, GPT-2 and MobileNet layers: its compute report as published by
# github
# HyakunosukeOgata/SCALE_sim_v2_notes (README, commit 184fd7f). It numbers clocks from 0, so that the last one
# is one less.
SCALE_SIM = [
    (1024, 4800, 1600, 238069),
    (1024, 1024, 64, 7159),
    (1024, 64, 1024, 7159),
    (1024, 1600, 1600, 87709),
    (1024, 3072, 1600, 150359),
    (112 * 112, 32, 27, 13309),
    (56 * 56, 128, 64, 3901),
]


@pytest.mark.parametrize(("m", "n", "k", "clocks"), SCALE_SIM)
def test_scale_sim_counts_the_same_clocks(m, n, k, clocks):
    folds = np.ceil(k / 256) * np.ceil(n / 256)
    one = {"rows": 256.0, "columns": 256.0, "cores": 1.0, "shared": False}
    assert array_cycles(folds, float(m), **one, buffered=False) == clocks + 1
    # With a second set of registers folds overlap: never more, never below the work itself.
    assert folds * m <= array_cycles(folds, float(m), **one) <= clocks + 1


@pytest.mark.parametrize(("m", "n", "k"), [(8192, 8192, 8192), (2048, 12288, 12288), (3072, 1000, 4096)])
def test_dfmodel_divides_cores_more_coarsely(m, n, k):
    """DFModel, sec. IV: ceil(M / (lanes x 32)) ceil(N / (stages x 6)) K clocks with lanes x stages of the
    cores; its best split.
    """
    cores, high, wide = 640, 32, 6
    splits = [(lanes, cores // lanes) for lanes in range(1, cores + 1)]
    theirs = min(np.ceil(m / (lanes * high)) * np.ceil(n / (stages * wide)) * k for lanes, stages in splits)
    dev = device(st.chip("sn10", **{"compute.matrix_efficiency.bf16": 1.0}))
    unit = dev.matrix("bf16", "bf16")
    ours = (
        array_times(shaped(float(m), float(n), float(k)), dev, unit).compute
        * unit.sustained
        / (2 * cores * high * wide)
    )
    assert m * n * k / (cores * high * wide) <= ours <= theirs + 2 * high + wide


def test_deepflow_counts_the_same_register_traffic():
    """DeepFlow, eq. 5: flop (X Y + K X + K Y) / (2 K X Y) elements for an array X x Y and a reuse of K."""
    m, n, k, x, y = 1024.0, 2048.0, 512.0, 128.0, 64.0
    s = dataflows(shaped(m, n, k, 1.0, 1.0, 1.0), 0, np)
    ours = dataflow_traffic(s, s.rows / x, s.columns / y)[CHOICES.index("results")]
    assert ours == pytest.approx(2 * m * n * k * (x * y + k * x + k * y) / (2 * k * x * y))


# TPU v4, fusion time of float16 products, which it converts before it multiplies (github
# scalesim-project/SCALE-Sim-validation,
# data/data_matmul_new, commit 45818f1; arXiv 2603.22535): products in its own bf16 take no longer, and not a
# tenth either.
TPU_V4 = [
    (128, 128, 128, 1.356),
    (1024, 128, 128, 2.436),
    (256, 512, 512, 4.048),
    (1024, 1024, 512, 18.0),
    (2048, 4096, 4096, 529.6),
    (1024, 4096, 4096, 266.9),
]


@pytest.mark.parametrize(("m", "n", "k", "microseconds"), TPU_V4)
def test_tpu_v4_is_not_faster_in_a_format_it_has_to_convert(m, n, k, microseconds):
    chip = st.chip("tpu-v4")
    warm = replace(device(chip), bandwidth=1e30)  # the fusion does not wait for HBM
    ours = matmul(float(m), float(n), float(k), warm, "bf16", "bf16").time * 1e6
    assert microseconds / 10 < ours < microseconds


def test_a_chip_that_keeps_one_matrix_is_no_quicker_than_the_best():
    m, n, k = shapes(200)
    best = product("tpu-v4", m, n, k)
    chip = st.chip("tpu-v4")
    kept = {}
    for dataflow in ("ws", "os", "as"):
        one = replace(chip, compute=replace(chip.compute, dataflow=dataflow))
        kept[dataflow] = matmul(m, n, k, device(one), "bf16", "bf16")
        assert np.all(kept[dataflow].time >= best.time * (1 - 1e-9))
    assert np.any(kept["ws"].time > 1.05 * best.time)
