"""Grouped products of experts: laws of their price, and the routings behind measured rows."""

from __future__ import annotations

import numpy as np
import pytest

from strata.hardware.chip import chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.expert_load import (
    ROWS,
    ExpertLoad,
    busiest_rank_counts,
    load_of_counts,
    multinomial_counts,
    power_law_counts,
    round_robin_counts,
)
from strata.pricing.kernels.experts import price_experts, price_gather
from strata.pricing.kernels.vector import price_vector
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Extent
from strata.workload.ops import Gather, Vector

TOKENS = np.array([1.0, 16.0, 300.0, 4096.0, 65536.0])


def product(
    tokens,
    experts=128.0,
    top_k=8.0,
    n=1536.0,
    k=2048.0,
    skew=0.0,
    weight="bf16",
    activation="bf16",
    held=None,
):
    held = experts if held is None else held
    return ExpertMatMul(
        name="up",
        module="moe",
        inputs=(),
        output="out",
        tokens=Extent(tokens),
        top_k=top_k,
        experts=Extent(held),
        all_experts=experts,
        n=(Extent(n),),
        k=Extent(k),
        skew=skew + 0.0 * tokens,
        weight=weight,
        activation=activation,
    )


@pytest.mark.parametrize("weight", ["bf16", "fp8", "mxfp4"])
def test_a_batch_equals_singles(weight):
    many = price_experts(product(TOKENS, weight=weight), device(chip("h200")))
    for i, tokens in enumerate(TOKENS.tolist()):
        one = price_experts(product(tokens, weight=weight), device(chip("h200")))
        assert float(one.time) == pytest.approx(float(many.time[i]), rel=1e-12)
        assert float(one.energy) == pytest.approx(float(many.energy[i]), rel=1e-12)


@pytest.mark.parametrize(
    "path",
    [
        "compute.matrix_rate.bf16",
        "memory.bandwidth",
        "cache.bandwidth",
        "cache.capacity",
        "compute.vector_rate",
    ],
)
def test_more_of_a_chip_is_never_slower(path):
    base = chip("h200")
    value = {"matrix_rate": 989.4e12, "bandwidth": 4.8e12, "capacity": 50 * 2**20, "vector_rate": 67e12}
    old = next(v for k, v in value.items() if k in path) if path != "cache.bandwidth" else 11.78e12
    last = price_experts(product(TOKENS), device(base)).time
    for more in (1.3, 2.0, 5.0):
        new = price_experts(product(TOKENS), device(chip("h200", **{path: old * more}))).time
        assert np.all(new <= last * (1 + 1e-12))
        last = new


@pytest.mark.parametrize("skew", [0.0, 0.8])
def test_time_is_above_its_bound_and_credits_add_up(skew):
    price = price_experts(product(TOKENS, skew=skew), device(chip("b200")), 1.0)
    assert np.all(price.time >= price.lower) and np.all(price.time <= price.upper * (1 + 1e-12))
    assert np.allclose(price.compute + price.cache + price.memory + price.overhead, price.time)


def test_more_tokens_experts_columns_and_depth_cost_more():
    dev = device(chip("h200"))
    base = price_experts(product(TOKENS), dev).time
    assert np.all(np.diff(base) > 0)
    for wider in ({"n": 1600.0}, {"k": 2304.0}, {"top_k": 16.0}):
        assert np.all(price_experts(product(TOKENS, **wider), device(chip("h200"))).time >= base)


def test_a_known_load_counts_instead_of_random_routing():
    op = product(np.array([4096.0]))
    even = load_of_counts([busiest_rank_counts(4096, 128, 8, 1, 0.0)], ROWS)
    known, random = (
        price_experts(op, device(chip("h200")), 1.0, even).time,
        price_experts(op, device(chip("h200"))).time,
    )
    assert known.mean() < random[0] < 1.3 * known.mean()
    one = ExpertLoad(tokens=even.tokens, experts=1.0 + 0.0 * even.experts, tiles=even.tiles)
    # one expert's weights, all tokens
    assert np.all(price_experts(op, device(chip("h200")), 1.0, one).time < known)


def test_gathered_rows_take_longer_than_a_stream():
    move = {"name": "dispatch", "module": "moe", "inputs": (), "output": "sent", "precision": "bf16"}
    move |= {"m": Extent(65536.0), "n": (Extent(4096.0),), "reads": 1.0, "writes": 1.0}
    move |= {"flop_per_element": 0.0, "special_per_element": 0.0}
    dev = device(chip("h200"))
    slow, fast = price_gather(Gather(**move), dev), price_vector(Vector(**move), dev)
    assert float(slow.time) > float(fast.time) > float(slow.lower)


@pytest.mark.parametrize(
    ("tokens", "experts", "top_k"), [(1, 128, 8), (5, 8, 2), (16, 256, 8), (1000, 128, 4)]
)
def test_dealt_tokens_are_all_there_and_even(tokens, experts, top_k):
    counts = round_robin_counts(tokens, experts, top_k)
    assert counts.sum() == tokens * top_k and counts.max() - counts.min() <= 1
    assert (counts > 0).sum() == min(experts, tokens * top_k)


@pytest.mark.parametrize("power", [1.01, 1.2])
@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 128, 8), (16, 8, 2), (4096, 256, 8)])
def test_drawn_tokens_are_all_there(tokens, experts, top_k, power):
    counts = power_law_counts(tokens, experts, top_k, power, np.random.default_rng(1).random((50, experts)))
    assert np.all(counts.sum(-1) == tokens * top_k) and counts.min() >= 0


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_the_first_rank_is_the_busiest_and_an_expert_gets_a_token_once(ranks):
    counts = busiest_rank_counts(256, 8, 2, ranks, 1.2)
    assert counts.shape[1] == 8 // ranks and counts.max() <= 256
    assert np.all(counts.sum(-1) >= 256 * 2 / ranks - 1e-9)


def test_loads_of_rows_with_and_without_draws_share_an_array():
    load = load_of_counts([busiest_rank_counts(64, 8, 2, 1, 0.0), multinomial_counts(64, 8, 1.0)], ROWS)
    assert load.tokens.shape == load.experts.shape == (8, 2) and load.tiles.shape == (len(ROWS), 8, 2)
    assert np.all(load.tokens[:, 0] == 128) and np.all(load.tokens[:, 1] == 64)
