"""What an engine adds around its kernels: host time, captured graphs, prefetching, padding, pages."""

from dataclasses import replace

import numpy as np
import pytest

import strata as st
from strata.mapping.engine import engine


def step_of(by, batch=64.0, plan="tp=8", model="llama-3-8b", system="8xh200"):
    return st.evaluate(system, model, st.decode(batch=batch, context=2048), plan, by).metrics.step_time


def test_host_time_is_what_the_engine_says():
    bare = engine("vllm@0.13", step=0.0, sequence=0.0, stream=0.0)
    for changes, expected in (
        ({"step": 1e-3}, 1e-3),
        ({"sequence": 1e-5}, 64e-5),
        ({"stream": 2e-5}, 128e-5),
    ):
        assert step_of(replace(bare, **changes)) - step_of(bare) == pytest.approx(expected, rel=1e-6)
    # Each attention rank schedules its own sequences.
    apart = [step_of(replace(bare, sequence=s), plan="dp=8") for s in (0.0, 1e-5)]
    assert apart[1] - apart[0] == pytest.approx(8e-5, rel=1e-6)


def test_only_sparse_attention_breaks_captured_graphs():
    for model, layers in (("deepseek-v3", 0), ("deepseek-v3.2", 61)):
        quick, slow = (
            step_of(engine("vllm", graph_break_time=u), plan="tp=8,ep=8", model=model) for u in (0.0, 1e-4)
        )
        assert slow - quick == pytest.approx(layers * 1e-4, rel=1e-6, abs=1e-12)
    eager = [
        step_of(engine("vllm", graphs=0.0, graph_break_time=u), plan="tp=8,ep=8", model="deepseek-v3.2")
        for u in (0.0, 1e-4)
    ]
    assert eager[0] == eager[1]  # nothing captured, nothing to break


def test_prefetching_helps_small_steps_and_only_with_graphs():
    narrow = {"batch": 1.0, "model": st.model("llama-3-70b", weights="fp4"), "system": "8xb200"}
    times = [step_of(engine("vllm", pdl_overlap=p), **narrow) for p in (0.0, 0.3, 0.6)]
    assert times[0] > times[1] > times[2]
    eager = [step_of(engine("vllm", graphs=0.0, pdl_overlap=p), **narrow) for p in (0.0, 0.6)]
    assert eager[0] == eager[1]


def test_only_an_engine_with_rows_for_every_pick_pays_for_other_ranks():
    def read(by, plan, model="deepseek-v3"):
        return st.evaluate("8xb200", model, st.prefill(batch=8, length=1024), plan, by).metrics.step_time

    own, every = engine("vllm", pads_remote_experts=0.0), engine("vllm", pads_remote_experts=1.0)
    assert read(every, "tp=8,ep=8") > 1.15 * read(own, "tp=8,ep=8")
    # One rank of experts has all picks; ranks that exchange tokens see only their own; a dense model has
    # none.
    for plan, model in (
        ("tp=8,ep=1,moe_tp=8", "deepseek-v3"),
        ("dp=8,ep=8", "deepseek-v3"),
        ("tp=8", "llama-3-70b"),
    ):
        assert read(every, plan, model) == pytest.approx(read(own, plan, model), rel=1e-12), plan


def test_shared_experts_hide_beside_routed_ones_but_work_adds_up():
    plan = {"plan": "tp=8,ep=8", "model": "deepseek-v3", "system": "8xb200"}
    for batch in (1.0, 16.0, 256.0):
        one, two = (
            step_of(engine("trtllm", shared_expert_stream=s), batch=batch, **plan) for s in (0.0, 1.0)
        )
        assert 0.85 * one < two < one, batch
    one, two = (step_of(engine("trtllm", shared_expert_stream=s), model="llama-3-70b") for s in (0.0, 1.0))
    assert one == two


def test_only_steps_that_read_prompts_miss_their_graphs():
    def times(by):
        short = st.evaluate(
            "8xh200", "llama-3-70b", st.prefill(batch=1, length=64), "tp=8", by
        ).metrics.step_time
        return short, step_of(by, model="llama-3-70b")

    held, launched = (times(engine("vllm", prompt_graphs=g)) for g in (1.0, 0.0))
    assert launched[0] > 1.5 * held[0] and launched[1] == held[1]
    assert (
        times(engine("vllm", graphs=0.0, prompt_graphs=1.0))[0]
        == times(engine("vllm", graphs=0.0, prompt_graphs=0.0))[0]
    )


def test_experts_are_slower_only_in_the_format_an_engine_says():
    def read(rate, model):
        by = replace(engine("vllm"), expert_rate=rate)
        return st.evaluate(
            "8xb200", model, st.prefill(batch=8, length=1024), "tp=8,ep=8", by
        ).metrics.step_time

    wide = st.model("deepseek-v3", weights="bf16", expert_weights="bf16")
    assert read({"fp8_block": 0.5}, "deepseek-v3") > 1.05 * read(None, "deepseek-v3")
    assert read({"fp8_block": 0.5}, wide) == read(None, wide)


def test_verifying_a_few_guesses_costs_little_more_than_a_step():
    plain, guessed = (
        st.evaluate(
            "8xb200", "deepseek-v3", st.decode(batch=256, context=1500, tokens=t), "dp=8,ep=8", "trtllm"
        ).metrics.step_time
        for t in (1, 2)
    )
    assert plain < guessed < 1.5 * plain


def test_a_cache_in_blocks_holds_whole_blocks():
    used = [
        st.evaluate(
            "8xh200",
            "llama-3-70b",
            st.decode(batch=64.0, context=1000.0),
            "tp=8",
            engine("vllm", page=float(page)),
        ).metrics.memory_used
        for page in (1, 16, 1000, 1024)
    ]
    assert used[0] == used[2] < used[1] < used[3]


def test_sampling_costs_energy_and_no_time():
    """Half of what 64 sequences of 10 us add, at the power of streaming from DRAM."""
    none, half = (engine("vllm@0.13", step=0.0, sequence=1e-5, stream=0.0, sampling=s) for s in (0.0, 0.5))
    runs = [
        st.evaluate("1xh200", "llama-3-8b", st.decode(batch=64, context=2048), "", by) for by in (none, half)
    ]
    assert runs[0].metrics.step_time == runs[1].metrics.step_time
    chip = st.chip("h200")
    watts = chip.memory.bandwidth * chip.memory.stream_efficiency * (chip.energy.memory + chip.energy.cache)
    more = (runs[1].metrics.device_power - runs[0].metrics.device_power) * runs[0].metrics.step_time
    assert more == pytest.approx(0.5 * 64 * 1e-5 * watts, rel=0.02)


def test_a_host_a_step_ahead_counts_only_where_it_is_the_longer():
    """Runs with asynchronous scheduling: the device's own part of the logits stays, the host's is hidden."""
    host = {"step": 1e-3, "sequence": 0.0, "stream": 4e-5}
    bare = engine("vllm@0.13", step=0.0, sequence=0.0, stream=0.0)
    after = engine("vllm@0.13", sampling=0.25, **host)
    ahead = engine("vllm@0.13", sampling=0.25, asynchronous=1.0, **host)
    kernels = step_of(bare)  # 64 sequences
    assert step_of(after) == pytest.approx(kernels + 1e-3 + 64 * 4e-5, rel=1e-6)
    assert step_of(ahead) == pytest.approx(kernels + 64 * 1e-5, rel=1e-6)
    slow = engine("vllm@0.13", sampling=0.25, asynchronous=1.0, step=1.0, sequence=0.0, stream=0.0)
    assert step_of(slow) == pytest.approx(1.0, rel=1e-6)
    between = engine("vllm", sampling=0.25, gap=2e-4, **host)
    assert step_of(between) == pytest.approx(kernels + 2e-4 + 64 * 1e-5, rel=1e-6)


def test_a_model_that_attends_in_chunks_breaks_the_graphs_of_an_engine_that_cannot_capture_it():
    """All 48 attention layers of Llama 4 Scout, 12 of them full: the engine falls back as a whole."""
    for by, layers in (
        (engine("vllm"), 48),
        (engine("vllm", breaks_at_chunks=0.0), 0),
        (engine("trtllm"), 0),
    ):
        quick, slow = (
            step_of(replace(by, graph_break_time=u), plan="tp=8,ep=8", model="llama-4-scout")
            for u in (0.0, 1e-4)
        )
        assert slow - quick == pytest.approx(layers * 1e-4, rel=1e-6, abs=1e-12)
    # a window that slides is captured
    quick, slow = (
        step_of(engine("vllm", graph_break_time=u), plan="tp=8", model="gemma-3-27b") for u in (0.0, 1e-4)
    )
    assert slow == quick


def test_experts_dealt_out_over_ranks_lose_their_tuned_tiles_with_more_tokens_than_experts():
    """A jump of the inter-token latency at as many tokens as a rank has experts; none without ranks."""
    tuned = replace(engine("vllm"), dealt_expert_read=None, dealt_expert_rate=None)

    def slower(batch, plan):
        where = {"plan": plan, "model": "qwen3-30b-a3b", "system": "1xh200" if plan == "tp=1" else "2xh200"}
        steps = [step_of(e, batch=batch, **where) for e in (engine("vllm"), tuned)]
        return steps[0] / steps[1]

    assert slower(64.0, "tp=2,ep=2") == 1.0 and slower(65.0, "tp=2,ep=2") > 1.1  # 64 of 128 experts
    assert slower(256.0, "tp=1") == 1.0
    work = st.decode(batch=np.array([64.0, 65.0]), context=1024)
    both = st.evaluate("2xh200", "qwen3-30b-a3b", work, "tp=2,ep=2", "vllm")
    each = [
        st.evaluate("2xh200", "qwen3-30b-a3b", st.decode(batch=b, context=1024), "tp=2,ep=2", "vllm")
        for b in (64.0, 65.0)
    ]
    for name in ("step_time", "power"):
        assert np.allclose(getattr(both.metrics, name), [getattr(e.metrics, name) for e in each])


def test_steps_that_read_prompts_take_as_long_as_launching_them():
    """Prompts of 1k tokens took TensorRT-LLM 2 ms a layer of experts however many devices read them; the
    device alone would have been two times as quick on eight.
    """

    def read(by, tp, model="gpt-oss-120b", length=920):
        work = st.prefill(batch=1, length=length)
        return float(st.evaluate(f"{tp}xh200", model, work, f"tp={tp}", by).metrics.step_time)

    bare = replace(engine("trtllm", step=0.0, sequence=0.0, stream=0.0), expert_layer=None)
    eager = replace(bare, expert_layer=2e-3)
    assert [read(eager, tp) for tp in (4, 8)] == pytest.approx([36 * 2e-3] * 2, rel=0.02)
    assert read(eager, 8) > 1.8 * read(bare, 8)
    # long prompts keep the device busy while the host launches, graphs need no launching, nor dense models
    assert read(eager, 1, length=8000) == read(bare, 1, length=8000)
    assert read(replace(eager, prompt_graphs=1.0), 8) == read(replace(bare, prompt_graphs=1.0), 8)
    assert read(eager, 8, "llama-3-8b") == read(bare, 8, "llama-3-8b")
    blocks = replace(bare, prompt_block=4e-4)
    assert read(blocks, 8, "llama-3-8b") == pytest.approx(
        max(64 * 4e-4, read(bare, 8, "llama-3-8b")), rel=0.02
    )
    # a step that only generates is captured
    decode = [step_of(by, model="gpt-oss-120b") for by in (eager, bare)]
    assert decode[0] == decode[1]


def test_widened_weights_slow_prompts_and_not_tokens():
    """Prompts of gpt-oss took 1.7 times as long on an H200 as a rate that token times were fitted to said."""

    def times(by):
        work = (st.prefill(batch=1, length=7400), st.decode(batch=32, context=2048))
        return [float(st.evaluate("1xh200", "gpt-oss-120b", w, "tp=1", by).metrics.step_time) for w in work]

    plain, wide = (times(replace(engine("vllm"), weight_only_work=w)) for w in (None, 0.28))
    assert 1.3 < wide[0] / plain[0] < 2.2 and wide[1] == plain[1]
    # where the chip multiplies the format itself nothing is widened
    native = [
        float(
            st.evaluate(
                "1xb200",
                "gpt-oss-120b",
                st.prefill(batch=1, length=7400),
                "tp=1",
                replace(engine("vllm"), weight_only_work=w),
            ).metrics.step_time
        )
        for w in (None, 0.28)
    ]
    assert native[0] == native[1]
