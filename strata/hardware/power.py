"""Energy from geometry: wires, vias and bonds, SRAM banks; leakage by area; supply voltage against clock.

How leakage grows with temperature, and what that does to a chip, is not here: these are the quantities at their reference.
"""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.hardware.technology import Bonding, Technology

BITS = 8.0
VACUUM = 8.8541878128e-12  # permittivity [F/m]
CELLS = 0.7  # share of an SRAM bank that is bit cells; the rest is periphery (macros of 5 to 7 nm reach 0.65 to 0.75)


def switching_energy(capacitance: Number, voltage: Number, activity: Number = 0.25) -> Number:
    r"""Energy of a byte over wires that are charged and discharged [J/B].

    .. math:: e = 8 \, a \, C V^2

    capacitance C of one wire [F]; supply V; share a of bits that charge it: 1/4 for random data (half of the bits change, half of
    those rise).

    Rabaey, Chandrakasan & Nikolic, Digital Integrated Circuits (2003), sec. 5.5.

    >>> round(switching_energy(50e-15, 0.75) * 1e12, 5)  # pJ/B
    0.05625
    """
    return BITS * activity * capacitance * voltage**2


def via_capacitance(length: Number, radius: Number, oxide: Number, permittivity: Number = 3.9) -> Number:
    r"""Capacitance of a through-silicon via [F].

    .. math:: C = \frac{2 \pi \epsilon_0 \epsilon_r l}{\ln(1 + t / r)}

    metal of radius r and length l in an oxide of thickness t and relative permittivity ε. Depletion of the silicon around it lowers
    it; this is the most it can be.

    Katti et al., Electrical modeling and characterization of through silicon via, IEEE Trans. Electron Devices 57 (2010).

    >>> round(float(via_capacitance(50e-6, 2.5e-6, 0.2e-6)) * 1e15, 1)  # fF
    141.0
    """
    xp = namespace(length, radius, oxide)
    return 2.0 * xp.pi * VACUUM * permittivity * length / xp.log(1.0 + oxide / radius)


def vertical_energy(bonding: Bonding, connected: Number) -> Number:
    r"""Energy of a byte between the logic die and a layer, on average over the connected ones [J/B].

    .. math:: \bar e = e_j \frac{n + 1}{2}

    a byte of the k-th connected layer crosses k joints of e_j each; n connected layers are used alike. 0 where none is.

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

    a fixed part e_a of each access is shared by the w bytes it delivers; e_b a byte in column logic; e_d over the side s of the
    bank (`bank_side`). Wider ports and smaller banks cost less a byte.

    Constants are those of Jouppi et al., ISCA 2021 (7 nm): 0.94, 1.06 and 1.75 pJ/B for 64-bit accesses of 8 KB, 32 KB and 1 MB.

    >>> from strata.hardware.technology import technology
    >>> [round(float(sram_energy(technology("n7"), kib * 1024.0, 8.0)) * 1e12, 2) for kib in (8, 32, 1024)]  # pJ/B
    [0.94, 1.01, 1.74]
    """
    return technology.sram_access / width + technology.sram_byte + technology.sram_distance * bank_side(technology, bank)


def leakage_power(technology: Technology, area: Number, voltage: Number | None = None) -> Number:
    r"""Leakage of a die at the technology's reference temperature [W].

    .. math:: P = p_0 A \frac{V}{V_{nom}}

    leakage p_0 of busy silicon an area [W/m2], die area A; the current hardly depends on the supply over the small range used.

    >>> from strata.hardware.technology import technology
    >>> round(float(leakage_power(technology("n5"), 100e-6)), 2)
    6.0
    """
    share = 1.0 if voltage is None else voltage / technology.voltage
    return technology.leakage * area * share


def clock_at(technology: Technology, voltage: Number) -> Number:
    r"""Clock at a supply voltage, over that at the nominal one.

    .. math:: \frac{f}{f_{nom}} = \frac{(V - V_t)^2 / V}{(V_{nom} - V_t)^2 / V_{nom}}

    threshold V_t; 0 at and below it. The alpha-power law with α = 2, as DeepFlow has it.

    Sakurai & Newton, Alpha-power law MOSFET model, IEEE J. Solid-State Circuits 25 (1990); DeepFlow (2023), our study, sec. 2.2.

    >>> from strata.hardware.technology import technology
    >>> [round(float(clock_at(technology("n5"), v)), 3) for v in (0.2, 0.6, 0.75, 0.9)]
    [0.0, 0.661, 1.0, 1.35]
    """
    xp = namespace(voltage, technology.voltage)
    over = xp.maximum(voltage - technology.threshold, 0.0)
    return over**2 / voltage / ((technology.voltage - technology.threshold) ** 2 / technology.voltage)


def voltage_at(technology: Technology, clock: Number) -> Number:
    r"""Supply voltage for a clock given over the nominal one [V]: `clock_at` the other way round, never below the least voltage.

    .. math:: V = \max\left(V_{min}, \; V_t + \frac{g}{2} + \sqrt{g V_t + \frac{g^2}{4}}\right), \quad
        g = \frac{f}{f_{nom}} \frac{(V_{nom} - V_t)^2}{V_{nom}}

    Below the clock that the least voltage allows, only the clock falls, and energy an operation no further.

    >>> from strata.hardware.technology import technology
    >>> [round(float(voltage_at(technology("n5"), f)), 3) for f in (0.2, 0.661, 1.0)]
    [0.5, 0.6, 0.75]
    """
    drive = clock * (technology.voltage - technology.threshold) ** 2 / technology.voltage
    xp = namespace(clock, technology.voltage)
    needed = technology.threshold + drive / 2.0 + (drive * technology.threshold + drive**2 / 4.0) ** 0.5
    return xp.maximum(needed, technology.least_voltage)


def dynamic_power(technology: Technology, nominal: Number, clock: Number) -> Number:
    r"""Switching power at a clock given over the nominal one [W].

    .. math:: P = P_{nom} \frac{f}{f_{nom}} \left(\frac{V}{V_{nom}}\right)^2

    nominal power P_nom; V follows f (`voltage_at`).

    DeepFlow (2023), our study, sec. 2.2; Burd & Brodersen, J. VLSI Signal Process. 13 (1996).

    >>> from strata.hardware.technology import technology
    >>> [round(float(dynamic_power(technology("n5"), 100.0, f)), 1) for f in (0.5, 0.8, 1.0)]
    [24.6, 62.4, 100.0]
    """
    return nominal * clock * (voltage_at(technology, clock) / technology.voltage) ** 2
