"""Engines by what they do: which kernels serve a format, when the host works, what earlier versions did."""

from dataclasses import fields, replace

import pytest

import strata as st
from strata.adapters.launchers.rules import launcher
from strata.base.errors import UnknownName
from strata.hardware.chip import chip
from strata.params import names
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.launching import beside_host
from strata.pricing.pricers import chip_under_library
from strata.software.engine import Engine, engine, kernel_library

ENGINES = ("vllm", "sglang", "trtllm", "atom")


def step(chip_name, by, model="gpt-oss-120b", batch=16.0, context=1024.0, plan="tp=1", **changes):
    """Time of a decode step on devices of a changed chip."""
    hardware = st.system(f"{int(st.plan(plan).devices)}x{chip_name}")
    hardware = replace(hardware, chip=chip(chip_name, **changes)) if changes else hardware
    work = st.decode(batch, context, skew=1.0)
    return float(st.evaluate(hardware, model, work, plan, by).metrics.step_time)


@pytest.mark.parametrize("name", [*ENGINES, "ideal"])
def test_rows_of_a_fallback_kernel_price_no_engine_with_its_own(name):
    slower = {"experts.floor.mxfp4": 1e-3, "experts.passes.mxfp4": 100.0}
    assert step("h200", name, **slower) == step("h200", name)


@pytest.mark.parametrize("name", [*ENGINES, "ideal"])
def test_native_microscaled_experts_are_given_eight_bits(name):
    assert step("b200", name, **{"experts.efficiency.mxfp4": 0.01}) == step("b200", name)
    assert step("b200", name, **{"experts.floor.fp8": 1e-3}) > step("b200", name)


def test_a_host_ahead_of_the_device_costs_nothing_until_it_is_slower():
    now, then = engine("vllm"), engine("vllm@0.13")

    def served(by):
        return step("h200", by, "llama-3.1-8b", batch=8.0)

    assert served(replace(now, host_step=2 * now.host_step)) == served(now)
    longer = replace(then, host_step=2 * then.host_step)
    assert served(longer) == pytest.approx(served(then) + float(then.host_step))
    assert served(replace(now, host_step=0.5)) == pytest.approx(0.5)
    assert served(now) < served(then)


def test_versions_and_days_tell_the_same():
    ahead = {v: float(engine(f"vllm@{v}").async_scheduling) for v in ("0.13.0", "0.14", "0.18.0", "v0.12.0")}
    assert ahead == {"0.13.0": 0, "0.14": 1, "0.18.0": 1, "v0.12.0": 0}
    assert [float(engine(f"vllm@{d}").async_scheduling) for d in ("2025-10-29", "2026-03-27")] == [0, 1]
    assert "v0.14.0" in engine("vllm@0.12").sources["async_scheduling"].source
    # a candidate comes before its release, and a post-release belongs to what it is of
    assert float(engine("trtllm@1.2.0rc6.post3").async_scheduling) == 1
    assert float(engine("trtllm@0.19.0").async_scheduling) == 0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sglang@9.9", "no version of sglang called '9.9'; nearest: 0.5.9"),
        ("vllm@2019-01-01", "the first listed is 0.5.0"),
        ("ideal@1.0", "none is listed"),
    ],
)
def test_unknown_versions_are_refused_by_name(name, why):
    with pytest.raises(UnknownName, match=why):
        engine(name)
    with pytest.raises(UnknownName):
        st.evaluate("8xh200", "llama-3-8b", st.decode(1, 1024), "tp=8", name)


def test_versions_change_fields_of_engines_only():
    known = {f.name for f in fields(Engine)}
    for name in names("engine"):
        for version in engine(name).versions:
            assert set(version.changes) <= known
            engine(f"{name}@{version.version}")


def test_longer_of_both():
    assert [float(beside_host(2.5, host, 1.0)) for host in (1.0, 4.0)] == [2.5, 4.0]


def test_rounding_in_kernels_of_its_own_counts_on_rocm_alone():
    assert float(kernel_library("served").separate_quantize_share) == 0
    assert float(kernel_library("served", "rocm").separate_quantize_share) == 1
    assert kernel_library("bare", "rocm").name == "bare"


def test_a_products_rate_on_a_platform_counts_where_blocks_are_scaled():
    times = []
    for rate in (1.0, 0.5):
        library = replace(kernel_library("served", "rocm"), product_rate=rate)
        under = device(chip_under_library(chip("mi300x"), library, engine("sglang")))
        times.append(float(matmul(16384.0, 7168.0, 7168.0, under, "fp8_block", "bf16").time))
    assert 1.8 < times[1] / times[0] <= 2.0  # 1.4 where it did not count for the scaling


def test_experts_in_blocks_are_slower_where_they_are_expert_parallel():
    """Token times of deepseek-v3 on eight B200 by SGLang (serving/silicon2.csv): 12.3 ms with 8 clients and
    experts over ranks, 10.7 ms where each rank has a slice of all.
    """
    dealt, sliced = (
        step("b200", "sglang", st.model("deepseek-v3", kv="fp8"), 8.0, 1380.0, plan)
        for plan in ("tp=8,ep=8", "tp=8,ep=1,moe_tp=8")
    )
    assert 1.1 < dealt / sliced < 1.5
    wide = st.model("deepseek-v3", weights="bf16", expert_weights="bf16")
    narrow = [st.evaluate("16xb200", m, st.decode(8.0, 1380.0), "tp=16,ep=16", "sglang") for m in (wide,)]
    assert all(r.fits for r in narrow)


def test_each_launcher_starts_an_engine_that_there_is():
    assert {n for n in ENGINES if launcher(n) is not None} == {"vllm", "sglang", "trtllm"}
    assert launcher("ideal") is None
