"""What technology implies and what today's chips state: node, die area, power, generation of DRAM and one
template for all GPUs, one for those without matrix units, one for systolic arrays.

No number of a template is chosen for a chip; leaving a chip out and refitting says how far a template carries.
"""

import math

import pytest
from refit import REAL, errors, free_numbers, generated, left_out, refitted

from strata.hardware.chip import chip
from strata.hardware.generate.recipe import generation
from strata.hardware.generate.template import template

ASKED = ("v100", "a100", "h100", "h200", "b200", "p4", "tpu-v4")
LIMITS = {"peak": 0.15, "memory": 0.15, "sram": 0.20, "power": 0.20}
KIND = {name: kind for kind in ("gpu", "gpu-simt", "systolic") for name in REAL[kind]}

# What a template refitted to the others says of a chip that is left out: error of peak, DRAM, SRAM, power [%]
LEFT_OUT = {
    "v100": (-14, 14, -20, -20),
    "a100": (27, 0, -8, -1),
    "h100": (5, -1, 14, -15),
    "h200": (5, 13, 14, -13),
    "b200": (-10, -9, 12, 0),
    "p4": (-15, -9, 22, 0),
    "p40": (-19, -3, 11, -31),
    "p100": (48, 40, -25, -22),
    "tpu-v4": (-6, -15, 27, -16),
    "tpu-v4i": (40, -17, -23, -33),
}


@pytest.mark.parametrize("quantity", LIMITS)
@pytest.mark.parametrize("name", ASKED)
def test_chips_are_regenerated_from_node_area_and_power(name, quantity):
    off = errors(REAL[KIND[name]][name], template(KIND[name]))[quantity]
    assert abs(off) <= LIMITS[quantity], f"{100 * off:+.1f} %"


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_chip_that_is_left_out(name):
    found = left_out(KIND[name], name)
    there = [100 * found[key] for key in ("peak", "memory", "sram", "power")]
    assert there == pytest.approx(LEFT_OUT[name], abs=4)


def test_the_template_is_near_its_own_fit():
    """One number is not least squares: the share of arithmetic is where the largest error of a peak is least."""
    chips = [real for real in REAL["gpu"].values() if "same_die" not in real]
    fitted, held = free_numbers(refitted("gpu", chips)), free_numbers(template("gpu"))
    assert fitted.keys() == held.keys()
    for key, value in held.items():
        assert value == pytest.approx(fitted[key], rel=0.12), key


@pytest.mark.parametrize("name", [name for name in KIND if "chip" in REAL[KIND[name]][name]])
def test_the_real_numbers_are_those_of_the_chip_files(name):
    real = REAL[KIND[name]][name]
    known = chip(real["chip"])
    rates = known.compute.matrix_rate
    main = next(name for name in ("bf16", "fp16", "fp32") if name in rates)
    assert real["peak"] == pytest.approx(float(rates[main]))
    assert real["memory"] == pytest.approx(float(known.memory.bandwidth))
    assert real["power"] == float(known.energy.power_limit)
    local = known.compute.cores * known.compute.sram_capacity
    sram = local + known.cache.capacity + sum(level.capacity for level in known.levels or ())
    extra = 37 * 2**20 if name == "b200" else 0.0  # tensor memory, which the chip's file leaves out
    assert sum(real["sram"]) == pytest.approx(float(sram) + extra, rel=0.01)


def test_levels_of_gpus_apart():
    """L2 of a V100 was 2.5 times too large and a B200's half of what it is when units did not follow the node:
    too few bundles make a crossbar too small, and a die's crossbar reaches only its own bundles."""
    for name in ("v100", "a100", "h100", "b200"):
        real = REAL["gpu"][name]
        there = generated(real, template("gpu"))["sram"]
        for got, known in zip(there, real["sram"], strict=True):
            assert abs(math.log(got / known)) < math.log(1.45), name


def test_a_crossbar_stays_on_its_die():
    one, two = (generation("n5", "b200", "gpu", dies=dies).made.built for dies in (1.0, 2.0))
    assert two.levels[2].ports == one.levels[2].ports / 2
    assert two.levels[2].capacity > 1.3 * one.levels[2].capacity


def test_a_product_is_slower_than_the_peak_where_power_is_short():
    """Datasheets quote a B200's peak at a clock that 1000 W do not hold in a product."""
    real = REAL["gpu"]["b200"]
    there = generated(real, template("gpu"))
    assert there["product"] < 0.9 * there["peak"]


@pytest.mark.parametrize("name, peak, memory", [("mi300x", -15, 0), ("mi250x", 63, 0)])
def test_chips_that_nobody_looked_at(name, peak, memory):
    found = errors(REAL["unseen"][name], template("gpu"))
    assert 100 * found["peak"] == pytest.approx(peak, abs=3)
    assert 100 * found["memory"] == pytest.approx(memory, abs=3)


def test_links_are_those_of_the_budget():
    real = {"v100": 150e9, "a100": 300e9, "h100": 450e9, "h200": 450e9}
    for name, rate in real.items():
        node = REAL["gpu"][name]["node"]
        found = generation(node, name, "gpu").made.running.networks[0].bandwidth
        assert float(found) == pytest.approx(rate, rel=0.05), name
    # both dies' outer edge holds half as many lanes again as a B200 has
    assert float(generation("n5", "b200", "gpu").made.running.networks[0].bandwidth) == pytest.approx(
        1.3e12, rel=0.05
    )


def test_a_wafer_is_one_node():
    """Cerebras WSE-2 from 46,225 mm2 of 7 nm and 15 kW; and a whole wafer."""
    real = chip("wse-2")
    found = generation("n7", "wse-2", "wafer")
    made = found.made
    assert found.infeasible == ()
    assert float(made.built.memory.capacity) == pytest.approx(float(real.memory.capacity), rel=0.02)
    assert float(made.running.core.bundles) == pytest.approx(float(real.compute.cores), rel=0.2)
    assert float(made.running.core.rate) == pytest.approx(float(real.compute.matrix_rate["bf16"]), rel=0.2)
    # the capacities of cores, cache and memory are one
    built = found.chip
    assert float(built.memory.capacity) == float(built.cache.capacity)
    assert float(built.compute.sram_capacity * built.compute.cores) == pytest.approx(
        float(built.memory.capacity), rel=0.02
    )
    whole = generation("n7", "wafer", "wafer").made
    assert float(whole.running.core.rate / made.running.core.rate) == pytest.approx(70000 / 46225, rel=0.01)


def test_a_p4_follows_from_deepflows_own_template_too():
    made = generation("deepflow-p4", "deepflow-p4", "deepflow-p4").made
    known = chip("p4")
    assert float(made.running.core.rate) == pytest.approx(known.compute.vector_rate, rel=0.15)
    assert float(made.running.memory.bandwidth) == pytest.approx(known.memory.bandwidth, rel=0.15)


@pytest.mark.parametrize("name", ["v100", "a100"])  # an H100 has twice the lanes of the law
def test_products_of_fp32_run_on_the_vector_lanes_of_a_gpu(name):
    """By the area of a multiply-add the matrix units would do four times as many, and none of them does."""
    real = REAL["gpu"][name]
    made, known = generation(real["node"], name, "gpu").chip, chip(real["chip"])
    assert made.compute.matrix_rate["fp32"] == pytest.approx(made.compute.vector_rate)
    assert float(made.compute.matrix_rate["fp32"]) == pytest.approx(known.compute.vector_rate, rel=0.25)
    assert made.energy.matrix["fp32"] == pytest.approx(made.energy.vector)


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
