"""Keys that go round context ranks in training: volumes, kernels part by part."""

from dataclasses import replace

import pytest
from cases import collectives, model, rank_graph, roomy

import strata as st
from strata.mapping.plan import plan

WORK = st.train(8.0, 8192.0)


def sent(division, name):
    graph = rank_graph(model("llama-3-8b"), WORK, plan(division))
    block = next(b for b in graph.blocks if b.name == name)
    return [c for c in collectives(block.ops) if c.group == "cp" and c.payload > 0]


@pytest.mark.parametrize("name, ways", [("attention.full", 1.0), ("attention.full.backward", 2.0)])
def test_a_ring_passes_what_a_gather_brings(name, ways):
    """All other ranks' keys and values, backward with their gradients: (n-1)/n of the whole either way."""
    made = model("llama-3-8b")
    whole = ways * 8192.0 * float(made.kv_heads) * 2.0 * float(made.head_dim) * 2.0
    (ring,), (gather,) = sent("cp=4,cp_mode=ring", name), sent("cp=4", name)
    assert float(ring.steps * ring.payload) == pytest.approx(whole * 3 / 4, rel=1e-12)
    assert float(gather.payload) * 3 / 4 == pytest.approx(whole * 3 / 4, rel=1e-12)


def attention_time(division, engine="megatron", system="8xh100"):
    (step,) = st.evaluate(roomy(system), "llama-3-8b", WORK, division, engine=engine).steps
    return sum(
        float(b.block.count * p.time) for b in step.blocks for op, p in b.ops if op.category == "attention"
    )


def test_attention_in_parts_takes_longer_than_at_once():
    """A kernel for each rank's keys, and a merge for each but the first: some percent of long sequences."""
    whole, parts = attention_time("cp=4,dp=2"), attention_time("cp=4,dp=2,cp_mode=ring")
    assert 1.02 * whole < parts < 1.5 * whole


def test_a_slow_ring_shows_and_a_quick_one_hides():
    def ring_time(factor):
        system = roomy("8xh100")
        first, *rest = system.fabric.dimension
        slower = replace(first, bandwidth=first.bandwidth * factor, transport_model=None)
        given = replace(system, fabric=replace(system.fabric, dimension=(slower, *rest)))
        (step,) = st.evaluate(given, "llama-3-8b", WORK, "cp=4,dp=2,cp_mode=ring", engine="megatron").steps
        return sum(
            float(p.time)
            for b in step.blocks
            for op, p in b.ops
            if op.category == "collective" and op.overlaps
        )

    assert ring_time(1.0) == 0.0
    assert ring_time(0.001) > 0.0
