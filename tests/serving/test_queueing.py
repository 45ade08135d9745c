"""Queues: limits with known answers, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strata.serving.queueing import fullest_rank, in_turn, mean_wait, reading_share, wait_within_share

RATE = some.floats(0.01, 0.95)


@given(load=RATE, service=some.floats(1e-3, 10.0), variation=some.floats(0.0, 4.0))
def test_one_server_waits_as_pollaczek_and_khinchine_say(load, service, variation):
    rate = load / service
    second_moment = service**2 * (1.0 + variation)
    assert float(mean_wait(rate, service, 1.0, variation)) == pytest.approx(
        rate * second_moment / (2.0 * (1.0 - load))
    )


@pytest.mark.parametrize("servers", [2, 4, 16])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
def test_several_servers_wait_as_erlang_says(servers, load):
    offered, term, total = servers * load, 1.0, 1.0
    for k in range(1, servers):
        term *= offered / k
        total += term
    last = term * offered / servers / (1.0 - load)
    erlang = last / (total + last) / (servers * (1.0 - load))
    assert float(mean_wait(servers * load, 1.0, float(servers), 1.0)) == pytest.approx(
        erlang, rel=0.05, abs=0.04
    )


@given(load=some.floats(0.0, 0.9), more=some.floats(0.0, 0.09), servers=some.integers(1, 64))
def test_waiting_grows_with_the_rate_and_ends_at_full_load(load, more, servers):
    m = float(servers)
    assert mean_wait(load * m, 1.0, m) <= mean_wait((load + more) * m, 1.0, m) + 1e-15
    assert mean_wait(0.0, 1.0, m) == 0.0
    assert mean_wait(m, 1.0, m) == np.inf == mean_wait(2.0 * m, 1.0, m)


@given(rate=some.floats(0.01, 50.0), step=some.floats(1e-3, 0.1), longer=some.floats(1.0, 20.0))
def test_long_steps_are_followed_by_steps_that_read_more_at_once(rate, step, longer):
    share = float(reading_share(rate, step, longer * step))
    assert 0.0 < share <= 1.0
    assert share == pytest.approx(
        (1.0 - share) * -np.expm1(-rate * step) + share * -np.expm1(-rate * step * longer)
    )
    mean = (1.0 - share) * step + share * longer * step
    assert share <= -np.expm1(-rate * mean) * (1 + 1e-9)  # no more steps read than if all were alike


@given(count=some.floats(1.0, 200.0), ranks=some.integers(1, 64))
def test_the_fullest_rank_has_no_less_than_the_mean_and_no_more_than_all(count, ranks):
    most = float(fullest_rank(count, float(ranks)))
    assert max(count / ranks, 1.0) <= most * (1 + 1e-12) and most <= count * (1 + 1e-9)
    assert float(fullest_rank(count, 1.0)) == pytest.approx(count)


@given(came=some.floats(0.0, 20.0), engines=some.integers(1, 64))
def test_engines_that_take_turns_get_fewer_at_once(came, engines):
    assert float(in_turn(came, 1.0)) == pytest.approx(came)
    assert (
        float(in_turn(came, float(engines + 1))) <= float(in_turn(came, float(engines))) <= came * (1 + 1e-9)
    )


@given(mean=some.floats(0.0, 10.0), chance=some.floats(0.01, 1.0), share=some.floats(0.5, 0.998))
def test_more_requests_within_a_wait_means_a_longer_wait(mean, chance, share):
    assert wait_within_share(mean, chance, share) <= wait_within_share(mean, chance, share + 0.001)
