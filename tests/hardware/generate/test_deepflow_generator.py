"""The generator against the architecture generator of DeepFlow's 2021 program, by the same equations."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from strata.hardware.generate.recipe import generation
from strata.hardware.generate.template import GeneratorRules, template
from strata.hardware.generate.voltage import run_slower
from strata.hardware.technology import technology

REFERENCE = json.loads((Path(__file__).parents[2] / "data/deepflow/generator.json").read_text())
CASES = REFERENCE["cases"]


def numbers(made):
    """What the program prints, in its words and units."""
    core, built = made.running.core, made.built
    found = {
        "core.num_mcu": core.units,
        "core.num_bundle": core.bundles,
        "core.operating_voltage_V": core.point.voltage,
        "core.operating_freq_Hz": core.clock,
        "core.throughput_raw_flops": core.rate,
        "core.throughput_derated_flops": core.rate * made.template.matrix_efficiency,
        "core.operating_power_per_mcu_W": made.power["core"] / core.units,
    }
    shared = (core.units, core.bundles, 1.0)
    for i, (level, banks, run) in enumerate(
        zip(made.template.levels, built.levels, made.running.levels, strict=True)
    ):
        found |= {
            f"l{i}.size_B": banks.capacity,
            f"l{i}.size_per_scope_unit_B": banks.capacity / shared[i],
            f"l{i}.bandwidth_raw_Bps": run.bandwidth,
            f"l{i}.bandwidth_derated_Bps": run.bandwidth * level.efficiency,
            f"l{i}.num_banks": banks.banks,
            f"l{i}.static_power_W": banks.static_power,
            f"l{i}.dynamic_power_W": made.power[level.name] - banks.static_power,
            f"l{i}.bank_area_mm2": banks.bank_area * 1e6,
        }
    memory, runs = built.memory, made.running.memory
    found |= {
        "l3.size_B": memory.capacity,
        "l3.bandwidth_raw_Bps": runs.bandwidth,
        "l3.bandwidth_derated_Bps": runs.bandwidth * made.template.memory_efficiency,
        "l3.num_stacks": memory.devices,
        "l3.num_links": memory.pins,
        "l3.perimeter_bound_links": memory.edge_pins,
        "l3.operating_voltage_V": runs.point.voltage,
        "l3.operating_freq_Hz": runs.pin_rate * 8,
        "l3.latency_s": made.device.latency,
    }
    for net, link, run in zip(made.template.networks, made.links, made.running.networks, strict=True):
        found |= {
            f"net_{net.name}.num_links": run.lanes,
            # the program reports the voltage that power asks for, also below the lowest
            f"net_{net.name}.operating_voltage_V": run.point.asked,
            f"net_{net.name}.operating_freq_Hz": run.lane_rate * 8,
            f"net_{net.name}.p2p_bandwidth_Bps": run.neighbour,
            f"net_{net.name}.latency_s": link.latency,
        }
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_deepflow_reference_generator(case):
    made = generation(case["technology"], case["budget"], case["template"], **case["changes"]).made
    found = numbers(made)
    expected = {f"{part}.{key}": value for part, table in case["out"].items() for key, value in table.items()}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        # links without power: the program's polynomial leaves a residue of 3e-5 B/s, here it is 0
        residue = 1e-4 if key.endswith((".operating_freq_Hz", ".p2p_bandwidth_Bps")) else 0.0
        assert found[key] == pytest.approx(value, rel=1e-6, abs=residue), key
    counted = [key for key in expected if ".num_" in key or key.endswith("perimeter_bound_links")]
    assert [found[key] for key in counted] == [expected[key] for key in counted]


def test_what_our_rules_change_of_the_reference():
    """The same technology and split by our rules: what differs from the 2021 program, and why."""
    ours = replace(template("deepflow-2021"), rules=replace(GeneratorRules(), sums="any"))
    found = {}
    for case in CASES:
        if case["template"] == "deepflow-2021":
            made = generation(case["technology"], case["budget"], ours, **case["changes"]).made
            there = case["out"]
            found[case["name"]] = (
                made.running.core.rate / there["core"]["throughput_raw_flops"],
                made.built.levels[1].capacity / there["l1"]["size_B"],
                made.running.memory.bandwidth / there["l3"]["bandwidth_raw_Bps"],
            )
    # whole bundles: 640 of 643 units, each a little faster on the same power
    usual = (0.9974, 1.0, 1.0)
    differs = {
        # at the lowest voltage 61 of 80 bundles run, and do what all would do slowly, less half a bundle
        "v100 core power frac 0.05": (0.9949, 1.0, 1.0),
        # 1.05 V is the highest, where the program goes on to 1.06 V
        "v100 core area frac 0.15": (0.9877, 1.0, 1.0),
        # a bank of L1 is joined to the units of its bundle, not to every bundle of the chip
        "exp_config default": (0.9974, 5.946, 1.0),
        # edge for 2.2 stacks is two stacks, not four stacks with half of their pins
        "v100 DRAM perimeter 0.05 (perimeter bound)": (0.9974, 1.0, 0.942),
    }
    for name, row in found.items():
        assert row == pytest.approx(differs.get(name, usual), rel=5e-4), name


# DeepFlow e8fc755 (2025): clock, bundles, sizes and bandwidths of its A100 and H100 are typed in; of the law only
# the voltage is left, and it does not move the clock. Outputs recorded for this project.
TYPED_IN = {
    # bundles, FLOP a clock and unit, clock [Hz]: units, voltage [V], FLOP/s
    "a100_80GB": ((108, 512, 1.41e9), (432, 0.867847086, 311869440e6)),
    "H100_SXM5_80GB": ((132, 1024, 1.98e9), (528, 0.821062642, 1070530560e6)),
}


@pytest.mark.parametrize("name", TYPED_IN)
def test_deepflow_reference_generator_2025(name):
    (bundles, flop, clock), (units, voltage, rate) = TYPED_IN[name]
    logic = technology(
        "deepflow-v100"
    ).logic  # 0.13 W a unit at 0.8 V, threshold 0.2 V: the same in all three
    point = run_slower(0.2516 * 300.0, 4.0 * bundles, 0.13, logic, capped=False)
    assert point.count == units
    assert float(point.voltage) == pytest.approx(voltage, rel=1e-6)
    assert point.count * flop * clock == pytest.approx(rate, rel=1e-9)


def test_deepflow_reference_generator_2025_v100():
    """The one file of three whose numbers still come from the laws."""
    found = numbers(generation("deepflow-v100", "deepflow-v100", "deepflow-2021").made)
    assert (found["core.num_mcu"], found["core.num_bundle"]) == (643, 80)
    expected = {
        "core.operating_voltage_V": 0.867854837,
        "core.operating_freq_Hz": 1518994460.0,
        "core.throughput_raw_flops": 125019320e6,
        "core.throughput_derated_flops": 106266422e6,
        "l0.bandwidth_derated_Bps": 103021009e6,
        "l1.bandwidth_derated_Bps": 30028120.2e6,
        "l2.bandwidth_derated_Bps": 1038278.6e6,
        "l3.bandwidth_derated_Bps": 992856.61e6,
        "l0.size_B": 21004288,
        "l1.size_B": 10485760,
        "l2.size_B": 6291456,
        "l3.size_B": 17179869184,
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6)
