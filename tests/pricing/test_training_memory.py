"""Memory of a training step: what is kept for backward, op by op, by schedule and stage, and what else."""

from dataclasses import replace

import numpy as np
import pytest
from cases import model, points, roomy
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.one_step import stage_memory
from strata.pricing.footprint import footprint_of
from strata.pricing.training_memory import OUTSIDE, STATE, in_flight, kept_activations
from strata.software.engine import engine, trainer_of
from strata.workload.lora import Lora

GIB = 2.0**30


def memory(where, name, work, plan, software="megatron"):
    return st.evaluate(where, name, work, plan, software).summary.memory


# h200/train_step.csv: kept bytes of one layer and token, in elements of bf16 (PyTorch 2.11, a rank's share of
# a decoder without sequence parallelism): hidden, q heads, kv heads, head, ffn, compiled, eager
KEPT = [
    (4096, 32, 8, 128, 14336, 78916.0625, 93252.0625),  # llama-3-8b
    (2048, 32, 8, 64, 8192, 42564.0625, 50756.0625),  # smol-1.3b
    (1536, 12, 2, 128, 8960, 39964.0625, 48924.0625),  # qwen2.5-1.5b
    (8192, 8, 1, 128, 3584, 48020.0625, 51616.0625),  # llama-3-70b, an eighth
]


@pytest.mark.parametrize(("hidden", "heads", "kv_heads", "head", "ffn", "compiled", "eager"), KEPT)
def test_kept_tensors_are_those_measured(hidden, heads, kv_heads, head, ffn, compiled, eager):
    """Within 0.1 %: 4 h for norms, queries, keys and values as they were made and turned, attention's result
    in both of torch's layouts, gate, up and their product; eager keeps the activated gate too.
    """
    sizes = {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head,
        "v_head_dim": head,
        "ffn": ffn,
    }
    made = st.model("llama-2-7b", layers=4.0, vocab=128.0, **{k: float(v) for k, v in sizes.items()})
    work = st.train(1.0, 4096.0)
    graph, plan = made.trace(work), st.plan("tp=1")
    sharding = plan.sharding(graph, work, plan.active())
    facts = replace(trainer_of(engine("megatron")).memory, attention_copy=1.0)
    for unfused, measured in ((0.0, compiled), (1.0, eager)):
        own = replace(facts, unfused_gates=unfused)
        kept = sum(
            kept_activations(footprint_of(b, sharding, True), 0.0, own, unfused=False)
            for b in graph.blocks
            if b.direction == "forward" and graph.sequence.in_layers(b.name)
        )
        assert kept / 4096.0 / 2.0 == pytest.approx(measured, rel=1e-3)


# training/b200_megatron.csv: peak allocated GiB of some layers of Llama 3 on one node
PEAKS = [
    ("llama-3-70b", 12, "tp=1,pp=2,dp=4", 4096, 66.55),
    ("llama-3-70b", 12, "tp=8", 4096, 28.29),
    ("llama-3.1-405b", 4, "tp=2,dp=4", 4096, 81.59),
    ("llama-3.1-405b", 4, "tp=2,cp=4", 131072, 118.13),
]


@pytest.mark.parametrize(("name", "layers", "plan", "length", "gib"), PEAKS)
def test_peaks_of_megatron_runs(name, layers, plan, length, gib):
    made = model(name)
    made = replace(made, pattern=replace(made.pattern, layers=float(layers)))
    work = st.train(4.0 * st.plan(plan).dp, float(length))
    parts = memory(roomy("8xb200"), made, work, plan + ",sp=1,zero=1,microbatches=4")
    assert sum(v for k, v in parts.items() if k not in OUTSIDE) / GIB == pytest.approx(gib, rel=0.03)


def test_a_recomputed_layer_keeps_its_entry():
    work, stream = st.train(1.0, 512.0), 512 * 4096 * 2.0
    whole = memory("1xh200", "llama-3-8b", work, "recompute=full")
    assert whole["activations"] == pytest.approx(32 * stream + 2 * stream, rel=1e-3)  # and the head's norm
    some = memory("1xh200", "llama-3-8b", work, "recompute=full,recompute_layers=8")
    none = memory("1xh200", "llama-3-8b", work, "tp=1")
    between = 0.25 * whole["activations"] + 0.75 * none["activations"]
    assert some["activations"] == pytest.approx(between, rel=1e-9)


def test_schedules_keep_as_many_micro_batches_as_their_papers_say():
    every = np.arange(4.0)
    assert in_flight(4.0, every, 16.0).tolist() == [4.0, 3.0, 2.0, 1.0]
    assert in_flight(4.0, every, 2.0).tolist() == [2.0, 2.0, 2.0, 1.0]
    assert in_flight(8.0, 0.0, 64.0, 4.0) == pytest.approx(8 * (1 + 7 / (8 * 4)))  # arXiv 2205.05198, sec. 4
    work = st.train(16.0, 1024.0)
    kept = [
        memory(roomy("4xh200"), "llama-3-8b", work, f"pp=4,microbatches=16,schedule={how}")["activations"]
        for how in ("1f1b", "gpipe", "zero-bubble", "dualpipe")
    ]
    # their last stages keep the head beside as many micro-batches as the first
    assert kept[1] == pytest.approx(4 * kept[0], rel=0.02) and kept[2] == pytest.approx(kept[0], rel=0.06)
    assert kept[3] == pytest.approx(1.25 * kept[0], rel=0.06)


def test_stages_of_a_pipeline():
    """Earlier stages keep more micro-batches, the first the embedding, the last the logits; the fullest is
    what a step needs.
    """
    r = st.evaluate(
        roomy("8xh200"), "llama-3-70b", st.train(32.0, 2048.0), "tp=2,pp=4,microbatches=32,sp=1", "megatron"
    )
    parts = stage_memory(r)
    assert np.all(np.diff(parts["activations"][:3]) < 0) and parts["logits"][:3].sum() == 0.0
    assert parts["logits"][3] > 0.0
    needed = sum(parts.values())
    assert needed.max() == pytest.approx(r.metrics.memory_used, rel=1e-9)
    fullest = int(np.argmax(needed))
    assert {k: v[fullest] for k, v in parts.items()} == pytest.approx(r.summary.memory)


def test_attention_that_is_not_one_kernel_keeps_scores_unless_recomputed():
    """arXiv 2205.05198, equation 1: 5 a s / h of 34 + 5 a s / h, in units of sbh B."""
    usual = engine("megatron")
    apart = replace(usual, training=replace(usual.training, attention="unfused"))
    work = st.train(1.0, 2048.0)
    plain, scores = (memory("1xh200", "llama-3-8b", work, "tp=1", e)["activations"] for e in (usual, apart))
    heads, layers = 32, 32
    statistics = layers * heads * 2048 * 4.0
    assert scores - plain + statistics == pytest.approx(5.0 * heads * 2048.0**2 * layers)
    selective = memory("1xh200", "llama-3-8b", work, "recompute=selective", apart)["activations"]
    assert selective == pytest.approx(plain - statistics)


def test_modules_that_are_recomputed_are_not_kept():
    """A recomputed mlp keeps what it takes in, a recomputed norm gives up its result: of 4h + 3q + 3k + 3f."""
    work, token = st.train(1.0, 2048.0), 2048 * 2.0 * 32

    def kept(modules):
        asked = f"recompute=selective,recompute_modules={modules}"
        return memory("1xh200", "llama-3-8b", work, asked)["activations"]

    every = memory("1xh200", "llama-3-8b", work, "tp=1")["activations"]
    assert every - kept("mlp") == pytest.approx(3 * 14336 * token)
    assert every - kept("layernorm") == pytest.approx(2 * 4096 * token + 4096 * 2048 * 2.0, rel=0.02)
    assert every - kept("core_attn") == pytest.approx(32 * 2048 * 4.0 * 32)


def kept_of_layers(name, plan, **facts):
    """Bytes that a layer of each kind keeps of a token, by block."""
    work = st.train(1.0, 4096.0)
    graph = st.model(name).trace(work)
    asked = st.plan(plan)
    sharding = asked.sharding(graph, work, asked.active())
    own = replace(trainer_of(engine("megatron")).memory, **facts)
    level = asked.recompute
    return {
        b.name: kept_activations(footprint_of(b, sharding, True), level, own, unfused=False) / 4096.0
        for b in graph.blocks
        if b.direction == "forward" and graph.sequence.in_layers(b.name)
    }


def test_a_mixture_keeps_the_rows_that_were_sent():
    """Of a token and 2 of 8 experts, in bf16: two streams (what the norm took in and gave), a score and a
    weight for each expert, a statistic of the norm; rows sent, gate and up, and their product; results of
    experts only where routing weights multiply them.
    """
    h, f, k = 4096, 14336, 2
    rows = 2.0 * k * (h + 3 * f)
    apart, fused = (
        kept_of_layers("mixtral-8x7b", "tp=1", expert_results=share)["ffn.moe"] for share in (1.0, 0.0)
    )
    assert fused == pytest.approx(2.0 * 2 * h + rows + 8 * 6.0 + 4.0)
    assert apart - fused == pytest.approx(2.0 * k * h)


def test_a_layer_of_deepseek_v3_as_its_report_keeps_it():
    """A token's bytes by hand: attention and mixture each keep the stream; latents of queries, keys and values;
    attention's result in 12 bits; rows sent to 8 experts in fp8, what SwiGLU reads in fp8; the shared expert's.
    arXiv 2412.19437, sec. 3.2.3 (RMSNorm and up-projections recomputed) and 3.3.3 (E5M6, fp8, SwiGLU).
    """
    plan = "recompute=selective,recompute_modules=layernorm+mla_up_proj+moe_act"
    kept = kept_of_layers("deepseek-v3", plan, activation_input=1.0, attention_result=1.5)
    stream, statistic = 2.0 * 7168, 4.0
    latents, attended = 2.0 * (1536 + 512 + 64), 1.5 * 128 * 128
    by_hand = stream + latents + attended + 128 * statistic
    assert kept["attention.full"] == pytest.approx(by_hand, rel=0.001)
    rows, shared = 8 * (7168 + 2 * 2048), 3 * 2048
    by_hand = stream + rows + shared + 256 * (2.0 + 4.0)
    assert kept["ffn.moe"] == pytest.approx(by_hand, rel=0.001)
    usual = kept_of_layers("deepseek-v3", "tp=1")
    assert sum(usual.values()) > 2 * sum(kept.values())


def test_queries_keys_and_values_of_three_products_keep_no_buffer():
    """4h + 2q + 2k + 3f, without what a rotation read."""
    together, apart = (kept_of_layers("llama-3-8b", "tp=1", qkv_apart=share) for share in (0.0, 1.0))
    saved = sum(together.values()) - sum(apart.values())
    assert saved == pytest.approx(2.0 * (4096 + 1024))


def test_offload_hsdp_and_formats():
    work = st.train(8.0, 2048.0)
    base = "dp=8,zero=1"
    plain = memory(roomy("8xh200"), "llama-3-8b", work, base)
    away = memory(roomy("8xh200"), "llama-3-8b", work, base + ",offload=optimizer")
    assert away["optimizer"] == 0.0 and away["gradients"] == plain["gradients"]
    moved = memory(roomy("8xh200"), "llama-3-8b", work, base + ",offload=both")
    assert moved["activations"] < 0.15 * plain["activations"]
    groups = memory(roomy("8xh200"), "llama-3-8b", work, base + ",dp_shard=2")
    assert groups["optimizer"] == pytest.approx(4 * plain["optimizer"])
    usual = engine("megatron")
    narrow = replace(usual, training=replace(usual.training, reduced_gradients="bf16"))
    assert memory(roomy("8xh200"), "llama-3-8b", work, base, narrow)["gradients"] == plain["gradients"] / 2


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b"])
def test_narrow_weights_have_copies_along_both_axes(name):
    """fp8 products: two copies of a byte beside bf16, or two alone where fp8 weights are sent to all ranks;
    inputs of products are kept in fp8.
    """
    work, where = st.train(8.0, 1024.0), roomy("8xh200")
    wide, narrow = (st.model(name, weights=f, expert_weights=f) for f in ("bf16", "fp8"))
    usual = engine("megatron")
    sends = replace(usual, training=replace(usual.training, gathered_parameters="fp8"))
    held = [
        memory(where, made, work, "dp=8", e) for made, e in ((wide, usual), (narrow, usual), (narrow, sends))
    ]
    plain, both, alone = (parts["parameters"] for parts in held)
    assert both == pytest.approx(2 * plain, rel=0.1) and plain * 0.95 < alone <= plain
    assert held[1]["activations"] < 0.9 * held[0]["activations"]


@given(points(phases=("train",), sizes=(8, 16)), hy.sampled_from(("megatron", "nanotron", "ideal")))
@settings(max_examples=20)
def test_purposes_add_up_and_none_is_negative(point, software):
    where, made, work, plan = point
    r = st.evaluate(where, made, work, plan, software)
    assert all(v >= 0 for v in r.summary.memory.values())
    assert sum(r.summary.memory.values()) == pytest.approx(r.metrics.memory_used)
    assert sum(r.summary.memory[part] for part in STATE) > 0
    stages = stage_memory(r)
    assert sum(stages.values()).max() == pytest.approx(r.metrics.memory_used, rel=1e-9)


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("software", ["megatron", "nanotron"])
def test_a_box_of_plans_equals_single_plans(name, software):
    every = [
        "dp=8,zero=0",
        "tp=2,dp=4,sp=1,zero=1",
        "pp=4,tp=2,sp=1,microbatches=16,virtual_stages=2",
        "pp=2,dp=4,recompute=full,recompute_layers=3,microbatches=4",
        "pp=4,dp=2,microbatches=8,schedule=gpipe",
        "dp=8,zero=3,offload=both",
        "dp=8,zero=1,dp_shard=4",
        "pp=4,dp=2,microbatches=8,schedule=dualpipe",
    ]
    made = [st.plan(text) for text in every]
    box = type(made[0])(**{k: np.array([float(getattr(p, k)) for p in made]) for k in vars(made[0])})
    work = st.train(64.0, 2048.0)
    found = st.evaluate("8xh200", name, work, box, software)
    for i, plan in enumerate(made):
        one = memory("8xh200", name, work, plan, software)
        together = {k: np.broadcast_to(v, found.shape)[i] for k, v in found.summary.memory.items()}
        assert together == pytest.approx(one, rel=1e-9), every[i]


def test_what_does_not_fit_says_by_how_much_and_what_helps():
    """Each lever that is said to suffice does, with that margin."""
    work = st.train(64.0, 4096.0)
    r = st.evaluate("8xh100", "llama-3-8b", work, "dp=8,microbatches=4", "megatron")
    (why,) = r.infeasible
    assert why.levers[0] == "(most of it is optimizer: 96.4 GB)"
    enough = [words.split(":")[0] for words in why.levers[1:] if "to spare" in words]
    assert enough
    for words in enough:
        other = st.evaluate("8xh100", "llama-3-8b", work, f"dp=8,microbatches=4,{words}", "megatron")
        assert other.fits and f"{words}: " in " ".join(why.levers)
    still = [words for words in why.levers if "too much still" in words]
    assert still and why.levers.index(still[0]) > len(enough)


def test_levers_that_a_system_states_nothing_of_are_left_out():
    """A fabric without a host's link has nothing to offload over; what does not fit is still answered."""
    where = st.system("8xh100")
    bare = replace(where, fabric=replace(where.fabric, host=replace(where.fabric.host, link=None)))
    asked = ("llama-3-8b", st.train(64.0, 4096.0), "dp=8,microbatches=4", "megatron")
    (usual,), (why,) = (st.evaluate(s, *asked).infeasible for s in (where, bare))
    assert any("offload" in words for words in usual.levers)
    assert why.levers[1:] and not any("offload" in words for words in why.levers)


def test_frozen_narrow_weights_have_no_copies():
    """A frozen base in fp8 is stored once: no optimiser updates a wider copy of it."""
    work = st.train(8.0, 1024.0)
    graph = st.model("llama-3-8b", weights="fp8").trace(work)
    plan = st.plan("dp=8")
    sharding = plan.sharding(graph, work, plan.active())
    block = next(b for b in graph.blocks if b.name == "ffn.dense")
    frozen = replace(block, ops=tuple(replace(op, frozen=True) for op in block.ops))
    trained, base = (footprint_of(b, sharding, True) for b in (block, frozen))
    assert trained.narrow > 0.0 and base.narrow == 0.0 and base.trained == 0.0
    assert base.weights == trained.weights


def test_adapters_beside_fp8_fit_a_b200_as_they_did():
    """Llama 2 70B with adapters at tp=1, 8192 tokens, in fp8 on B200s of 180 GiB: submitted to MLPerf v5.0."""
    made = replace(st.model("llama-2-70b", weights="fp8"), attention_products="fp8")
    work = st.train(8.0, 8192.0, adapters=Lora(rank=16.0, modules=("attention",), dropout=True))
    wide = engine("megatron")
    held = replace(trainer_of(wide).memory, activation_input=1.0)
    rounded = replace(wide, training=replace(trainer_of(wide), memory=held))
    plain, less = (memory("8xb200", made, work, "dp=8,zero=1", e) for e in (wide, rounded))
    tokens, layers = 8192.0, 80.0
    saved = float(plain["activations"] - less["activations"])
    assert saved == pytest.approx(tokens * layers * 2 * 28672, rel=1e-9)
    # of a token and layer: two norms' inputs and two adapters' with masks; q, k, v and the result in one byte
    own = 2 * 2 * 8192 + 2 * 3 * 8192 + (8192 + 2 * 1024) + 8192 + 2 * 28672
    assert float(less["activations"]) == pytest.approx(tokens * layers * own, rel=0.02)
    assert float(sum(less.values())) < 180 * GIB < float(sum(plain.values())) + 10 * GIB


@pytest.mark.parametrize("stages", [4, 8, 16, 32])
@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2-lite"])
def test_the_fullest_stage_is_seen_behind_layers_of_another_kind(name, stages):
    """Dense layers stand before those of experts: the fullest is the first stage that has none of them."""
    if stages > float(st.model(name).layers):
        pytest.skip("more stages than layers")
    plan = f"pp={stages},dp=8,ep=8,moe_tp=1,zero=1,microbatches=64"
    r = st.evaluate(f"{8 * stages}xb200", name, st.train(512, 4096), plan, "megatron")
    by_stage = sum(np.asarray(each, float) for each in stage_memory(r).values())
    assert float(r.metrics.memory_used) == pytest.approx(by_stage.max(), rel=0.01)
