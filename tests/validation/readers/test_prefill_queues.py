"""Queues before workers that only read prompts: by hand where nobody waits, and laws of load."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.validation.readers.prefill_queues import (
    PrefillLoop,
    loop_first_tokens,
    mean_first_token,
    median_first_token,
)

LOOP = PrefillLoop(
    clients=1, workers=1, ranks=1, deep=1, one=0.1, full=0.1, before=0.02, after=0.01, answer=5.0
)


def test_one_client_waits_for_its_own_prompt():
    began, later = loop_first_tokens(LOOP, 4.0)
    assert began == pytest.approx([0.13]) and later == pytest.approx([0.13] * 3)


def test_all_ask_at_once_and_drain_one_after_another():
    loop = replace(LOOP, clients=4)
    assert loop_first_tokens(loop, 4.0)[0] == pytest.approx(0.03 + 0.1 * np.arange(1, 5))
    both = replace(loop, workers=2)
    assert loop_first_tokens(both, 4.0)[0] == pytest.approx(0.03 + 0.1 * np.array([1, 1, 2, 2]))


def test_prompts_that_fill_a_step_are_read_together():
    loop = replace(LOOP, clients=8, ranks=2, deep=4, full=0.25)
    assert loop_first_tokens(loop, 2.0)[0] == pytest.approx([0.28] * 8)
    assert loop.step([1.0] * 4) == pytest.approx(0.15)  # two on each rank
    assert loop.step([1.0, 0.8]) == loop.step([1.0])  # a rank waits for the fullest


def test_where_prompts_are_the_bottleneck_clients_wait_for_all_others():
    """Each client sees all prompts pass in a round: what it does not generate in that time it waits."""
    loop = replace(LOOP, clients=200, shortest=0.9)
    _, later = loop_first_tokens(loop, 4.0)
    assert np.mean(later[-200:]) == pytest.approx(200 * 0.1 - 5.0, rel=0.05)


def test_a_common_start_moves_the_mean_and_not_the_median():
    loop = replace(LOOP, clients=30, shortest=0.9)
    few, many = (mean_first_token(loop, rounds) for rounds in (4.0, 40.0))
    assert few > 1.2 * many
    assert median_first_token(loop, 4.0) == pytest.approx(median_first_token(loop, 40.0), rel=0.3)
    assert median_first_token(loop, 40.0) < few


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.floats(0.5, 1.0))
def test_every_request_is_served_once_and_no_sooner_than_alone(clients, workers, ranks, deep, shortest):
    loop = replace(
        LOOP, clients=clients, workers=workers, ranks=ranks, deep=deep, full=0.1 * deep, shortest=shortest
    )
    began, later = loop_first_tokens(loop, 3.0)
    least = 0.03 + loop.step([shortest])
    assert began.size == clients and later.size == 2 * clients
    assert min(began.min(), later.min()) >= least - 1e-9
