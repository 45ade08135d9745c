"""Clock and power over the supply voltage: of units, of memory interfaces and of links."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from strata.base.arrays import Number, floor_div, namespace
from strata.params import record

KNOWN = (float, int, np.ndarray, np.generic)  # what holds numbers, and is not being traced
STEPS = 8  # of Newton's method; it starts within a factor of 1.5 of the root's distance from the threshold


class Supplied(Protocol):
    """What has a supply voltage: logic, a memory device, a link."""

    @property
    def voltage(self) -> Number: ...
    @property
    def threshold_voltage(self) -> Number: ...
    @property
    def min_voltage(self) -> Number: ...
    @property
    def max_voltage(self) -> Number: ...


@record
class OperatingPoint:
    """Where elements run under a power budget."""

    count: Number  # elements that run
    voltage: Number  # [V]; 0 where none runs
    asked: Number  # voltage that the power alone asks for [V]
    speed: Number  # clock over the nominal clock
    power: Number  # that they draw [W]


def clock_ratio(voltage: Number, part: Supplied) -> Number:
    r"""Clock at a supply voltage over the clock at the nominal one.

    .. math:: \frac{f}{f_n} = \frac{(V - V_t)^2 / V}{(V_n - V_t)^2 / V_n}

    threshold V_t, nominal voltage V_n [V]; V >= V_t. Gate delay by the alpha-power law with alpha = 2.

    Sakurai & Newton, IEEE J. Solid-State Circuits 25 (1990); DeepFlow (2023), section 5.

    >>> from strata.hardware.components import memory_device
    >>> hbm = memory_device("deepflow-hbm2")
    >>> round(float(clock_ratio(1.8, hbm) * hbm.pin_rate * 8) / 1e9, 4)  # at its highest voltage [Gbit/s]
    2.8175
    """
    over, nominal = voltage - part.threshold_voltage, part.voltage - part.threshold_voltage
    return over * over * part.voltage / (nominal * nominal * voltage)


def power_ratio(voltage: Number, part: Supplied, leakage: Number = 0.0) -> Number:
    r"""Power at a supply voltage over the switching power at the nominal one.

    .. math:: \frac{P}{P_n} = \frac{f}{f_n} \left(\frac{V}{V_n}\right)^2 + \ell \frac{V}{V_n}

    leakage ℓ at the nominal voltage as a share of the switching power there, at constant current.

    >>> from strata.hardware.components import memory_device
    >>> round(float(power_ratio(1.2, memory_device("deepflow-hbm2"), 0.1)), 12)
    1.1
    """
    share = voltage / part.voltage
    return clock_ratio(voltage, part) * share * share + leakage * share


def voltage_for(power: Number, part: Supplied, leakage: Number = 0.0) -> Number:
    r"""Supply voltage at which an element draws a power [V]; the threshold where there is none.

    .. math:: V (V - V_t)^2 + \ell (V_n - V_t)^2 V = q \, V_n (V_n - V_t)^2

    q: power over the switching power at the nominal voltage. The cubic grows and is convex above the
    threshold: Newton's steps from above fall to its root without passing it. Each of V_t + c^(1/3),
    V_t + (c / V_t)^(1/2) and, with leakage, c / b lies above the root (c: right side, b: factor of V); the
    least of them is the start.

    DeepFlow (2023), section 5, solves it by the roots of a polynomial; leakage is ours.

    >>> from strata.hardware.components import memory_device
    >>> hbm = memory_device("deepflow-hbm2")
    >>> v = voltage_for(2.0, hbm)
    >>> round(float(v), 6), round(float(power_ratio(v, hbm)), 12)
    (1.434701, 2.0)
    """
    threshold, nominal = part.threshold_voltage, part.voltage
    over = nominal - threshold
    xp = namespace(power, threshold, nominal, leakage)
    b = leakage * over * over
    right = power * nominal * over * over
    some = right > 0.0
    c = xp.where(some, right, 1.0)
    root = xp.minimum(threshold + c ** (1.0 / 3.0), threshold + (c / threshold) ** 0.5)
    root = xp.minimum(root, xp.where(b > 0.0, c / xp.where(b > 0.0, b, 1.0), root))
    root = xp.maximum(root, threshold * (1.0 + 1e-9))  # where leakage alone is more than the power
    for _ in range(STEPS):
        above = root - threshold
        slope = above * above + 2.0 * root * above + b
        root = xp.maximum(root - (root * above * above + b * root - c) / slope, threshold * (1.0 + 1e-12))
    return xp.where(some, root, threshold)


def least_voltage(part: Supplied, leakage: Number = 0.0) -> Number:
    r"""Voltage below which elements are better left out than run slower [V].

    .. math:: V = \max\left(V_{min}, V_t + \sqrt[3]{\ell \, V_t (V_n - V_t)^2}\right), \quad V \le V_{max}

    The second is where an operation takes the least energy, switching V^2 and leakage V / f together: below
    it, the time that an operation leaks costs more than its switching saves.

    Our derivation from `power_ratio`; without leakage it is the lowest voltage.

    >>> from strata.hardware.components import memory_device
    >>> hbm = memory_device("deepflow-hbm2")
    >>> float(least_voltage(hbm)), round(float(least_voltage(hbm, 2.0)), 4)
    (1.0, 1.2)
    """
    threshold = part.threshold_voltage
    xp = namespace(threshold, part.voltage, part.min_voltage, part.max_voltage, leakage)
    over = part.voltage - threshold
    best = threshold + (leakage * threshold * over * over) ** (1.0 / 3.0)
    return xp.minimum(xp.maximum(part.min_voltage, best), part.max_voltage)


def voltage_at_clock(ratio: Number, part: Supplied) -> Number:
    r"""Supply voltage at which the clock is so many times the nominal one [V].

    .. math:: V = V_t + \frac{k}{2} + \sqrt{k V_t + \frac{k^2}{4}}, \quad k = \phi \frac{(V_n - V_t)^2}{V_n}

    The larger root of (V - V_t)^2 = k V; inverse of `clock_ratio`.

    >>> from strata.hardware.components import memory_device
    >>> hbm = memory_device("deepflow-hbm2")
    >>> round(float(clock_ratio(voltage_at_clock(1.25, hbm), hbm)), 12)
    1.25
    """
    threshold, over = part.threshold_voltage, part.voltage - part.threshold_voltage
    k = ratio * over * over / part.voltage
    return threshold + 0.5 * k + (k * threshold + 0.25 * k * k) ** 0.5


def run_fewer(
    power: Number, count: Number, element: Number, part: Supplied, leakage: Number = 0.0
) -> OperatingPoint:
    r"""Elements under a power budget at the voltage it allows; where that is too low, fewer of them.

    .. math:: N = \min\left(N_0, \left\lfloor \frac{P}{p \, r(V_{low})} \right\rfloor\right), \quad
        V = \min\left(V_{max}, V : N p \, r(V) = P\right)

    N_0 elements there are; p switching power of one at the nominal voltage [W]; r: `power_ratio`; V_low:
    `least_voltage`. What N elements do a second never falls with P or with N_0.

    DeepFlow (2023), section 5: "reduce the number of units"; its program does not.

    >>> from strata.hardware.components import memory_device
    >>> point = run_fewer(1.0, 100.0, 0.1, memory_device("deepflow-hbm2"))
    >>> point.count, round(float(point.voltage), 3), round(float(point.power), 9)
    (21.0, 1.004, 1.0)
    """
    xp = namespace(power, count, element, leakage, part.voltage)
    low = least_voltage(part, leakage)
    each = element * power_ratio(low, part, leakage)
    running = xp.minimum(count, floor_div(xp.maximum(power, 0.0), each))
    some = running > 0.0
    share = xp.where(some, power / (element * xp.where(some, running, 1.0)), 0.0)
    asked = voltage_for(share, part, leakage)
    voltage = xp.maximum(xp.minimum(asked, part.max_voltage), low)
    return OperatingPoint(
        count=running,
        voltage=xp.where(some, voltage, 0.0),
        asked=xp.where(some, asked, 0.0),
        speed=xp.where(some, clock_ratio(voltage, part), 0.0),
        power=running * element * power_ratio(voltage, part, leakage),
    )


def run_slower(
    power: Number, count: Number, element: Number, part: Supplied, *, capped: bool
) -> OperatingPoint:
    r"""Elements under a power budget, all of them; where the voltage would be too low, at a lower clock.

    .. math:: f = f(V) \min\left(1, \frac{V}{V_{min}}\right)^2

    V from the budget; below the lowest voltage the clock falls so that the power stays. What they do a second
    is what the elements that `run_fewer` keeps do. `capped`: at most the highest voltage.

    The program of DeepFlow's authors (2021).

    >>> from strata.hardware.components import memory_device
    >>> hbm = memory_device("deepflow-hbm2")
    >>> slow = run_slower(1.0, 100.0, 0.1, hbm, capped=True)
    >>> few = run_fewer(1.0, 100.0, 0.1, hbm)
    >>> round(float(100.0 * slow.speed), 2), round(float(few.count * few.speed), 2)
    (14.4, 14.3)
    """
    xp = namespace(power, count, element, part.voltage)
    some = (count > 0.0) & (power > 0.0)
    share = xp.where(some, power / (element * xp.where(some, count, 1.0)), 0.0)
    asked = voltage_for(share, part)
    wanted = xp.minimum(asked, part.max_voltage) if capped else asked
    slow = xp.minimum(wanted / part.min_voltage, 1.0)
    speed = xp.where(some, clock_ratio(wanted, part) * slow * slow, 0.0)
    voltage = xp.maximum(wanted, part.min_voltage)
    drawn = count * element * speed * (voltage / part.voltage) ** 2
    return OperatingPoint(
        count=count,
        voltage=xp.where(count > 0.0, voltage, 0.0),
        asked=xp.where(count > 0.0, asked, 0.0),
        speed=speed,
        power=drawn,
    )
