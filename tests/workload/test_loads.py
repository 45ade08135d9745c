"""Tokens that queries attend to, and tokens that experts get."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

from strata.workload.attention_parts import attended
from strata.workload.moe import chance, expert_load_of, expert_shares


@given(hy.integers(1, 300), hy.integers(1, 300), hy.integers(1, 400))
@settings(max_examples=150)
def test_attended_tokens_are_those_of_the_sum(context, sequence, window):
    sequence = min(sequence, context)
    by_hand = np.mean([min(position, window) for position in range(context - sequence + 1, context + 1)])
    assert attended(float(context), float(sequence), float(window)) == pytest.approx(by_hand, rel=1e-12)


@given(
    hy.integers(1, 8192), hy.sampled_from([(8, 2), (16, 1), (128, 8), (256, 8), (384, 8), (128, 1), (32, 4)])
)
@settings(max_examples=150)
def test_experts_together_get_every_token(tokens, shape):
    experts, top_k = shape
    load, touched = expert_load_of(
        float(tokens), chance(expert_shares(float(experts), 0.0), float(experts), float(top_k))
    )
    assert np.all(load >= 1) and np.all((touched > 0) & (touched <= 1))
    assert np.mean(load * touched) == pytest.approx(tokens * top_k / experts, rel=0.03)


@given(
    hy.integers(1, 8192), hy.sampled_from([(8, 2), (128, 8), (256, 8)]), hy.sampled_from([0.3, 0.6, 1.0, 1.2])
)
@settings(max_examples=60)
def test_skewed_experts_together_get_every_token(tokens, shape, skew):
    """An expert takes a token at most once, so strong skew moves picks to others; where it does not, none is
    lost.
    """
    experts, top_k = shape
    load, touched = expert_load_of(
        float(tokens), chance(expert_shares(float(experts), skew), float(experts), float(top_k))
    )
    assert np.mean(load * touched) == pytest.approx(tokens * top_k / experts, rel=0.1)


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (128, 8), (256, 8), (128, 1)])
@pytest.mark.parametrize("tokens", [1, 7, 64, 500])
def test_touched_experts_agree_with_drawing_them(tokens, experts, top_k):
    rng = np.random.default_rng(0)
    draws = 400
    picked = (
        rng.random((draws, tokens, experts)).argpartition(top_k - 1, axis=-1)[..., :top_k].reshape(draws, -1)
    )
    found = np.array([len(np.unique(row)) for row in picked])
    _, touched = expert_load_of(
        float(tokens), chance(expert_shares(float(experts), 0.0), float(experts), float(top_k))
    )
    assert np.mean(touched) * experts == pytest.approx(
        found.mean(), abs=max(5 * found.std() / draws**0.5, 1e-3)
    )
