"""Grouped products over experts, alone and as a fused expert layer, and how many tokens each gets."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from strata.arrays import Array, ceil_div, has_axes
from strata.errors import BadValue, require
from strata.pricing.kernels.device import device
from strata.pricing.kernels.expert_load import ROWS, ExpertLoad
from strata.pricing.kernels.experts import GroupedKernels, grouped_product
from strata.pricing.kernels.product import Product
from strata.validation.readers.bare_kernels import (
    ExpertLayer,
    benchmark_time,
    cold_device,
    expert_layer_time,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.labels import kernel_format
from strata.validation.readers.tables import Table

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


SKEWS = {"uniform": 0.0, "balanced": 0.0, "zipf": 1.0}
# PyTorch's grouped product has two output tiles: the small one where an expert has at most so many rows on
# average; tiles go in pairs, one above the other (aten/src/ATen/native/cuda/GroupMM.cu as read at commit
# 06c0cf0; that the measured 2.11 does the same is assumed).
SMALL, LARGE, SWITCH, PAIR = (64.0, 128.0), (128.0, 256.0), 128.0, 2.0


def skew_of(routing: str) -> float:
    """Exponent of the power law that popularity follows; 0 where experts are alike.

    >>> skew_of("balanced"), skew_of("power_law_1.2")
    (0.0, 1.2)
    """
    power = re.fullmatch(r"power_law_([\d.]+)", routing)
    if power:
        return float(power.group(1))
    if routing not in SKEWS:
        raise BadValue(
            f"a routing must be one of {', '.join(SKEWS)} or power_law_EXPONENT, but got '{routing}'"
        )
    return SKEWS[routing]


def grouped_gemm(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """One grouped product on cold data: each token goes to one expert."""
    s = table.numbers("experts", "tokens_total", "n", "k")
    chip = catalogue.chip(table.chip)
    dev = cold_device(chip)

    def price(key: tuple[str], rows: Array) -> Any:
        experts, tokens, n, k = (s[c][rows] for c in s)
        sizes, skew = zip(tokens, experts, strict=True), skew_of(key[0])
        counts = [multinomial_counts(int(t), int(e), skew) for t, e in sizes]
        load = expert_load(counts, PAIR * np.array([SMALL[0], LARGE[0]]))
        assert has_axes(load.tiles)
        small = tokens / experts <= SWITCH
        tiles = PAIR * np.where(small, load.tiles[0], load.tiles[1])
        unit = dev.matrix("bf16", "bf16")
        kernels = GroupedKernels(
            rate=unit.sustained * chip.compute.grouped_efficiency,
            bandwidth=chip.memory.bandwidth * chip.memory.grouped_efficiency,
            tile=dev.tile,
            floor=chip.overhead.grouped,
            rows=np.where(small, SMALL[0], LARGE[0])[None, None],
            columns=np.where(small, SMALL[1], LARGE[1])[None, None],
        )
        drawn = ExpertLoad(tokens=load.tokens, experts=load.experts, tiles=tiles[None])
        product = Product(
            m=load.tokens, n=n, k=k, input_bytes=unit.activation, weight_bytes=2.0, output_bytes=2.0
        )
        price = grouped_product(drawn, product, dev, unit, kernels, 2.0 * tokens * n * k)
        return benchmark_time(price, chip).mean(0)

    forecasts = forecast(table, [table.text("routing")], price, tuple(s))
    return compare_metric(table, table.number("median_s"), forecasts, table.text("routing"))


def fused_experts(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """A layer of experts on the busiest rank, as a framework runs it; tokens are those of the whole expert
    group.

    Priced at the highest clock: a bf16 layer reaches 825 TFLOP/s here on an H200, whose large products in
    ops/gemm.csv stop at about 700 at the power limit. The likely cause, not checked, is that the benchmark
    leaves most weights unfilled, and products with zeros draw little power.
    """
    sizes = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens")
    s = table.numbers(*sizes)
    keys = [table.text(c) for c in ("system", "moe_dtype", "distribution")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        used, v = kernel_format(key[1]), {k: x[rows] for k, x in s.items()}
        layer = ExpertLayer(
            tokens=v["num_tokens"],
            top_k=v["topk"],
            experts=v["num_experts"],
            ranks=v["moe_ep_size"],
            hidden=v["hidden_size"],
            inner=v["inter_size"] / v["moe_tp_size"],
            weight=used.weight,
            activation=used.activation,
        )
        dev = device(catalogue.chip(key[0]), weight_only=used.weight_only)
        return expert_layer_time(layer, _busiest_load(layer, skew_of(key[2])), dev)

    forecasts = forecast(table, keys, price, tuple(s))
    names = group_names(*keys, count=len(table))
    return compare_metric(table, table.number("latency_ms") * 1e-3, forecasts, names)


def _busiest_load(layer: ExpertLayer, power: float) -> ExpertLoad:
    sizes = zip(layer.tokens, layer.experts, layer.top_k, layer.ranks, strict=True)
    counts = [busiest_rank_counts(int(t), int(e), int(k), int(r), power) for t, e, k, r in sizes]
    return expert_load(counts, ROWS)
