"""What nvidia-smi, amd-smi and rocm-smi print, read as samples; a made-up tool stands in for a real one."""

import json
import math
import os
import sys

import pytest

from strata.measure import gpu as board
from strata.measure.gpu import (
    amd_smi_samples,
    amd_watch,
    first_visible,
    nvidia_samples,
    nvidia_watch,
    rocm_smi_samples,
)
from strata.measure.measure import Refused, Sample


def clock(now):
    return {
        "clk": {"value": now, "unit": "MHz"},
        "min_clk": {"value": 132, "unit": "MHz"},
        "clk_locked": "DISABLED",
    }


# As `amd-smi metric --power --clock --temperature --json` of ROCm 6 has it: eight dies, of which one says nothing.
AMD = {
    "gpu": 0,
    "power": {
        "socket_power": {"value": 702, "unit": "W"},
        "gfx_voltage": "N/A",
        "throttle_status": "UNTHROTTLED",
    },
    "clock": {
        **{f"gfx_{i}": clock(1300 + 10 * i) for i in range(7)},
        "gfx_7": "N/A",
        "mem_0": clock(1300),
        "vclk_0": clock(29),
    },
    "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}, "mem": {"value": 58, "unit": "C"}},
}
SAID = Sample(power_w=702.0, sm_mhz=1330.0, mem_mhz=1300.0, temp_c=71.0, mem_temp=58.0)


def test_amd_smi_of_two_releases_says_the_same():
    assert amd_smi_samples(json.dumps([AMD])) == [SAID]
    assert amd_smi_samples(json.dumps({"gpu_data": [AMD, AMD]})) == [SAID, SAID]
    assert amd_smi_samples("WARNING: user is not in group render\n" + json.dumps([AMD])) == [SAID]


@pytest.mark.parametrize(
    "text", ["", "no such device", "{", "[1, 2]", "null", '{"gpu_data": 3}', json.dumps([AMD])[:200]]
)
def test_what_is_cut_off_or_something_else_is_no_sample(text):
    assert amd_smi_samples(text) == [] and rocm_smi_samples(text) == []


def test_a_board_that_says_nothing_is_nan():
    (silent,) = amd_smi_samples('[{"gpu": 0, "power": "N/A", "clock": {"gfx_0": {"clk": "N/A"}}}]')
    assert all(math.isnan(v) for v in vars(silent).values())


@pytest.mark.parametrize(
    "power", ["Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"]
)
def test_rocm_smi(power):
    card = {
        power: "560.0",
        "Max Graphics Package Power (W)": "750.0",
        "Temperature (Sensor edge) (C)": "N/A",
        "Temperature (Sensor junction) (C)": "64.0",
        "Temperature (Sensor memory) (C)": "52.0",
        "sclk clock level:": "1",
        "sclk clock speed:": "(1710Mhz)",
        "mclk clock speed:": "(1300Mhz)",
    }
    told = json.dumps({"card0": card, "system": {"Driver version": "6.8"}})
    assert rocm_smi_samples(told) == [Sample(560.0, 1710.0, 1300.0, 64.0, 52.0)]


def test_nvidia_smi_leaves_out_a_line_that_was_cut():
    told = "652.10, 1500, 3201, 64, 57\n[N/A], 1500, 3201, 64, [N/A]\n650.0, 15"
    first, second = nvidia_samples(told)
    assert first == Sample(652.1, 1500.0, 3201.0, 64.0, 57.0) and math.isnan(second.power_w)


def test_the_board_that_is_asked_is_the_one_pytorch_sees():
    assert first_visible({"ROCR_VISIBLE_DEVICES": "5"}) == 5
    assert first_visible({"HIP_VISIBLE_DEVICES": "GPU-abc"}) == 0


def tool(folder, name, text):
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport time\nprint({text!r}, flush=True)\ntime.sleep(0.02)\n")
    path.chmod(0o755)


@pytest.mark.skipif(os.name != "posix", reason="made-up tools are scripts")
def test_tools_are_asked_while_a_load_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="neither amd-smi nor rocm-smi is installed"), amd_watch(0):
        pass
    with pytest.raises(Refused, match="nvidia-smi is not installed"), nvidia_watch("0"):
        pass
    monkeypatch.setattr(board, "POLLED_EVERY", 0.001)
    tool(tmp_path, "rocm-smi", '{"card0": {"Average Graphics Package Power (W)": "35.0"}}')
    with amd_watch(0) as samples:
        wait_for(samples)
    assert {s.power_w for s in samples} == {35.0}
    tool(tmp_path, "amd-smi", json.dumps([AMD]))  # goes before the older tool
    with amd_watch(0) as samples:
        wait_for(samples)
    assert set(samples) == {SAID}


def wait_for(samples):
    import time

    until = time.monotonic() + 20.0
    while not samples and time.monotonic() < until:
        time.sleep(0.01)
