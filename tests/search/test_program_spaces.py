"""Programs that are no language models in sweeps and searches, like any other."""

import numpy as np
import pytest

import strata as st

SPACE = """
name = "divisions"
title = "Divisions of a perceptron"

[question]
model = "mlp-8192"
system = "8xh200"
phase = "forward"
batch = 8192

[[axis]]
name = "kp1"
field = "plan.kp1"
values = [1, 2, 4, 8]
source = "assumed: divisors of eight devices"

[[axis]]
name = "kp2"
field = "plan.kp2"
values = [1, 2, 4, 8]
source = "assumed: divisors of eight devices"

[[axis]]
name = "width"
field = "model.width"
values = [4096, 8192]
source = "assumed: two sizes"
"""


def brute_force(metric):
    """The best of all divisions, each evaluated by itself."""
    found = []
    for width in (4096.0, 8192.0):
        for kp1 in (1, 2, 4, 8):
            mlp = st.program("mlp-8192", width=width)
            found.append(st.evaluate("8xh200", mlp, st.forward(8192.0), f"kp1={kp1},kp2={8 // kp1}"))
    values = [float(getattr(r.metrics, metric)) for r in found if r.fits]
    return max(values) if metric == "items_per_s" else min(values)


@pytest.mark.parametrize("sampler", ["exact", "random"])
@pytest.mark.parametrize("metric", ["items_per_s", "step_time"])
def test_a_search_over_divisions_finds_the_best(tmp_path, sampler, metric):
    (tmp_path / "divisions.toml").write_text(SPACE)
    space = st.search.space(str(tmp_path / "divisions.toml"))
    budget = {} if sampler == "exact" else {"budget": 64}
    found = st.search.search(space, goal=metric, sampler=sampler, **budget)
    assert float(getattr(found.result().metrics, metric)) == pytest.approx(brute_force(metric), rel=1e-12)


@pytest.mark.parametrize(
    ("model", "plan", "vary", "shape"),
    [
        ("mlp-8192", "kp2=1", ["plan.kp1=1,2,4,8", "model.width=4096,8192"], (4, 2)),
        ("fft-1024", "q=4", ["plan.p=1,2", "fabric.bandwidth=0.2:0.9:3 TB/s"], (2, 3)),
        ("dlrm-mlperf", "all=8", ["batch=1024,65536", "model.lookups=1,8,64"], (2, 3)),
    ],
)
def test_a_sweep_equals_single_evaluations(model, plan, vary, shape):
    swept = st.sweep("8xh200", model, vary, batch=4096.0, plan=plan)
    assert swept.shape == shape and swept.metric == "items_per_s"
    for at in np.ndindex(shape):
        assert float(np.broadcast_to(swept.result.metrics.step_time, shape)[at]) == pytest.approx(
            float(swept.result.at(*at).metrics.step_time), rel=1e-12
        )


@pytest.mark.parametrize("model", ["mlp-8192", "fft-1024", "dlrm-mlperf"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_phase_of_language_models_is_refused(model, phase):
    with pytest.raises(st.StrataError, match="is no language model: its phase is forward or train"):
        st.sweep("8xh200", model, ["batch=1,2"], phase=phase)


def test_a_division_that_is_not_the_programs_own_is_refused():
    with pytest.raises(st.StrataError, match=r"fft-1024 is divided like p=2,q=4"):
        st.evaluate("8xh200", "fft-1024", st.forward(1.0), "tp=8")
