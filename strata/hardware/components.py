"""What chips are made of, as data: logic, memories on the die, memory devices beside or on it, and links.

The attributes are those of DeepFlow's Table 2 in SI units; one file holds one voice. What limits a component
is stated with it: lowest and highest voltage, ports, pins, reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import UnknownName
from strata.params import Sources, by_name, names, quantity, remembered, sourced_record, text


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
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
    gate_density: Number | None = quantity("1/m2", "transistors an area of logic", optional=True)
    clock: Number = quantity("Hz", "clock of a matrix unit at the nominal voltage", positive=True)
    voltage: Number = quantity("V", "nominal supply voltage", positive=True)
    threshold_voltage: Number = quantity("V", "threshold voltage", positive=True)
    min_voltage: Number = quantity("V", "lowest supply at which it works", positive=True)
    max_voltage: Number = quantity("V", "highest supply it bears", positive=True)
    leakage: Number = quantity("W/m2", "leakage of busy logic at the nominal voltage")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class OnChipMemory:
    """A memory on the die, by the bank: SRAM, a register file, MRAM, RRAM."""

    name: str = text("what templates call it")
    kind: str = text("the cell: SRAM, register file, MRAM, RRAM, eDRAM")
    read_energy: Number = quantity("J/B", "byte read from a bank, with its way over the crossbar")
    write_energy: Number | None = quantity("J/B", "byte written; left out: as read", optional=True)
    static_power: Number = quantity("W/B", "power at rest of a byte of capacity")
    area: Number = quantity("m2/B", "cells of a byte of capacity", positive=True)
    overhead: Number = quantity("1", "share of a memory's area that is not cells")
    bank_capacity: Number = quantity("B", "capacity of a bank", positive=True)
    port_area: Number = quantity("m2", "crossbar between one bank and one unit or bundle that it serves")
    port_power: Number | None = quantity("W", "power at rest of such a crosspoint", optional=True)
    port_width: Number | None = quantity(
        "B", "bytes a bank delivers a clock; left out: power alone limits it", optional=True
    )
    latency: Number = quantity("s", "load to use")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryDevice:
    """A memory outside the logic die, by the device: a stack of DRAM, a GDDR chip, a stack of flash."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    kind: str = text("the cell: DRAM, flash, 3D-XPoint, MRAM, RRAM")
    mount: str = text(
        "where it stands: beside the die in the package, on top of it, on the board, or on the die itself",
        choices=("beside", "on top", "board", "on die"),
    )
    timing: str = text("timings of its banks: a file of memories/, where there is one", default="")
    access_energy: Number = quantity("J/B", "byte read or written, array and interface")
    static_power: Number = quantity("W/B", "power at rest of a byte of capacity: refresh, standby")
    capacity: Number = quantity("B", "capacity of a device", positive=True)
    area: Number = quantity("m2", "footprint of a device with its keep-out", positive=True)
    height: Number | None = quantity("m", "height of a device over the package", optional=True)
    controller_area: Number = quantity("m2", "controller and PHY on the logic die for one device")
    pins: Number = quantity("1", "data pins of a device", positive=True)
    pin_rate: Number = quantity("B/s", "rate of a pin at the nominal voltage", positive=True)
    pins_per_edge: Number = quantity("1/m", "data pins that leave a length of die edge", positive=True)
    voltage: Number = quantity("V", "nominal voltage of the interface", positive=True)
    threshold_voltage: Number = quantity("V", "threshold voltage of its drivers", positive=True)
    min_voltage: Number = quantity("V", "lowest voltage at which the interface works", positive=True)
    max_voltage: Number = quantity("V", "highest voltage it bears", positive=True)
    latency: Number = quantity("s", "load to use, unloaded")
    write_share: Number | None = quantity(
        "1", "write bandwidth over read bandwidth; left out: equal", optional=True
    )
    price: Number | None = quantity("USD/B", "price of a byte of capacity", optional=True)
    sources: Sources = field(default_factory=Sources)


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class LinkPhy:
    """A link between dies, packages or nodes, by the lane, one direction."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    span: str = text(
        "what it joins: parts of a die, dies of a package, packages", choices=("die", "package", "board")
    )
    bonding: str = text("bumps its lanes leave by, unless told otherwise: a file of bonding/", default="")
    packaging: str = text("wires its lanes run in, unless told otherwise: a file of packaging/", default="")
    lane_rate: Number = quantity("B/s", "rate of a lane at the nominal voltage", positive=True)
    lane_energy: Number = quantity("J/B", "byte over a lane, both ends")
    lane_area: Number = quantity("m2", "PHY of a lane on the die")
    lanes_per_edge: Number | None = quantity(
        "1/m",
        "lanes that leave a length of die edge; left out: by bumps and wires of the package",
        optional=True,
    )
    wires_per_lane: Number = quantity(
        "1", "wires of a lane: 2 differential, with its share of clocks", minimum=1
    )
    voltage: Number = quantity("V", "nominal voltage", positive=True)
    threshold_voltage: Number = quantity("V", "threshold voltage of its drivers", positive=True)
    min_voltage: Number = quantity("V", "lowest voltage at which it works", positive=True)
    max_voltage: Number = quantity("V", "highest voltage it bears", positive=True)
    latency: Number = quantity("s", "first byte, end to end of one hop")
    reach: Number | None = quantity("m", "how far it goes", optional=True)
    price: Number | None = quantity(
        "USD", "price of a lane: its share of cable, module and port", optional=True
    )
    sources: Sources = field(default_factory=Sources)


def memory_device(name: str) -> MemoryDevice:
    """A memory device by name or TOML path: a file of `devices`."""
    found: MemoryDevice = _component(MemoryDevice, "devices", name)
    return found


def link_phy(name: str) -> LinkPhy:
    """A link by name or TOML path: a file of `links`."""
    found: LinkPhy = _component(LinkPhy, "links", name)
    return found


@remembered
def _component(cls: Any, kind: str, name: str) -> Any:
    if not name.endswith(".toml") and name.lower() not in names(kind):
        raise UnknownName(kind.removesuffix("s"), name, names(kind), ", ".join(names(kind)))
    return sourced_record(cls, kind, name)
