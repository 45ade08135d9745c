"""What silicon is made of: process nodes, ways to join dies, and packages, each number with its source; and
what a technology becomes some nodes later, by constant factors a node: DeepFlow's way of looking ahead.
Lanes of a link that a length of die edge, or an area of die, can have: by bumps, wires and layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, replace
from typing import TypeVar

from strata.base.arrays import Number, namespace
from strata.base.errors import MissingQuantity
from strata.hardware.components import LinkPhy, Logic, MemoryDevice, OnChipMemory
from strata.params import (
    Named,
    Param,
    Sources,
    check_shipped,
    part,
    positive,
    quantity,
    record,
    remembered,
    sourced_record,
    stated,
    text,
)


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
class Scaling:
    """How a file's numbers follow from those of its base: so many nodes on, by constant factors a node."""

    generations: Number = quantity("1", "nodes after the base")
    logic_area: Number = positive("1", "area of logic over that of the next node")
    logic_power: Number = positive("1", "power of logic over that of the next node at equal speed")
    sram_area: Number = positive("1", "area of memory cells over that of the next node")
    sram_power: Number = positive("1", "power of memory banks over that of the next node at equal speed")


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
class Bonding(Named):
    """A way to join dies: pitch, energy of a crossing, and what a joint costs and loses."""

    pitch: Number = positive("m", "distance between neighbouring connections")
    energy: Number = quantity("J/B", "byte over one joint, drivers and receivers included")
    rows: Number | None = positive("1", "rows of connections behind an edge from which links leave")
    signal_share: Number | None = quantity(
        "1", "share of connections that carry data; the others supply, shield and clock"
    )
    step_yield: Number = positive("1", "share of dies that survive being joined")
    step_price: Number = quantity("USD", "price of joining one die: thinning, vias, bonding, clean-up")


@record
class Packaging(Named):
    """What a die or stack is put into."""

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


@remembered
def technology(name: str) -> Technology:
    """A process node by name or TOML path.

    >>> n5 = technology("n5")
    >>> round(float(n5.process.sram_cell) * 1e12, 4), n5.sources["process.sram_cell"].assumed
    (0.021, False)
    """
    check_shipped("technology", name)
    found = sourced_record(Technology, "technology", name)
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


@remembered
def bonding(name: str) -> Bonding:
    """A way to join dies by name or TOML path.

    >>> bonding("hybrid-bond").pitch < bonding("micro-bump").pitch
    True
    """
    check_shipped("bonding", name)
    return sourced_record(Bonding, "bonding", name)


@remembered
def packaging(name: str) -> Packaging:
    """A package by name or TOML path.

    >>> float(packaging("organic").interposer_ratio)
    0.0
    """
    check_shipped("packaging", name)
    return sourced_record(Packaging, "packaging", name)


def scaled_node(
    technology: Technology,
    generations: Number,
    *,
    logic_area: Number = 1.8,
    logic_power: Number = 1.3,
    sram_area: Number = 1.0,
    sram_power: Number = 1.0,
) -> Technology:
    r"""A technology some nodes later: areas and powers shrink by constant factors, speed stays.

    .. math::
       a_{logic}(g) = a_{logic} / \alpha^g, \qquad e_{logic}(g) = e_{logic} / \pi^g, \qquad
       l(g) = l \, \alpha^g / \pi^g

    area a and energy e of a multiply-add, leakage l of an area of logic; factors :math:`\alpha` =
    `logic_area`, :math:`\pi` = `logic_power` a node; g nodes, which may be an array or not whole. Crossbars
    are wires and logic and shrink as logic; cells and their banks have factors of their own: the paper does
    not state them. Left out they stay (`sram_area` = `sram_power` = 1, as TSMC's N5 to N3E cells do); equal
    to those of logic they shrink with it. Clock and voltages, wafer price and defects stay.

    DeepFlow (2023), sec. 9: 1.8 and 1.3 a node from N12 to N1 at equal performance.

    >>> from strata.hardware.technology import technology
    >>> n5, later = technology("n5"), scaled_node(technology("n5"), 2.0)
    >>> round(float(n5.logic.mac_area["bf16"] / later.logic.mac_area["bf16"]), 6)
    3.24
    >>> [round(float(a.area / b.area), 6) for a, b in zip(n5.on_chip, later.on_chip)][:2]
    [1.0, 1.0]
    """
    area, power = logic_area**generations, logic_power**generations
    cells, banks = sram_area**generations, sram_power**generations
    logic, process, on_chip = technology.logic, technology.process, technology.on_chip or ()
    scaled = replace(
        technology,
        process=process and _process(process, area / power, cells, banks),
        logic=logic and _logic(logic, area, power),
        on_chip=tuple(_memory(m, area, power, cells, banks) for m in on_chip) or technology.on_chip,
    )
    return replace(scaled, sources=_noted(technology, scaled))


def rescaled_node(technology: Technology, **factors: Number) -> Technology:
    """A technology that follows from its base by constant factors, with some of them changed: as its file
    would be read with those (`sram_area=1.0`: cells stay as they are; `generations` may be an array).

    >>> from strata.hardware.technology import technology
    >>> n1, n12 = technology("deepflow-n1"), technology("deepflow-n12")
    >>> stay = rescaled_node(n1, sram_area=1.0, sram_power=1.0)
    >>> round(float(stay.on_chip[2].area / n12.on_chip[2].area), 6)
    1.0
    """
    by = technology.scaling
    if by is None:
        raise MissingQuantity(f"technology {technology.name} has no [scaling]: it stands by itself")
    before = {f.name: getattr(by, f.name) for f in fields(by)}
    base = scaled_node(
        technology, -before["generations"], **{k: before[k] for k in before if k != "generations"}
    )
    after = before | factors
    found = scaled_node(base, after["generations"], **{k: after[k] for k in after if k != "generations"})
    return replace(found, scaling=replace(by, **factors))


def _logic(logic: Logic, area: Number, power: Number) -> Logic:
    return replace(
        logic,
        mac_area={name: a / area for name, a in logic.mac_area.items()},
        mac_energy={name: e / power for name, e in logic.mac_energy.items()},
        vector_area=logic.vector_area / area,
        vector_energy=logic.vector_energy / power,
        gate_density=None if logic.gate_density is None else logic.gate_density * area,
        leakage=logic.leakage * area / power,
    )


def _memory(memory: OnChipMemory, area: Number, power: Number, cells: Number, banks: Number) -> OnChipMemory:
    return replace(
        memory,
        read_energy=memory.read_energy / banks,
        write_energy=None if memory.write_energy is None else memory.write_energy / banks,
        static_power=memory.static_power / banks,
        area=memory.area / cells,
        port_area=memory.port_area / area,
        port_power=None if memory.port_power is None else memory.port_power / power,
    )


def _process(process: Process, leakage: Number, cells: Number, banks: Number) -> Process:
    return replace(
        process,
        sram_cell=process.sram_cell / cells,
        leakage=process.leakage * leakage,
        sram_access=process.sram_access / banks,
        sram_byte=process.sram_byte / banks,
        sram_distance=process.sram_distance / banks,
    )


def _noted(before: Technology, after: Technology) -> Sources:
    """Sources of a scaled technology: what it stands on, and that it was scaled."""
    found: dict[str, Param] = {}
    for path, param in stated(after).items():
        known = before.sources.get(path)
        if known is not None and known.value is param.value:
            found[path] = known
        else:
            found[path] = Param(param.value, param.unit, f"{param.source}; scaled by a factor a node")
    return Sources(found)


Joined = TypeVar("Joined", Bonding, Packaging)


def edge_lanes(link: LinkPhy, bond: Bonding | None = None, package: Packaging | None = None) -> Number:
    r"""Lanes of one direction that leave a length of die edge, as many of the other beside them [1/m].

    .. math::
       n = \frac{1}{2 w} \min\left( \frac{L}{p_{wire}}, \; \frac{r \, s}{p_{bump}} \right)

    wires of a lane w; routing layers L of wires at pitch :math:`p_{wire}`; rows r of bumps at pitch
    :math:`p_{bump}`, of which a share s carries data. A link that states its own number keeps it; bumps
    and wires are those the link names where none are given.

    After the model of Pal & Gupta (2020), which DeepFlow cites for its links; the share and the rows are
    those of the bonding.

    >>> from strata.hardware.components import link_phy
    >>> from strata.hardware.technology import bonding
    >>> plain = link_phy("interposer")
    >>> round(float(edge_lanes(plain)) / 1e3), round(float(edge_lanes(plain, bonding("organic"))) / 1e3)
    (160, 32)
    """
    if link.lanes_per_edge is not None:
        return link.lanes_per_edge
    bond, package = bond or _named(link, "bonding", bonding), package or _named(link, "packaging", packaging)
    layers, wire = _known(package, "routing_layers"), _known(package, "wire_pitch")
    rows, share = _known(bond, "rows"), _known(bond, "signal_share")
    xp = namespace(layers, wire, rows, share, bond.pitch, link.wires_per_lane)
    return 0.5 / link.wires_per_lane * xp.minimum(layers / wire, rows * share / bond.pitch)


def area_lanes(link: LinkPhy, bond: Bonding | None = None) -> Number:
    r"""Lanes of one direction an area of die, with their partners: by their bumps or by their circuits
    [1/m2].

    .. math:: n = \min\left( \frac{1}{a_{lane}}, \; \frac{s}{2 \, w \, p_{bump}^2} \right)

    >>> from strata.hardware.components import link_phy
    >>> round(float(area_lanes(link_phy("interposer"))) / 1e6)
    155
    """
    if bond is None and not link.bonding:  # nothing says that bumps bind
        return 1.0 / link.lane_area
    bond = bond or bonding(link.bonding)
    bumps = 2.0 * link.wires_per_lane * bond.pitch**2 / _known(bond, "signal_share")
    xp = namespace(link.lane_area, bumps)
    return 1.0 / xp.maximum(link.lane_area, bumps)


def edge_bandwidth(link: LinkPhy) -> Number:
    r"""What a length of die edge sends at the nominal voltage [B/s/m]: lanes times their rate.

    >>> from strata.hardware.components import link_phy
    >>> round(float(edge_bandwidth(link_phy("ucie-advanced"))) / 1e12, 1)  # GB/s a mm, one direction
    658.4
    """
    return edge_lanes(link) * link.lane_rate


def device_bandwidth(device: MemoryDevice) -> Number:
    r"""What a memory device delivers at the nominal voltage [B/s].

    .. math:: B = n_{pin} \, r_{pin}

    >>> from strata.hardware.components import memory_device
    >>> [round(float(device_bandwidth(memory_device(name))) / 1e9) for name in ("hbm2", "hbm4")]
    [256, 2048]
    """
    return device.pins * device.pin_rate


def device_edge_bandwidth(device: MemoryDevice) -> Number:
    r"""What memory brings over a length of die edge at the nominal voltage [B/s/m]: pins times their rate.

    >>> from strata.hardware.components import memory_device
    >>> round(float(device_edge_bandwidth(memory_device("hbm4"))) / 1e12, 1)  # GB/s a mm
    256.0
    """
    return device.pins_per_edge * device.pin_rate


def _named(link: LinkPhy, kind: str, read: Callable[[str], Joined]) -> Joined:
    name = getattr(link, kind)
    if not name:
        raise MissingQuantity(
            f"link {link.name} states neither lanes_per_edge nor its {kind}: how many lanes leave an edge is "
            "not known"
        )
    return read(name)


def _known(record: Bonding | Packaging, name: str) -> Number:
    value: Number | None = getattr(record, name)
    if value is None:
        kind = "bonding" if isinstance(record, Bonding) else "package"
        raise MissingQuantity(f"{kind} {record.name} states no {name}, which lanes of a link follow from")
    return value
