"""Energy from geometry: joints of a stack, wires, SRAM banks; leakage by area.

How leakage grows with temperature, and how energy follows the clock, is not here: these are the quantities at
their reference.
"""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.hardware.technology import Bonding, Technology

BITS = 8.0
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


def wire_energy(technology: Technology, distance: Number) -> Number:
    r"""Energy of a byte over on-chip wires [J/B].

    .. math:: e = e_w d

    >>> from strata.hardware.technology import technology
    >>> round(float(wire_energy(technology("n5"), 10e-3)) * 1e12, 2)  # pJ/B across 10 mm
    6.4
    """
    return technology.wire_energy * distance


def bank_side(technology: Technology, capacity: Number) -> Number:
    r"""Side of a square SRAM bank [m].

    .. math:: s = \sqrt{8 c \, a_{bit} / \eta}

    c bytes of cells a_bit, which fill the share η = 0.7 of the bank.

    >>> from strata.hardware.technology import technology
    >>> round(float(bank_side(technology("n7"), 2.0**20)) * 1e3, 3)  # mm
    0.569
    """
    return (BITS * capacity * technology.sram_cell / CELLS) ** 0.5


def sram_energy(technology: Technology, bank: Number, width: Number) -> Number:
    r"""Energy of a byte out of an SRAM bank [J/B].

    .. math:: e = \frac{e_a}{w} + e_b + e_d \, s

    a fixed part e_a of each access is shared by the w bytes it delivers; e_b a byte in column logic; e_d over
    the side s of the bank (`bank_side`). Wider ports and smaller banks cost less a byte.

    Constants are those of Jouppi et al., ISCA 2021 (7 nm): 0.94, 1.06 and 1.75 pJ/B for 64-bit accesses of 8
    KB, 32 KB and 1 MB.

    >>> from strata.hardware.technology import technology
    >>> [round(float(sram_energy(technology("n7"), kib * 1024.0, 8.0)) * 1e12, 2) for kib in (8, 32, 1024)]  # pJ/B
    [0.94, 1.01, 1.74]
    """
    return (
        technology.sram_access / width
        + technology.sram_byte
        + technology.sram_distance * bank_side(technology, bank)
    )


def leakage_power(technology: Technology, area: Number) -> Number:
    r"""Leakage of a die at the technology's reference temperature [W].

    .. math:: P = p_0 A

    leakage p_0 of busy silicon an area [W/m2], die area A.

    >>> from strata.hardware.technology import technology
    >>> round(float(leakage_power(technology("n5"), 100e-6)), 2)
    6.0
    """
    return technology.leakage * area
