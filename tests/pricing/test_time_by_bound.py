"""Time by what binds it adds up to the time: over phases, engines, pipelines, overlaps, limits of power."""

import numpy as np
import pytest

import strata as st
from strata.app.render.explanation import busy_text
from strata.pricing.price import BOUNDS, RESOURCES

DECODE, PREFILL = st.decode(64.0, 1536.0), st.prefill(16.0, 1024.0)
CASES = {
    "served by vllm": ("8xh200", "llama-3-70b", st.serve(64, 1024, 256), "tp=8", "vllm"),
    "served by sglang in stages": ("8xh200", "llama-3-70b", st.serve(64, 1024, 256), "tp=2,pp=4", "sglang"),
    "experts": ("8xh200", "mixtral-8x7b", DECODE, "dp=8,ep=8", "trtllm"),
    "prompts": ("8xh200", "llama-3-70b", PREFILL, "tp=8", "vllm"),
    "prompts in stages": ("8xh200", "llama-3-70b", PREFILL, "pp=8", "ideal"),
    "tiles": ("8xh200", "llama-3-70b", DECODE, "tp=8", st.engine("vllm", overlap="tiles")),
    "halves": ("8xh200", "llama-3-70b", DECODE, "tp=8", st.engine("ideal", overlap="dual_batch")),
    "trained": ("64xh200", "llama-3-70b", st.train(512, 4096), "tp=8,pp=4,dp=2", "megatron"),
    "stacked": ("256xstack-ref", "deepseek-v3", st.decode(256, 1536), "tp=8,dp=16,pp=2,ep=128", "ideal"),
    "generated": ("8xgpu-n3", "llama-3-70b", PREFILL, "tp=8", "ideal"),
    "fused": ("16xsn40l", "llama-3-70b", DECODE, "tp=16", "ideal"),
    "waves of an lstm": (
        "8xdeepflow-v100",
        "lstm-lm-v100",
        st.train(128.0, 1.0),
        "CR-2-d4-p1",
        "deepflow-2021",
    ),
}


def whole(result):
    """Time that a result is about: one step, or prompts and a generation."""
    work = result.workload
    if work.phase != "serve":
        return float(result.metrics.step_time)
    return float(result.metrics.ttft) + work.output * float(result.metrics.step_time)


@pytest.mark.parametrize("case", CASES)
def test_what_binds_a_step_adds_up_to_it(case):
    r = st.evaluate(*CASES[case])
    assert r.fits
    assert tuple(r.summary.resources) == BOUNDS
    assert all(float(time) >= 0.0 for time in r.summary.resources.values())
    assert sum(r.summary.resources.values()) == pytest.approx(whole(r), rel=1e-9)
    for step in r.steps:
        assert sum(map(float, step.time_by_bound.values())) == pytest.approx(float(step.time), rel=1e-9)


@pytest.mark.parametrize("case", ["served by vllm", "served by sglang in stages", "trained", "prompts"])
def test_the_shares_that_are_printed_add_up_to_100(case):
    said = busy_text(st.evaluate(*CASES[case]))
    for line in said.splitlines()[:2]:
        shares = [
            int(word.strip("%,."))
            for word in line.partition(":")[2].split()
            if word.strip(",.").endswith("%")
        ]
        assert sum(shares) == 100, line


def test_host_bubble_and_throttling_have_rows_of_their_own():
    served, ideal = (
        st.evaluate("8xh200", "llama-3-70b", DECODE, "tp=8", engine).summary.resources
        for engine in ("vllm", "ideal")
    )
    assert served["host"] > 0 and ideal["host"] == 0
    staged, flat = (
        st.evaluate("8xh200", "llama-3-70b", PREFILL, plan).summary.resources for plan in ("pp=8", "tp=8")
    )
    assert staged["bubble"] > 0.2 * sum(staged.values()) and flat["bubble"] == 0
    chips = [st.system("8xh200", **{"energy.power_limit": watts}) for watts in (400.0, 7000.0)]
    cold, hot = (st.evaluate(chip, "llama-3-70b", PREFILL, "tp=8") for chip in reversed(chips))
    assert cold.summary.resources["throttling"] == 0
    lost = float(hot.metrics.step_time) - float(cold.metrics.step_time)
    assert hot.summary.resources["throttling"] == pytest.approx(lost, rel=1e-9)
    for name in RESOURCES:  # what binds is told at the highest clock, what is lost apart
        assert hot.summary.resources[name] == pytest.approx(cold.summary.resources[name], rel=1e-9)


def test_a_box_has_the_rows_of_its_points():
    box = st.evaluate("8xh200", "llama-3-70b", st.decode(np.array([8.0, 64.0]), 1024.0), "tp=4,pp=2", "vllm")
    for name in BOUNDS:
        each = [float(box.at(i).summary.resources[name]) for i in range(2)]
        assert np.broadcast_to(box.summary.resources[name], (2,)) == pytest.approx(each, rel=1e-9)
