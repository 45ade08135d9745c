"""Published runs with the plans their papers state, priced as they were run: nothing here is fitted."""

from dataclasses import replace

import pytest

import strata as st
from strata.software.engine import engine

PEAK = 989.4e12  # dense bf16 of an H100 or H800, by which both papers count


def run(system, model, work, plan, facts=None, **trainer):
    """A plan under Megatron with what a paper says its software does otherwise: `facts` of memory, and the rest."""
    software = engine("megatron")
    trained = software.training
    trained = replace(trained, memory=replace(trained.memory, **(facts or {})), **trainer)
    return st.evaluate(system, model, work, plan, engine=replace(software, training=trained))


def step(*asked, **told):
    return run(*asked, **told).steps[-1]


# DeepSeek-V3 Technical Report, arXiv 2412.19437: table 1 (2,664K H800 hours for 14.8T tokens; 180K for a
# trillion, 3.7 days on 2,048), sec. 3.2 (PP16, EP64 over 8 nodes, ZeRO-1, DualPipe, kernels of their own that
# send a token once to a node), 3.2.3 (RMSNorm and MLA up-projections are recomputed), 3.3 (fp8 in blocks), 4.2
# (batch 15,360 of 4,096). Micro-batches of one sequence are ours.
DEEPSEEK = "pp=16,dp=128,ep=64,moe_tp=1,zero=1,microbatches=120,recompute=selective"
DEEPSEEK += ",recompute_modules=layernorm+mla_up_proj+moe_act"


# sec. 3.3.3: moments in bf16 beside fp32 weights and gradients, operands of products and inputs of SwiGLU cached in
# fp8, attention's result in E5M6 (12 bits); sec. 3.3.2: weights in fp8. Kernels of their own need no buffers of
# Transformer Engine.
KEPT = {"activation_input": 1.0, "attention_result": 1.5, "gradient_buffers": 0.0}
SAID = {"optimizer_bytes": 8.0, "gathered_parameters": "fp8", "facts": KEPT}


def deepseek_run(schedule, exchange="deepep"):
    plan = f"{DEEPSEEK},schedule={schedule}"
    return run("2048xh800", "deepseek-v3", st.train(15360, 4096), plan, expert_exchange=exchange, **SAID)


def deepseek(schedule, exchange="deepep"):
    return deepseek_run(schedule, exchange).steps[-1]


def hours_a_trillion(found):
    return float(found.time) / (15360 * 4096) * 1e12 * 2048 / 3600


def test_deepseek_v3_trains_a_trillion_tokens_in_about_180_thousand_hours():
    """Their prediction of another token at each place (one more layer and head, 3 %) and what stops a run are
    not in the step."""
    dual = deepseek("dualpipe")
    assert hours_a_trillion(dual) == pytest.approx(180e3, rel=0.15)


def test_deepseek_v3_fits_as_it_did():
    """73 of 86 GB; nothing of it is tensor parallel, which the report says its memory made possible."""
    found = deepseek_run("dualpipe")
    assert found.fits
    held = {name: float(size) / 1e9 for name, size in found.summary.memory.items()}
    layer = (14.3 + 4.2 + 24.6 + 0.5) + (14.3 + 90.1 + 6.1 + 1.5)  # kB of a token, by hand
    assert held["activations"] == pytest.approx(17 * 4 * 4096 * layer * 1e3 / 1e9, rel=0.01)
    two_stages = 2 * 4 * (256 / 64 * 44.04e6 + 44.04e6 + 187.1e6)  # experts, the shared one, attention
    assert held["gradients"] == pytest.approx(4.0 * two_stages / 1e9, rel=0.02)
    assert 65 < sum(held.values()) < 80


def test_dualpipe_hides_exchanges_of_experts_beside_the_other_direction():
    """The exchanges of 1F1B stand in line; DualPipe hides most of them, whoever carries them, and its bubble is
    smaller, too."""
    for exchange in ("deepep", "alltoall"):
        plain, dual = deepseek("1f1b", exchange), deepseek("dualpipe", exchange)
        hidden = 1.0 - float(dual.exposed["ep"]) / float(plain.exposed["ep"])
        assert hidden > {"deepep": 0.8, "alltoall": 0.4}[exchange]
        assert float(dual.exposed["bubble"]) < float(plain.exposed["bubble"])
        assert float(dual.time) < 0.8 * float(plain.time)


def test_parts_of_a_dualpipe_step_add_up():
    dual = deepseek("dualpipe")
    assert sum(map(float, dual.time_by_bound.values())) == pytest.approx(float(dual.time), rel=1e-9)


# Llama Team, The Llama 3 Herd of Models, arXiv 2407.21783, table 4: GPUs, plan, sequences, length, MFU. Sec. 3.3.2:
# FSDP shards optimiser state and gradients and keeps parameters whole after the forward pass (zero=2), gradients are
# summed in fp32; the pipeline is interleaved, its first chunk has the embedding alone and its last one the head: of
# 126 layers on 16 stages, chunks have one layer (8 a stage). No activations are recomputed. Queries, keys and values
# come of three products in Meta's model (meta-llama/llama3, model.py).
LLAMA = [
    (8192, "tp=8,pp=16,dp=64,microbatches=32", 2048, 8192, 0.43),
    (16384, "tp=8,pp=16,dp=128,microbatches=16", 2048, 8192, 0.41),
    (16384, "tp=8,cp=16,pp=16,dp=8,microbatches=16", 128, 131072, 0.38),
]
PLAIN = {"qkv_apart": 1.0, "gradient_buffers": 0.0}


@pytest.mark.parametrize(("gpus", "plan", "batch", "length", "published"), LLAMA)
def test_llama_405b_runs_and_fits_as_published(gpus, plan, batch, length, published):
    """MFU within 4 %, nothing fitted; memory is full: the smaller run needs all 80 GiB to half a percent, with 3 GB
    for context and library that we assume, those on twice as many GPUs leave 7 GB."""
    told = f"{plan},sp=1,zero=2,split_ends=1,virtual_stages=8"
    found = run(f"{gpus}xh100", "llama-3.1-405b", st.train(batch, length), told, facts=PLAIN)
    one = found.steps[-1]
    assert float(one.flop) / float(one.time) / gpus / PEAK == pytest.approx(published, rel=0.04)
    assert float(found.metrics.memory_used) < 1.005 * float(found.metrics.memory_limit)
    assert found.fits or gpus == 8192
