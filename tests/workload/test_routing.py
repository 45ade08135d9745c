"""Routing: traces from files, the busiest rank against drawn routings, and laws of what experts read."""

import json

import numpy as np
import pytest
from cases import roomy

import strata as st
from strata.base.errors import BadFile, BadValue
from strata.hardware.chip import chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.expert_load import busiest_load, most_on_a_rank
from strata.pricing.kernels.experts import price_experts
from strata.workload.expert_ops import ExpertMatMul, read_routing, routing
from strata.workload.graph import Extent

EXPERTS, TOP_K = 256, 8


def product(tokens, held, skew=0.0, seen=None, redundant_experts=0.0):
    return ExpertMatMul(
        name="up",
        module="moe",
        inputs=(),
        output="",
        tokens=Extent(tokens * 1.0),
        top_k=TOP_K * 1.0,
        experts=Extent(held * 1.0),
        all_experts=EXPERTS * 1.0,
        n=(Extent(64.0),),
        k=Extent(64.0),
        skew=skew,
        weight="bf16",
        activation="bf16",
        routing=seen,
        redundant_experts=redundant_experts,
    )


def draws(tokens, weights, count, rng):
    """Tokens of each expert in drawn routings: every token picks different experts, in proportion to
    weights.
    """
    found = []
    for _ in range(count):
        keys = rng.exponential(size=(tokens, EXPERTS)) / weights(rng)
        found.append(np.bincount(np.argpartition(keys, TOP_K, axis=1)[:, :TOP_K].ravel(), minlength=EXPERTS))
    return np.array(found, float)


@pytest.mark.parametrize("skew", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("tokens", [16, 64, 512])
def test_busiest_rank_and_touched_experts_are_those_of_drawn_routings(tokens, skew):
    popular = np.arange(1.0, EXPERTS + 1.0) ** -skew
    counts = draws(tokens, lambda rng: rng.permutation(popular), 40, np.random.default_rng(tokens))
    whole = busiest_load(product(tokens, EXPERTS, skew), 1.0, 0)
    assert whole.experts == pytest.approx((counts > 0).sum(1).mean(), rel=0.1)
    assert whole.tokens == pytest.approx(tokens * TOP_K)
    for ranks in (8, 32, 256):
        on_ranks = counts.reshape(len(counts), ranks, -1).sum(-1)
        load = busiest_load(product(tokens, EXPERTS // ranks, skew), float(ranks), 0)
        assert most_on_a_rank(load, float(ranks), float(EXPERTS // ranks)) == pytest.approx(
            on_ranks.max(1).mean() / on_ranks.mean(), rel=0.12
        ), ranks
        reached = (counts.reshape(len(counts), ranks, -1) > 0).sum(-1)
        assert load.experts == pytest.approx(
            reached[np.arange(len(counts)), on_ranks.argmax(1)].mean(), rel=0.15
        ), ranks


def test_a_trace_is_priced_as_it_was():
    """Experts stay where a trace has them: its busiest rank, drawn again, is the one that is priced."""
    rng = np.random.default_rng(2)
    weights = rng.gamma(2.0, size=EXPERTS)
    seen = routing(weights[None])
    for tokens, ranks in ((512, 8), (512, 32), (64, 16)):
        on_ranks = draws(tokens, lambda _: weights, 40, rng).reshape(40, ranks, -1).sum(-1)
        load = busiest_load(product(tokens, EXPERTS // ranks, seen=seen), float(ranks), 0)
        assert most_on_a_rank(load, float(ranks), float(EXPERTS // ranks)) == pytest.approx(
            on_ranks.max(1).mean() / on_ranks.mean(), rel=0.12
        ), ranks


def test_an_even_trace_is_no_trace():
    plain, even = (st.decode(256.0, 1024.0, routing=r) for r in (None, routing(np.ones((58, EXPERTS)))))
    a, b = (
        st.evaluate(roomy("16xh200"), "deepseek-v3", work, "dp=16,ep=16").metrics.step_time
        for work in (plain, even)
    )
    assert a == pytest.approx(b, rel=1e-9)


def test_more_tokens_touch_more_experts_and_never_read_less():
    tokens = np.arange(1.0, 600.0)
    load = busiest_load(product(tokens, 8), 32.0, 1)
    assert np.all(np.diff(load.experts) >= -1e-9) and np.all(load.experts <= 8.0)
    price = price_experts(product(tokens, 8), device(chip("h200")), 32.0)
    assert np.all(np.diff(price.memory_bytes) >= -1e-6 * price.memory_bytes[:-1])


def test_copies_of_experts_lower_the_busiest_rank_the_more_there_are():
    shares = []
    for redundant_experts in (0.0, 8.0, 32.0, 64.0, 256.0):
        held = (EXPERTS + redundant_experts) / 32.0
        load = busiest_load(product(512, held, 0.8, redundant_experts=redundant_experts), 32.0, 0)
        shares.append(float(load.tokens))
    assert np.all(np.diff(shares) < 0) and shares[-1] > 512 * TOP_K / 32.0


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_trace_is_read_from_a_file(tmp_path, suffix):
    counts = np.random.default_rng(0).integers(1, 100, (3, 16))
    path = tmp_path / f"seen.{suffix}"
    text = (
        json.dumps({"counts": counts.tolist()})
        if suffix == "json"
        else "\n".join([",".join(f"e{i}" for i in range(16)), *(",".join(map(str, row)) for row in counts)])
    )
    path.write_text(text)
    found, told = read_routing(path, 16.0), routing(counts)
    assert found.shares == told.shares and found.busiest == told.busiest
    assert np.mean(found.shares) == pytest.approx(1.0) and found.busiest[0] == pytest.approx(1.0)
    with pytest.raises(BadValue, match="one number for each of the model's experts"):
        read_routing(path, 64.0)


def test_what_is_wrong_with_a_trace_is_said(tmp_path):
    with pytest.raises(BadFile, match="no routing file"):
        read_routing(tmp_path / "none.csv")
    for text, said in (
        ("1,2\nx,3\n", "one row of numbers"),
        ("1,2\n3\n", "same experts"),
        ("0,0\n", "needs picks"),
        ("1,-2\n", "not negative"),
    ):
        path = tmp_path / "bad.csv"
        path.write_text(text)
        with pytest.raises((BadFile, BadValue), match=said):
            read_routing(path)
