"""Energy from geometry, leakage and the voltage a clock needs."""

import numpy as np
import pytest

from strata.hardware import power as p
from strata.hardware.technology import bonding, technology

NODES = ("n16", "n7", "n5", "n3")


def test_energies_of_joints_fall_with_the_distance_they_bridge():
    order = [float(bonding(n).energy) for n in ("hybrid-bond", "micro-bump", "interposer", "organic")]
    assert order == sorted(order) and order[0] < order[2] / 5


def test_a_hybrid_bonds_energy_is_that_of_its_capacitance():
    # A via of 5 um through 50 um of silicon, and as much again for the driver and its wires.
    via = float(p.via_capacitance(50e-6, 2.5e-6, 0.2e-6))
    assert float(p.switching_energy(2 * via, 0.75)) == pytest.approx(float(bonding("hybrid-bond").energy), rel=0.5)


def test_deeper_stacks_pay_for_more_joints():
    joint = bonding("hybrid-bond")
    found = p.vertical_energy(joint, np.arange(0.0, 13.0))
    assert found[0] == 0 and found[1] == joint.energy and np.all(np.diff(found) > 0)
    mean_of_layers = np.mean([k * joint.energy for k in range(1, 9)])
    assert found[8] == pytest.approx(mean_of_layers)


def test_sram_energies_are_those_published_for_7_nm():
    published = {8: 7.5, 32: 8.5, 1024: 14.0}  # pJ a 64-bit access
    for kib, energy in published.items():
        assert float(p.sram_energy(technology("n7"), kib * 1024.0, 8.0)) * 8e12 == pytest.approx(energy, rel=0.06)


@pytest.mark.parametrize("node", NODES)
def test_small_banks_and_wide_ports_cost_less_a_byte(node):
    tech, banks, widths = technology(node), np.geomspace(1e3, 1e6, 8)[:, None], np.array([8.0, 64.0, 256.0])
    found = p.sram_energy(tech, banks, widths)
    assert np.all(np.diff(found, axis=0) > 0) and np.all(np.diff(found, axis=1) < 0)
    assert found[3, 1] == float(p.sram_energy(tech, float(banks[3, 0]), 64.0))


def test_newer_nodes_are_denser_dearer_and_switch_for_less():
    made = [technology(n) for n in NODES]
    for field, up in (("logic_density", True), ("wafer_price", True), ("sram_byte", False), ("wire_energy", False)):
        values = [float(getattr(t, field)) for t in made]
        assert values == sorted(values, reverse=not up)


@pytest.mark.parametrize("node", NODES)
def test_voltage_and_clock_are_each_others_inverse(node):
    tech = technology(node)
    volts = np.linspace(float(tech.least_voltage), 1.1, 30)
    assert p.voltage_at(tech, p.clock_at(tech, volts)) == pytest.approx(volts, rel=1e-12)
    assert float(p.clock_at(tech, tech.voltage)) == pytest.approx(1) and float(p.clock_at(tech, 0.1)) == 0


def test_power_rises_faster_than_the_clock_until_the_least_voltage():
    tech = technology("n5")
    clocks = np.linspace(0.05, 1.2, 40)
    power = p.dynamic_power(tech, 100.0, clocks)
    assert np.all(np.diff(power / clocks) >= -1e-9)
    low = clocks < float(p.clock_at(tech, tech.least_voltage))
    assert np.ptp(power[low] / clocks[low]) < 1e-9  # only the clock falls there


def test_leakage_is_by_area_and_voltage():
    tech = technology("n5")
    assert float(p.leakage_power(tech, 2e-4)) == 2 * float(p.leakage_power(tech, 1e-4))
    assert float(p.leakage_power(tech, 1e-4, 0.5 * tech.voltage)) == pytest.approx(0.5 * float(p.leakage_power(tech, 1e-4)))
