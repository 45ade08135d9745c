"""Streaming kernels: what more of a chip does to them, rows on cores, and data that stays in the cache."""

from __future__ import annotations

import numpy as np
import pytest

import strata as st
from strata.base.errors import UnknownName
from strata.hardware.chip import chip
from strata.pricing.kernel_ops import SLOTS, eager_kernel
from strata.pricing.kernels.device import device
from strata.pricing.kernels.vector import RowSchedule, cache_miss_share, vector_kernel

ROWS = np.array([1.0, 8.0, 64.0, 512.0, 2048.0, 8192.0, 32768.0])
COLUMNS = np.array([[1024.0], [4096.0], [8192.0], [16384.0]])


def _priced(op: str, rows, columns, **changes):
    made = device(chip("h200", **changes))
    read = rows * columns * (4.0 if op == "add" else 2.0)
    written = rows * columns * 2.0
    return eager_kernel(op, rows, columns, (read, written), made, footprint=32.0 * read)


@pytest.mark.parametrize("op", SLOTS)
@pytest.mark.parametrize(
    "better",
    [
        {"memory.bandwidth": 9.6e12},
        {"cache.capacity": 200e6},
        {"cache.bandwidth": 24e12},
        {"cache.latency": 50e-9},
        {"memory.latency": 170e-9},
        {"compute.vector_rate": 134e12},
        {"overhead.cold": 0.0},
    ],
)
def test_more_is_never_slower(op, better):
    assert np.all(_priced(op, ROWS, COLUMNS, **better).time <= _priced(op, ROWS, COLUMNS).time * (1 + 1e-12))


@pytest.mark.parametrize("op", SLOTS)
def test_longer_is_never_faster_and_no_time_below_its_bound(op):
    price = _priced(op, ROWS, COLUMNS)
    assert np.all(np.diff(price.time, axis=1) >= 0)
    assert np.all(price.time >= price.lower) and np.all(price.upper >= price.time)


@pytest.mark.parametrize("op", SLOTS)
def test_a_batch_equals_singles(op):
    many = _priced(op, ROWS, COLUMNS)
    for i, columns in enumerate(COLUMNS[:, 0]):
        for j, rows in enumerate(ROWS):
            alone = _priced(op, float(rows), float(columns))
            assert float(alone.time) == pytest.approx(many.time[i, j], rel=1e-12)
            assert float(alone.memory_bytes) == pytest.approx(
                np.broadcast_to(many.memory_bytes, many.time.shape)[i, j],
                rel=1e-12,
            )


def test_a_row_waits_alone_as_long_as_many_beside_it():
    made = device(chip("h200"))
    walked = [
        vector_kernel(
            r * 8192.0, r * 8192.0, 0.0, 0.0, made, resident=True, rows=RowSchedule(r, 33.0, 16.0)
        ).time
        for r in (1.0, 132.0, 5280.0)
    ]
    assert walked[0] == pytest.approx(walked[1], rel=0.05) and walked[2] > 5 * walked[1]


def test_a_second_pass_over_long_rows_reads_dram_again():
    short, long = (_priced("rms_norm", 32768.0, c) for c in (2048.0, 32768.0))
    assert short.memory_bytes == pytest.approx(32768 * 2048 * 4) and long.memory_bytes == pytest.approx(
        32768 * 32768 * 6
    )


def test_what_fits_the_cache_is_read_from_it():
    made = device(chip("h200"))
    capacity = float(made.cache_capacity)
    assert (
        cache_miss_share(0.5 * capacity, capacity) == 0.0
        and cache_miss_share(1.1 * capacity, capacity) == 1.0
    )
    assert vector_kernel(1e6, 1e6, 0.0, 0.0, made, resident=True).memory_bytes == 0.0
    assert vector_kernel(1e6, 1e6, 0.0, 0.0, made).memory_bytes == 2e6
    assert vector_kernel(1e6, 1e6, 0.0, 0.0, made, resident=True, footprint=1e9).memory_bytes == 2e6


def test_unknown_op_is_named():
    with pytest.raises(UnknownName, match="cosine"):
        _priced("cosine", 8.0, 1024.0)


def test_ops_that_are_not_fused_take_several_kernels():
    """An eager engine reads and writes every element in each piece; the ideal one does not."""
    fused, apart = (
        st.evaluate(
            "h200", "llama-3-8b", st.prefill(1, 2048), engine=st.engine("ideal", kernels=library)
        ).summary.time_by_kind
        for library in ("bare", "eager")
    )
    assert 1.1 * fused["vector"] < apart["vector"] < 3 * fused["vector"]
    # a longer step draws less, and its clock is a little higher
    assert apart["matmul"] == pytest.approx(fused["matmul"], rel=0.03)
    eager = st.evaluate("h200", "llama-3-8b", st.decode(1, 512), engine="pytorch").metrics.tpot
    assert eager > 1.2 * st.evaluate("h200", "llama-3-8b", st.decode(1, 512)).metrics.tpot
