"""What chips are made of, as data: logic, memories on the die, memory devices beside or on it, and links.

The attributes are those of DeepFlow's Table 2 in SI units; one file holds one voice. What limits a component
is stated with it: lowest and highest voltage, ports, pins, reach.
"""

from __future__ import annotations

from strata.base.arrays import Number
from strata.params import (
    Named,
    by_name,
    check_shipped,
    positive,
    quantity,
    record,
    remembered,
    sourced_record,
    text,
)


@record
class Logic:
    """Transistors as arithmetic: what a multiply-add takes, and how clock and power follow the voltage."""

    mac_area: dict[str, Number] = by_name(
        "m2", "multiply-add with its share of the matrix unit around it, by format"
    )
    mac_energy: dict[str, Number] = by_name(
        "J", "multiply-add with its share of the matrix unit at the nominal voltage, by format"
    )
    vector_area: Number = quantity(
        "m2", "lane of a vector unit: fp32 multiply-add with issue and operand routing"
    )
    vector_energy: Number = quantity("J", "fp32 multiply-add of a vector lane at the nominal voltage")
    gate_density: Number | None = quantity("1/m2", "transistors an area of logic")
    clock: Number = positive("Hz", "clock of a matrix unit at the nominal voltage")
    voltage: Number = positive("V", "nominal supply voltage")
    threshold_voltage: Number = positive("V", "threshold voltage")
    min_voltage: Number = positive("V", "lowest supply at which it works")
    max_voltage: Number = positive("V", "highest supply it bears")
    leakage: Number = quantity("W/m2", "leakage of busy logic at the nominal voltage")


@record
class OnChipMemory:
    """A memory on the die, by the bank: SRAM, a register file, MRAM, RRAM."""

    name: str = text("what templates call it")
    kind: str = text("the cell: SRAM, register file, MRAM, RRAM, eDRAM")
    read_energy: Number = quantity("J/B", "byte read from a bank, with its way over the crossbar")
    write_energy: Number | None = quantity("J/B", "byte written; left out: as read")
    static_power: Number = quantity("W/B", "power at rest of a byte of capacity")
    area: Number = positive("m2/B", "cells of a byte of capacity")
    overhead: Number = quantity("1", "share of a memory's area that is not cells")
    bank_capacity: Number = positive("B", "capacity of a bank")
    port_area: Number = quantity("m2", "crossbar between one bank and one unit or bundle that it serves")
    port_power: Number | None = quantity("W", "power at rest of such a crosspoint")
    port_width: Number | None = quantity(
        "B", "bytes a bank delivers a clock; left out: power alone limits it"
    )
    latency: Number = quantity("s", "load to use")


@record
class MemoryDevice(Named):
    """A memory outside the logic die, by the device: a stack of DRAM, a GDDR chip, a stack of flash."""

    kind: str = text("the cell: DRAM, flash, 3D-XPoint, MRAM, RRAM")
    mount: str = text(
        "where it stands: beside the die in the package, on top of it, on the board, or on the die itself",
        choices=("beside", "on top", "board", "on die"),
    )
    timing: str = text("timings of its banks: a file of memories/, where there is one", default="")
    access_energy: Number = quantity("J/B", "byte read or written, array and interface")
    static_power: Number = quantity("W/B", "power at rest of a byte of capacity: refresh, standby")
    capacity: Number = positive("B", "capacity of a device")
    area: Number = positive("m2", "footprint of a device with its keep-out")
    height: Number | None = quantity("m", "height of a device over the package")
    controller_area: Number = quantity("m2", "controller and PHY on the logic die for one device")
    pins: Number = positive("1", "data pins of a device")
    pin_rate: Number = positive("B/s", "rate of a pin at the nominal voltage")
    pins_per_edge: Number = positive("1/m", "data pins that leave a length of die edge")
    voltage: Number = positive("V", "nominal voltage of the interface")
    threshold_voltage: Number = positive("V", "threshold voltage of its drivers")
    min_voltage: Number = positive("V", "lowest voltage at which the interface works")
    max_voltage: Number = positive("V", "highest voltage it bears")
    latency: Number = quantity("s", "load to use, unloaded")
    write_share: Number | None = quantity("1", "write bandwidth over read bandwidth; left out: equal")
    price: Number | None = quantity("USD/B", "price of a byte of capacity")


@record
class LinkPhy(Named):
    """A link between dies, packages or nodes, by the lane, one direction."""

    span: str = text(
        "what it joins: parts of a die, dies of a package, packages", choices=("die", "package", "board")
    )
    bonding: str = text("bumps its lanes leave by, unless told otherwise: a file of bonding/", default="")
    packaging: str = text("wires its lanes run in, unless told otherwise: a file of packaging/", default="")
    lane_rate: Number = positive("B/s", "rate of a lane at the nominal voltage")
    lane_energy: Number = quantity("J/B", "byte over a lane, both ends")
    lane_area: Number = quantity("m2", "PHY of a lane on the die")
    lanes_per_edge: Number | None = quantity(
        "1/m", "lanes that leave a length of die edge; left out: by bumps and wires of the package"
    )
    wires_per_lane: Number = quantity(
        "1", "wires of a lane: 2 differential, with its share of clocks", minimum=1
    )
    voltage: Number = positive("V", "nominal voltage")
    threshold_voltage: Number = positive("V", "threshold voltage of its drivers")
    min_voltage: Number = positive("V", "lowest voltage at which it works")
    max_voltage: Number = positive("V", "highest voltage it bears")
    latency: Number = quantity("s", "first byte, end to end of one hop")
    reach: Number | None = quantity("m", "how far it goes")
    price: Number | None = quantity("USD", "price of a lane: its share of cable, module and port")


@remembered
def memory_device(name: str) -> MemoryDevice:
    """A memory device by name or TOML path: a file of `devices`."""
    check_shipped("devices", name, "device")
    return sourced_record(MemoryDevice, "devices", name)


@remembered
def link_phy(name: str) -> LinkPhy:
    """A link by name or TOML path: a file of `links`."""
    check_shipped("links", name, "link")
    return sourced_record(LinkPhy, "links", name)
