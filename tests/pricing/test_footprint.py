"""Memory of a device: what blocks hold, in pages, in pieces and under ZeRO."""

from dataclasses import replace

import numpy as np
import pytest
from cases import FAMILIES, model, points, rank_graph, roomy
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.pricing.footprint import Footprint, footprint_of, gathered_weights, stored_weights
from strata.pricing.training_memory import STATE, block_state
from strata.software.engine import trainer_of


def held(name, work, plan, page=1.0):
    made = st.plan(plan)
    graph = model(name).trace(work)
    sharding = made.sharding(graph, work, made.active())
    blocks = rank_graph(name, work, plan).blocks
    training = work.phase == "train"
    return {b.name: footprint_of(b, sharding, training, page) for b in blocks}, sharding


@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_together_hold_what_a_device_holds(name):
    r = st.evaluate(roomy("8xh200"), model(name), st.decode(16.0, 1000.0), "tp=8", "vllm")
    blocks = r.steps[0].blocks
    for part, name_of in (("weights", "weights"), ("cache", "cache")):
        summed = sum(b.block.count * getattr(b.held, part) for b in blocks)
        assert r.summary.memory[name_of] == pytest.approx(summed, rel=1e-12)
    assert r.summary.memory["scratch"] == max(b.held.scratch for b in blocks)
    assert r.metrics.memory_used == pytest.approx(sum(r.summary.memory.values()), rel=1e-12)


def test_a_cache_is_held_in_whole_pages():
    one, page = (held("llama-3-70b", st.decode(8.0, 1000.0), "tp=8", p)[0] for p in (1.0, 16.0))
    assert page["attention.full"].cache == pytest.approx(one["attention.full"].cache * 1008 / 1000)
    assert one["attention.full"].cache == 8 * 1000 * 2 * 128 * 2
    assert held("llama-3-70b", st.train(8.0, 1000.0), "tp=8")[0]["attention.full"].cache == 0.0


def test_backward_blocks_hold_no_weights_of_their_own():
    blocks, _ = held("mixtral-8x7b", st.train(8.0, 256.0), "dp=8,ep=8")
    for name, block in blocks.items():
        assert (block.weights > 0.0) == (not name.endswith(".backward")), name
    assert 0.9 < blocks["ffn.moe"].expert_share < 1.0 and blocks["attention.full"].expert_share == 0.0


def test_a_tied_head_is_stored_by_the_embedding_alone_until_a_pipeline_parts_them():
    tied = next(name for name in FAMILIES if model(name).tied)
    blocks, _ = held(tied, st.decode(8.0, 256.0), "tp=1")
    vocab = model(tied).vocab * model(tied).hidden * 2.0
    assert blocks["head"].tied == vocab and blocks["head"].weights < 0.01 * vocab
    halves, alone = (
        st.evaluate(roomy("2xh200"), model(tied), st.decode(8.0, 256.0), plan).summary.memory["weights"]
        for plan in ("pp=2", "dp=2")
    )
    first = blocks["embedding"].weights  # as much as the other stage holds for its head, with positions
    assert halves == pytest.approx(0.5 * (alone - first - blocks["head"].weights) + first, rel=1e-12)


@given(points(phases=("train",), sizes=(8, 16)))
@settings(max_examples=30)
def test_recomputing_more_and_sharding_more_never_hold_more(point):
    """Activations fall with recomputation and sequence parallelism, state with the level of ZeRO."""
    where, made, work, plan = point
    kept = [
        st.evaluate(where, made, work, replace(plan, recompute=r)).summary.memory["activations"]
        for r in (0.0, 1.0, 2.0)
    ]
    assert kept[2] <= kept[1] <= kept[0] and kept[2] < kept[0]
    norms = [
        st.evaluate(where, made, work, replace(plan, recompute=0.0, sp=sp)).summary.memory["activations"]
        for sp in (0.0, 1.0)
    ]
    assert norms[1] < norms[0] if plan.tp > 1 else norms[1] == norms[0]
    held = [
        st.evaluate(where, made, work, replace(plan, zero=z)).summary.memory for z in (0.0, 1.0, 2.0, 3.0)
    ]
    state = [sum(memory[part] for part in STATE) for memory in held]
    falls = np.diff(state)
    assert np.all(falls < 0) if plan.dp * plan.cp > 1 else np.all(falls <= 0)


@given(hy.floats(0.0, 1.0), hy.integers(1, 64), hy.integers(1, 64), hy.integers(0, 3))
def test_what_replicas_share_out_is_all_there_is(routed, replicas, groups, zero):
    """Shares of all replicas add up to one copy of what the level reaches, and to as many as there are of
    the rest.
    """
    one = Footprint(
        weights=2e9, parameters=1e9, expert_share=routed, trained=1e9, trained_experts=routed * 1e9
    )
    graph = model("llama-3-8b").trace(st.train(64.0, 8.0))
    plan = st.plan(dp=replicas, zero=zero)
    sharding = replace(plan.sharding(graph, st.train(64.0, 8.0), plan.active()), expert_replicas=groups * 1.0)
    dense, experts = (1.0 - routed) * 1e9, routed * 1e9
    by_hand = 0.0
    for parameters, copies in ((dense, replicas), (experts, groups)):
        shares = [copies if zero >= level else 1.0 for level in (3, 2, 1)]
        each = (2.0, 4.0, 12.0)
        by_hand += sum(parameters * size / share for size, share in zip(each, shares, strict=True))
    trainer = trainer_of(st.engine("megatron"))
    assert sum(block_state(one, sharding, trainer)) == pytest.approx(by_hand, rel=1e-12)
    stored = stored_weights(one, sharding)
    if zero == 3 and replicas > 1:
        assert stored == pytest.approx(2.0 * (dense / replicas + experts / groups), rel=1e-12)
    else:
        assert stored == pytest.approx(one.weights, rel=1e-12)
    assert gathered_weights(one, sharding) == pytest.approx(2.0 * (one.weights - stored), abs=1e-3)
