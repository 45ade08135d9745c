"""Axes and boxes that are too large are refused with their size, before memory is taken."""

import tracemalloc

import numpy as np
import pytest

import strata as st
from strata.base.batch import MOST_MEMORY, run_box
from strata.base.errors import BadValue

ON = ("sweep", "-m", "llama-3-8b", "-s", "8xh200", "--plan", "tp=8")


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (["batch=1:1e12:1e12"], "axis batch has 1e+12"),
        (["batch=1:1e6:1e6"], "at most 250000 points"),
        (["batch=1:1000:1000", "input=1:1000:1000"], "axes of 1000 x 1000 values have 1e+06"),
        (["batch=1:1e12"], "an axis lists numbers"),
        (["batch=1:8:0"], "an axis lists numbers"),
        (["batch=1:inf:3"], "an axis lists numbers"),
        (["batch=8:1:-1"], "an axis lists numbers"),
        (["chip.memory.bandwidth=1e300 TB/s"], "an axis lists numbers"),
    ],
)
def test_a_sweep_too_large_is_refused_with_its_size(strata, vary, said):
    tracemalloc.start()
    ran = strata(*ON, *(word for axis in vary for word in ("--vary", axis)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ran.code == 2 and said in ran.err and len(ran.err.splitlines()) == 1
    assert peak < 200e6


def test_a_box_too_large_is_refused_with_its_size():
    wide = np.broadcast_to(1.0, (1000, 1000, 1000))
    with pytest.raises(BadValue, match=r"a box of 1000 x 1000 x 1000 = 1e\+09 points needs"):
        st.evaluate("8xh200", "llama-3-8b", st.decode(8, 128, skew=wide), "tp=8")


def test_results_up_to_the_limit_are_kept():
    points = MOST_MEMORY // 8 // 1024
    found = run_box(lambda tree: tree, (np.broadcast_to(2.0, (points,)),), (points,))
    assert found[0].shape == (points,) and found[0][-1] == 2.0
