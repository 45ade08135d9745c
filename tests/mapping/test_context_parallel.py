"""Context ranks that swap tokens for heads among neighbours and pass keys round between these (a2a+p2p):
volumes by hand, its limits, and what all ways are with one context rank.
"""

import numpy as np
import pytest
from cases import collectives, model, rank_graph, roomy

import strata as st
from strata.mapping.plan import plan
from strata.mapping.rules import RINGS

WORK = st.train(8.0, 8192.0)


def sent(division, name, work=WORK):
    graph = rank_graph(model("llama-3-8b"), work, plan(division))
    block = next(b for b in graph.blocks if b.name == name)
    return [
        (c.pattern, c.group, float(c.payload), float(c.steps))
        for c in collectives(block.ops)
        if c.payload > 0
    ]


@pytest.mark.parametrize("work", [WORK, st.prefill(1.0, 8192.0)], ids=["train", "prefill"])
def test_volumes_by_hand(work):
    """Llama 3 8B, 8192 tokens over eight context ranks, four of which swap: 1024 tokens a rank of 32 heads and
    2 x 8 key-value heads of 128 in bf16 go to four; keys and values of two heads of 4096 tokens once round two
    ranks; results of 32 heads come back.
    """
    tokens, head = 1024.0, 128.0 * 2.0
    found = sent("cp=8,cp_mode=a2a+p2p,cp_a2a=4", "attention.full", work)
    assert found == [
        ("all_to_all", "cp_a2a", tokens * (32 + 2 * 8) * head, 1.0),
        ("send", "cp_p2p", 4096.0 * 2 * (8 / 4) * head, 1.0),
        ("all_to_all", "cp_a2a", tokens * 32 * head, 1.0),
    ]


def test_gradients_of_keys_go_round_with_them():
    forward, backward = (
        sent("cp=8,cp_mode=a2a+p2p,cp_a2a=4", name) for name in ("attention.full", "attention.full.backward")
    )
    assert sum(c[2] for c in backward if c[0] == "send") == 2.0 * sum(c[2] for c in forward if c[0] == "send")
    swapped = [sum(c[2] for c in found if c[0] == "all_to_all") for found in (forward, backward)]
    assert swapped[0] == swapped[1]


def times(system, degrees, work=WORK, name="llama-3-8b", engine="megatron"):
    found = st.evaluate(roomy(system), name, work, plan(**degrees), engine=engine)
    return np.array(found.metrics.step_time), np.array(found.metrics.memory_used)


@pytest.mark.parametrize("others", [{"tp": 2.0, "sp": 1.0}, {"dp": 2.0, "zero": 1.0, "recompute": "full"}])
def test_one_rank_that_swaps_is_a_ring_and_all_are_ulysses(others):
    """In a batch with every other way, and each alone."""
    modes, inner = np.array([1.0, 3.0, 2.0, 3.0, 0.0, 3.0]), np.array([0.0, 1.0, 0.0, 8.0, 0.0, 4.0])
    batch = times("2x8xh100", {**others, "cp": 8.0, "cp_mode": modes, "cp_a2a": inner})
    for found in batch:
        assert found[1] == pytest.approx(found[0], rel=1e-12)
        assert found[3] == pytest.approx(found[2], rel=1e-12)
    for i, (mode, ranks) in enumerate(zip(modes, inner, strict=True)):
        alone = times("2x8xh100", {**others, "cp": 8.0, "cp_mode": float(mode), "cp_a2a": float(ranks)})
        assert [float(a) for a in alone] == pytest.approx([b[i] for b in batch], rel=1e-12)


def test_swaps_inside_the_node_beat_both_ways_alone_over_nodes():
    """Two ranks of four GPUs a node, four nodes: the ring crosses them, the exchange does not."""
    base = {"tp": 4.0, "sp": 1.0, "cp": 8.0, "recompute": "full"}
    given = {**base, "cp_mode": np.array([1.0, 2.0, 3.0]), "cp_a2a": np.array([0.0, 0.0, 2.0])}
    ring, swap, both = times("4x8xh100", given, st.train(16.0, 65536.0), "llama-3-70b")[0]
    assert both < ring and both < swap


@pytest.mark.parametrize("engine", ["megatron", "nanotron", "ideal"])
@pytest.mark.parametrize("others", [{"dp": 8.0, "zero": 3.0}, {"tp": 4.0, "sp": 1.0, "pp": 2.0}])
def test_one_context_rank_is_the_same_whatever_the_way(engine, others):
    base = times("8xh100", others, engine=engine)
    for mode in (1.0, 2.0, 3.0):
        alone = times("8xh100", {**others, "cp_mode": mode}, engine=engine)
        assert [float(x) for x in alone] == [float(x) for x in base]
    modes = np.array([0.0, 1.0, 2.0, 3.0])
    for one, batch in zip(base, times("8xh100", {**others, "cp_mode": modes}, engine=engine), strict=True):
        assert batch == pytest.approx(float(one), rel=1e-12)


@pytest.mark.parametrize("inner", ["", ",cp_a2a=3", ",cp_a2a=16"])
def test_rings_need_equal_numbers_of_ranks_that_swap(inner):
    found = st.evaluate("8xh100", "llama-3-8b", WORK, f"cp=8,cp_mode=a2a+p2p{inner}", engine="megatron")
    assert not found.fits and int(found.reason) & RINGS.bit
