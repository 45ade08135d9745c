"""Rings through local memory: DeepFlow's own times, laws, and steps of a model that use them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import strata as st
from deepflow.memory_ring import PASSES, divided_bandwidth, memory_ring
from strata.base.errors import BadValue
from strata.hardware.fabric import RingMemory
from strata.pricing.network.algorithms import ring_scatter

DATA = json.loads(
    (Path(__file__).parents[2] / "data" / "deepflow" / "collectives.json").read_text(encoding="utf-8")
)
# in compatibility local memory is timed at the speed of registers
REGISTERS = RingMemory(
    bandwidth=DATA["register_bandwidth"],
    latency=0.0,
    launch=DATA["launch"],
    rate=DATA["flops"],
    element=float(DATA["bytes_per_element"]),
)
# what its program divides links by: a fix for one machine of eight V100
DIVIDED = st.generation("deepflow-v100", "deepflow-v100", "deepflow-2021-dgx1").fabric.dimension[0]
DRAM = replace(REGISTERS, bandwidth=DATA["dram_bandwidth"], latency=DATA["dram_latency"])


def payload_of(case):
    return float(case["rows"] * case["columns"] * DATA["bytes_per_element"])


@pytest.mark.parametrize("case", DATA["collectives"], ids=lambda c: f"{c['pattern']}-{c['ranks']}")
def test_deepflow_reference_collective_times(case):
    found = memory_ring(
        case["pattern"], payload_of(case), case["ranks"], case["bandwidth"], case["latency"], REGISTERS
    )
    assert found == pytest.approx(case["time"], rel=1e-6)


@pytest.mark.parametrize("case", DATA["products"], ids=lambda c: f"{c['strategy']}-{c['m']}")
def test_deepflow_reference_collective_of_distributed_products(case):
    kind, *degrees = case["strategy"].split("-")
    size = DATA["bytes_per_element"]
    rows, columns = (int(degrees[0]), 1) if kind == "CR" else map(int, degrees)
    if kind == "CR":
        pattern, ranks, payload = "reduce_scatter", rows, case["m"] * case["n"] * size
    else:
        pattern, ranks, payload = "all_gather", columns, case["m"] / rows * case["n"] * size
    raw = case["bandwidth"][0 if kind == "CR" else 1]
    divided = divided_bandwidth(raw, ranks, DIVIDED)
    assert divided == pytest.approx(case["divided"][0 if kind == "CR" else 1], rel=1e-8)
    found = memory_ring(pattern, payload, ranks, divided, DATA["latency"], REGISTERS)
    assert found == pytest.approx(case["communication"], rel=1e-6)


def test_local_memory_at_dram_speed_is_what_the_buffers_need():
    # 2 GiB over 64 ranks: 126 steps write and read 32 MiB each, 63 sums move three of them
    n, p = 2.0**31, 64
    slow = memory_ring("all_reduce", n, p, 51.6e9, 5e-6, DRAM)
    fast = memory_ring("all_reduce", n, p, 51.6e9, 5e-6, REGISTERS)
    moved = (2 * 63 * 2 + 63 * 3) * n / 64
    by_hand = moved / DRAM.bandwidth + 3 * 63 * DRAM.latency - moved / REGISTERS.bandwidth
    assert slow - fast == pytest.approx(by_hand, rel=1e-9)


@given(
    pattern=some.sampled_from(sorted(PASSES)),
    payload=some.floats(1.0, 1e12),
    ranks=some.integers(2, 512),
    bandwidth=some.floats(1e9, 1e13),
)
def test_no_ring_through_memory_is_faster_than_its_links(pattern, payload, ranks, bandwidth):
    plain = PASSES[pattern] * ring_scatter(payload, ranks, bandwidth, 1e-6)
    assert memory_ring(pattern, payload, ranks, bandwidth, 1e-6, DRAM) >= plain


def test_a_batch_of_rings_is_the_rings_one_by_one():
    payloads, ranks = np.array([1e3, 1e6, 1e9])[:, None], np.array([1.0, 2.0, 8.0, 64.0])
    for pattern in PASSES:
        box = memory_ring(pattern, payloads, ranks, 5e10, 1e-6, DRAM)
        single = [[memory_ring(pattern, n, p, 5e10, 1e-6, DRAM) for p in ranks] for n in payloads[:, 0]]
        assert np.array_equal(box, np.array(single, dtype=float))
        assert np.all(box[:, 0] == 0.0)


def through_memory(system):
    first, *rest = system.fabric.dimension
    fabric = replace(system.fabric, dimension=(replace(first, collectives="memory-ring"), *rest))
    return replace(system, fabric=fabric)


def test_a_step_waits_longer_for_rings_through_its_chips_memory():
    work = st.decode(batch=64, context=2048)
    plain = st.system("8xh200")
    ideal = st.engine("ideal")
    direct = st.evaluate(plain, "llama-3-70b", work, "tp=8", engine=ideal)
    ringed = st.evaluate(through_memory(plain), "llama-3-70b", work, "tp=8", engine=ideal)
    assert ringed.metrics.tokens_per_s < direct.metrics.tokens_per_s
    one = st.network.collective(through_memory(plain), "all_reduce", bytes=1e9, ranks=8)
    link = plain.fabric.dimension[0]
    chip = plain.chip
    rings = RingMemory(
        bandwidth=chip.memory.bandwidth * chip.memory.efficiency,
        latency=chip.memory.latency,
        launch=chip.overhead.stream,
        rate=chip.compute.vector_rate * chip.compute.max_clock / chip.compute.clock,
        element=2.0,
    )
    by_hand = memory_ring("all_reduce", 1e9, 8.0, link.bandwidth * link.efficiency, link.latency, rings)
    assert one.time == pytest.approx(by_hand, rel=1e-9)
    assert one.algorithms[0] == "memory ring"


def test_rings_through_memory_need_a_memory():
    fabric = through_memory(st.system("8xh200")).fabric
    with pytest.raises(BadValue, match="need ring_memory, or a system whose chip has it"):
        st.network.collective(fabric, "all_reduce", bytes=1e6, ranks=8)


def test_batches_and_jax_price_the_same_rings():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    payloads = np.array([1e4, 1e6, 1e8])

    def time(n):
        return memory_ring("all_reduce", n, 8.0, 5e10, 1e-6, DRAM)

    assert np.allclose(jax.jit(time)(payloads), time(payloads), rtol=1e-12)
