"""Queues: limits with known answers, laws, and a queue that was played through request by request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strata.serving.queueing import (
    closed_rate,
    mean_wait,
    sequences_in_flight,
    shared_step,
    wait_within_share,
)

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


@given(rate=some.floats(0.01, 50.0), token=some.floats(1e-3, 1e-1), tokens=some.floats(1.0, 500.0))
def test_company_that_costs_nothing_is_a_queue_without_end(rate, token, tokens):
    offered = rate * token * tokens
    slots = np.ceil(offered + 12.0 * np.sqrt(offered) + 20.0)
    found = sequences_in_flight(rate, np.full(int(slots), token), tokens, slots)
    assert float(found.mean) == pytest.approx(offered, rel=1e-6)
    assert float(found.wait) == pytest.approx(0.0, abs=1e-3 / rate)
    assert np.sum(found.chance) == pytest.approx(1.0)


@given(load=RATE, slots=some.integers(1, 20))
def test_a_pace_that_is_shared_out_is_a_single_server(load, slots):
    """With a step n times as long for n sequences one more slot changes nothing: M/M/1 processor sharing and
    M/M/1 in turn are alike.
    """
    token = np.arange(1.0, slots + 1.0)
    found = sequences_in_flight(load, token, 1.0, float(slots))
    number = load / (1.0 - load)  # in the system, Little
    assert float(found.mean + load * found.wait) == pytest.approx(number)
    assert float(found.load) == pytest.approx(load)


def test_a_batch_of_rates_equals_single_rates():
    token, rates = np.linspace(0.01, 0.05, 40), np.array([0.5, 3.0, 7.0])
    whole = sequences_in_flight(rates, np.broadcast_to(token, (3, 40)), 100.0, np.full(3, 30.0))
    for i, rate in enumerate(rates):
        one = sequences_in_flight(rate, token, 100.0, 30.0)
        for name in ("mean", "wait", "load"):
            assert getattr(whole, name)[i] == getattr(one, name), name


def test_slots_that_cannot_keep_up_are_overloaded():
    found = sequences_in_flight(2.0, np.array([1.0]), 1.0, 1.0)
    assert found.load == 2.0 and found.wait == np.inf
    assert sequences_in_flight(1.0, np.array([np.inf]), 1.0, 0.0).load == np.inf


@given(step=some.floats(1e-3, 1.0), extra=some.floats(0.0, 1.0), share=some.floats(0.0, 0.9))
def test_steps_and_prompts_fill_the_second(step, extra, share):
    chunks = share / (step + extra)
    mean = float(shared_step(step, extra, chunks))
    assert chunks * (step + extra) + (1.0 / mean - chunks) * step == pytest.approx(1.0)
    assert mean >= step * (1 - 1e-12)


@given(
    active=some.floats(0.1, 100.0),
    step=some.floats(1e-3, 0.1),
    extra=some.floats(0.0, 0.5),
    tokens=some.floats(1.0, 999.0),
    pieces=some.floats(0.0, 8.0),
)
def test_a_closed_loop_is_littles_law_at_a_shared_step(active, step, extra, tokens, pieces):
    rate = closed_rate(active, step, extra, tokens, pieces)
    if rate * pieces * extra < 0.999:
        assert rate * tokens * float(shared_step(step, extra, rate * pieces)) == pytest.approx(
            active, rel=1e-9
        )


@given(mean=some.floats(0.0, 10.0), chance=some.floats(0.01, 1.0), share=some.floats(0.5, 0.998))
def test_more_requests_within_a_wait_means_a_longer_wait(mean, chance, share):
    assert wait_within_share(mean, chance, share) <= wait_within_share(mean, chance, share + 0.001)
