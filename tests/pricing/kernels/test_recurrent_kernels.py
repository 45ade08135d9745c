"""Recurrent layers: steps in turn, the host beside them, matrices from the level that holds them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strata.hardware.chip import chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.recurrent import (
    RecurrentLayer,
    RecurrentLibrary,
    recurrent_backward,
    recurrent_forward,
    recurrent_step,
)
from strata.workload.lstm import CELLS

V100 = device(chip("v100"))
FREE = RecurrentLibrary(call=0.0, launches=0.0, gap=0.0, trips=0.0)


def layer(**changes):
    sizes = {"hidden": 1024.0, "batch": 16.0, "steps": 25.0, "cell": "lstm", "precision": "fp16"}
    return RecurrentLayer(**(sizes | changes))


def test_large_matrices_are_read_at_every_step():
    """4 x 4096^2 x 2 B = 134 MB at 0.833 x 900 GB/s is 179 us; the kernels around add little."""
    step = recurrent_step(layer(hidden=4096.0), V100, FREE)
    assert 179e-6 < step.time < 195e-6
    assert step.memory_bytes == pytest.approx(4 * 4096**2 * 2, rel=0.02)


def test_small_matrices_stay_in_the_cache():
    step = recurrent_step(layer(hidden=512.0), V100, FREE)
    assert step.memory_bytes < 1e5 < 4 * 512**2 * 2


def test_a_waiting_main_loop_is_as_long_as_the_state_is_wide():
    """Two trips of 245 ns for each 32 of 2560: 39 us, more than the kernels' own 24 us, of which 0.4 shows."""
    narrow = layer(hidden=2560.0, cell="vanilla")
    own = recurrent_step(narrow, V100, FREE).time
    waited = recurrent_step(narrow, V100, RecurrentLibrary(call=0.0, launches=0.0, gap=0.0, trips=2.0)).time
    wait = 2560 / 32 * 2 * 245e-9
    assert waited == pytest.approx(max(wait, own) + 0.4 * min(wait, own))


def test_the_host_binds_what_is_short_and_not_what_is_long():
    host = RecurrentLibrary(call=1e-3, launches=4.0, gap=0.0, trips=0.0)
    launch = V100.chip.overhead.launch
    assert recurrent_forward(layer(hidden=64.0), V100, host).time == pytest.approx(1e-3 + 25 * 4 * launch)
    long = layer(hidden=8192.0)
    assert recurrent_step(long, V100, host).time == recurrent_step(long, V100, FREE).time


def test_backward_is_its_steps_and_one_product_of_all_of_them():
    lstm = layer()
    steps = recurrent_step(lstm, V100, FREE, backward=True).times(25.0)
    whole = matmul(1024.0, 4096.0, 16.0 * 25.0, V100, "fp16", "fp16")
    assert recurrent_backward(lstm, V100, FREE).time == pytest.approx(steps.time + whole.time)


@given(some.sampled_from(list(CELLS)), some.integers(6, 13), some.integers(0, 8))
def test_many_layers_are_as_many_alone(cell, hidden, batch):
    library = RecurrentLibrary(call=6e-5, launches=2.0, gap=1e-5, trips=3.0)
    sizes = np.array([2.0**hidden, 3.0 * 2.0**hidden])
    both = recurrent_forward(layer(hidden=sizes, batch=2.0**batch, cell=cell), V100, library)
    for i, one in enumerate(sizes):
        alone = recurrent_forward(layer(hidden=float(one), batch=2.0**batch, cell=cell), V100, library)
        assert both.time[i] == pytest.approx(alone.time, rel=1e-12)
        parts = alone.compute + alone.cache + alone.memory + alone.network + alone.overhead
        assert parts == pytest.approx(alone.time)
