"""Prefix sums and sorts: chains of loads, passes over memory, laws, and readings of an H200."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.hardware.chip import chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.numerical import price_scan, price_sort
from strata.pricing.kernels.vector import EXPOSED
from strata.workload.graph import Extent
from strata.workload.scan_ops import Scan, Sort

ALONE = {"name": "s", "module": "s", "inputs": ("a",), "output": "b"}
H200, COLD = device(chip("h200")), device(chip("h200"), resident=False)


def scanned(length, inner=1.0, outer=1.0, precision="fp32", dev=H200):
    op = Scan(**ALONE, length=Extent(length), inner=Extent(inner), outer=Extent(outer), precision=precision)
    return price_scan(op, dev)


def sorted_keys(length, lines=1.0, precision="fp32", dev=COLD, value_bytes=8.0):
    op = Sort(
        **ALONE, length=Extent(length), lines=Extent(lines), precision=precision, value_bytes=value_bytes
    )
    return price_sort(op, dev)


def test_a_thread_waits_for_every_element_of_its_line():
    c = COLD.chip
    moved = 2 * 4 * 65536 * 1024 / (c.memory.bandwidth * c.memory.stream_efficiency)
    hand = 65536 * c.memory.latency + EXPOSED * moved + c.overhead.stream + c.overhead.cold
    assert float(scanned(65536.0, 1024.0, dev=COLD).time) == pytest.approx(float(hand), rel=1e-6)


def test_threads_that_do_not_fit_wait_for_a_whole_turn():
    held = 132 * 2048.0
    one, two = (float(scanned(3000.0, lanes, dev=COLD).time) for lanes in (held, held + 1))
    assert two > one + 0.9 * (1 - EXPOSED) * 3000 * COLD.chip.memory.latency


def test_what_fits_the_cache_is_found_there():
    warm, cold = scanned(1024.0, 1024.0), scanned(1024.0, 1024.0, dev=COLD)
    assert float(cold.time / warm.time) == pytest.approx(
        H200.chip.memory.latency / H200.chip.cache.latency, rel=0.1
    )
    assert warm.memory_bytes == 0.0


def test_neighbours_are_scanned_in_one_pass():
    """An axis of neighbours is a stream with a short chain: far quicker than a walk along an outer one."""
    along, across = scanned(1e6, 1.0, 1000.0, dev=COLD), scanned(1e6, 1000.0, dev=COLD)
    assert along.memory_bytes == across.memory_bytes == 2 * 4e9
    assert along.time < 0.1 * across.time and along.time > along.memory_bytes / COLD.chip.memory.bandwidth


# Milliseconds of torch.cumsum on an H200 (PyTorch 2.11) without 35 us of the host; shapes that no file has
@pytest.mark.parametrize(
    ("precision", "length", "inner", "measured"),
    [
        ("fp32", 3000.0, 700.0, 0.461),
        ("fp32", 3000.0, 30000.0, 1.248),
        ("fp32", 20000.0, 700.0, 7.458),
        ("fp32", 20000.0, 20000.0, 7.937),
        ("fp32", 3000.0, 300000.0, 3.344),
        ("fp64", 20000.0, 20000.0, 8.462),
        ("fp64", 3000.0, 300000.0, 4.548),
        ("fp32", 30e6, 1.0, 0.094),
        ("fp64", 30e6, 1.0, 0.172),
    ],
)
def test_readings_of_prefix_sums(precision, length, inner, measured):
    assert float(scanned(length, inner, precision=precision).time) * 1e3 == pytest.approx(measured, rel=0.25)


def test_a_pass_for_each_byte_of_a_key():
    once = 3e7 * (2 * 4 + 8 + 12 + 2 * 32 / 16)
    assert float(sorted_keys(3e7).memory_bytes) == pytest.approx(4 * once)
    keys_alone = sorted_keys(3e7, precision="fp64", value_bytes=0.0).memory_bytes
    assert float(keys_alone) == pytest.approx(8 * 3e7 * (16 + 8 + 32 / 16))
    short = sorted_keys(1000.0, 1e5)
    assert float(short.memory_bytes) == pytest.approx(
        2 * 1e8 * 12
    )  # lines inside a core: read and written once


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 10**8), grows=st.integers(2, 5), inner=st.sampled_from([1.0, 64.0, 1e5]))
def test_more_elements_take_longer_and_more_bandwidth_less(length, grows, inner):
    fast = device(chip("h200", **{"memory.bandwidth": "9.6 TB/s"}), resident=False)
    for price in (lambda n, d: scanned(n, inner, dev=d), lambda n, d: sorted_keys(n, dev=d)):
        small, large, quick = (
            price(float(length), COLD),
            price(float(length * grows), COLD),
            price(float(length), fast),
        )
        assert small.time <= large.time and quick.time <= small.time
        assert 0 < small.lower <= small.time <= small.upper * (1 + 1e-9)


def test_a_batch_is_single_answers():
    lengths, inner = np.array([10.0, 5000.0, 3e6]), np.array([1.0, 777.0, 1.0])
    scans, sorts = scanned(lengths, inner), sorted_keys(lengths, 3.0)
    for i in range(3):
        assert scans.time[i] == pytest.approx(
            float(scanned(float(lengths[i]), float(inner[i])).time), rel=1e-12
        )
        assert sorts.time[i] == pytest.approx(float(sorted_keys(float(lengths[i]), 3.0).time), rel=1e-12)
