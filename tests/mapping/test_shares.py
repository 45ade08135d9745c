"""What the finer choices of a plan leave on a rank: sharded weights, heads for tokens, keys passed round,
experts cut or copied.
"""

import numpy as np
import pytest
from cases import model, rank_graph, roomy

import strata as st
from strata.pricing.price import ring_exposed


def of_kind(graph, kind):
    return [op for _, op in graph.ops() if op.kind == kind]


@pytest.mark.parametrize("name", ["llama-3-70b", "deepseek-v3"])
@pytest.mark.parametrize("work", [st.prefill(4.0, 1024.0), st.train(8.0, 1024.0)])
def test_heads_for_tokens_does_all_of_attention(name, work):
    whole = of_kind(model(name).trace(work), "attention")
    part = of_kind(rank_graph(name, work, "tp=2,cp=4,cp_mode=ulysses"), "attention")
    pieces = 8.0 if work.phase == "train" else 1.0  # training goes sequence by sequence
    for before, after in zip(whole, part, strict=True):
        assert after.flop() * 8.0 * pieces == pytest.approx(before.flop())
        assert after.queries.size == before.queries.size and after.heads.size == before.heads.size / 8.0


def test_heads_for_tokens_moves_what_the_paper_says():
    """DeepSpeed-Ulysses sec. 3.2: 4 N h / P elements a rank for N tokens where keys have as many heads as
    queries.
    """
    work, made = st.prefill(2.0, 1024.0), model("gpt3-175b")
    moved = sum(
        op.payload
        for op in of_kind(rank_graph("gpt3-175b", work, "cp=8,cp_mode=ulysses"), "collective")
        if op.pattern == "all_to_all"
    )
    assert moved == pytest.approx(4.0 * 2.0 * 1024.0 * float(made.hidden) / 8.0 * 2.0)  # 16-bit


def test_decode_shares_out_the_cache_by_heads_or_by_tokens():
    work = st.decode(16.0, 2048.0)
    by_heads, by_tokens = (
        of_kind(rank_graph("llama-3-70b", work, f"cp=4,cp_mode={by}"), "attention")[0]
        for by in ("ulysses", "gather")
    )
    assert by_heads.cache_bytes(1.0) == by_tokens.cache_bytes(1.0) and by_heads.flop() == by_tokens.flop()
    assert by_heads.cached.size == 4.0 * by_tokens.cached.size


def test_cache_of_few_key_value_heads_is_repeated_over_a_larger_tensor_group():
    one, eight, sixteen = (
        of_kind(rank_graph("llama-3-70b", st.decode(16.0, 2048.0), f"tp={tp}"), "attention")[0]
        for tp in (1, 8, 16)
    )
    assert one.cache_bytes(1.0) == 8.0 * eight.cache_bytes(1.0) and sixteen.cache_bytes(
        1.0
    ) == eight.cache_bytes(1.0)
    assert sixteen.heads.size == eight.heads.size / 2.0


def test_a_ring_hides_behind_attention_and_never_costs_more_than_passing_after_it():
    rng = np.random.default_rng(0)
    passing, work, steps = rng.uniform(0, 1, 500), rng.uniform(0, 1, 500), rng.integers(1, 63, 500) * 1.0
    left = ring_exposed(passing, work, steps)
    assert (
        np.all(left >= 0)
        and np.all(left <= passing)
        and np.all(left + work >= np.maximum(passing, work) - 1e-12)
    )
    long = st.prefill(1.0, 131072.0)
    gather, ring = (
        st.evaluate(roomy("8xh200"), "llama-3-70b", long, f"cp=8,cp_mode={by}").metrics.step_time
        for by in ("gather", "ring")
    )
    assert ring < gather


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_sharded_weights_are_stored_once_and_never_quicker(phase):
    work = st.decode(64.0, 1024.0) if phase == "decode" else st.prefill(64.0, 1024.0)
    whole, sharded = (
        st.evaluate(roomy("8xh200"), "mixtral-8x7b", work, f"dp=8,ep=2,zero={z}") for z in (0, 3)
    )
    assert sharded.metrics.step_time >= whole.metrics.step_time
    # Attention is held by 8 ranks, each half of the experts by 4 of them.
    blocks = whole.steps[-1].blocks
    experts = sum(b.block.count * b.held.weights * b.held.expert_share for b in blocks)
    dense = sum(b.block.count * b.held.weights * (1.0 - b.held.expert_share) for b in blocks)
    assert sharded.summary.memory["weights"] == pytest.approx(dense / 8.0 + experts / 4.0)
    assert whole.summary.memory["weights"] == pytest.approx(dense + experts)


def test_experts_cut_over_data_parallel_ranks_gather_all_tokens():
    """Attention data parallel, experts tensor parallel: every rank sees every token, and sums go back to whom
    they belong.
    """
    work, made = st.decode(64.0, 1024.0), model("mixtral-8x7b")
    graph = rank_graph("mixtral-8x7b", work, "dp=8,moe_tp=8")
    experts = of_kind(graph, "experts")[0]
    assert experts.tokens.size == 64.0 and experts.experts.size == 8.0
    sent = {op.pattern: op.payload for op in of_kind(graph, "collective")}
    assert sent == {
        "all_gather": 64.0 * float(made.hidden) * 2.0,
        "reduce_scatter": 64.0 * float(made.hidden) * 2.0,
    }


@pytest.mark.parametrize(
    "plan",
    [
        "dp=8,moe_tp=8",
        "tp=2,dp=4,ep=4,moe_tp=2",
        "dp=8,ep=8",
        "tp=8,ep=4",
        "tp=2,dp=4,ep=2,moe_tp=4",
        "dp=8,ep=8,redundant_experts=8",
    ],
)
def test_tokens_are_conserved_through_routing(plan):
    work, made = st.decode(256.0, 1024.0), st.plan(plan)
    whole = of_kind(model("mixtral-8x7b").trace(work), "experts")[0]
    part = of_kind(rank_graph("mixtral-8x7b", work, plan), "experts")[0]
    assert part.flop() * made.devices == pytest.approx(whole.flop())
    picks = part.tokens.size * part.top_k * part.experts.size / part.slots
    assert picks * made.ep * made.moe_groups == pytest.approx(256.0 * 2.0)


def test_copies_of_experts_take_memory_and_relieve_the_busiest_rank():
    work = st.decode(1024.0, 1024.0, skew=0.8)
    plain, copied = (
        st.evaluate(roomy("64xh200"), "deepseek-v3", work, f"dp=64,ep=64,redundant_experts={r}")
        for r in (0, 64)
    )
    assert copied.metrics.step_time < plain.metrics.step_time
    assert copied.metrics.memory_used > plain.metrics.memory_used
