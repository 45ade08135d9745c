"""The share of requests that keep a limit once a service is steady: a queue whose answer is known (M/M/1)."""

from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.serving.simulator.saturation import SteadyShare, mser_warm_up

LONG = 7500  # requests before the first look


def queue(rate, seed, count=30000):
    """Times in the system of a single server of rate 1, and requests present as each leaves."""
    random = np.random.default_rng(seed)
    arrivals, served = np.cumsum(random.exponential(1.0 / rate, count)), random.exponential(1.0, count)
    work = np.cumsum(served)
    ends = work + np.maximum.accumulate(arrivals - work + served)
    return ends - arrivals, np.searchsorted(arrivals, ends) - np.arange(1, count + 1)


def judged(rate, limit, seed, **asked):
    steady = SteadyShare(0.95, **asked)
    for time, present in zip(*[v.tolist() for v in queue(rate, seed)], strict=True):
        steady.add(time / limit, present)
        if steady.over(present, False):
            break
    return steady


@pytest.mark.parametrize("limit", [5.0, 15.0, 40.0])
def test_the_largest_rate_of_a_single_server(limit):
    """P(T <= t) = 1 - exp(-(1 - rate) t): kept up to 1 - ln(20) / t, and nearly always said so below it."""
    largest = 1.0 - log(20.0) / limit
    kept = {
        share: sum(judged(share * largest, limit, seed, least=LONG).verdict == "kept" for seed in range(20))
        for share in (0.7, 1.0, 1.03, 1.06)
    }
    assert kept[0.7] >= 18 and kept[1.0] <= 8 and kept[1.03] <= 2 and kept[1.06] == 0


@pytest.mark.parametrize("rate", [0.4, 0.6, 0.75])
def test_the_interval_has_the_true_share(rate):
    limit = log(20.0) / (1.0 - rate) * 1.1
    true = 1.0 - exp(-(1.0 - rate) * limit)
    runs = [judged(rate, limit, seed) for seed in range(20)]
    assert sum(run.low <= true <= run.high for run in runs) >= 17


@settings(max_examples=25, deadline=None)
@given(rate=st.floats(1.1, 3.0), limit=st.floats(5.0, 200.0), seed=st.integers(0, 99))
def test_a_queue_that_grows_is_never_called_kept(rate, limit, seed):
    steady = judged(rate, limit, seed, least=LONG)
    assert steady.verdict != "kept"


def test_what_is_far_from_the_limit_is_known_soon():
    idle, overrun = judged(0.3, 60.0, 1), judged(2.0, 20.0, 1)
    assert idle.verdict == "kept" and idle.requests + idle.warm_up <= 1500
    assert overrun.verdict in ("missed", "unsteady") and overrun.requests + overrun.warm_up <= 4100
    flood = SteadyShare(0.95)
    assert not flood.over(999, True) and flood.over(1000, True) and flood.verdict == "unsteady"
    slow = judged(1.02, 1e4, 1)  # the limit is far, the queue grows
    assert slow.verdict == "unsteady" and slow.requests + slow.warm_up <= 40000


def test_the_beginning_is_dropped():
    random = np.random.default_rng(0)
    present = np.concatenate([np.linspace(0.0, 100.0, 400), 100.0 + random.normal(0.0, 5.0, 3600)])
    assert 300 <= mser_warm_up(present) <= 600
    steady = SteadyShare(0.9)
    for ratio, count in zip([2.0] * 300 + [0.5] * 3700, present, strict=True):
        steady.add(ratio, count)
    steady.finish(saturated=False)
    assert steady.kept == 1.0 and 300 <= steady.warm_up <= 620 and steady.requests == 4000 - steady.warm_up


def test_requests_that_are_not_drawn_all_count():
    steady = SteadyShare(0.9, misses=10.0)
    for i in range(100):
        steady.add(inf if i < 10 else 0.5, i)
        assert not steady.over(0, False)
    steady.finish(saturated=False)
    assert (steady.kept, steady.requests, steady.warm_up, steady.verdict) == (0.9, 100, 0, "kept")
    steady.add(1.5, 0)
    assert steady.over(0, False)
    steady.finish(saturated=False)
    assert steady.verdict == "missed"
