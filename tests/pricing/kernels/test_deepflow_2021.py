"""The 2021 program's products: its recorded bytes and times from its recorded tiles, and from our own search."""

import json
from pathlib import Path

import numpy as np
import pytest

from deepflow.products import (
    chained_times,
    loop_orders,
    register_stream,
    searched_times,
    tile_family,
)
from strata.hardware.chip import chip
from strata.hardware.hierarchy import memory_levels, scope_capacity
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import vector_kernel

RECORDED = json.loads(
    (Path(__file__).parents[2] / "data" / "deepflow" / "gemm_single.json").read_text(encoding="utf-8")
)
CASES = [
    pytest.param(name, case, id=f"{name}-{case['m']}x{case['k']}x{case['n']}")
    for name, cases in RECORDED["gemm"].items()
    for case in cases
]


def recorded_chip(name, model="deepflow-2021"):
    """The chip that the reference's generator made, with its numbers as they are."""
    made = RECORDED["chips"][name]
    registers, local, cache, dram = made["levels"]
    cores = made["num_bundle"]
    return chip(
        "v100",
        kernel_model=model,
        **{
            "compute.cores": cores,
            "compute.units": made["num_mcu"] / cores,
            "compute.array_rows": RECORDED["array"],
            "compute.array_columns": RECORDED["array"],
            "compute.matrix_rate.fp16": made["throughput_flops"],
            "compute.matrix_efficiency.fp16": 1.0,
            "compute.sram_capacity": local["size_B"] / cores,
            "compute.sram_bandwidth": local["bandwidth_Bps"] / cores,
            "cache.capacity": cache["size_B"],
            "cache.bandwidth": cache["bandwidth_Bps"],
            "cache.core_bandwidth": cache["bandwidth_Bps"] / cores,
            "cache.efficiency": 1.0,
            "cache.latency": cache["latency_s"],
            "memory.capacity": dram["size_B"],
            "memory.bandwidth": dram["bandwidth_Bps"],
            "memory.efficiency": 1.0,
            "memory.latency": dram["latency_s"],
            "levels.0.capacity": registers["size_B"],
            "levels.0.bandwidth": registers["bandwidth_Bps"],
            "overhead.kernel": RECORDED["launch_s"],
        },
    )


@pytest.mark.parametrize(("name", "case"), CASES)
def test_deepflow_reference_gemm_levels(name, case):
    """With the recorded tiles: operations, bytes and time of every level to 1e-6."""
    used = recorded_chip(name)
    orders = loop_orders(float(case["m"]), float(case["k"]), float(case["n"]))
    [(order, reused)] = [o for o in dict.fromkeys(orders) if list(o[0]) == case["order"]]
    tiles = tuple(tuple(map(float, tile)) for tile in case["tiles"])
    side, rate = float(RECORDED["array"]), used.compute.matrix_rate["fp16"]
    found = chained_times(order, tiles, memory_levels(used), rate, 2.0, (reused / side, side))
    assert found.flop == case["flop"]
    for moved, time, level in zip(found.moved, found.times, case["levels"], strict=True):
        assert moved == pytest.approx(level["bytes"], rel=1e-6)
        assert time == pytest.approx(level["time_s"], rel=1e-6)
    assert found.time + RECORDED["launch_s"] == pytest.approx(case["time_s"], rel=1e-6)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_deepflow_reference_gemm_time(name, case):
    """With our own search over the same family of tiles: within 10 %, and never slower than what the program
    drew by more than rounding.
    """
    used = device(recorded_chip(name))
    price = matmul(float(case["m"]), float(case["n"]), float(case["k"]), used, "fp16", "fp16")
    assert price.time == pytest.approx(case["time_s"], rel=0.1)
    assert price.time <= case["time_s"] * (1 + 1e-2)


@pytest.mark.parametrize("name", ["v100", "p4"])
def test_a_batch_is_its_single_points_in_any_backend(name):
    cases = RECORDED["gemm"][name]
    m, n, k = (np.array([float(c[side]) for c in cases]) for side in "mnk")
    used = device(recorded_chip(name))
    batch = matmul(m, n, k, used, "fp16", "fp16")
    for i in range(len(cases)):
        one = matmul(float(m[i]), float(n[i]), float(k[i]), used, "fp16", "fp16")
        assert float(one.time) == pytest.approx(float(batch.time[i]), rel=1e-12)
        assert float(one.memory_bytes) == pytest.approx(float(batch.memory_bytes[i]), rel=1e-12)
    jax = pytest.importorskip("jax")
    from strata.base.arrays import enable_jax

    enable_jax()
    traced = jax.jit(lambda m, n, k: matmul(m, n, k, used, "fp16", "fp16").time)(m, n, k)
    assert np.asarray(traced) == pytest.approx(batch.time, rel=1e-9)


def test_deepflow_reference_pointwise_runs_at_register_speed():
    """The program times 1 GB of element-wise work at 9.7 us on its V100 (its own slip); corrected, DRAM's
    1 ms.
    """
    used = device(recorded_chip("v100"))
    assert register_stream(1e9, 0.0, used).time - RECORDED["launch_s"] == pytest.approx(9.7e-6, rel=1e-2)
    assert vector_kernel(5e8, 5e8, 0.0, 0.0, used).time == register_stream(1e9, 0.0, used).time
    corrected = device(recorded_chip("v100", "hierarchical"))
    assert vector_kernel(5e8, 5e8, 0.0, 0.0, corrected).time > 1e-3


def test_levels_of_the_recorded_chips_are_theirs():
    for name, made in RECORDED["chips"].items():
        used = recorded_chip(name)
        levels = memory_levels(used)
        assert [level.capacity for level in levels] == [level["size_B"] for level in made["levels"]]
        assert scope_capacity(used, levels[0]) == pytest.approx(made["levels"][0]["size_B"] / made["num_mcu"])


@pytest.mark.parametrize("shape", [(2048.0, 2048.0, 2048.0), (128.0, 8192.0, 8192.0), (512.0, 64.0, 4096.0)])
def test_the_search_by_levels_finds_what_all_combinations_do(shape):
    """Sixteen tiles a level, 4,096 tilings: keeping one a second side loses next to nothing in the better of
    the two orders.
    """
    used = recorded_chip("v100")
    levels, rate, side = memory_levels(used), used.compute.matrix_rate["fp16"], float(RECORDED["array"])
    elements = tuple(scope_capacity(used, level) / 2.0 for level in levels[:-1])
    families = [
        [np.ravel(s) for s in np.broadcast_arrays(*tile_family(size, index > 0, 0, np))]
        for index, size in enumerate(elements)
    ]
    every = np.meshgrid(*(np.arange(16) for _ in elements), indexing="ij")
    tiles = tuple(
        tuple(sides[np.ravel(at)] for sides in family) for family, at in zip(families, every, strict=True)
    )
    exhaustive, found = [], []
    for order, reused in loop_orders(*shape):
        registers = (reused / side, side)
        exhaustive.append(np.min(chained_times(order, tiles, levels, rate, 2.0, registers).time))
        found.append(searched_times(order, elements, levels, rate, 2.0, registers).time)
        assert found[-1] >= exhaustive[-1] * (1 - 1e-12)
    assert min(found) == pytest.approx(min(exhaustive), rel=0.02)
