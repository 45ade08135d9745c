"""What technology implies and what today's chips state: node, die area, power and one template against
`chips/*.toml`.

No number of a template is chosen for a chip; the device is the chip's generation of DRAM, and the stacks are
those it has.
"""

import pytest

from strata.hardware.chip import chip
from strata.hardware.generate.generate import generation

CHIPS = {
    # chip: (node, budget, template, device)
    "v100": ("n12", "v100", "gpu", "hbm2"),
    "a100-80": ("n7", "a100", "gpu", "hbm2e"),
    "h100": ("n5", "h100", "gpu", "hbm3"),
    "h200": ("n5", "h200", "gpu", "hbm3e"),
    "b200": ("n5", "b200", "gpu", "hbm3e"),
    "tpu-v4": ("n7", "tpu-v4", "systolic", "hbm2"),
}
# What is asked: peak and DRAM within 15 %, SRAM and power within 20 %. What falls short, and how far it does:
SHORT = {
    # 32 multiply-adds for each vector lane where the template has 16, and a peak stated for a clock that
    # 1000 W do not hold in a product
    ("b200", "peak"): 0.35,
}


def stated(name):
    known = chip(name)
    rates = known.compute.matrix_rate
    local = known.compute.cores * known.compute.sram_capacity
    return {
        "peak": rates.get("bf16", rates.get("fp16")),
        "memory": known.memory.bandwidth,
        "sram": local + known.cache.capacity + sum(level.capacity for level in known.levels or ()),
        "power": known.energy.power_limit,
    }


def regenerated(node, budget, template, device):
    found = generation(node, budget, template, device=device)
    assert found.infeasible == ()
    power = found.use["power"]
    return {
        "peak": found.made.running.core.rate,
        "memory": found.made.running.memory.bandwidth,
        "sram": sum(level.capacity for level in found.made.built.levels),
        "power": sum(value for name, value in power.items() if name != "total"),
    }


@pytest.mark.parametrize("quantity", ["peak", "memory", "sram", "power"])
@pytest.mark.parametrize("name", CHIPS)
def test_chips_are_regenerated_from_node_area_and_power(name, quantity):
    usual = 0.15 if quantity in ("peak", "memory") else 0.20
    off = float(regenerated(*CHIPS[name])[quantity] / stated(name)[quantity]) - 1.0
    assert abs(off) <= SHORT.get((name, quantity), usual), f"{100 * off:+.1f} %"


def test_a_p4_follows_from_its_own_template():
    """It has no matrix units: DeepFlow's template of fp32 units, node and split give it, ours does not."""
    made = generation("deepflow-p4", "deepflow-p4", "deepflow-p4").made
    known = chip("p4")
    assert float(made.running.core.rate) == pytest.approx(known.compute.vector_rate, rel=0.15)
    assert float(made.running.memory.bandwidth) == pytest.approx(known.memory.bandwidth, rel=0.15)
    sram = sum(level.capacity for level in made.built.levels)
    there = known.cache.capacity + known.compute.cores * known.compute.sram_capacity
    there += sum(level.capacity for level in known.levels)
    assert float(sram) == pytest.approx(there, rel=0.2)


@pytest.mark.parametrize("name", ["a100-80", "h100"])
def test_products_of_fp32_run_on_the_vector_lanes_of_a_gpu(name):
    """By the area of a multiply-add the matrix units would do four times as many, and none of them does."""
    made, known = generation(*CHIPS[name][:3], device=CHIPS[name][3]).chip, chip(name)
    assert made.compute.matrix_rate["fp32"] == made.compute.vector_rate
    assert float(made.compute.matrix_rate["fp32"]) == pytest.approx(known.compute.vector_rate, rel=0.2)
    assert made.energy.matrix["fp32"] == made.energy.vector


def test_deepflows_v100_corrected_is_a_v100():
    """Its units and split with the lanes a V100 has: nothing here was read off measured products."""
    made, known = generation("deepflow-v100", "deepflow-v100", "deepflow-v100").chip, chip("v100")
    for name in ("fp16", "fp32"):
        assert float(made.compute.matrix_rate[name]) == pytest.approx(
            known.compute.matrix_rate[name], rel=0.02
        )
    assert float(made.cache.bandwidth * made.cache.efficiency) == pytest.approx(2.155e12, rel=0.2)
    assert float(made.memory.bandwidth) == pytest.approx(known.memory.bandwidth, rel=0.15)
    assert made.kernel_model == "hierarchical"
