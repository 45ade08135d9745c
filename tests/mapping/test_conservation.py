"""Sharded graphs do the work of the whole: operations and weights are conserved, one rank is the graph
itself.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from cases import (
    FAMILIES,
    MODELS,
    count,
    kernels,
    legal_plans,
    model,
    pick,
    points,
    rank_graph,
    roomy,
    shown,
    workload,
)
from hypothesis import given, settings

import strata as st
from strata.base.arrays import leaves
from strata.mapping.plan import Plan
from strata.mapping.plan_layout import microbatches
from strata.mapping.shard import shard
from strata.workload.expert_ops import is_expert_product
from strata.workload.graph import Op, is_collective
from strata.workload.graph_walks import check_graph

# Layers with a state repeat keys that several heads share; their laws stand in workload/test_mixers.py.
STATELESS = [name for name in MODELS if model(name).mixer is None]


@pytest.mark.parametrize("name", MODELS)
def test_graphs_obey_their_laws_whole_and_sharded(name):
    options = legal_plans(16, name)
    for phase in ("decode", "prefill", "train"):
        work = workload(phase, 64.0, 256.0)
        whole = model(name).trace(work)
        check_graph(whole)
        for plan in (pick(options, i) for i in range(0, count(options), max(1, count(options) // 12))):
            check_graph(rank_graph(name, work, replace(plan, zero=3.0, sp=1.0)))


@pytest.mark.parametrize("name", MODELS)
def test_the_identity_plan_leaves_the_graph_unchanged(name):
    for phase in ("decode", "prefill", "train"):
        work = workload(phase, 4.0, 256.0)
        whole = model(name).trace(work)
        one = Plan(microbatches=1.0)  # training goes sequence by sequence unless told
        assert one.active() == frozenset()
        alone = shard(whole, one.sharding(whole, work, frozenset()))
        assert phase == "train" or alone is whole
        assert not any(is_collective(op) for _, op in alone.ops())
        # In a batch the identity stands beside other plans: collectives exist there, but its sizes are those
        # of the whole.
        many = st.plan(tp=np.array([1.0, 2.0]), dp=np.array([1.0, 2.0]), microbatches=1.0)
        for part in (alone, shard(whole, many.sharding(whole, work, many.active()))):
            for before, after in zip(whole.blocks, part.blocks, strict=True):
                for op, cut in zip(before.ops, kernels(after.ops), strict=True):
                    assert [float(v) for v in sizes(op)] == [
                        float(np.broadcast_to(v, (2,))[0]) for v in sizes(cut)
                    ], op.name


def sizes(op):
    """Every quantity of an op, extents included."""
    values = (getattr(op, f.name) for f in fields(op))
    return [q for v in values for q in (leaves(v) if not isinstance(v, (str, bool)) else [])]


def test_the_identity_plan_has_no_communication():
    for name in FAMILIES:
        r = st.evaluate(roomy("h200"), model(name), st.decode(4, 256))
        assert r.summary.time_by_kind["collective"] == 0 and r.summary.resources["network"] == 0


def ranks_share(op: Op, plan: Plan, phase: str) -> float:
    """Ranks among which an op's work is divided; the others repeat it. In decode, context parallel ranks hold
    the same tokens: they divide the work of experts only as far as these are dealt out over them.
    """
    axes = {
        e.axis
        for f in fields(op)
        for v in [getattr(op, f.name)]
        for e in (v if isinstance(v, tuple) else (v,))
        if hasattr(e, "axis")
    }
    tensor = is_expert_product(op) or axes & {
        "heads",
        "kv_heads",
        "ffn",
        "shared_ffn",
        "vocab",
        "state_heads",
        "state_groups",
    }
    context = plan.cp if phase != "decode" or "kv_tokens" in axes else 1.0
    if is_expert_product(op) and phase == "decode":
        context = min(max(plan.ep * plan.moe_tp / plan.tp, 1.0), plan.cp)
    return float(plan.dp * (plan.tp if tensor else 1.0) * context)


@pytest.mark.parametrize("name", STATELESS)
def test_shard_conserves_operations(name):
    """Over all ranks and micro-batches the operations of each op are those of the whole; ops without a
    divided axis are repeated on each rank of a tensor group, counted apart. Degrees divide evenly and do not
    exceed the key-value heads.
    """
    made = model(name)
    heads = float(made.heads if made.attention == "mla" else made.kv_heads)
    for phase in ("decode", "prefill", "train"):
        work = workload(phase, 64.0, 1024.0)
        whole = made.trace(work)
        options = legal_plans(16, name)
        even = [
            p
            for p in (pick(options, i) for i in range(count(options)))
            if heads % float(p.tp) == 0 and not float(made.heads) % float(p.tp)
        ]
        for plan in even:
            if float(made.vocab) % float(plan.tp) or plan.moe_groups % 1:
                continue
            if any(
                size % degree
                for size, degree in (
                    (made.ffn, plan.tp),
                    (made.shared_ffn, plan.tp),
                    (made.expert_ffn, plan.moe_tp),
                )
            ):
                continue
            part = shard(whole, plan.sharding(whole, work, plan.active()))
            pieces = microbatches(plan, work)
            for before, after in zip(whole.blocks, part.blocks, strict=True):
                for op, cut in zip(before.ops, kernels(after.ops), strict=True):
                    if op.category in ("matmul", "experts", "attention"):
                        over_all = cut.flop() * pieces * ranks_share(op, plan, phase)
                        assert over_all == pytest.approx(op.flop(), rel=1e-9), (phase, op.name, shown(plan))


# an added bias is repeated on each rank
@pytest.mark.parametrize("name", [n for n in STATELESS if not (model(n).output_bias or model(n).ffn_bias)])
def test_shard_conserves_parameters(name):
    """Weights of a rank times the ranks that divide them are the whole; weights without a divided axis are
    repeated, counted apart.
    """
    made, work = model(name), st.decode(64, 128)
    whole = made.trace(work)
    heads = float(made.heads if made.attention == "mla" else made.kv_heads)
    divided = {"heads", "kv_heads", "ffn", "shared_ffn", "vocab"}
    for plan in (pick(legal_plans(16, name), i) for i in range(count(legal_plans(16, name)))):
        if heads % float(plan.tp) or any(
            float(s) % float(d)
            for s, d in (
                (made.ffn, plan.tp),
                (made.vocab, plan.tp),
                (made.shared_ffn, plan.tp),
                (made.expert_ffn, plan.moe_tp),
            )
        ):
            continue
        part = shard(whole, plan.sharding(whole, work, plan.active()))
        for before, after in zip(whole.blocks, part.blocks, strict=True):
            for op, cut in zip(before.ops, kernels(after.ops), strict=True):
                if is_expert_product(op):
                    ways = plan.ep * plan.moe_tp
                else:
                    held = (
                        op.parameters
                        if hasattr(op, "parameters")
                        else (*op.n, op.k, op.batch)
                        if op.kind == "matmul"
                        else ()
                    )
                    ways = plan.tp if any(e.axis in divided for e in held) else 1.0
                assert cut.weight_elements() * ways == pytest.approx(op.weight_elements(), rel=1e-9), (
                    op.name,
                    shown(plan),
                )


@given(points())
@settings(max_examples=60)
def test_devices_together_hold_every_weight(point):
    """No plan loses weights: what all devices hold is at least the model, unless ZeRO-3 keeps one copy over
    dp.
    """
    where, made, work, plan = point
    if work.phase == "train":
        return
    held = st.evaluate(where, made, work, replace(plan, zero=0.0)).summary.memory["weights"]
    whole = sum(b.count * op.weight_bytes() for b, op in made.trace(st.decode(1, 1)).ops())
    assert held * plan.devices >= whole * (1 - 1e-9)
