"""The roofline of all memory levels: laws of traffic and time, hand sums, batches, and other backends."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepflow.hierarchical import RooflineRules, held_traffic, hierarchical_matmul, memories, tiling_times
from deepflow.tilings import core_tile_fits, core_tiles
from strata.hardware.chip import chip
from strata.hardware.chip_parts import MemoryLevel
from strata.hardware.hierarchy import memory_levels
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.traffic import Product, wave_traffic
from strata.pricing.price import RESOURCES

TWO = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
SIZES = st.sampled_from([1.0, 8.0, 24.0, 100.0, 128.0, 1000.0, 1024.0, 5120.0, 16384.0])
A100 = chip("a100-80", kernel_model="hierarchical")


def priced(used, m, n, k, **more):
    return matmul(m, n, k, device(used), "bf16", "bf16", **more)


def best_tiling(used, product, rules=None):
    """Every tile by itself, the quickest of them."""
    dev = device(used)
    unit, memory = dev.matrix("bf16", "bf16"), memories(dev)
    tried = [
        tiling_times(product, dev, unit, memory, (float(r), float(c)), rules or RooflineRules())
        for r, c in core_tiles()
    ]
    return min(tried, key=lambda of: of.time)


@settings(max_examples=40, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_traffic_of_a_level_is_at_least_compulsory_and_that_of_the_level_below(m, n, k):
    product = Product(m=m, n=n, k=k, **TWO)
    found = best_tiling(A100, product)
    assert len(found.moved) == len(memory_levels(A100))
    for inner, outer in itertools.pairwise(found.moved):
        assert inner >= outer * (1 - 1e-12)
    assert found.moved[-1] >= (product.weights + product.activations) * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_the_price_is_that_of_the_best_tile_of_all(m, n, k):
    product = Product(m=m, n=n, k=k, **TWO)
    price = priced(A100, m, n, k, resident=False)
    found = best_tiling(A100, product)
    assert price.time == pytest.approx(found.time + A100.overhead.kernel, rel=1e-9)
    assert price.time >= price.lower
    assert sum(float(getattr(price, r)) for r in RESOURCES) == pytest.approx(float(price.time))


GROWN = [
    *(f"levels.0.{field}" for field in ("capacity", "bandwidth")),
    *(f"compute.{field}" for field in ("sram_capacity", "sram_bandwidth")),
    *(f"cache.{field}" for field in ("capacity", "bandwidth", "core_bandwidth")),
    "memory.bandwidth",
]


@pytest.mark.parametrize("path", GROWN)
@settings(max_examples=15, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES, times=st.floats(1.01, 20.0))
def test_more_capacity_or_bandwidth_is_never_slower(path, m, n, k, times):
    from strata.params.paths import value_at

    more = chip("a100-80", kernel_model="hierarchical", **{path: times * value_at(A100, path)})
    assert priced(more, m, n, k).time <= priced(A100, m, n, k).time * (1 + 1e-9)


def test_a_batch_is_its_single_points_in_any_backend():
    sides = [1.0, 24.0, 1000.0, 8192.0]
    m, n, k = (np.array(x) for x in zip(*itertools.product(sides, sides, sides), strict=True))
    batch = priced(A100, m, n, k)
    for i in range(m.size):
        one = priced(A100, float(m[i]), float(n[i]), float(k[i]))
        for name in ("time", "energy", "memory_bytes", "cache_bytes"):
            assert float(getattr(one, name)) == pytest.approx(float(getattr(batch, name)[i]), rel=1e-12)
    jax = pytest.importorskip("jax")
    from strata.base.arrays import enable_jax

    enable_jax()
    dev = device(A100)

    def traced(m, n, k):
        price = matmul(m, n, k, dev, "bf16", "bf16")
        return price.time, price.memory_bytes

    time, moved = jax.jit(traced)(m, n, k)
    assert np.asarray(time) == pytest.approx(batch.time, rel=1e-9)
    assert np.asarray(moved) == pytest.approx(batch.memory_bytes, rel=1e-9)


def test_chips_on_an_axis_are_their_single_chips():
    sizes = np.array([1e6, 1e7, 1e8])
    along = priced(
        chip("a100-80", kernel_model="hierarchical", **{"cache.capacity": sizes}), 8192.0, 4096.0, 4096.0
    )
    for i, size in enumerate(sizes):
        one = priced(
            chip("a100-80", kernel_model="hierarchical", **{"cache.capacity": float(size)}),
            8192.0,
            4096.0,
            4096.0,
        )
        assert float(one.time) == pytest.approx(float(along.time[i]), rel=1e-12)
        assert float(one.memory_bytes) == pytest.approx(float(along.memory_bytes[i]), rel=1e-12)


def test_tiles_of_an_a100_by_hand():
    """128 x 128 sums of 4 B are a quarter of a core's 256 KiB of registers; 128 x 256 are half of them and
    leave no room for operands.
    """
    room = {"units": 4.0, "registers": 65536.0, "local": 196608.0}
    fitting = {(int(r), int(c)) for r, c in core_tiles() if core_tile_fits(r, c, **room)}
    assert (128, 128) in fitting and (64, 256) in fitting
    assert max(r * c for r, c in fitting) == 128 * 128


def test_waves_by_hand():
    """109 tiles on 108 cores take as long as 216, and no longer than 108 once where waves are not counted."""
    dev = device(A100)
    unit, memory = dev.matrix("bf16", "bf16"), memories(dev)
    product = Product(m=128.0 * 109, n=128.0, k=4096.0, **TWO)
    whole, even = (
        tiling_times(product, dev, unit, memory, (128.0, 128.0), RooflineRules(waves=waves)).compute
        for waves in (True, False)
    )
    assert even == pytest.approx(product.flop / unit.sustained)
    assert whole / even == pytest.approx(2 * 108 / 109)


def test_products_of_few_tiles_are_cut_along_their_depth():
    cut, uncut = (
        best_tiling(A100, Product(m=128.0, n=128.0, k=65536.0, **TWO), RooflineRules(split=split)).time
        for split in (True, False)
    )
    assert cut < 0.5 * uncut


def test_blocks_held_by_software_move_no_more_than_waves():
    large = Product(m=16384.0, n=4096.0, k=4096.0, **TWO)
    assert held_traffic(large, 40 * 2.0**20) < wave_traffic(large, 108 * 128 * 128.0, 40 * 2.0**20)
    dev = device(A100)
    unit = dev.matrix("bf16", "bf16")
    held, waves = (
        hierarchical_matmul(large, dev, unit, rules=RooflineRules(blocks=blocks)) for blocks in (True, False)
    )
    assert held.memory_bytes < waves.memory_bytes and held.time <= waves.time


def test_a_further_shared_level_takes_traffic_off_dram():
    level = MemoryLevel(
        name="L3", scope="global", capacity=1e9, bandwidth=4e12, efficiency=1.0, latency=0.0, energy=1e-11
    )
    more = replace(A100, levels=(*A100.levels, level))
    plain, deep = (priced(used, 16384.0, 8192.0, 8192.0) for used in (A100, more))
    product = Product(m=16384.0, n=8192.0, k=8192.0, **TWO)
    assert deep.memory_bytes == product.weights + product.activations  # all of it fits half of the L3
    assert plain.memory_bytes > 3 * deep.memory_bytes


@pytest.mark.parametrize("name", ["tpu-v4", "sn40l", "wse-2", "h200", "b200", "v100", "stack-ref"])
def test_every_chip_can_be_priced_by_its_levels(name):
    used = chip(name, kernel_model="hierarchical")
    wide = "fp16" if "fp16" in used.compute.matrix_rate else "bf16"
    for m in (1.0, 4096.0):
        price = matmul(m, 4096.0, 4096.0, device(used), wide, wide)
        assert price.lower <= price.time < 1.0 and price.energy > 0


def test_weights_and_activations_in_the_cache_cost_no_dram():
    dev = device(A100)
    price = matmul(64.0, 1024.0, 1024.0, dev, "bf16", "bf16", resident=True, warm=1.0)
    assert price.memory_bytes == 0.0 and price.memory == 0.0


def test_a_search_may_bound_energy_by_the_thriftiest_tile():
    quick, thrifty = (
        matmul(100.0, 5120.0, 1024.0, device(A100, for_bounds=bounds), "bf16", "bf16")
        for bounds in (False, True)
    )
    assert thrifty.energy <= quick.energy and thrifty.time == quick.time
