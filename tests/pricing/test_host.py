"""What an engine adds around its kernels: host time, captured graphs, launches, prefetching, blocks."""

from dataclasses import replace

import pytest

import strata as st
from strata.pricing import pricers
from strata.software.engine import engine, kernel_library


def step_of(by, batch=64.0, plan="tp=8", model="llama-3-8b", system="8xh200"):
    return st.evaluate(system, model, st.decode(batch=batch, context=2048), plan, by).metrics.step_time


def read_in(by, plan="tp=8", model="llama-3-8b", system="8xh200", length=920):
    work = st.prefill(batch=1, length=length)
    return float(st.evaluate(system, model, work, plan, by).metrics.step_time)


@pytest.fixture
def library(monkeypatch):
    """Replaces numbers of the library that all engines call."""

    def changed(**numbers):
        other = replace(kernel_library("served"), **numbers)
        monkeypatch.setattr(pricers, "kernel_library", lambda name, platform: other)

    return changed


def test_host_time_is_what_the_engine_says():
    bare = engine("vllm@0.13", host_step=0.0, step_gap=0.0, sequence_gap=0.0)
    for changes, expected in (
        ({"host_step": 1e-3}, 1e-3),
        ({"step_gap": 2e-3}, 2e-3),
        ({"sequence_gap": 1e-5}, 64e-5),
    ):
        assert step_of(replace(bare, **changes)) - step_of(bare) == pytest.approx(expected, rel=1e-6)
    # Each attention rank has sequences of its own.
    apart = [step_of(replace(bare, sequence_gap=s), plan="dp=8") for s in (0.0, 1e-5)]
    assert apart[1] - apart[0] == pytest.approx(8e-5, rel=1e-6)


def test_a_host_a_step_ahead_counts_only_where_it_is_the_longer():
    numbers = {"host_step": 1e-3, "step_gap": 2e-4, "sequence_gap": 1e-5}
    kernels = step_of(engine("vllm@0.13", host_step=0.0, step_gap=0.0, sequence_gap=0.0))  # 64 sequences
    gap = 2e-4 + 64 * 1e-5
    assert step_of(engine("vllm@0.13", **numbers)) == pytest.approx(kernels + gap + 1e-3, rel=1e-6)
    assert step_of(engine("vllm", **numbers)) == pytest.approx(kernels + gap, rel=1e-6)
    assert step_of(engine("vllm", **numbers | {"host_step": 1.0})) == pytest.approx(1.0, rel=1e-6)


def test_prefetching_helps_small_steps_and_only_with_graphs(library):
    narrow = {"batch": 1.0, "model": st.model("llama-3-70b", weights="fp4"), "system": "8xb200"}
    captured, eager = [], []
    for share in (0.0, 0.3, 0.6):
        library(pdl_overlap=share)
        captured.append(step_of("vllm", **narrow))
        eager.append(step_of(engine("vllm", cuda_graphs=0.0, launches=0.0), **narrow))
    assert captured[0] > captured[1] > captured[2]
    assert eager[0] == eager[1] == eager[2]


def test_shared_experts_hide_beside_routed_ones_but_work_adds_up(library):
    plan = {"plan": "tp=8,ep=8", "model": "deepseek-v3", "system": "8xb200"}
    times = {}
    for stream in (0.0, 1.0):
        library(shared_expert_stream=stream)
        times[stream] = [step_of("trtllm", batch=b, **plan) for b in (1.0, 16.0, 256.0)]
        times[stream].append(step_of("trtllm", model="llama-3-70b"))
    for one, two in zip(times[0.0][:3], times[1.0][:3], strict=True):
        assert 0.85 * one < two < one
    assert times[0.0][3] == times[1.0][3]


def test_launches_are_counted_from_the_graph():
    """Every kernel of a step that no graph holds is launched; all of it runs ahead of the device."""
    eager = engine("vllm", launches=5.0)
    launch = float(st.chip("h200").overhead.launch)
    least = read_in(eager, length=64)
    kernels = (least - float(eager.step_gap) - float(eager.sequence_gap)) / (5 * launch)
    assert kernels == pytest.approx(round(kernels), abs=1e-6) and 7 * 32 < kernels < 14 * 32  # 32 layers
    doubled = read_in(replace(eager, launches=10.0), length=64)
    assert doubled - least == pytest.approx(5 * launch * round(kernels), rel=1e-6)
    # long prompts keep the device busy while the host launches; graphs need no launching
    assert read_in(eager, length=32000) == read_in(replace(eager, launches=0.0), length=32000)
    held = replace(eager, cuda_graphs=2.0)
    assert read_in(held, length=64) == read_in(replace(held, launches=10.0), length=64) < least


def test_an_op_on_routed_rows_is_launched_more_often(library):
    """Routing, sorting and grouped kernels take an eager host longer; a dense model has none of them."""
    eager, times = engine("sglang", step_gap=0.0, sequence_gap=0.0, host_step=0.0), {}
    for calls in (1.0, 13.0):
        library(routed_launches=calls)
        asked = {"plan": "tp=8", "system": "8xb200", "length": 64}
        times[calls] = [read_in(eager, model=name, **asked) for name in ("deepseek-v3", "llama-3-70b")]
    routed = (times[13.0][0] - times[1.0][0]) / (12 * 5 * float(st.chip("b200").overhead.launch))
    assert routed == pytest.approx(58 * 5)  # dispatch, two products, the activation between them, combine
    assert times[13.0][1] == times[1.0][1]


def test_only_steps_that_decode_are_captured_unless_told():
    for graphs, decodes, reads in ((0.0, True, True), (1.0, False, True), (2.0, False, False)):
        few, many = (engine("vllm", cuda_graphs=graphs, launches=n) for n in (0.0, 50.0))
        assert (step_of(many) > step_of(few)) == decodes
        assert (read_in(many, length=64) > read_in(few, length=64)) == reads


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
            engine("vllm", kv_block_size=float(size)),
        ).metrics.memory_used
        for size in (1, 16, 1000, 1024)
    ]
    assert used[0] == used[2] < used[1] < used[3]


def test_widened_weights_cost_what_the_library_says(library):
    times = []
    for rate in (1.0, 0.5):
        library(weight_only_rate=rate)
        times.append([read_in("vllm", "tp=1", "gpt-oss-120b", f"1x{c}", 8192) for c in ("h200", "b200")])
    assert times[1][0] > 1.2 * times[0][0]
    assert times[1][1] == times[0][1]  # the chip multiplies the format itself
