"""Levels of memory: their order, what one instance holds, and what a file may say of them."""

import numpy as np
import pytest

from strata.base.errors import BadFile, BadValue
from strata.hardware.chip import chip
from strata.hardware.hierarchy import matrix_units, memory_levels, scope_capacity

LEVEL = """
[[levels]]
name = "{name}"
scope = "{scope}"
capacity = {{ value = "1 MiB", source = "assumed: for this test" }}
bandwidth = {{ value = "9 TB/s", source = "assumed: for this test" }}
efficiency = {{ value = {efficiency}, source = "assumed: for this test" }}
latency = {{ value = "1 ns", source = "assumed: for this test" }}
energy = {{ value = "1 pJ/B", source = "assumed: for this test" }}
"""


def with_levels(tmp_path, *levels, efficiency=1):
    text = 'base = "tpu-v4"\nname = "more"\n'
    text += "".join(LEVEL.format(name=name, scope=scope, efficiency=efficiency) for name, scope in levels)
    path = tmp_path / "more.toml"
    path.write_text(text)
    return str(path)


def test_levels_stand_innermost_first_whatever_the_file_order(tmp_path):
    levels = memory_levels(chip(with_levels(tmp_path, ("L3", "global"), ("acc", "bundle"), ("regs", "unit"))))
    assert [level.name for level in levels] == ["regs", "local", "acc", "cache", "L3", "HBM2"]


@pytest.mark.parametrize("name", ["a100-80", "h100", "h200", "b200", "v100", "p4"])
def test_registers_of_a_gpu_are_256_kib_a_core(name):
    gpu = chip(name)
    registers = memory_levels(gpu)[0]
    assert float(registers.capacity) == float(gpu.compute.cores) * 256 * 1024
    assert float(scope_capacity(gpu, registers) * matrix_units(gpu)) == float(registers.capacity)
    # a product at the peak, eq. 5 of DeepFlow with 16-bit operands and long reuse, is fed by them
    peak = max(float(rate) for p, rate in gpu.compute.matrix_rate.items() if p in ("bf16", "fp16", "fp32"))
    fed = (1 / float(gpu.compute.array_rows) + 1 / float(gpu.compute.array_columns)) * peak
    assert fed <= float(registers.bandwidth)


def test_what_a_file_may_say_of_a_level(tmp_path):
    with pytest.raises(BadFile, match=r"levels.0.scope must be one of unit, bundle, global"):
        chip(with_levels(tmp_path, ("x", "die")))
    with pytest.raises(BadValue, match="at most 1"):
        chip(with_levels(tmp_path, ("x", "unit"), efficiency=1.5))
    with pytest.raises(BadValue, match="hierarchical"):
        chip("h200", kernel_model="hierarchic")


def test_levels_may_be_arrays_and_are_found_by_path():
    changed = chip("h200", **{"levels.0.capacity": np.array([1e6, 2e6]), "kernel_model": "hierarchical"})
    assert scope_capacity(changed, memory_levels(changed)[0]).tolist() == [1e6 / 528, 2e6 / 528]
    assert changed.kernel_model == "hierarchical"
