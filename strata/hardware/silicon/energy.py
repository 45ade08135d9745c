"""Energy from geometry: joints of a stack, wires, SRAM banks; leakage by area; a chip's energies beside them.

How leakage grows with temperature, and how energy follows the clock, is not here: these are the quantities at
their reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.base.arrays import Number, namespace
from strata.hardware.dram.stack import connected_layers
from strata.hardware.technology import Bonding, Process, bonding, process_node

if TYPE_CHECKING:
    from strata.hardware.chip import Chip
    from strata.hardware.silicon.floorplan import Silicon

BITS = 8.0
ZERO_CELSIUS = 273.15
# bytes a clock of one bank of local memory: the 64-bit accesses that energies of SRAM are published for
BANK_PORT = 8.0
# share of an SRAM bank that is bit cells; the rest is periphery (macros of 5 to 7 nm reach 0.65 to 0.75)
CELLS = 0.7


def vertical_energy(bonding: Bonding, connected: Number) -> Number:
    r"""Energy of a byte between the logic die and a layer, on average over the connected ones [J/B].

    .. math:: \bar e = e_j \frac{n + 1}{2}

    a byte of the k-th connected layer crosses k joints of e_j each; n connected layers are used alike. 0
    where none is.

    >>> from strata.hardware.technology import bonding
    >>> [round(float(vertical_energy(bonding("hybrid-bond"), n)) * 1e12, 2) for n in (0.0, 1.0, 4.0)]  # pJ/B
    [0.0, 0.4, 1.0]
    """
    return namespace(connected).where(connected > 0.0, bonding.energy * (connected + 1.0) / 2.0, 0.0)


def wire_energy(process: Process, distance: Number) -> Number:
    r"""Energy of a byte over on-chip wires [J/B].

    .. math:: e = e_w d

    >>> from strata.hardware.technology import process_node
    >>> round(float(wire_energy(process_node("n5"), 10e-3)) * 1e12, 2)  # pJ/B across 10 mm
    6.4
    """
    return process.wire_energy * distance


def bank_side(process: Process, capacity: Number) -> Number:
    r"""Side of a square SRAM bank [m].

    .. math:: s = \sqrt{8 c \, a_{bit} / \eta}

    c bytes of cells a_bit, which fill the share η = 0.7 of the bank.

    >>> from strata.hardware.technology import process_node
    >>> round(float(bank_side(process_node("n7"), 2.0**20)) * 1e3, 3)  # mm
    0.569
    """
    return (BITS * capacity * process.sram_cell / CELLS) ** 0.5


def sram_energy(process: Process, bank: Number, width: Number) -> Number:
    r"""Energy of a byte out of an SRAM bank [J/B].

    .. math:: e = \frac{e_a}{w} + e_b + e_d \, s

    a fixed part e_a of each access is shared by the w bytes it delivers; e_b a byte in column logic; e_d over
    the side s of the bank (`bank_side`). Wider ports and smaller banks cost less a byte.

    Constants are those of Jouppi et al., ISCA 2021 (7 nm): 0.94, 1.06 and 1.75 pJ/B for 64-bit accesses of 8
    KB, 32 KB and 1 MB.

    >>> from strata.hardware.technology import process_node
    >>> n7 = process_node("n7")
    >>> [round(float(sram_energy(n7, kib * 1024.0, 8.0)) * 1e12, 2) for kib in (8, 32, 1024)]  # pJ/B
    [0.94, 1.01, 1.74]
    """
    return process.sram_access / width + process.sram_byte + process.sram_distance * bank_side(process, bank)


def leakage_power(process: Process, area: Number) -> Number:
    r"""Leakage of a die at the technology's reference temperature [W].

    .. math:: P = p_0 A

    leakage p_0 of busy silicon an area [W/m2], die area A.

    >>> from strata.hardware.technology import process_node
    >>> round(float(leakage_power(process_node("n5"), 100e-6)), 2)
    6.0
    """
    return process.leakage * area


@dataclass(frozen=True, eq=False, slots=True)
class EnergyComparison:
    """An energy by geometry and process beside the stated one [J/B], or leakage [W]; None: none is stated."""

    name: str
    geometry: Number
    stated: Number | None
    what: str


def energies_of(chip: Chip, silicon: Silicon) -> tuple[EnergyComparison, ...]:
    """A chip's energies by geometry and process beside what it states: how far these can be believed.

    Local memory is cut into banks with a port of 8 bytes each, as many as its width needs; wires go along the
    side of a die.

    >>> from strata.hardware.chip import chip
    >>> found = energies_of(chip("stack-ref"), chip("stack-ref").silicon)
    >>> [(e.name, round(float(e.geometry) * 1e12, 2)) for e in found[:3]]  # pJ/B
    [('local memory', 0.65), ('across the die', 6.4), ('up the stack', 1.0)]
    """
    process, compute, energy = process_node(silicon.technology), chip.compute, chip.energy
    banks = compute.sram_bandwidth / compute.clock / BANK_PORT
    side = (chip.package.die_area / silicon.dies) ** 0.5
    bank = sram_energy(process, compute.sram_capacity / banks, BANK_PORT)
    hop = None if silicon.noc is None else silicon.noc.hop_energy
    found = [
        EnergyComparison("local memory", bank, energy.sram, "a bank; stated with its crossbar"),
        EnergyComparison(
            "across the die", wire_energy(process, side), hop, "wires; stated: a hop of the network"
        ),
    ]
    if chip.stack is not None:
        joints = vertical_energy(bonding(silicon.bonding), connected_layers(chip.stack))
        said = "joints; stated: DRAM with them"
        found.append(EnergyComparison("up the stack", joints, energy.memory, said))
    cooling = None if chip.stack is None else chip.cooling
    share, stated = (1.0, "static power") if cooling is None else (cooling.leakage_share, "its leaking share")
    said = f"at {float(process.reference_temperature) - ZERO_CELSIUS:.0f} degC; stated: {stated}"
    leaks = leakage_power(process, chip.package.die_area)
    return (*found, EnergyComparison("leakage", leaks, energy.static_power * share, said))
