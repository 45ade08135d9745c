"""Activations in the host's memory: room for time, link by link, plan by plan."""

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadValue
from strata.mapping.plan import OFFLOAD, Plan, plan

MESH = {"tp": 2, "dp": 2, "pp": 2, "zero": 1, "sp": 1, "microbatches": 8}


def step(offload: str = "none", system: str = "8xgb200", **more: object) -> object:
    asked = plan(**MESH | more, offload=offload)  # type: ignore[arg-type]
    return st.evaluate(system, "llama-3-8b", st.train(64, 8192), asked, "megatron").steps[0]


def test_they_leave_the_device_and_passes_wait_for_the_link() -> None:
    kept, away = step(), step("activations")
    assert away.memory["activations"] < 0.1 * kept.memory["activations"]
    assert away.exposed["offload"] > 0.0
    assert kept.exposed["offload"] == 0.0
    assert away.time > kept.time


def test_a_slow_link_shows_and_recomputed_layers_have_little_to_send() -> None:
    """An H100 on PCIe waits longer than a GB200 on NVLink-C2C; what is recomputed is not sent."""
    assert step("activations", "8xh100").exposed["offload"] > 5 * step("activations").exposed["offload"]
    assert step("activations", "8xh100", recompute="full").exposed["offload"] == 0.0


def test_a_batch_of_plans_equals_single_ones() -> None:
    asked: Plan = plan(**MESH, offload=np.arange(float(len(OFFLOAD))))
    box = st.evaluate("8xgb200", "llama-3-8b", st.train(64, 8192), asked, "megatron")
    alone = [step(word).time for word in OFFLOAD]
    np.testing.assert_allclose(box.metrics.step_time, alone, rtol=1e-12)


def test_fabrics_that_state_no_link_refuse_in_a_line() -> None:
    system = st.system(st.chip("a100"), st.hardware.sized(st.fabric("pcie4-node"), (4,)))
    with pytest.raises(BadValue, match=r"offload needs host\.link, which fabric 'pcie4-node'"):
        st.evaluate(system, "llama-3-8b", st.train(8, 2048), "tp=4,offload=activations")
