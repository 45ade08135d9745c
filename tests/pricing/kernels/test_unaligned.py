"""Products of operands that are copied element by element."""

import numpy as np
import pytest

from strata.hardware.chip import chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.traffic import row_is_whole

A100 = device(chip("a100-80"))


def test_rows_of_eight_are_whole():
    assert row_is_whole(np.array([1.0, 4.0, 8.0, 9.0, 4096.0]), 2.0).tolist() == [0, 0, 1, 0, 1]
    assert row_is_whole(np.array([1.0, 4.0]), 4.0).tolist() == [0, 1]


def test_a_deep_product_with_a_vector_waits_for_every_step():
    """512 steps of 2.7 x 331 ns, and 64 KiB through a core's port of 180.5 GB/s twice, in words."""
    price = matmul(1024.0, 1.0, 16384.0, A100, "bf16", "bf16", unaligned=1.0)
    steps = 512 * (2.7 * 331e-9 + 2 * 4 * 128 * 32 / 180.5e9)
    assert price.time == pytest.approx(steps, rel=0.03)
    ports = device(chip("a100-80", cache__core_bandwidth=250e9))  # whatever a fit gives them
    unaligned, aligned = (
        matmul(1024.0, 1.0, 16384.0, ports, "bf16", "bf16", unaligned=u) for u in (1.0, 0.0)
    )
    assert unaligned.time > 20 * aligned.time


def test_whole_rows_are_priced_as_before():
    aligned = matmul(1024.0, 128.0, 1024.0, A100, "bf16", "bf16")
    mixed = matmul(
        1024.0, np.array([128.0, 1.0]), 1024.0, A100, "bf16", "bf16", unaligned=np.array([0.0, 1.0])
    )
    assert mixed.time[0] == pytest.approx(aligned.time)
    assert mixed.memory_bytes[0] == pytest.approx(aligned.memory_bytes)
