"""Fine-tuning: what is frozen has no gradients of weights, and adapters stand beside it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.base.errors import StrataError
from strata.mapping.shard import shard
from strata.pricing.footprint import footprint_of
from strata.workload.graph import is_collective
from strata.workload.graph_walks import check_graph
from strata.workload.tasks import train

MLPERF = {"rank": 16.0, "modules": ("attention",)}


def traced(name="llama-2-70b", **what):
    return check_graph(st.model(name).trace(train(1.0, 512.0, **what)))


def trained(graph):
    forward = ((b, op) for b, op in graph.ops() if b.direction == "forward")
    return sum(b.count * op.trained_elements() for b, op in forward)


def test_the_weights_of_mlperfs_adapters():
    """Rank 16 on the fused q, k, v (8192 x 10240) and the output projection (8192 x 8192) of 80 layers."""
    assert 16 * (8192 + 10240 + 8192 + 8192) * 80 == 44_564_480
    assert trained(traced(adapters=st.Lora(**MLPERF))) == 44_564_480


def test_a_step_of_adapters_has_the_products_of_hand():
    """Forward and data gradients of the base, and six products of rank 16 beside each adapted one."""
    m, tokens = st.model("llama-2-70b"), 512.0
    whole, tuned = traced(), traced(adapters=st.Lora(**MLPERF))
    weights = sum(op.flop() * b.count for b, op in whole.ops() if op.weight_gradient)
    qkv = m.hidden + (m.heads + 2 * m.kv_heads) * m.head_dim
    beside = 3 * 2 * tokens * 16 * (qkv + 2 * m.hidden) * m.layers
    assert tuned.flop() == pytest.approx(whole.flop() - weights + beside, rel=1e-12)
    assert {op.role for _, op in tuned.ops() if op.weight_gradient} == {"adapter"}
    assert "embedding.backward" not in {b.name for b in tuned.blocks}
    assert tuned.parameters() == whole.parameters() + trained(tuned)


@given(
    rank=some.integers(1, 512),
    name=some.sampled_from(("llama-3-8b", "gpt3-175b", "deepseek-v3", "qwen3-30b")),
)
@settings(deadline=None, max_examples=15)
def test_adapters_train_less_than_all(rank, name):
    whole, tuned = traced(name), traced(name, adapters=st.Lora(rank=rank, modules=("attention",)))
    assert tuned.flop() < whole.flop() or rank > 100
    assert trained(whole) == whole.parameters() and trained(tuned) > 0
    assert trained(tuned) == pytest.approx(tuned.parameters() - whole.parameters(), rel=1e-6)


def test_ranks_may_be_an_array():
    work = [train(8.0, 2048.0, adapters=st.Lora(rank=r)) for r in (np.array([4.0, 16.0, 64.0]), 16.0)]
    case = ("8xh100", "llama-3-8b")
    many, one = (st.evaluate(*case, w, "tp=2,dp=4", engine="megatron") for w in work)
    assert many.metrics.step_time[1] == pytest.approx(one.metrics.step_time, rel=1e-12)
    assert np.all(np.diff(many.metrics.step_time) > 0)


def test_modules_alone_are_frozen():
    """Only the head is trained: nothing runs backward below it, and nothing there is kept."""
    whole, tuned = traced(), traced(frozen=("embedding", "attention", "ffn"))
    assert [b.name for b in tuned.blocks if b.direction == "backward"] == ["head.backward"]
    assert [b.name for b in tuned.blocks if not b.keeps] == ["embedding", "attention.full", "ffn.dense"]
    head = 32000 * 8192 + 8192
    assert trained(tuned) == head
    forward = sum(op.flop() * b.count for b, op in whole.ops() if b.direction == "forward")
    last = sum(op.flop() for b, op in whole.ops() if b.name == "head.backward")
    assert tuned.flop() == pytest.approx(forward + last)


def test_gradients_pass_what_is_frozen_on_the_way_down():
    tuned = traced(frozen=("ffn", "head"))
    names = {op.name for _, op in tuned.ops()}
    assert {"down_dgrad", "head_dgrad", "qkv_wgrad"} <= names and not {"down_wgrad", "head_wgrad"} & names


def laid(plan_text, **what):
    plan = st.plan(plan_text)
    work = train(8.0, 2048.0, adapters=st.Lora(rank=16.0, modules=("attention",), **what))
    graph = st.model("llama-2-70b").trace(work)
    return shard(graph, plan.sharding(graph, work, plan.active()))


def test_tensor_ranks_divide_adapters_as_their_base():
    """NeMo's ParallelLinearAdapter: beside q, k, v the rank is divided, gathered between both products;
    beside the output, sums of rank 16 and divided columns, which are gathered.
    """
    (block,) = (b for b in laid("tp=4,dp=2").blocks if b.name == "attention.full")
    sizes = {op.name: op.weight_elements() for op in block.ops if op.role == "adapter"}
    assert sizes["qkv_adapter_in"] == 8192 * 4 and sizes["qkv_adapter_out"] == 16 * 10240 / 4
    assert sizes["o_adapter_in"] == 8192 / 4 * 16 and sizes["o_adapter_out"] == 16 * 8192 / 4
    moved = {op.name: float(op.payload) for op in block.ops if is_collective(op)}
    rows = 2048 * 2  # bytes of one column
    assert moved["qkv_adapter_out_gather"] == rows * 16 and moved["o_adapter_in_sum"] == rows * 16
    assert moved["o_sum"] == moved["o_adapter_sum_gather"] == rows * 8192
    (split,) = (b for b in laid("tp=4,dp=2,sp=1").blocks if b.name == "attention.full")
    moved = {op.name: float(op.payload) for op in split.ops if is_collective(op)}
    assert moved["o_scatter"] == rows * 8192 and moved["o_adapter_sum_exchange"] == rows * 8192 / 4


def test_gradients_of_base_and_adapter_meet_before_ranks_add_them_up():
    for dropout in (False, True):
        blocks = laid("tp=4,dp=2", dropout=dropout).blocks
        (block,) = (b for b in blocks if b.name == "attention.full.backward")
        wide = [op.name for op in block.ops if is_collective(op) and op.payload > 1e7]
        assert len(wide) == 1 and wide[0].endswith("_dgrad_sum")


def held_by(model, plan_text):
    plan, work = st.plan(plan_text), train(8.0, 512.0, adapters=st.Lora(**MLPERF))
    graph = model.trace(work)
    sharding = plan.sharding(graph, work, plan.active())
    blocks = [(b.count, footprint_of(b, sharding, True)) for b in shard(graph, sharding).blocks]
    return {
        what: sum(n * getattr(h, what) for n, h in blocks) for what in ("trained", "parameters", "weights")
    }


def test_only_what_is_trained_has_gradients_and_a_state():
    """70 billion parameters on eight devices of 80 GB: with gradients and state they do not fit, frozen they
    do.
    """
    whole, tuned = (
        st.evaluate("8xh100", "llama-2-70b", train(8.0, 512.0, adapters=a), "tp=8", engine="megatron")
        for a in (None, st.Lora(**MLPERF))
    )
    assert not whole.fits and tuned.fits
    held = held_by(st.model("llama-2-70b"), "dp=8,zero=3")
    assert held["trained"] == pytest.approx(44_564_480) and held["parameters"] > 68e9


def test_frozen_weights_may_be_narrow():
    wide = st.model("llama-2-70b")
    narrow = replace(wide, weights="int4", weight_only=True)
    assert held_by(narrow, "dp=8")["weights"] < 0.3 * held_by(wide, "dp=8")["weights"]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"adapters": st.Lora(rank=8.0, modules=("attn",))}, "modules of adapters must be of attention, ffn"),
        ({"frozen": ("tower",)}, "frozen must be modules of embedding, attention, ffn, head"),
        ({"frozen": ("embedding", "attention", "ffn", "head")}, "nothing is left to train"),
        ({"frozen": ("ffn",), "adapters": st.Lora(rank=8.0)}, "adapters freeze all of the base"),
    ],
)
def test_what_cannot_be_frozen_is_said_in_one_line(what, said):
    with pytest.raises(StrataError, match=said):
        traced(**what)


def test_a_rank_is_positive():
    with pytest.raises(StrataError, match="rank of adapters must be positive"):
        st.Lora(rank=0.0)
    with pytest.raises(StrataError, match="tuple of modules"):
        train(1.0, 1.0, frozen="ffn")


def test_routers_and_routed_experts_have_no_adapters():
    tuned = traced("deepseek-v3", adapters=st.Lora(rank=8.0))
    beside = {op.name for _, op in tuned.ops() if op.role == "adapter"}
    assert "shared_up_adapter_in" in beside and not any(name.startswith("router") for name in beside)
    assert not any(op.weight_gradient for _, op in tuned.ops() if op.category == "experts")


def test_a_narrow_frozen_base_is_held_once():
    """One copy in fp8 of 69 billion weights: no wider ones for an optimiser, none along the other axis."""
    narrow = replace(st.model("llama-2-70b"), weights="fp8")
    work = train(8.0, 512.0, adapters=st.Lora(**MLPERF))
    r = st.evaluate("8xb200", narrow, work, "dp=8,zero=1", engine="megatron")
    assert r.fits and float(r.steps[0].memory["parameters"]) == pytest.approx(69.8e9, rel=0.02)


def moved(graph):
    """Bytes of vector ops of adapters."""
    own = ((b, op) for b, op in graph.ops() if op.role == "adapter" and op.category == "vector")
    return sum(
        float(b.count * (op.reads + op.writes) * op.m.size * sum(n.size for n in op.n)) for b, op in own
    )


def test_fused_adapters_move_less_and_train_the_same():
    """Of each sum, three elements read and two written, one is left, and of its gradient none; of dropout's
    gradient, two reads less of seven and a half.
    """
    plain, fused = (traced(adapters=st.Lora(**MLPERF, dropout=True, fused=f)) for f in (False, True))
    assert fused.flop() == plain.flop() and trained(fused) == trained(plain)
    outs, ins = 10240 + 8192, 2 * 8192
    assert moved(plain) - moved(fused) == pytest.approx(80 * 512 * (outs * (4 + 2) + ins * 2))
    assert st.evaluate("8xb200", "llama-2-70b", train(8.0, 2048.0, adapters=st.Lora(**MLPERF, fused=True)),
                       "dp=8").metrics.step_time < st.evaluate(
        "8xb200", "llama-2-70b", train(8.0, 2048.0, adapters=st.Lora(**MLPERF)), "dp=8"
    ).metrics.step_time  # fmt: skip
