"""What today's chips state beside what the technology of their node implies, each within a stated error.

A chip's energies include what stands around a part, so a matrix operation is a multiply-add and the operands
and sums its registers carry. Energies are those of a chip's own file: `strata calibrate` fits to the power of
whole kernels and puts what it cannot tell apart into caches and DRAM (57 and 72 pJ/B for H200). Tolerances are
what is found, rounded up; where they are wide, the test says why.
"""

import pytest

import strata as st
from strata.base.units import parse
from strata.hardware.components import link_phy, memory_device
from strata.hardware.silicon.floorplan import made_of
from strata.hardware.technology import device_bandwidth, edge_bandwidth, technology
from strata.params import data_folder, read_toml

# chip: node, memory device and stacks, format, bytes of registers a multiply-add moves
# mma m16n8k16: operands of 768 B and 16 x 8 sums of 4 B read and written, a 2048 multiply-adds; wgmma and its
# successor read operands from local memory and move 64 x 256 sums for 64 x 256 x 16; an array of 128 x 128
# passes operands on
CHIPS = {
    "v100": ("n12", "hbm2", 4, "fp16", 1792 / 2048),
    "a100-80": ("n7", "hbm2e", 5, "bf16", 1792 / 2048),
    "h100": ("n5", "hbm3", 5, "bf16", 8 / 16),
    "h200": ("n5", "hbm3e", 6, "bf16", 8 / 16),
    "b200": ("n5", "hbm3e", 8, "bf16", 8 / 16),
    "tpu-v4": ("n7", "hbm2", 4, "bf16", 8 / 128),
}
GPUS = [name for name in CHIPS if name != "tpu-v4"]


def stated_energy(name, *path):
    """An energy as the chip's file has it, before calibration [J]."""
    entry = read_toml(data_folder("chip") / f"{name}.toml")["energy"]
    for key in path:
        entry = entry[key]
    return parse(entry["value"], "J/FLOP" if path[0] == "matrix" else "J/B")


def memories(node):
    return {m.name: m for m in technology(node).on_chip}


@pytest.mark.parametrize(("name", "within"), [
    ("v100", 0.25), ("a100-80", 0.20), ("h100", 0.40), ("h200", 0.35), ("b200", 0.25),
    ("tpu-v4", 0.55),  # 1.05 GHz, below the nominal voltage: two thirds of the energy
])  # fmt: skip
def test_a_multiply_add(name, within):
    """The chip's is what is left of its power limit in a long product; B200's units are twice as large."""
    node, _, _, form, carried = CHIPS[name]
    implied = technology(node).logic.mac_energy[form] + carried * memories(node)["registers"].read_energy
    assert implied == pytest.approx(2 * stated_energy(name, "matrix", form), rel=within)


def test_a_multiply_add_as_measured():
    """H200's fitted to measured power, 0.226 pJ/FLOP, is a multiply-add without its registers; N5 was set with it."""
    assert technology("n5").logic.mac_energy["bf16"] == pytest.approx(
        2 * st.chip("h200").energy.matrix["bf16"], rel=0.05
    )


@pytest.mark.parametrize("name", GPUS)
def test_bytes_of_caches_and_local_memory(name):
    """Caches within 15 %; local memory within a factor of two: chips count operand delivery with it. B200's
    cache has the way to the cores in it, as H200's was measured: 26 pJ/B more.
    """
    node, *_ = CHIPS[name]
    found, way = memories(node), {"b200": 26e-12}.get(name, 0.0)
    assert found["sram-dense"].read_energy == pytest.approx(stated_energy(name, "cache") - way, rel=0.15)
    assert 0.5 < found["sram"].read_energy / stated_energy(name, "sram") < 1.0


@pytest.mark.parametrize("name", CHIPS)
def test_bytes_of_dram(name):
    """Chips take DFModel's 7 pJ/bit; devices add up 3.9 pJ/bit of HBM and 1 pJ/bit of PHY. B200's and H100's
    have the way to the cores in them, as H200's was measured: 24 pJ/B more, and 14.
    """
    _, device, *_ = CHIPS[name]
    way = {"b200": 24e-12, "h100": 14e-12}.get(name, 0.0)
    assert memory_device(device).access_energy == pytest.approx(stated_energy(name, "memory") - way, rel=0.35)


@pytest.mark.parametrize("name", CHIPS)
def test_bandwidth_of_a_stack(name):
    """Within 17 %: TPU v4 runs HBM2 at 2.4 Gb/s, V100 at 1.75 Gb/s; its file has 2 Gb/s."""
    _, device, stacks, *_ = CHIPS[name]
    implied = stacks * device_bandwidth(memory_device(device))
    assert implied == pytest.approx(st.chip(name).memory.bandwidth, rel=0.17)


@pytest.mark.parametrize(("name", "stacks"), [("v100", 4), ("a100-80", 5), ("h100", 5), ("b200", 8)])
def test_capacity_of_stacks(name, stacks):
    _, device, *_ = CHIPS[name]
    assert stacks * memory_device(device).capacity >= 0.93 * st.chip(name).memory.capacity


@pytest.mark.parametrize(("name", "link", "one_way", "dies"), [
    ("h100", "nvlink4", 450e9, 1), ("h200", "nvlink4", 450e9, 1), ("b200", "nvlink5", 900e9, 2),
])  # fmt: skip
def test_edge_of_a_die(name, link, one_way, dies):
    """NVLink takes a tenth of a die's edge, HBM's pins a third; together they leave room for the rest."""
    chip = st.chip(name)
    _, device, stacks, *_ = CHIPS[name]
    edge = dies * 4 * (chip.package.die_area / dies) ** 0.5
    links = one_way / edge_bandwidth(link_phy(link)) / edge
    pins = stacks * memory_device(device).pins / memory_device(device).pins_per_edge / edge
    assert 0.05 < links < 0.15 and 0.2 < pins < 0.4


def test_edge_of_the_floorplan():
    """H100's floorplan: 48 mm of memory for six interfaces, 30 mm of links with PCIe."""
    found = made_of(st.chip("h100")).floorplan
    device = memory_device("hbm3")
    assert 6 * device.pins / device.pins_per_edge == pytest.approx(found.memory_edge, rel=0.3)
    assert 450e9 / edge_bandwidth(link_phy("nvlink4")) < found.link_edge


@pytest.mark.parametrize(("name", "node", "cores", "macs", "lanes", "within"), [
    ("v100", "n12", 80, 512, 64, 0.15),
    ("a100-80", "n7", 108, 1024, 64, 0.15),
    ("h100", "n5", 132, 2048, 128, 0.15),
    ("b200", "n5", 148, 4096, 128, 0.15),
    ("tpu-v4", "n7", 8, 16384, 256, 0.15),
])  # fmt: skip
def test_arithmetic_takes_45_percent_of_a_die(name, node, cores, macs, lanes, within):
    """One area a node lets every die hold the units behind its published peak."""
    logic, chip = technology(node).logic, st.chip(name)
    rate = chip.compute.matrix_rate.get("bf16") or chip.compute.matrix_rate["fp16"]
    assert 2 * cores * macs * chip.compute.clock == pytest.approx(rate, rel=0.01)
    taken = cores * (macs * logic.mac_area["bf16"] + lanes * logic.vector_area)
    assert taken == pytest.approx(0.45 * chip.package.die_area, rel=within)


def test_the_law_of_clock_and_voltage_by_a_measured_chip():
    """A 5 nm inference chip (Keller et al., VLSI 2022) runs at 152 MHz at 0.46 V and at 1760 MHz at 1.05 V; it
    holds 1024 4-bit multiply-adds with their buffers in 0.153 mm2.
    """
    logic = technology("n5").logic

    def speed(voltage):
        return (voltage - logic.threshold_voltage) ** 2 / voltage

    assert speed(1.05) / speed(0.46) == pytest.approx(1760 / 152, rel=0.05)
    assert logic.min_voltage == 0.46 and logic.max_voltage == 1.05
    # ours is a GPU's, with what schedules it around
    assert 1.0 < logic.mac_area["fp4"] / (0.153e-6 / 1024) < 2.0
