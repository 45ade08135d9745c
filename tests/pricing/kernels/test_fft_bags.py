"""Transforms and embedding bags: hand sums, and kernels of an H200 at shapes that no file has."""

import math

import pytest

from strata.hardware.chip import chip
from strata.pricing.kernel_ops import BAG_ROW_SLOTS, BAG_SLOTS, bag_kernel
from strata.pricing.kernels.device import device
from strata.pricing.kernels.numerical import price_fft
from strata.pricing.kernels.vector import EXPOSED
from strata.workload.fft import FftLines
from strata.workload.graph import Extent

H200 = device(chip("h200"))
STREAM = 4.8e12 * H200.chip.memory.stream_efficiency


def transformed(points, lines, precision="fp32", dev=H200):
    op = FftLines(
        name="x",
        module="x",
        inputs=("a",),
        output="b",
        points=Extent(points),
        lines=(Extent(lines),),
        precision=precision,
    )
    return price_fft(op, dev)


def floor():
    return float(H200.chip.overhead.stream + H200.chip.overhead.cold)


def test_a_short_line_of_a_power_of_two_is_a_stream():
    assert float(transformed(4096.0, 32768.0).time) == pytest.approx(2 * 8 * 2**27 / STREAM + floor())


@pytest.mark.parametrize(("precision", "twice"), [("fp32", 1.0), ("fp64", 2.0)])
def test_long_lines_and_other_lengths_wait_for_the_lanes(precision, twice):
    share = 67e12 * H200.chip.compute.fft_efficiency
    for points, lines, passes in ((2.0**20, 16.0, 2), (2.0**27, 1.0, 3), (384.0, 384.0**2, 1)):
        work = 5 * points * lines * math.log2(points) * twice
        told = float(transformed(points, lines, precision).time)
        assert told == pytest.approx(work / share + passes * floor(), rel=1e-9)


def test_a_line_leaves_room_for_the_next_one():
    """Half of a core's local memory: 16384 points of complex fp32, 8192 of fp64."""
    assert transformed(2.0**14, 6000.0).compute == 0.0 and transformed(2.0**15, 6000.0).compute > 0.0
    assert (
        transformed(2.0**13, 6000.0, "fp64").compute == 0.0
        and transformed(2.0**14, 6000.0, "fp64").compute > 0.0
    )


def test_a_grid_in_the_cache_is_found_there():
    assert transformed(64.0, 64.0**2).memory_bytes == 0.0
    assert transformed(64.0, 64.0**2, dev=device(chip("h200"), resident=False)).memory_bytes == 2 * 8 * 64**3


# Microseconds of cuFFT's kernels on an H200 (PyTorch 2.11's profiler), one axis; no file has these shapes
@pytest.mark.parametrize(
    ("precision", "points", "lines", "measured"),
    [
        ("fp32", 512.0, 2e5, 388.9),
        ("fp32", 2048.0, 5e4, 397.1),
        ("fp32", 32768.0, 3000.0, 737.2),
        ("fp32", 2.0**18, 300.0, 708.0),
        ("fp32", 2.0**21, 3.0, 81.3),
        ("fp32", 2.0**25, 2.0, 1002.1),
        ("fp32", 320.0, 320.0**2, 175.3),
        ("fp32", 640.0, 640.0**2, 1366.4),
        ("fp64", 512.0, 2e5, 799.5),
        ("fp64", 16384.0, 6000.0, 1591.9),
        ("fp64", 2.0**18, 300.0, 1368.4),
        ("fp64", 2.0**25, 2.0, 1809.6),
        ("fp64", 320.0, 320.0**2, 302.3),
    ],
)
def test_shapes_no_fit_has_seen(precision, points, lines, measured):
    assert float(transformed(points, lines, precision).time) * 1e6 == pytest.approx(measured, rel=0.17)


def test_a_bag_is_its_instructions_and_a_share_of_its_bytes():
    bags, per_bag, width = 40000.0, 40.0, 96.0
    slots = bags * width * (BAG_SLOTS + BAG_ROW_SLOTS * per_bag)
    moved = bags * width * 4 * (per_bag + 1)
    hand = 2 * slots / 67e12 + EXPOSED * moved / STREAM + floor()
    price = bag_kernel(bags, per_bag, width, "fp32", H200)
    assert float(price.time) == pytest.approx(hand, rel=1e-9) and price.memory_bytes == moved


# Microseconds on an H200 (PyTorch 2.11's profiler), table of 3 million rows; no file has these shapes
@pytest.mark.parametrize(
    ("precision", "width", "bags", "per_bag", "measured"),
    [
        ("fp32", 96.0, 300000.0, 2.0, 444.9),
        ("fp32", 192.0, 40000.0, 60.0, 983.9),
        ("fp32", 512.0, 300000.0, 10.0, 4770.9),
        ("bf16", 96.0, 300000.0, 5.0, 555.1),
        ("bf16", 96.0, 300000.0, 60.0, 3101.0),
    ],
)
def test_bags_of_other_shapes(precision, width, bags, per_bag, measured):
    assert float(bag_kernel(bags, per_bag, width, precision, H200).time) * 1e6 == pytest.approx(
        measured, rel=0.1
    )
