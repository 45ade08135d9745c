"""Energy from geometry, leakage by area, and both beside what chips state."""

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadValue, MissingQuantity
from strata.hardware.silicon import energy as p
from strata.hardware.silicon.energy import energies_of
from strata.hardware.technology import bonding, process_node
from strata.params import find

NODES = ("n16", "n7", "n5", "n3")


def test_energies_of_joints_fall_with_the_distance_they_bridge():
    order = [float(bonding(n).energy) for n in ("hybrid-bond", "micro-bump", "interposer", "organic")]
    assert order == sorted(order) and order[0] < order[2] / 5


def test_deeper_stacks_pay_for_more_joints():
    joint = bonding("hybrid-bond")
    found = p.vertical_energy(joint, np.arange(0.0, 13.0))
    assert found[0] == 0 and found[1] == joint.energy and np.all(np.diff(found) > 0)
    mean_of_layers = np.mean([k * joint.energy for k in range(1, 9)])
    assert found[8] == pytest.approx(mean_of_layers)


def test_sram_energies_are_those_published_for_7_nm():
    published = {8: 7.5, 32: 8.5, 1024: 14.0}  # pJ a 64-bit access
    for kib, energy in published.items():
        assert float(p.sram_energy(process_node("n7"), kib * 1024.0, 8.0)) * 8e12 == pytest.approx(
            energy, rel=0.06
        )


@pytest.mark.parametrize("node", NODES)
def test_small_banks_and_wide_ports_cost_less_a_byte(node):
    tech, banks, widths = process_node(node), np.geomspace(1e3, 1e6, 8)[:, None], np.array([8.0, 64.0, 256.0])
    found = p.sram_energy(tech, banks, widths)
    assert np.all(np.diff(found, axis=0) > 0) and np.all(np.diff(found, axis=1) < 0)
    assert found[3, 1] == float(p.sram_energy(tech, float(banks[3, 0]), 64.0))


def test_newer_nodes_are_denser_dearer_and_switch_for_less():
    made = [process_node(n) for n in NODES]
    for field, up in (
        ("sram_cell", False),
        ("wafer_price", True),
        ("sram_byte", False),
        ("wire_energy", False),
    ):
        values = [float(getattr(t, field)) for t in made]
        assert values == sorted(values, reverse=not up)


def test_leakage_is_by_area():
    tech = process_node("n5")
    assert float(p.leakage_power(tech, 2e-4)) == 2 * float(p.leakage_power(tech, 1e-4))


def test_dram_of_a_stack_costs_its_array_and_the_joints_to_it():
    ref = st.chip("stack-ref")
    assert float(ref.energy.memory) == pytest.approx(
        float(ref.energy.memory_array) + 2.5 * float(bonding("hybrid-bond").energy)
    )
    layers = np.arange(1.0, 13.0)
    deep, partly = (
        st.chip("stack-ref", layers=layers, **changes).energy.memory
        for changes in ({}, {"connected_layers": 1.0})
    )
    assert np.all(np.diff(deep) > 0) and np.ptp(partly) == 0 and partly[0] == deep[0]
    assert deep[3] == float(ref.energy.memory)
    bumps = st.chip("stack-ref", **{"silicon.bonding": "micro-bump"})
    assert float(bumps.energy.memory) > float(ref.energy.memory)


def test_energy_of_dram_is_given_once(tmp_path):
    with pytest.raises(BadValue, match=r"energy\.memory follows from energy\.memory_array and the stack"):
        st.chip("stack-ref", **{"energy.memory": "20 pJ/B"})
    with pytest.raises(MissingQuantity, match=r"energy\.memory_array needs a .stack. and floorplan_file"):
        st.chip(str(_without(tmp_path, 'floorplan_file = "stack-ref"')), **{"compute.cores": 8})
    with pytest.raises(BadValue, match=r"energy\.memory is missing"):
        st.chip(str(_without(tmp_path, "memory_array")))


def _without(folder, start):
    """stack-ref's file without one of its lines."""
    made = folder / "mine.toml"
    made.write_text(
        "\n".join(
            line for line in find("chip", "stack-ref").read_text().splitlines() if not line.startswith(start)
        )
    )
    return made


def test_chips_state_energies_of_the_order_that_geometry_gives():
    for name in ("stack-ref", "h100", "h200"):
        chip = st.chip(name)
        found = {e.name: e for e in energies_of(chip, chip.silicon)}
        assert ("up the stack" in found) == (chip.stack is not None)
        for e in found.values():
            assert e.geometry > 0 and (e.stated is None or 0.03 < e.geometry / e.stated < 10), (name, e)
    few, many = (
        energies_of(c, c.silicon) for c in (st.chip("stack-ref", layers=2), st.chip("stack-ref", layers=8))
    )
    assert many[2].geometry > few[2].geometry and many[0].geometry == few[0].geometry
