"""What is computed again: layers of chunks, modules of layers, and what a plan cannot have."""

import numpy as np
import pytest
from cases import roomy, uncapped

import strata as st
from strata.base.errors import UnknownName
from strata.mapping.plan import plan, plan_text
from strata.mapping.rules import (
    DUAL_PIECES,
    EVEN_STAGES,
    INTERLEAVED,
    ONE_CHUNK,
    RECOMPUTED,
    SHARDS,
    WHOLE_BATCH,
)
from strata.mapping.training_plan import TrainingPlan, recompute_parts, recompute_share
from strata.workload.graph import is_collective
from strata.workload.program import program

WORK = st.train(batch=64, length=4096)


def step_of(text, model="llama-3-70b", where="8x8xh200"):
    return st.evaluate(roomy(where), model, WORK, text).steps[0]


def again(step):
    return sum(float(b.block.times * b.again.time) for b in step.blocks)


def test_modules_are_typed_and_shown_as_words():
    made = plan("tp=8,recompute=selective,recompute_modules=mlp+core_attn")
    assert plan_text(made) == "tp=8,recompute=selective,recompute_modules=core_attn+mlp"
    with pytest.raises(UnknownName, match="nearest: core_attn"):
        plan("recompute_modules=core_atn")


def test_ops_are_found_by_what_they_are():
    def parts(model):
        ops = [op for b, op in program(model).trace(WORK).ops() if b.direction == "forward"]
        return {
            part: sum(part in recompute_parts(op) for op in ops) for op in ops for part in recompute_parts(op)
        }

    dense, mixture = parts("llama-3-8b"), parts("deepseek-v3")
    assert dense == {"core_attn": 1, "layernorm": 3, "mlp": 3}
    assert mixture["mla_up_proj"] == 4 and mixture["moe_act"] == 1 and mixture["shared_experts"] == 3
    assert mixture["moe"] > mixture["shared_experts"]


def test_selective_modules_add_up_and_full_is_all_layers():
    base = "tp=8,dp=8,sp=1"
    each = {
        name: again(step_of(f"{base},recompute=selective,recompute_modules={name}"))
        for name in ("core_attn", "layernorm", "mlp", "core_attn+layernorm+mlp")
    }
    joined = each.pop("core_attn+layernorm+mlp")
    assert joined == pytest.approx(sum(each.values()), rel=1e-9)
    assert again(step_of(f"{base},recompute=selective")) == pytest.approx(each["core_attn"], rel=1e-12)
    full = step_of(f"{base},recompute=full")
    layers = [b for b in full.blocks if b.block.direction == "forward" and b.again.time]
    assert {b.block.role for b in layers} == {"attention", "ffn"}
    assert again(full) == pytest.approx(sum(float(b.block.times * b.price.time) for b in layers))
    assert again(full) > joined


def test_collectives_are_repeated_with_their_module_only():
    """Megatron's full recomputation repeats a tensor group's sums, that of core attention none; that of an mlp
    those of its block.
    """
    step = step_of("tp=8,dp=8")
    for modules, role in ((0.0, ""), (32.0, "ffn")):
        made = TrainingPlan(recompute=1.0, recompute_modules=modules)
        for b in step.blocks:
            if b.block.direction == "forward":
                sent = [recompute_share(b.block, op, made) for op in b.block.ops if is_collective(op)]
                assert all(share == (b.block.role == role) for share in sent)
    whole = TrainingPlan(recompute=2.0)
    for b in step.blocks:
        if b.block.role in ("attention", "ffn") and b.block.direction == "forward":
            assert all(recompute_share(b.block, op, whole) == 1.0 for op in b.block.ops)


@pytest.mark.parametrize("layout", ["tp=8,pp=4,dp=2,microbatches=32", "tp=8,dp=8"])
def test_some_layers_lie_between_none_and_all(layout):
    """Layers of a stage are recomputed one by one: the step grows evenly until all are."""
    stages = 4 if "pp" in layout else 1
    held = 80 // stages
    counts = np.array([1, held // 2, held, 2 * held])
    where = uncapped(roomy("8x8xh200"))  # at a power limit the clock moves with the work
    box = st.evaluate(
        where, "llama-3-70b", WORK, st.plan(layout, recompute=2.0, recompute_layers=counts)
    ).metrics.step_time
    none, full = (
        float(st.evaluate(where, "llama-3-70b", WORK, f"{layout},recompute={r}").metrics.step_time)
        for r in ("none", "full")
    )
    assert none < box[0] < box[1] < box[2] == pytest.approx(full, rel=1e-9)
    assert box[3] == box[2]
    assert (box[1] - none) / (full - none) == pytest.approx(0.5, abs=1e-9)


def test_layers_count_for_each_chunk():
    one, two = (
        step_of(f"tp=8,pp=4,dp=2,microbatches=32,virtual_stages={v},recompute=full,recompute_layers={n}")
        for v, n in ((1, 10), (2, 5))
    )
    assert one.price.memory_bytes == pytest.approx(two.price.memory_bytes, rel=1e-9)
    assert one.price.flop == pytest.approx(two.price.flop, rel=1e-9)


ILLEGAL = [
    ("tp=8,pp=4,dp=2,microbatches=5", WHOLE_BATCH, "dp x microbatches=8 or 16"),
    ("tp=8,pp=4,dp=2,microbatches=6,virtual_stages=2", INTERLEAVED, "microbatches=4 or 8"),
    ("tp=8,pp=8,virtual_stages=2,schedule=gpipe", ONE_CHUNK, "schedule=1f1b"),
    ("tp=8,pp=4,dp=2,microbatches=4,schedule=dualpipe", DUAL_PIECES, "microbatches=8"),
    ("tp=8,pp=8,recompute=selective,recompute_layers=3", RECOMPUTED, "recompute=full for recompute_layers"),
    ("tp=8,pp=8,recompute=full,recompute_modules=mlp", RECOMPUTED, "recompute=selective"),
    ("tp=2,dp=32,zero=3,dp_shard=12", SHARDS, "dp_shard=8 or 16"),
]


@pytest.mark.parametrize(("text", "rule", "said"), ILLEGAL, ids=lambda v: v if isinstance(v, str) else "")
def test_what_a_training_plan_cannot_have_is_said_with_what_it_can(text, rule, said):
    found = st.evaluate(roomy("8x8xh200"), "llama-3-70b", WORK, text)
    assert found.reason & rule.bit
    (line,) = [str(i) for i in found.infeasible if i.what == rule.relation]
    assert said in line


def test_an_odd_dualpipe_is_said():
    found = st.evaluate(roomy("8xh200"), "llama-3-8b", st.train(12.0, 128.0), "pp=3,schedule=dualpipe")
    assert found.reason & EVEN_STAGES.bit and "pp=2 or 4" in "; ".join(map(str, found.infeasible))


def test_rules_of_training_are_those_of_training_only():
    assert not st.evaluate(roomy("8xh200"), "llama-3-8b", st.prefill(7.0, 64.0), "dp=4,tp=2").reason
