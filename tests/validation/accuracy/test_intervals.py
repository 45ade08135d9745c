"""Intervals from residuals: like cases, wider cases, and what was never checked."""

import numpy as np
import pytest

import strata as st
from strata.validation.accuracy.intervals import Interval, interval, intervals_of, residuals
from strata.validation.readers.comparison import ComparedPoints

TABLE = {
    "families": {"decode": ["llama"]},
    "cases": {
        "decode|h200|dense": [40, -0.2, -0.1, 0.1],
        "decode|b200|dense": [2, -0.9, -0.9, -0.9],
        "decode|*|dense": [42, -0.4, -0.1, 0.1],
        "decode|*|*": [50, -0.5, 0, 1],
    },
}


def test_a_checked_case_is_inside():
    made = interval("decode", "h200", "dense", "llama", TABLE)
    assert made == Interval(-0.2, 0.1, 40, "decode of dense models on h200", True)
    assert made.bounds(8.0) == pytest.approx((8 / 1.1, 10.0))


def test_few_points_borrow_from_wider_cases():
    made = interval("decode", "b200", "dense", "llama", TABLE)
    assert made.points == 42 and made.inside


def test_what_was_never_checked_is_said():
    made = interval("decode", "tpu-v4", "moe", "qwen", TABLE)
    assert not made.inside and made.points == 50
    assert made.missing == (
        "no decode of a moe model on tpu-v4 was ever checked",
        "no decode of a qwen model was ever checked",
    )
    assert interval("train", "h200", "dense", table=TABLE) is None


def test_residuals_are_of_times():
    # twice the measured rate is half the time: an error of -1/2
    rate = np.array([False, True, True])
    case = np.array(["decode|h200|dense|llama", "decode|h200|dense|llama", ""], dtype=object)
    p = ComparedPoints(
        measured=np.ones(3),
        predicted=np.array([0.5, 2.0, 9.0]),
        group=case,
        line=np.arange(3),
        headline=rate,
        rate=rate,
        case=case,
        why={},
    )
    made = residuals([p])
    assert made["cases"]["decode|h200|dense"] == [2, -0.5, -0.5, -0.5] and made["families"] == {
        "decode": ["llama"]
    }


def test_a_result_gets_the_intervals_of_its_times():
    result = st.evaluate("8xh200", "llama-3-70b", st.serve(batch=8, input=512, output=64), "tp=8", "vllm")
    found = intervals_of(result)
    assert set(found) == {"ttft", "tpot"} and found["tpot"].inside and found["tpot"].points >= 20
    low, high = found["tpot"].bounds(float(result.metrics.tpot))
    assert 0 < low < high
