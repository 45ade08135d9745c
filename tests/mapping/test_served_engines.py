"""Engines by what they do: which kernels serve a format, when the host works, what earlier versions did."""

from dataclasses import replace

import pytest

from strata.errors import BadValue
from strata.hardware.chip import chip
from strata.mapping.engine import OnPlatform, at_version, engine, on_platform
from strata.mapping.plan import plan
from strata.pricing.host import beside_host, chip_under_engine
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.steps import Serving
from strata.workload.model import model
from strata.workload.tasks import decode

ENGINES = ("vllm", "sglang", "trtllm")


def step(
    chip_name: str,
    engine_name: str,
    model_name: str = "gpt-oss-120b",
    batch: float = 16.0,
    context: float = 1024.0,
    **changes,
):
    """Time of a decode step on one device of a changed chip."""
    names = Catalogue().with_chip(chip(chip_name, **changes))
    served = Serving(
        names.system(f"1x{chip_name}"), model(model_name), plan(tp=1.0), engine(engine_name), skew=1.0
    )
    return float(served.step(decode(batch, context, skew=1.0)).time)


@pytest.mark.parametrize("name", ["vllm", "sglang", "ideal"])
def test_rows_of_a_fallback_kernel_price_no_engine_with_its_own(name):
    slower = {"experts.floor.mxfp4": 1e-3, "experts.passes.mxfp4": 100.0}
    assert step("h200", name, **slower) == step("h200", name)


def test_the_engine_those_rows_were_measured_in_keeps_them():
    assert step("h200", "trtllm", **{"experts.floor.mxfp4": 1e-3}) > 1.5 * step("h200", "trtllm")


@pytest.mark.parametrize("name", [*ENGINES, "ideal"])
def test_native_microscaled_experts_are_given_eight_bits(name):
    assert step("b200", name, **{"experts.efficiency.mxfp4": 0.01}) == step("b200", name)
    assert step("b200", name, **{"experts.floor.fp8": 1e-3}) > step("b200", name)


def test_served_steps_of_widened_experts_are_as_long_as_measured():
    """16 requests of 1024 tokens in and 8192 out took vLLM 11.7 ms a token on one H200 in 2025
    (validation/serving/silicon.csv); 36 layers of the fallback kernel take 10 to 12 ms by themselves.
    """
    assert step("h200", "vllm", context=0.9 * (1024.0 + 8192.0 / 2.0)) == pytest.approx(11.7e-3, rel=0.1)


def test_widening_costs_what_the_engine_says():
    slower = engine("vllm", weight_only_rate=0.3)
    names = Catalogue()
    served = [
        Serving(names.system("1xh200"), model("gpt-oss-120b"), plan(tp=1.0), e, skew=1.0).step(
            decode(64.0, 1024.0)
        )
        for e in (slower, engine("vllm"))
    ]
    assert float(served[0].time) > 1.5 * float(served[1].time)
    assert step("h200", "vllm", "llama-3.1-8b") == pytest.approx(step("h200", "vllm", "llama-3.1-8b"))


def test_a_host_ahead_of_the_device_costs_nothing_until_it_is_slower():
    served = lambda e: float(  # noqa: E731
        Serving(Catalogue().system("1xh200"), model("llama-3.1-8b"), plan(tp=1.0), e)
        .step(decode(8.0, 1024.0))
        .time
    )
    now, then = engine("vllm"), engine("vllm@0.13")
    assert served(replace(now, step=2 * now.step)) == served(now)
    assert served(replace(then, step=2 * then.step)) == pytest.approx(served(then) + float(then.step))
    assert served(replace(now, step=0.5)) > 0.5
    assert served(now) < served(then)


def test_versions_and_dates_tell_the_same():
    now = engine("vllm")
    assert [float(at_version(now, told).asynchronous) for told in ("0.13.9", "0.14", "0.18.0")] == [0, 1, 1]
    assert [float(at_version(now, told).asynchronous) for told in ("2025-10-29", "2026-03-27")] == [0, 1]
    assert at_version(now, "") is now and at_version(now, "0.18.0") is now
    assert "earlier" not in str(at_version(now, "0.9").sources["asynchronous"].source)
    with pytest.raises(BadValue, match="version must begin with a number"):
        engine("vllm@latest")


def test_what_was_changed_by_hand_stays_in_earlier_versions():
    assert float(at_version(engine("vllm", stream=1e-6), "0.9").stream) == 1e-6


def test_longer_of_both():
    assert [float(beside_host(2.0, 0.5, host, 1.0)) for host in (1.0, 4.0)] == [2.5, 4.0]


def test_an_engine_is_otherwise_on_a_platform_only_where_it_says_so():
    plain = replace(engine("sglang"), elsewhere=None)
    assert on_platform(plain, "rocm") is plain
    told = replace(plain, elsewhere=(OnPlatform(platform="rocm", pdl_overlap=0.0),))
    assert on_platform(told, "") is told
    there = on_platform(told, "rocm")
    assert there.pdl_overlap == 0.0 and there.separate_quantize_share == plain.separate_quantize_share


def test_rounding_in_kernels_of_its_own_counts_on_rocm_alone():
    for name, longer in (("mi300x", True), ("h200", False)):
        steps = []
        for software in (replace(engine("sglang"), elsewhere=None), engine("sglang")):
            served = Serving(Catalogue().system(f"8x{name}"), model("deepseek-v3"), plan(tp=8.0), software)
            steps.append(float(served.step(decode(4.0, 1024.0)).time))
        # four products of blocks in each of 61 layers round by a kernel of some 4 us
        assert (0.5e-3 < steps[1] - steps[0] < 1.5e-3) if longer else steps[0] == steps[1]


def test_a_products_rate_on_a_platform_counts_where_blocks_are_scaled():
    times = []
    for rate in (1.0, 0.5):
        made = device(
            chip_under_engine(chip("mi300x"), replace(engine("sglang"), product_rate={"rocm": rate}))
        )
        times.append(float(matmul(16384.0, 7168.0, 7168.0, made, "fp8_block", "bf16").time))
    assert 1.8 < times[1] / times[0] <= 2.0  # 1.4 where it did not count for the scaling
