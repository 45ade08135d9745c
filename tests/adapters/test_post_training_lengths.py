"""Lengths of responses and slots under continuous batching, against drawn samples and events one by one."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

from strata.adapters.post_training.phases import filling
from strata.adapters.post_training.recipe import median_length, response_lengths
from strata.base.errors import BadValue


def drawn(rng, mean, spread, longest, count):
    median = float(median_length(mean, spread, longest))
    return np.minimum(median * np.exp(spread * rng.standard_normal(count)), longest)


@pytest.mark.parametrize(("spread", "longest"), [(0.3, 8192.0), (0.7, 4096.0), (1.0, 2048.0)])
def test_mean_residual_cut_and_longest_are_those_of_drawn_samples(spread, longest):
    rng = np.random.default_rng(1)
    some = response_lengths(1000.0, spread, longest)
    lengths = drawn(rng, 1000.0, spread, longest, 1_000_000)
    assert float(some.mean) == pytest.approx(lengths.mean(), rel=0.005)
    assert float(some.residual) == pytest.approx((lengths**2).mean() / 2 / lengths.mean(), rel=0.01)
    assert float(some.cut) == pytest.approx((lengths >= longest).mean(), abs=0.002)


def simulated(lengths, slots):
    """Tokens one by one: a slot takes the next response when its last one ends; sequences that run, by step."""
    ends = [(0.0, i) for i in range(slots)]
    heapq.heapify(ends)
    spans = []
    for length in lengths:
        at, slot = heapq.heappop(ends)
        spans.append((at, at + length))
        heapq.heappush(ends, (at + length, slot))
    return np.array(spans)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.5, 3.0, 8.0])
@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_slots_fill_and_drain_as_events_say(ratio, spread):
    rng, slots = np.random.default_rng(2), 128
    count = int(ratio * slots)
    some = response_lengths(1000.0, spread, 6000.0)
    filled = filling(some, np.array(float(slots)), np.array(float(count)), 1.0)
    ends, weighted = [], []
    for _ in range(40):
        spans = simulated(drawn(rng, 1000.0, spread, 6000.0, count), slots)
        ends.append(spans[:, 1].max())
        # a step that takes a second with one sequence and a hundredth more for each other: affine, as steps are
        weighted.append(ends[-1] + 0.01 * (spans[:, 1] - spans[:, 0]).sum())
    total = float(filled.steps + some.integral(filled.chance))
    assert total == pytest.approx(np.mean(ends), rel=0.06)
    taken = min(slots, count)
    work = float(filled.steps) * (1 + 0.01 * taken)
    work += float(some.integral(filled.chance * (1 + 0.01 * filled.running)))
    assert work == pytest.approx(np.mean(weighted), rel=0.05)


sizes = hy.floats(16, 8192)


@settings(max_examples=60, deadline=None)
@given(
    mean=sizes,
    spread=hy.floats(0, 1.0),
    more=hy.floats(1, 16),
    slots=hy.integers(1, 4096),
    n=hy.integers(1, 9000),
)
def test_tokens_are_conserved_and_nothing_is_negative(mean, spread, more, slots, n):
    some = response_lengths(mean, spread, mean * more)
    filled = filling(some, np.array(float(slots)), np.array(float(n)), 4.0)
    taken = min(slots, n)
    tokens = taken * (float(filled.steps) + float(some.integral(filled.share)))
    assert tokens == pytest.approx(n * mean, rel=0.02)
    assert float(filled.steps) >= 0 and np.all(filled.chance >= 0) and np.all(filled.chance <= 1 + 1e-12)
    assert np.all(filled.running <= taken * (1 + 1e-9)) and np.all(filled.age >= 0)


def test_arrays_are_many_singles():
    means, spreads = np.array([500.0, 900.0]), np.array([0.0, 0.6])
    many = response_lengths(means, spreads, 4096.0)
    filled = filling(many, np.array([64.0, 64.0]), np.array([100.0, 200.0]), np.array([2.0, 4.0]))
    for i, (mean, spread, n, r) in enumerate(zip(means, spreads, (100.0, 200.0), (2.0, 4.0), strict=True)):
        one = response_lengths(mean, spread, 4096.0)
        single = filling(one, np.array(64.0), np.array(n), r)
        np.testing.assert_allclose(filled.running[i], single.running, rtol=1e-12)
        np.testing.assert_allclose(filled.chance[i], single.chance, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "said"),
    [((0.5, 0.1, 10), "at least 1"), ((10, -1, 10), "negative"), ((11, 0.1, 10), "longest")],
)
def test_lengths_that_cannot_be_are_refused(given, said):
    with pytest.raises(BadValue, match=said):
        response_lengths(*given)
