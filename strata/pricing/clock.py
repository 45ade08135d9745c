"""The clock a chip can hold: at its power limit the cores slow down, DRAM and links do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from strata.arrays import Number, namespace, repeated
from strata.hardware.chip import Chip
from strata.pricing.price import Price

STEPS = 11  # halvings of the clock's range: a resolution of 0.04 % of the highest clock
LEAST = 0.2  # lowest clock tried, as a share of the highest: about the idle clock of a GPU


@dataclass(frozen=True, eq=False, slots=True)
class Clocked:
    """A load at the clock it can hold: its price, that clock as a share of the highest, and the power drawn [W]."""

    price: Price
    share: Number
    power: Number


def voltage_energy(share: Number, slope: Number) -> Number:
    r"""Energy of an operation at a share of the highest clock, over that at the highest.

    .. math:: \left(\frac{V}{V_{max}}\right)^2 = (1 - s (1 - f / f_{max}))^2

    Supply voltage V falls linearly with the clock f, with slope s, over the range GPUs are run at; switching energy follows
    its square.

    Burd & Brodersen, Processor design for portable systems, J. VLSI Signal Process. 13 (1996): energy an operation C V^2.

    >>> round(float(voltage_energy(0.5, 0.5)), 4)
    0.5625
    """
    return (1.0 - slope * (1.0 - share)) ** 2


def time_at(price: Price, share: Number) -> Number:
    r"""Time of a load when the cores run at a share of their highest clock [s].

    .. math:: T(\phi) = \frac{T_c + T_l}{\phi} + \max\left(T_m, \frac{T_h}{\phi}\right) + T_n + T_0

    Times credited to cores T_c, caches T_l, DRAM T_m, network T_n and overhead T_0; work of the cores T_h hidden behind DRAM.
    Exact for one kernel; of many, those that wait for DRAM share their slack.

    >>> kernel = Price(time=5.0, memory=5.0, hidden=4.0)
    >>> float(time_at(kernel, 0.9)), float(time_at(kernel, 0.5))
    (5.0, 8.0)
    """
    xp = namespace(price.compute, price.memory, price.hidden, share)
    return (price.compute + price.cache) / share + xp.maximum(price.memory, price.hidden / share) + price.network + price.overhead


def sustained(price: Price, chip: Chip, idle: Number = 1.0, *, briefly: bool = False) -> Clocked:
    r"""A load, repeated without end, at the highest clock its chip's power limit allows.

    .. math:: P(\phi) = P_0 + \frac{E_c v(\phi)^2 + E_m + E_n}{w \, T(\phi)} \le P_{max}

    static power P_0; energy of the load in cores and caches E_c, DRAM E_m and links E_n at the highest clock; time T and
    energy v^2 at the share φ of it (`time_at`, `voltage_energy`); w >= 1 stretches T by what the device waits for others.
    P grows with φ, which is found by halving; a load below the limit runs at φ = 1 exactly. Slow controllers average over
    milliseconds, so that a load is a whole step, or one kernel repeated; `briefly`, as in a benchmark of some ten
    milliseconds, more passes than the limit (`energy.burst`).

    >>> from strata.hardware.chip import chip
    >>> load = Price(time=1e-3, compute=1e-3, energy=1.2)  # asks for 1.2 kW and what idles
    >>> held = sustained(load, chip("h200"))
    >>> 0.5 < float(held.share) < 0.9, 698 < float(held.power) <= 700
    (True, True)
    """
    xp = namespace(price.energy, price.time, price.memory, chip.energy.power_limit, chip.energy.voltage_slope, idle)
    fixed = price.memory_bytes * chip.energy.memory + price.link_energy
    limit = chip.energy.power_limit * chip.energy.burst if briefly else chip.energy.power_limit
    core, room = price.energy - fixed, limit - chip.energy.static_power

    slope = chip.energy.voltage_slope
    span = time_at(price, 1.0) * idle
    over = core + fixed > room * span
    share = _halved(price, core, fixed, room * idle, slope, over) if _any(over) else 1.0 + 0.0 * span
    held = at_share(price, share, chip)
    time = held.time * idle
    return Clocked(held, share, chip.energy.static_power + held.energy / xp.where(time > 0.0, time, 1.0))


def _any(over: Number) -> bool:
    """Whether a point must slow down; a compiler cannot know, and always looks."""
    return bool(np.any(over)) if isinstance(over, bool | np.bool_ | np.ndarray) else True


def _halved(price: Price, core: Number, fixed: Number, room: Number, slope: Number, over: Number) -> Number:
    """The highest share of the clock at which a load draws no more than there is room for: `sustained`, multiplied out."""
    xp = namespace(core, fixed, room, slope, price.memory, price.hidden)
    busy, waited, hidden = room * (price.compute + price.cache), room * price.memory, room * price.hidden
    others, low = fixed - room * (price.network + price.overhead), 1.0 - slope

    def halved(state: tuple[Number, Number]) -> tuple[Number, Number]:
        share, step = state
        tried = share + step
        voltage = low + slope * tried
        fits = (core * voltage * voltage + others) * tried <= busy + xp.maximum(waited * tried, hidden)
        return share + xp.where(fits, step, 0.0), 0.5 * step

    share, _ = repeated(STEPS, halved, (LEAST + 0.0 * over, 0.5 * (1.0 - LEAST)))
    return xp.where(over, share, 1.0)


def at_share(price: Price, share: Number, chip: Chip) -> Price:
    """The price of a load at a share of the highest clock, bounds kept."""
    xp = namespace(price.memory, price.hidden, share)
    waited = xp.maximum(price.memory, price.hidden / share)
    time = time_at(price, share)
    fixed = price.memory_bytes * chip.energy.memory + price.link_energy
    energy = (price.energy - fixed) * voltage_energy(share, chip.energy.voltage_slope) + fixed
    upper = xp.maximum(price.upper / share, time)
    return replace(price, time=time, compute=price.compute / share, cache=price.cache / share, memory=waited, energy=energy, upper=upper)
