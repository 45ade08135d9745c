"""What silicon is made of: process nodes, ways to join dies, and packages, each number with its source."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any

from strata.arrays import Number
from strata.errors import MissingQuantity, UnknownName
from strata.hardware.components import Logic, OnChipMemory
from strata.hardware.scaling import Scaling, scaled_node
from strata.params import Sources, names, part, positive, quantity, record, remembered, sourced_record, text


@record
class Process:
    """A process node as a foundry sells it: how dense, how dear, how leaky, and what switching costs."""

    sram_cell: Number = positive("m2", "area of a high-density SRAM bit cell")
    wafer_price: Number = positive("USD", "price of a processed 300 mm wafer")
    defect_density: Number = quantity("1/m2", "defects that kill, an area of die")
    clustering: Number = positive("1", "how much defects cluster (negative binomial); large: not at all")
    leakage: Number = quantity(
        "W/m2", "leakage of busy logic and SRAM, an area of die at the reference temperature"
    )
    reference_temperature: Number = positive("K", "temperature at which leakage is quoted")
    wire_energy: Number = quantity("J/B/m", "byte over a distance of on-chip wire with its repeaters")
    sram_access: Number = quantity("J", "fixed energy of one SRAM access: decoder, word line, control")
    sram_byte: Number = quantity("J/B", "byte through sense amplifiers and column logic of a bank")
    sram_distance: Number = quantity("J/B/m", "byte over the side of a bank: bit lines and wires")


@record
class Technology:
    """What a die of a node is made of: its process, its logic and its memories; one voice a file."""

    name: str = text("short name, as in the file's name")
    title: str = text("what the foundry or the paper calls it")
    process: Process | None = part(Process, "density, price, yield and energies of the node")
    logic: Logic | None = part(Logic, "arithmetic")
    on_chip: tuple[OnChipMemory, ...] = part(
        OnChipMemory, "memories on the die, by the bank", optional=True, many=True
    )
    scaling: Scaling | None = part(Scaling, "how the numbers follow from those of the base; done when read")
    sources: Sources = field(default_factory=Sources)


@record
class Bonding:
    """A way to join dies: pitch, energy of a crossing, and what a joint costs and loses."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    pitch: Number = positive("m", "distance between neighbouring connections")
    energy: Number = quantity("J/B", "byte over one joint, drivers and receivers included")
    rows: Number | None = positive("1", "rows of connections behind an edge from which links leave")
    signal_share: Number | None = quantity(
        "1", "share of connections that carry data; the others supply, shield and clock"
    )
    step_yield: Number = positive("1", "share of dies that survive being joined")
    step_price: Number = quantity("USD", "price of joining one die: thinning, vias, bonding, clean-up")
    sources: Sources = field(default_factory=Sources)


@record
class Packaging:
    """What a die or stack is put into."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    interposer_ratio: Number = quantity(
        "1", "interposer area over the area of what stands on it; 0: no interposer"
    )
    interposer_price: Number = quantity("USD/m2", "price of interposer, made and tested")
    substrate_ratio: Number = positive("1", "substrate area over the area of what stands on it")
    substrate_price: Number = quantity("USD/m2", "price of organic substrate")
    wire_pitch: Number | None = positive("m", "distance between neighbouring wires of a layer")
    routing_layers: Number | None = positive("1", "layers of wires between dies, without those for supply")
    max_area: Number | None = positive("m2", "largest area on which dies and stacks can stand")
    placement_price: Number = quantity("USD", "price of placing one die or stack")
    placement_yield: Number = positive("1", "share of packages that survive placing one die or stack")
    test_price: Number = quantity("USD", "testing one finished package: handler and tester time, burn-in")
    sources: Sources = field(default_factory=Sources)


def technology(name: str) -> Technology:
    """A process node by name or TOML path.

    >>> n5 = technology("n5")
    >>> round(float(n5.process.sram_cell) * 1e12, 4), n5.sources["process.sram_cell"].assumed
    (0.021, False)
    """
    found: Technology = _technology(name)
    return found


@remembered
def _technology(name: str) -> Technology:
    found: Technology = _read(Technology, "technology", name)
    by = found.scaling
    if by is None:
        return found
    factors = {f.name: getattr(by, f.name) for f in fields(by)}
    return scaled_node(found, factors.pop("generations"), **factors)


def process_node(name: str) -> Process:
    """The process of a node by name or TOML path.

    >>> process_node("n5").sram_cell == process_node("n3").sram_cell
    True
    """
    known = technology(name)
    if known.process is None:
        raise MissingQuantity(
            f"technology {known.name} has no [process]: density, price and yield of its node"
        )
    return known.process


def bonding(name: str) -> Bonding:
    """A way to join dies by name or TOML path.

    >>> bonding("hybrid-bond").pitch < bonding("micro-bump").pitch
    True
    """
    found: Bonding = _read(Bonding, "bonding", name)
    return found


def packaging(name: str) -> Packaging:
    """A package by name or TOML path.

    >>> float(packaging("organic").interposer_ratio)
    0.0
    """
    found: Packaging = _read(Packaging, "packaging", name)
    return found


@remembered
def _read(cls: Any, kind: str, name: str) -> Any:
    if not name.endswith(".toml") and name.lower() not in names(kind):
        raise UnknownName(kind, name, names(kind), ", ".join(names(kind)))
    return sourced_record(cls, kind, name)
