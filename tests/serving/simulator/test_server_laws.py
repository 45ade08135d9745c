"""Laws that hold whatever arrives and however an engine schedules: on prices that can be added up by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from stub_engine import GivenLoad, LinearPrices, served

from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.kv_pool import TierStore, kv_tier
from strata.serving.simulator.load import OpenLoad
from strata.serving.simulator.scheduling import Request, Scheduling
from strata.serving.simulator.statistics import LatencyStatistics

BLOCKS, PAGE = 40, 8  # little: 320 tokens, so that blocks run out


@some.composite
def loads(draw):
    """Requests with gaps, lengths, priorities and shared beginnings; some too long for any rank."""
    made, clock = [], 0.0
    for i in range(draw(some.integers(1, 30))):
        clock += draw(some.sampled_from([0.0, 0.0, 0.003, 0.05, 0.4]))
        size, shared = draw(some.integers(1, 200)), draw(some.sampled_from([0, 0, 8, 24, 40]))
        prefix = ((("common", shared), shared),) if 0 < shared < size else ()
        priority = draw(some.integers(0, 2))
        keep = ("kept", i) if draw(some.booleans()) else None
        made.append((i, clock, size, draw(some.integers(1, 160)), prefix, priority, keep))
    return made


def requests(rows):
    return [Request(*row[:4], prefix=row[4], priority=row[5], keep=row[6]) for row in rows]


@some.composite
def engines(draw):
    """Scheduling rules of every kind, and how many ranks and replicas there are."""
    priorities = draw(some.booleans())
    tokens_per_step, drafted = draw(some.sampled_from([(1.0, 0), (1.7, 2)]))
    rules = Scheduling(
        tokens=draw(some.sampled_from([32, 64, 512])),
        sequences=draw(some.integers(1, 8)),
        mixed=draw(some.booleans()),
        eviction=draw(some.sampled_from(["recompute", "swap", "none"])),
        priorities=priorities,
        tokens_per_step=tokens_per_step,
        drafted=drafted,
    )
    tiers = draw(some.sampled_from([None, "small", "large"]))
    return {
        "rules": rules,
        "ranks": draw(some.integers(1, 3)),
        "replicas": draw(some.integers(1, 2)),
        "router": draw(some.sampled_from(["round-robin", "least-loaded", "prefix-aware"])),
        "fixed": draw(some.sampled_from([0, 2])),
        "reuses": draw(some.booleans()),
        "tiers": None if tiers is None else lambda: TierStore(tiers_of(tiers), 1e5),
        "prices": LinearPrices(together=draw(some.sampled_from([0.0, 2e-5])), lanes=3),
        "blocks": BLOCKS,
        "page": PAGE,
    }


def tiers_of(size):
    host = kv_tier("host", capacity="1 MB" if size == "small" else "100 MB")
    return [host, kv_tier("disk")] if size == "large" else [host]


@settings(max_examples=150, deadline=None)
@given(loads(), engines())
def test_nothing_is_lost_or_served_twice(rows, engine):
    """Each request is served once or refused, in order of its own times; blocks are all free at the end."""
    sent = requests(rows)
    found = served(sent, **engine)
    assert sorted(r.key for r in found.done + found.refused) == [row[0] for row in rows]
    for r in found.refused:
        assert -(-(r.input + r.output) // PAGE) + engine["fixed"] > BLOCKS
    for r in found.done:
        assert r.arrival <= r.scheduled <= r.first <= r.last
        assert r.first < r.last or r.output == 1
        assert r.state == "done" and r.generated >= 1
    for replica in found.replicas:
        assert replica.outstanding == 0
        for rank in replica.ranks:
            assert rank.pool.free + rank.pool.evictable == BLOCKS and not rank.running and not rank.generating
            assert rank.kv_largest <= BLOCKS and rank.context == pytest.approx(0.0, abs=1e-6)
            assert not any(p.holders for p in rank.pool._prefixes.values())
            assert not rank._swapped and (rank.pool.tiers is None or not rank.pool.tiers._swapped)


@settings(max_examples=80, deadline=None)
@given(loads(), engines())
def test_tokens_are_conserved(rows, engine):
    """Steps read every token of a prompt that no cache has, and make every token of an answer but the first,
    once; more only where a request made room.
    """
    plain = replace(engine["rules"], tokens_per_step=1.0, drafted=0)
    found = served(requests(rows), **{**engine, "rules": plain})
    read = sum(replica.read for replica in found.replicas)
    made = sum(replica.made for replica in found.replicas)
    wanted = sum(r.input - r.cached for r in found.done), sum(r.output - 1 for r in found.done)
    if any(r.preempted for r in found.done):
        # a prompt read again brings a token, that no decode step then makes
        assert read >= wanted[0] and made <= wanted[1]
        again = sum(r.preempted for r in found.done)
        assert made >= wanted[1] - again
    else:
        assert (read, made) == wanted


@settings(max_examples=100, deadline=None)
@given(loads(), engines())
def test_many_steps_at_once_are_single_steps(rows, engine):
    """Jumps over decode steps change nothing: every time of every request, energy and blocks are the same.

    A router that asks for caches in the middle of a jump sees them as they were at its beginning.
    """
    engine = {**engine, "router": "round-robin"}
    jumps, steps = (
        served(requests(rows), **{**engine, "rules": replace(engine["rules"], single_steps=single)})
        for single in (False, True)
    )
    one, other = ({r.key: r for r in found.done} for found in (jumps, steps))
    assert one.keys() == other.keys()
    for key, r in one.items():
        same = other[key]
        times = (same.scheduled, same.first, same.last)
        assert (r.scheduled, r.first, r.last) == pytest.approx(times, rel=1e-9, abs=1e-9)
        assert (r.preempted, r.cached) == (same.preempted, same.cached)
    for a, b in zip(jumps.replicas, steps.replicas, strict=True):
        assert (a.busy, a.energy) == pytest.approx((b.busy, b.energy), rel=1e-9)
        assert a.total_steps == b.total_steps
        assert [r.kv_largest for r in a.ranks] == [r.kv_largest for r in b.ranks]


@settings(max_examples=60, deadline=None)
@given(loads(), engines(), some.floats(0.0, 8.0))
def test_a_run_cut_short_agrees_with_the_whole(rows, engine, until):
    whole, part = served(requests(rows), **engine), served(requests(rows), **engine, until=until)
    ended = {r.key: (r.scheduled, r.first, r.last) for r in whole.done if r.last <= until}
    assert {r.key: (r.scheduled, r.first, r.last) for r in part.done} == ended


@settings(max_examples=60, deadline=None)
@given(loads(), engines())
def test_littles_law(rows, engine):
    """Requests present, over time, are the times of all requests: counted by engines, and by requests."""
    found = served(requests(rows), **engine)
    present = sum(replica.present_time for replica in found.replicas)
    assert present == pytest.approx(sum(r.latency for r in found.done), rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(loads(), engines())
def test_blocks_over_time_are_those_of_requests(rows, engine):
    """On average no more is held than at most, and something wherever a request was served."""
    found = served(requests(rows), **engine)
    for replica in found.replicas:
        mean, most = replica.kv_use(max(found.fleet.clock, 1e-9))
        assert 0.0 <= mean <= most * (1.0 + 1e-12) and most <= 1.0
        assert (most > 0.0) == (replica.busy > 0.0)
        assert replica.total_energy(found.fleet.clock) >= 0.0


def single_server(rate, output, count=20_000, seed=3):
    """One request at a time, each as many steps of 1 ms as it has tokens: an M/G/1 queue."""
    prices = LinearPrices(base=1e-3, sequence=0.0, context=0.0, token=0.0, attended=0.0)
    load = OpenLoad(rate=rate, input=Lengths(mean=8), output=output, count=count, seed=seed)
    rules = Scheduling(tokens=2048, sequences=1)
    return served(load, prices=prices, rules=rules, blocks=10**6).done


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_m_m_1(busy):
    r"""Exponential answers: :math:`W = 1 / (\mu - \lambda)`, where the draw of service times is as it should
    be; and Pollaczek-Khinchine with the moments drawn.
    """
    done = single_server(busy / 0.1, Lengths(mean=100, shape="exponential"))
    service = np.array([r.output * 1e-3 for r in done])
    rate, mean = len(done) / max(r.arrival for r in done), np.mean([r.latency for r in done])
    rho = rate * service.mean()
    expected = service.mean() + rate * np.mean(service**2) / (2.0 * (1.0 - rho))
    assert mean == pytest.approx(expected, rel=0.06)
    assert mean == pytest.approx(0.1 / (1.0 - busy), rel=0.12)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_m_d_1(busy):
    r"""Fixed answers: :math:`W = 1/\mu + \rho / (2 \mu (1 - \rho))`."""
    done = single_server(busy / 0.1, Lengths(mean=100))
    mean = np.mean([r.latency for r in done])
    assert mean == pytest.approx(0.1 + 0.1 * busy / (2.0 * (1.0 - busy)), rel=0.05)


def ttft_at(rows, pace, engine):
    """Mean time to the first token of the same requests, arriving so many times as fast."""
    sent = [Request(i, t / pace, size, out) for i, t, size, out in rows]
    return np.mean([r.ttft for r in served(GivenLoad(sent), **engine).done])


@settings(max_examples=25, deadline=None)
@given(engines(), some.integers(0, 1000))
def test_first_tokens_never_come_sooner_under_more_load(engine, seed):
    draw = np.random.default_rng(seed)
    times = np.cumsum(draw.exponential(0.05, 150)).tolist()
    rows = [
        (i, t, int(a), int(b))
        for i, (t, a, b) in enumerate(
            zip(times, draw.integers(8, 120, 150), draw.integers(1, 100, 150), strict=True)
        )
    ]
    found = [ttft_at(rows, pace, engine) for pace in (0.05, 0.5, 1.0, 2.0, 4.0, 16.0)]
    assert all(a <= b * (1.0 + 0.01) for a, b in itertools.pairwise(found)), found


@settings(max_examples=100, deadline=None)
@given(some.lists(some.floats(0.0, 1e4), min_size=1, max_size=300), some.lists(some.floats(0.0, 1.0)))
def test_percentiles_are_in_order(values, shares):
    times = LatencyStatistics()
    for v in values:
        times.add(v)
    found = [times.percentile(s) for s in sorted({0.0, 0.5, 0.9, 0.95, 0.99, 1.0, *shares})]
    assert found == sorted(found)
    assert found[0] == min(values) and found[-1] == max(values)
    assert min(values) <= times.mean * (1 + 1e-12) + 1e-300 and times.mean <= max(values) * (1 + 1e-12)
