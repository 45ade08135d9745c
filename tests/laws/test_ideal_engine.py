"""Software adds to what a chip does by itself: no engine is quicker than the ideal one, on any chip, in any
phase, for any model; and what chips sustain is not an engine's loss.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.one_step import priced_step
from strata.params import names
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.power_cap import power_capped
from strata.software.engine import Engine, engine, has_host_time

# an engine that repeats another program's counts has no host
SOFTWARE = [name for name in names("engine") if has_host_time(engine(name))]
CHIPS = [
    name
    for name in (
        "a100-80",
        "h100",
        "h200",
        "b200",
        "gb300",
        "mi325x",
        "rtx-4090",
        "stack-ref",
        "tpu-v4",
        "v100",
    )
    if name in names("chip")
]
MODELS = ("llama-3-8b", "llama-3-70b", "deepseek-v3", "gpt-oss-120b")
NUMERICS = ("main_gradients", "reduced_gradients", "gathered_parameters", "optimizer_bytes")
BATCHES = np.array([1.0, 32.0, 256.0])
WORK = {
    "decode": lambda length: st.decode(batch=BATCHES, context=length),
    "prefill": lambda length: st.prefill(BATCHES, length),
    "train": lambda length: st.train(BATCHES * 2.0, length),
}


def times(software: Engine, chip: str, model: str, phase: str, length: float, devices: int) -> np.ndarray:
    """Steps at every batch, whether or not they fit."""
    parts = (st.system(f"{devices}x{chip}"), st.model(model), WORK[phase](length), st.plan(tp=devices))
    return np.asarray(priced_step(*parts, software).time, float)


def ideal_for(software: Engine) -> Engine:
    """The ideal engine with the other's kernels, and its formats of gradients, parameters and moments:
    libraries and numerics that a user chooses, not what software adds.
    """
    ideal = engine("ideal", kernels=software.kernels)
    if software.training is None:
        return ideal
    formats = {name: getattr(software.training, name) for name in NUMERICS}
    return replace(ideal, training=replace(ideal.training, **formats))


def test_software_is_every_engine_but_the_ideal_and_papers():
    assert set(names("engine")) - set(SOFTWARE) == {"ideal", "deepflow-2021"}


@settings(max_examples=40, deadline=None)
@given(
    chip=some.sampled_from(CHIPS),
    software=some.sampled_from(SOFTWARE),
    model=some.sampled_from(MODELS),
    phase=some.sampled_from(sorted(WORK)),
    length=some.sampled_from([128.0, 1024.0, 8192.0]),
    devices=some.sampled_from([1, 2]),
)
def test_no_engine_is_quicker_than_the_ideal_one(chip, software, model, phase, length, devices):
    used = engine(software)
    hosted, ideal = (times(e, chip, model, phase, length, devices) for e in (used, ideal_for(used)))
    # at a power limit a step that waits less is held at a lower clock
    assert np.all(ideal <= hosted * 1.01)


def test_an_mi325x_runs_bare_products_as_its_maker_measured_them():
    chip = st.chip("mi325x")
    for weight, published, clock in (("bf16", 843e12, 1447e6), ("fp8", 1519e12, 1464e6)):
        price = matmul(4096.0, 4864.0, 32896.0, device(chip, resident=False), weight, "bf16")
        held = power_capped(price, chip)
        assert price.flop / held.price.time == pytest.approx(published, rel=0.08)  # was 474e12
        assert held.share * chip.compute.max_clock == pytest.approx(clock, rel=0.08)


def test_no_number_of_a_chip_was_fitted_to_an_engines_runs():
    for name in names("chip"):
        fitted = [p.source for p in st.chip(name).sources.values() if p.source.startswith("fitted")]
        assert not [source for source in fitted if "serving/" in source.split(";")[0]], name


def test_what_a_library_loses_on_a_platform_is_its_own():
    assert st.chip("mi325x").platform == "rocm"
    lost = st.evaluate("4xmi325x", "llama-3-70b", st.prefill(8, 1024), "tp=4", "vllm").metrics.step_time
    bare = st.evaluate("4xmi325x", "llama-3-70b", st.prefill(8, 1024), "tp=4").metrics.step_time
    assert 1.3 < lost / bare < 3.0
