"""Processes, logic, memories, devices, links, joints and packages: every file is read, with its sources, and
trends are those of physics.
"""

from itertools import pairwise

import pytest

import strata as st
from strata.base.precision import BYTES
from strata.hardware.components import link_phy, memory_device
from strata.hardware.technology import bonding, packaging, technology
from strata.params import names, stated

FOUNDRY = ("n16", "n12", "n10", "n7", "n5", "n3", "n2", "a14")  # oldest first
READERS = {
    "technology": technology,
    "devices": memory_device,
    "links": link_phy,
    "bonding": bonding,
    "packaging": packaging,
}


@pytest.mark.parametrize("kind", READERS)
def test_every_file_is_read_and_names_its_sources(kind):
    read = READERS[kind]
    for name in names(kind):
        found = read(name)
        assert found.name == name and found.title and len(found.sources) >= 4
        assert all(len(p.source) > 8 for p in stated(found).values())
    said = {"devices": "device", "links": "link"}.get(kind, kind)
    with pytest.raises(st.StrataError, match=f"no {said} called 'x'; all: "):
        read("x")


def falling(values):
    return all(b <= a for a, b in pairwise(values))


def of_nodes(path):
    return [stated(technology(name))[path].value for name in FOUNDRY]


@pytest.mark.parametrize(
    "path",
    [
        "process.sram_cell",
        "process.wire_energy",
        "process.sram_byte",
        "logic.mac_area.bf16",
        "logic.mac_energy.bf16",
        "logic.mac_energy.int8",
        "logic.vector_area",
        "logic.vector_energy",
        "on_chip.0.read_energy",
        "on_chip.1.read_energy",
        "on_chip.2.read_energy",
        "on_chip.2.area",
        "on_chip.2.port_area",
    ],
)
def test_newer_nodes_take_no_more_area_and_energy(path):
    assert falling(of_nodes(path))


@pytest.mark.parametrize("path", ["logic.gate_density", "process.wafer_price"])
def test_newer_nodes_are_denser_and_dearer(path):
    assert falling([-v for v in of_nodes(path)])


def test_logic_shrinks_more_than_cells_and_cells_more_than_wires():
    """The reason why caches and crossings of the die weigh more at each node."""
    gain = {
        path: of_nodes(path)[0] / of_nodes(path)[-1]
        for path in ("logic.mac_area.bf16", "process.sram_cell", "process.wire_energy")
    }
    assert gain["logic.mac_area.bf16"] > 2 * gain["process.sram_cell"] > 4 * gain["process.wire_energy"]


@pytest.mark.parametrize("name", FOUNDRY)
def test_logic_is_ordered_by_format_and_voltage(name):
    logic = technology(name).logic
    wide = ("fp64", "fp32", "tf32", "bf16", "fp8", "fp4")
    assert set(wide) < set(logic.mac_area) == set(logic.mac_energy) <= set(BYTES)
    for table in (logic.mac_area, logic.mac_energy):
        assert falling([table[f] for f in wide]) and table["int8"] <= table["fp8"]
    assert logic.threshold_voltage < logic.min_voltage < logic.voltage < logic.max_voltage


@pytest.mark.parametrize("name", FOUNDRY)
def test_memories_of_a_die_grow_dear_with_their_distance(name):
    found = {m.name: m for m in technology(name).on_chip}
    near, middle, far = (found[n] for n in ("registers", "sram", "sram-dense"))
    assert near.read_energy < middle.read_energy < far.read_energy
    assert near.latency < middle.latency < far.latency
    assert near.area > middle.area > far.area
    assert far.area == pytest.approx(8 * technology(name).process.sram_cell, rel=0.01)  # 8 bits a byte
    for memory in found.values():
        assert 0 < memory.overhead < 1
    for kind in ("mram", "rram"):
        if kind in found:  # they hold without power, and are written at a price
            assert found[kind].write_energy > found[kind].read_energy
            assert found[kind].static_power < 0.2 * far.static_power


HBM = ("hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "hbm4e")


def test_generations_of_hbm_are_faster_larger_and_not_hungrier():
    devices = [memory_device(name) for name in HBM]
    assert falling([d.access_energy for d in devices])
    for better in ("pin_rate", "capacity"):
        assert falling([-getattr(d, better) for d in devices[:4]])
    assert falling([-float(d.pins * d.pin_rate) for d in devices])


@pytest.mark.parametrize("name", names("devices"))
def test_devices_are_whole(name):
    device = memory_device(name)
    assert device.threshold_voltage < device.min_voltage <= device.voltage <= device.max_voltage
    if device.timing:
        assert device.timing in names("memory")
    assert device.write_share is None or 0 < device.write_share <= 1


def test_the_stacked_device_is_that_of_the_reference_chip():
    device, chip = memory_device("stacked-dram"), st.chip("stack-ref")
    assert device.pins * device.pin_rate == pytest.approx(chip.memory.bandwidth, rel=1e-3)
    assert device.capacity == pytest.approx(chip.memory.capacity, rel=1e-3)
    assert device.area == pytest.approx(chip.package.die_area)
    assert device.access_energy == pytest.approx(chip.energy.memory, rel=0.05)
    assert device.static_power * device.capacity == pytest.approx(4 * 0.5, rel=1e-3)
    assert device.latency == chip.memory.latency and device.mount == "on top"


@pytest.mark.parametrize(("name", "gigabytes"), [("ndr", 100), ("xdr", 200), ("gdr", 400)])
def test_eight_lanes_of_infiniband_are_the_papers_networks(name, gigabytes):
    assert 8 * link_phy(f"infiniband-{name}").lane_rate == pytest.approx(gigabytes * 1e9)


@pytest.mark.parametrize(
    ("name", "lanes", "terabytes"), [("nvlink4", 36, 0.45), ("nvlink5", 36, 0.9), ("nvlink6", 36, 1.8)]
)
def test_lanes_of_nvlink_add_up_to_a_gpu(name, lanes, terabytes):
    assert lanes * link_phy(name).lane_rate == pytest.approx(terabytes * 1e12)


def test_a_bit_costs_less_the_shorter_its_way():
    """Over a board more than in a package, there more than on a die."""
    energies = {name: link_phy(name).lane_energy for name in names("links")}
    order = ("infiniband-ndr", "nvlink5", "ucie-standard", "ucie-advanced", "on-die-mesh")
    assert falling([energies[name] for name in order])
    assert energies["co-packaged-optics"] < energies["infiniband-xdr"]


def test_the_papers_nodes_are_its_library_seven_times():
    seven = [technology(f"deepflow-{n}") for n in ("n12", "n10", "n7", "n5", "n3", "n2", "n1")]
    first, (name, area) = seven[0], next(iter(seven[0].logic.mac_area.items()))
    base = technology("deepflow-v100")
    assert stated(first)["logic.clock"].value == base.logic.clock
    assert area == pytest.approx(base.logic.mac_area[name], rel=1e-12)
    for g, node in enumerate(seven):
        assert area / node.logic.mac_area[name] == pytest.approx(1.8**g, rel=1e-12)
        assert first.logic.mac_energy[name] / node.logic.mac_energy[name] == pytest.approx(1.3**g, rel=1e-12)
        assert node.logic.clock == first.logic.clock and node.scaling.generations == g
        for a, b in zip(first.on_chip, node.on_chip, strict=True):
            assert a.area / b.area == pytest.approx(1.8**g, rel=1e-12)


@pytest.mark.parametrize(("name", "terabytes"), [("hbm2e", 2.0), ("hbm3", 2.6), ("hbm4", 3.3)])
def test_four_stacks_are_the_papers_memories(name, terabytes):
    device = memory_device(f"deepflow-{name}")
    assert 4 * device.pins * device.pin_rate == pytest.approx(terabytes * 1e12, rel=1e-5)
