"""Blocks: each op once, sums of them, what hides beside others and what runs again."""

import pytest
from cases import points, roomy
from hypothesis import given, settings

import strata as st
from strata.software.engine import engine
from strata.workload.graph import is_collective


@given(points(phases=("decode", "prefill", "train")))
@settings(max_examples=60)
def test_a_block_is_the_sum_of_its_ops(point):
    """Shown times add up; what is fetched ahead shows no more than it takes, and never less than is left
    of it.
    """
    (step,) = st.evaluate(*point).steps
    for b in step.blocks:
        assert b.price.time == pytest.approx(sum(p.time for _, p in b.ops), rel=1e-12)
        assert sum(b.time_by_kind.values()) == pytest.approx(b.price.time, rel=1e-12)
        assert sum(b.again_by_kind.values()) == pytest.approx(b.again.time, rel=1e-12)
        hidden = [p for op, p in b.ops if is_collective(op) and op.prefetch]
        own = sum(p.time for op, p in b.ops if not (is_collective(op) and op.prefetch))
        assert all(0.0 <= p.time <= p.upper * (1 + 1e-12) for p in hidden)
        assert b.price.time >= max([own, *(p.upper for p in hidden)]) * (1 - 1e-12)


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b"])
def test_recomputation_repeats_attention_or_all_of_a_forward_block(name):
    for level in ("none", "selective", "full"):
        plan = f"tp=2,dp=4,recompute={level}"
        (step,) = st.evaluate(roomy("8xh200"), name, st.train(16.0, 512.0), plan).steps
        for b in step.blocks:
            if b.block.direction == "backward":
                assert b.again.time == 0.0
                continue
            attention = sum(p.time for op, p in b.ops if op.category == "attention")
            # embedding and head are no layers
            whole = b.price.time if b.block.role in ("attention", "ffn") else 0.0
            repeated = {"none": 0.0, "selective": attention, "full": whole}[level]
            assert b.again.time == pytest.approx(repeated, rel=1e-12)


def test_links_are_busy_only_where_ranks_with_other_sequences_need_them():
    (alone,) = st.evaluate(roomy("8xh200"), "llama-3-8b", st.train(16.0, 512.0), "tp=8").steps
    (shared,) = st.evaluate(roomy("8xh200"), "llama-3-8b", st.train(16.0, 512.0), "tp=2,dp=4").steps
    assert all(b.busy == 0.0 for b in alone.blocks)
    sums = {b.block.name: sum(p.upper for op, p in b.ops if is_collective(op)) for b in shared.blocks}
    assert {b.block.name: b.busy for b in shared.blocks} == pytest.approx(sums)


@pytest.mark.parametrize("plan", ["tp=8", "dp=8,ep=8", "tp=2,cp=4", "tp=4,dp=2,ep=8"])
@pytest.mark.parametrize("how", ["tiles", "dual_batch"])
def test_overlapped_blocks_do_the_same_work(plan, how):
    plain, hidden = (
        st.evaluate(roomy("8xh200"), "deepseek-v3", st.prefill(32.0, 512.0), plan, engine("ideal", overlap=o))
        for o in ("none", how)
    )
    for one, other in zip(plain.steps[0].blocks, hidden.steps[0].blocks, strict=True):
        assert [op.name for op, _ in one.ops] == [op.name for op, _ in other.ops]
        assert other.held.weights == one.held.weights
        # halves need not be quicker in each block, but no op does less
        assert other.price.flop >= one.price.flop * (1 - 1e-12)
        if how == "tiles":
            assert other.price.time <= one.price.time * (1 + 1e-12)
