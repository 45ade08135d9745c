"""Runs of training: sums by hand, what scales, and bad input told with its legal neighbours."""

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadValue, StrataError
from strata.training.run import token_count, usual_batch

PLAN = "tp=8,pp=4,dp=16,zero=1,sp=1,recompute=full,microbatches=64"


@pytest.fixture(scope="module")
def run():
    return st.train_run("512xh100", "llama-3-70b", "2T", batch=1024, plan=PLAN)


def test_a_run_adds_up(run):
    m, kept = run.result.metrics, run.goodput
    assert run.steps == np.ceil(2e12 / (1024 * 4096))
    assert run.time == pytest.approx(run.steps * float(m.step_time) / kept.share)
    assert run.cost == pytest.approx(512 * run.time / 3600 * float(m.cost_per_device_hour))
    most = float(m.power) * run.time * 1.25
    assert 0.9 * most < run.energy < most  # a little less: devices idle while the job is stopped
    assert run.parameters == pytest.approx(70.6e9, rel=0.01)
    assert kept.state == pytest.approx(14 * run.parameters)
    # 6 operations a parameter and token, and attention: MFU from the definition
    least = 6 * run.parameters * float(m.tokens_per_s) / (512 * 989.4e12)
    assert least < run.mfu < 1.15 * least
    # full recomputation repeats the forward pass: a third more, less the head
    assert 1.25 < run.hfu / run.mfu < 4 / 3 + 1e-9
    assert sum(run.waits.values()) < float(m.step_time)


def test_recomputation_costs_nothing_in_mfu_terms_where_there_is_none():
    plain = st.train_run("64xh100", "llama-3-8b", "1B", batch=256, plan="tp=4,dp=16,zero=1,sp=1")
    assert plain.hfu == pytest.approx(plain.mfu)
    assert plain.search is None and plain.micro_batch == 1


def test_twice_the_tokens_take_twice_as_long(run):
    twice = st.train_run("512xh100", "llama-3-70b", "4T", batch=1024, plan=PLAN)
    assert twice.days == pytest.approx(2 * run.days, rel=1e-5)
    assert twice.mwh == pytest.approx(2 * run.mwh, rel=1e-5)


def test_the_best_plan_is_no_worse_than_a_given_one(run):
    best = st.train_run("512xh100", "llama-3-70b", "2T", batch=1024)
    assert best.days <= run.days
    assert best.search.feasible < best.search.considered
    assert best.plan.devices == 512


def test_tokens_as_people_write_them():
    assert [token_count(t) for t in ("2T", "300B", " 1.5 k", 7)] == [2e12, 3e11, 1500.0, 7.0]
    for wrong in ("2X", "many", "", "-1T", "nan"):
        with pytest.raises(StrataError):
            token_count(wrong)


@pytest.mark.parametrize("devices", [1, 8, 24, 72, 512, 1000, 16384])
def test_the_usual_batch_takes_about_four_million_tokens(devices):
    batch = usual_batch(devices, 4096)
    assert 2**21 < batch * 4096 <= 2**22
    odd = devices // (devices & -devices)
    assert batch % odd == 0 or odd > 1024


BAD = {
    "tp=8,pp=4,dp=16 batch=1000": "nearest: dp=10 or dp=20, or a batch of 992 or 1008",
    "tp=8,pp=4,dp=16,microbatches=48 batch=1024": "nearest: microbatches=32 or microbatches=64",
    "pp=128,dp=4 batch=1024": "more stages than the 80 layers of llama-3-70b; nearest: pp=64",
    "dp=512 batch=64": "fewer sequences (64) than data parallel ranks (512); nearest: dp=64 or a batch of 512",
    "tp=8,pp=4,dp=16,recompute_layers=4 batch=1024": "nearest: recompute=full for recompute_layers",
    "tp=8,pp=4,dp=16,recompute=full,recompute_layers=40 batch=1024": "nearest: recompute_layers=20",
    "tp=8,pp=4,dp=16,virtual_stages=2,microbatches=2 batch=1024": "nearest: microbatches=4",
    "tp=8,dp=64,virtual_stages=2 batch=1024": "nearest: virtual_stages=1 or pp=2",
    "tp=8,pp=4,dp=16,virtual_stages=2,schedule=gpipe batch=1024": "nearest: virtual_stages=1 or schedule=1f1b",
    "tp=8,pp=4,dp=16,schedule=dualpipe,microbatches=4 batch=1024": "nearest: microbatches=8",
    "tp=8,pp=32,dp=2,virtual_stages=8 batch=1024": "nearest: virtual_stages=2",
    "tp=8,dp=8 batch=1024": "dp=64 makes them equal",
    "tp=8,dp=64,dp_shard=24,zero=3 batch=1024": "nearest: dp_shard=16 or 32",
}


@pytest.mark.parametrize("typed", BAD)
def test_bad_plans_are_told_their_neighbours(typed):
    plan, _, batch = typed.partition(" batch=")
    with pytest.raises(BadValue) as told:
        st.train_run("512xh100", "llama-3-70b", "2T", batch=float(batch), plan=plan)
    assert BAD[typed] in str(told.value) and "\n" not in str(told.value)


def test_a_plan_that_is_too_large_is_told_one_of_its_mesh_that_fits():
    with pytest.raises(BadValue, match=r"with the same mesh tp=8,dp=16,pp=4.* fits") as told:
        st.train_run("512xh100", "llama-3-70b", "2T", batch=1024, plan="tp=8,pp=4,dp=16,microbatches=4")
    named = str(told.value).partition("with the same mesh ")[2].removesuffix(" fits")
    assert st.train_run("512xh100", "llama-3-70b", "2T", batch=1024, plan=named).days > 0


def test_a_model_that_fits_no_plan_and_too_few_tokens():
    with pytest.raises(BadValue, match=r"does not train on 8xh100 under any of .* levers: about .* devices"):
        st.train_run("8xh100", "llama-3.1-405b", "2T")
    with pytest.raises(BadValue, match=r"at least one step, of 4.19M tokens .* nearest: a batch of 488"):
        st.train_run("8xh100", "llama-3.1-8b", "2M")
    with pytest.raises(StrataError, match="fastest"):
        st.train_run("8xh100", "llama-3.1-8b", "2B", goal="fastest")


def test_software_and_weights_that_cannot_train_are_refused():
    with pytest.raises(BadValue, match=r"engine vllm samples .* engines that do: .*megatron"):
        st.train_run("8xh100", "llama-3-8b", "1B", engine="vllm")
    whole = st.model("llama-3-8b", weights="int4")
    with pytest.raises(BadValue, match="int4 cannot be trained"):
        st.train_run("8xh100", whole, "1B")
    assert st.train_run("8xh100", whole, "1B", batch=64, plan="dp=8", adapters=st.Lora(rank=16)).days > 0
    with pytest.raises(BadValue, match="zero=9 is no level of ZeRO; nearest: zero=3"):
        st.train_run("8xh100", "llama-3-8b", "1B", batch=64, plan="dp=8,zero=9")


def test_scaling_keeps_or_grows_the_batch_and_says_where_nothing_fits():
    strong = st.training.scaling_curve("8xh100", "gpt3-175b", "10B", [1, 64, 128], batch=64, length=2048)
    weak = st.training.scaling_curve("8xh100", "llama-3-8b", "10B", [8, 16], batch=64, kind="weak")
    assert [p.batch for p in strong.points] == [64, 64, 64]
    assert strong.points[0].run is None and "does not train" in strong.points[0].why_none
    assert [p.batch for p in weak.points] == [64, 128]
    days = [run.days for run in strong.runs]
    assert days == sorted(days, reverse=True)
    assert strong.efficiency()[0] == 1.0
