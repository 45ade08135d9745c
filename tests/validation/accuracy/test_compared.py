"""Confidence in a comparison: intervals of what the goal counts, and verdicts by their overlap."""

import pytest

import strata as st
from strata.validation.accuracy.compared import APART, REFERENCE, UNKNOWN, WITHIN, trust_compared
from strata.validation.accuracy.trust import trust_served

ASKED = st.serving.Requests(1024, 256)


def told(systems, goal="throughput", **more):
    found = st.search.compare(systems, "llama-3.1-8b", ASKED, "vllm", goal=goal, **more)
    return found, trust_compared(found)


def test_a_row_s_interval_is_that_of_serving():
    found, trusted = told(["1xh200", "1xb200"])
    answer = found.rows[1].answer
    alone = trust_served(st.system("1xb200"), st.model("llama-3.1-8b"), "vllm", "tpot", answer.tpot, "decode")
    assert trusted[1].every["tpot"].bounds == pytest.approx(alone.bounds)
    assert trusted[1].bounds == pytest.approx(trusted[1].every["tokens_per_s"].bounds)
    assert trusted[1].points >= 10


def test_rows_that_lie_far_apart_are_told_apart():
    _, trusted = told(["1xh100", "8xb200"])
    assert [one.verdict for one in trusted] == [REFERENCE, APART]


def test_a_small_difference_is_within_what_was_measured():
    slightly = st.system("1xh200", memory__bandwidth="4.85 TB/s")
    found, trusted = told(["1xh200", slightly], tpot=0.01)
    assert found.rows[1].difference.ratio != 1.0
    assert trusted[1].verdict == WITHIN


def test_what_was_never_measured_is_said_to_be():
    _, trusted = told(["1xh200", "1xtpu-v6e", "1xstack-ref"])
    assert trusted[1].verdict == UNKNOWN and trusted[1].bounds is None and trusted[1].points == 0
    assert trusted[2] is None  # it does not fit


@pytest.mark.parametrize("goal", ["throughput", "cheapest", "fastest", "efficient"])
def test_every_interval_holds_the_value(goal):
    found, trusted = told(["1xh200", "1xb200", "1xmi325x"], goal)
    for row, one in zip(found.rows, trusted, strict=True):
        low, high = one.bounds
        assert low <= row.answer.value(goal) <= high
    # more tokens a second than predicted are fewer dollars each
    if goal == "cheapest":
        rate = trusted[0].every["tokens_per_s"].bounds
        answer = found.rows[0].answer
        assert trusted[0].bounds[0] == pytest.approx(answer.cost_per_mtoken * answer.tokens_per_s / rate[1])
