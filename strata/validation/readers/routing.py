"""Tokens of each expert in measured calls: how the benchmarks behind the data deal them out."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from strata.arrays import Array, ceil_div
from strata.errors import require
from strata.pricing.kernels.expert_load import ExpertLoad

DRAWS = 8  # random routings that a row is averaged over; the benchmark of ops/moe.csv times five of its own
LONGEST = 1 << 27  # picks, or experts in all draws: a count of each must fit memory
MOST = 0.8  # of all tokens: the highest value it draws for an expert before the values are scaled


def round_robin_counts(tokens: int, experts: int, top_k: int) -> Array:
    """Tokens of each expert when they are dealt out in turn: slot j of a token goes to the j-th of top_k
    equal parts of the experts.

    Fewer tokens than a part has experts are spread over it.

    >>> round_robin_counts(2, 8, 2).tolist(), round_robin_counts(6, 8, 2).tolist()
    ([1, 0, 1, 0, 1, 0, 1, 0], [2, 2, 1, 1, 2, 2, 1, 1])
    """
    part = -(-experts // top_k)
    token, slot = np.arange(tokens)[:, None], np.arange(top_k)
    place = token if tokens >= part else token * part // tokens
    return np.bincount(((place + slot * part) % experts).ravel(), minlength=experts)


def power_law_counts(tokens: int, experts: int, top_k: int, power: float, uniform: Array) -> Array:
    r"""Tokens of each expert (last axis) when their popularity follows a power law, from uniform numbers in
    [0, 1).

    .. math:: x = \left( (h^{1-a} - l^{1-a}) u + l^{1-a} \right)^{1/(1-a)}

    x has density :math:`x^{-a}` between l and h; scaled to all picks and rounded, the largest take what
    rounding left. An expert gets a token once at most: what it would have twice goes to the first experts.

    The collector of github ai-dynamo/aiconfigurator, whose rows ops/moe.csv holds.

    >>> counts = power_law_counts(64, 8, 2, 1.2, np.linspace(0.0, 0.99, 8))
    >>> int(counts.sum()), int(counts.max()), bool((np.diff(counts)[1:] >= 0).all())
    (128, 65, True)
    """
    low, high = (1.0, MOST * tokens) if tokens * top_k > experts else (0.01, 2.0)
    value = ((high ** (1 - power) - low ** (1 - power)) * uniform + low ** (1 - power)) ** (1 / (1 - power))
    counts = np.round(value / value.sum(-1, keepdims=True) * (tokens * top_k))
    missing = tokens * top_k - counts.sum(-1, keepdims=True)
    place = np.argsort(np.argsort(-counts, axis=-1, kind="stable"), axis=-1)
    counts = counts + np.where(missing > 0, missing // experts + (place < missing % experts), 0)
    return np.where(missing < 0, np.where(place == 0, counts + missing, counts), counts)


def _once(counts: Array, tokens: int) -> Array:
    """No expert above all tokens: what is over fills the experts in order."""
    over = np.maximum(counts - tokens, 0).sum(-1, keepdims=True)
    counts = np.minimum(counts, tokens)
    room = tokens - counts
    before = np.cumsum(room, axis=-1) - room
    filled: Array = counts + np.clip(over - before, 0, room)
    return filled


@lru_cache(maxsize=4096)
def busiest_rank_counts(tokens: int, experts: int, top_k: int, ranks: int, power: float) -> Array:
    """Tokens of each expert on the rank that is timed, one row for each draw: with a power law the busiest
    rank, else the first.

    >>> busiest_rank_counts(4096, 128, 8, 16, 0.0).tolist()
    [[256.0, 256.0, 256.0, 256.0, 256.0, 256.0, 256.0, 256.0]]
    """
    require(1 <= top_k <= experts, "a token picks at most all experts", top_k=top_k, experts=experts)
    _check_length(tokens * top_k, experts)
    held = experts // ranks
    if power == 0.0:
        return round_robin_counts(tokens, experts, top_k)[None, :held].astype(float)
    uniform = np.random.default_rng(experts).random((DRAWS, experts))
    counts = power_law_counts(tokens, experts, top_k, power, uniform).reshape(DRAWS, ranks, held)
    busiest = counts.sum(-1).argmax(-1)
    every = np.arange(DRAWS)
    first = counts[:, 0].copy()
    counts[:, 0] = counts[every, busiest]
    counts[every[busiest > 0], busiest[busiest > 0]] = first[busiest > 0]
    return _once(counts.reshape(DRAWS, experts), tokens)[:, :held]


@lru_cache(maxsize=4096)
def multinomial_counts(tokens: int, experts: int, skew: float) -> Array:
    """Tokens of each expert when every token picks one, the i-th with a share of i to the power of -skew; one
    row for each draw.
    """
    _check_length(0, experts)
    share = np.arange(1.0, experts + 1.0) ** -skew
    return np.random.default_rng(experts).multinomial(tokens, share / share.sum(), size=DRAWS).astype(float)


def _check_length(picks: int, experts: int) -> None:
    most = max(picks, DRAWS * experts)
    require(most <= LONGEST, f"tokens are dealt out to at most {LONGEST:,} places", places=most)


def expert_load(counts: list[Array], rows: Array) -> ExpertLoad:
    """The load of each measured row (last axis) in each draw (axis before it), with tiles of so many rows
    (leading axis).
    """
    tiles = [np.sum(ceil_div(c, rows[:, None, None]), -1) for c in counts]
    seen = [np.stack([c.sum(-1), (c > 0).sum(-1), *t]) for c, t in zip(counts, tiles, strict=True)]
    draws = max(s.shape[1] for s in seen)
    stacked = np.stack([np.broadcast_to(s, (s.shape[0], draws)) for s in seen], axis=-1)
    return ExpertLoad(tokens=stacked[0], experts=stacked[1], tiles=stacked[2:])
