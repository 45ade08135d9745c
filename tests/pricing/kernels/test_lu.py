"""LU factorisation: hand sums, laws, and the times of an H200 at orders that no fit has seen."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.base.arrays import namespace
from strata.hardware.chip import chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.numerical import NODES, column_steps, price_lu
from strata.workload.graph import Extent
from strata.workload.scan_ops import LuFactor

ALONE = {"name": "lu", "module": "lu", "inputs": ("a",), "output": "f"}
H200 = device(chip("h200"))


def priced(order, precision="fp64", dev=H200, **more):
    return price_lu(LuFactor(**ALONE, order=Extent(order), precision=precision, **more), dev)


def test_columns_add_up_one_by_one():
    """The closed form against a sum over every column, each with the levels of its own search."""
    overhead = H200.chip.overhead
    for order, width in ((300, 4.0), (2000, 4.0), (2000, 8.0)):
        levels = sum(max(math.log2((m + 0.5) * width / 2048.0), 0.0) for m in range(order))
        told = float(column_steps(float(order), width, H200))
        assert told == pytest.approx(order * overhead.column + levels * overhead.pivot, rel=1e-4)


def test_one_block_is_its_columns_panels_and_swaps():
    order, precision = 512.0, "fp32"
    inside = matmul(order, 256.0, 64.0, H200, precision, precision, resident=True).time
    o = H200.chip.overhead
    swaps = 512 * 512 * 4 * 32 / (4.8e12 * H200.chip.memory.stream_efficiency) + o.stream + o.cold
    hand = 512 * o.column + 7 * (inside + o.kernel) + swaps
    assert float(priced(order, precision).time) == pytest.approx(float(hand), rel=1e-9)


def test_two_blocks_add_a_product_and_a_solve():
    o, peak = H200.chip.overhead, 4.8e12 * H200.chip.memory.stream_efficiency
    inside = sum(
        float(matmul(m, 256.0, 64.0, H200, "fp64", "fp64", resident=True).time) for m in (1024.0, 512.0)
    )
    update = float(matmul(512.0, 512.0, 512.0, H200, "fp64", "fp64", resident=True).time)
    solve = 8 * 512**3 / (132 * 234.2e9) + o.kernel
    swaps = 2 * (512 * 1024 * 4 * 32 / peak + o.stream + o.cold)
    columns = float(column_steps(1024.0, 8.0, H200))
    hand = columns + 7 * (inside + 2 * o.kernel) + update + solve + swaps
    assert float(priced(1024.0).time) == pytest.approx(hand, rel=1e-9)


def test_midpoints_stand_for_all_blocks(monkeypatch):
    order = 512.0 * 3 * NODES
    few = float(priced(order).time)
    monkeypatch.setattr("strata.pricing.kernels.numerical.NODES", 1000)
    assert few == pytest.approx(float(priced(order).time), rel=2e-3)


@settings(max_examples=25, deadline=None)
@given(order=st.floats(2.0, 60000.0), grows=st.floats(1.05, 3.0))
def test_more_rows_take_longer(order, grows):
    for precision in ("fp32", "fp64"):
        small, large = (
            priced(round(order) * 1.0, precision),
            priced(math.ceil(order * grows) + 1.0, precision),
        )
        assert large.time > small.time and small.lower <= small.time <= small.upper * (1 + 1e-9)


def test_a_faster_chip_is_never_slower():
    for path, value in (
        ("memory.bandwidth", "9.6 TB/s"),
        ("overhead.column", "1 us"),
        ("overhead.pivot", "0.2 us"),
    ):
        faster = device(chip("h200", **{path: value}))
        for order in (512.0, 4096.0, 24576.0):
            assert priced(order, dev=faster).time <= priced(order).time


def test_a_batch_of_orders_is_single_answers():
    orders = np.array([100.0, 512.0, 513.0, 5000.0, 12288.0, 30000.0])
    many = priced(orders)
    for i, order in enumerate(orders):
        one = priced(float(order))
        for name in ("time", "memory_bytes", "energy", "flop", "lower"):
            assert getattr(many, name)[i] == pytest.approx(float(getattr(one, name)), rel=1e-9), name
    assert namespace(many.time) is np


def test_matrices_follow_each_other():
    assert priced(2048.0, batch=Extent(3.0)).time == pytest.approx(3 * priced(2048.0).time)


# Milliseconds of torch.linalg.lu_factor on an H200 (PyTorch 2.11), orders that validation/h200/other.csv has not
@pytest.mark.parametrize(
    ("precision", "order", "measured"),
    [
        ("fp32", 1536.0, 3.222),
        ("fp32", 3072.0, 8.026),
        ("fp32", 6144.0, 21.89),
        ("fp32", 12288.0, 73.30),
        ("fp32", 20480.0, 224.6),
        ("fp64", 1536.0, 3.872),
        ("fp64", 3072.0, 9.442),
        ("fp64", 6144.0, 24.28),
        ("fp64", 12288.0, 77.59),
        ("fp64", 20480.0, 223.8),
    ],
)
def test_orders_no_fit_has_seen(precision, order, measured):
    assert float(priced(order, precision).time) * 1e3 == pytest.approx(measured, rel=0.08)
