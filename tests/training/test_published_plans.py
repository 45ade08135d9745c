"""Published runs with the plans their papers state, priced as they were run: nothing here is fitted."""

from dataclasses import replace

import pytest

import strata as st
from strata.mapping.engine import engine

PEAK = 989.4e12  # dense bf16 of an H100 or H800, by which both papers count


def step(system, model, work, plan, **trainer):
    """A step whether its memory fits or not: papers name no allocator, and some keep less than Megatron."""
    software = engine("megatron")
    software = replace(software, training=replace(software.training, **trainer))
    return st.evaluate(system, model, work, plan, engine=software).steps[-1]


# DeepSeek-V3 Technical Report, arXiv 2412.19437: table 1 (2,664K H800 hours for 14.8T tokens; 180K for a
# trillion, 3.7 days on 2,048), sec. 3.2 (PP16, EP64 over 8 nodes, ZeRO-1, DualPipe, kernels of their own that
# send a token once to a node), 3.2.3 (RMSNorm and MLA up-projections are recomputed), 3.3 (fp8 in blocks), 4.2
# (batch 15,360 of 4,096). Micro-batches of one sequence are ours.
DEEPSEEK = "pp=16,dp=128,ep=64,moe_tp=1,zero=1,microbatches=120,recompute=selective"
DEEPSEEK += ",recompute_modules=layernorm+mla_up_proj+moe_act"


def deepseek(schedule, exchange="deepep"):
    plan = f"{DEEPSEEK},schedule={schedule}"
    work = st.train(15360, 4096)
    return step("2048xh800", "deepseek-v3", work, plan, expert_exchange=exchange)


def hours_a_trillion(found):
    return float(found.time) / (15360 * 4096) * 1e12 * 2048 / 3600


def test_deepseek_v3_trains_a_trillion_tokens_in_about_180_thousand_hours():
    """Their prediction of another token at each place (one more layer and head, 3 %) and what stops a run are
    not in the step."""
    dual = deepseek("dualpipe")
    assert hours_a_trillion(dual) == pytest.approx(180e3, rel=0.15)


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


# Llama Team, The Llama 3 Herd of Models, arXiv 2407.21783, table 4: GPUs, plan, sequences, length, MFU. The
# pipeline is interleaved, by how much is not said; the first and last stage have a layer less (sec. 3.3.2).
LLAMA = [
    (8192, "tp=8,pp=16,dp=64,microbatches=32", 2048, 8192, 0.43),
    (16384, "tp=8,pp=16,dp=128,microbatches=16", 2048, 8192, 0.41),
    (16384, "tp=8,cp=16,pp=16,dp=8,microbatches=16", 128, 131072, 0.38),
]


@pytest.mark.parametrize(("gpus", "plan", "batch", "length", "published"), LLAMA)
def test_llama_405b_is_between_two_and_four_chunks_a_stage(gpus, plan, batch, length, published):
    found = {}
    for chunks in (2, 4):
        told = f"{plan},sp=1,zero=1,split_ends=1,virtual_stages={chunks}"
        one = step(f"{gpus}xh100", "llama-3.1-405b", st.train(batch, length), told)
        found[chunks] = float(one.flop) / float(one.time) / gpus / PEAK
    assert 0.9 * found[2] < published < found[4]
    assert sum(found.values()) / 2 == pytest.approx(published, rel=0.1)
