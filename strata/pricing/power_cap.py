"""The clock a chip can hold: at its limits of power and heat the cores slow down, DRAM and links do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Mask, Number, leaves, map_leaves, namespace, repeated
from strata.hardware.chip import Chip
from strata.hardware.dram.channel import refresh_left
from strata.pricing.power_limits import PowerLimit, power_limits, settled_power
from strata.pricing.price import Price

HOST_BOUND = 1.5  # calls that take so much longer than their kernel wait for the host
STEPS = 11  # halvings of the clock's range: a resolution of 0.04 % of the highest clock
LEAST = 0.2  # lowest clock tried, as a share of the highest: about the idle clock of a GPU


@dataclass(frozen=True, eq=False, slots=True)
class Throttled:
    """A load at the clock it can hold."""

    price: Price
    share: Number
    power: Number  # [W]
    static: Number = 0.0  # of it, what flows whatever the load [W]
    # hottest place of logic and of DRAM [K]; nan where the chip's cooling is not described
    logic: Number = float("nan")
    dram: Number = float("nan")
    holds: Number = 1.0  # 1 where power and temperatures keep their limits at this clock, else 0


def voltage_energy(share: Number, slope: Number) -> Number:
    r"""Energy of an operation at a share of the highest clock, over that at the highest.

    .. math:: \left(\frac{V}{V_{max}}\right)^2 = (1 - s (1 - f / f_{max}))^2

    Supply voltage V falls linearly with the clock f, with slope s, over the range GPUs are run at; switching
    energy follows its square.

    Burd & Brodersen, Processor design for portable systems, J. VLSI Signal Process. 13 (1996): energy an
    operation C V^2.

    >>> round(float(voltage_energy(0.5, 0.5)), 4)
    0.5625
    """
    return (1.0 - slope * (1.0 - share)) ** 2


def host_paced(time: Number, every: Number) -> Number:
    """How much longer a call takes than its kernel where the host, not the device, sets the pace of a loop; 1
    where it does not, up to a margin for what kernels are mispriced by.

    >>> [float(host_paced(1.0, every)) for every in (0.0, 1.2, 3.0)]
    [1.0, 1.0, 3.0]
    """
    if every.__class__ is float and every == 0.0:
        return 1.0
    xp = namespace(time, every)
    took = xp.where(time > 0.0, every / xp.maximum(time, 1e-12), 1.0)
    return xp.where(took > HOST_BOUND, took, 1.0)


def time_at_clock(price: Price, share: Number) -> Number:
    r"""Time of a load when the cores run at a share of their highest clock [s].

    .. math:: T(\phi) = \frac{T_c + T_l}{\phi} + \max\left(T_m, \frac{T_h}{\phi}\right) + T_n + T_0

    Times credited to cores T_c, caches T_l, DRAM T_m, network T_n and overhead T_0; work of the cores T_h
    hidden behind DRAM. Exact for one kernel; of many, those that wait for DRAM share their slack.

    >>> kernel = Price(time=5.0, memory=5.0, core_time_under_dram=4.0)
    >>> float(time_at_clock(kernel, 0.9)), float(time_at_clock(kernel, 0.5))
    (5.0, 8.0)
    """
    xp = namespace(price.compute, price.memory, price.core_time_under_dram, share)
    return (
        (price.compute + price.cache) / share
        + xp.maximum(price.memory, price.core_time_under_dram / share)
        + price.network
        + price.overhead
    )


def optimistic_price(price: Price, time: Number, apart: Number = True) -> Price:
    r"""A price that no design with at most this work and time undercuts at any clock: all work of the cores
    hides behind the rest.

    .. math:: T'(\phi) = \max\left(T(1), \frac{T_c + T_l + T_h}{\phi} + T_n + T_0\right)

    `time` T(1) of the step, waits of a pipeline included. A better chip can turn time of DRAM into time of
    its cores, which then follows the clock although the sum fell; here it does not, so that bounds from it
    hold (search/bounds.py). Where communication is not `apart` from kernels but beside them, quicker kernels
    show more of it: T_n is then left out.

    >>> kernel = Price(time=5.0, compute=1.0, memory=4.0, core_time_under_dram=2.0)
    >>> eased = optimistic_price(kernel, 5.0)
    >>> [float(time_at_clock(eased, share)) for share in (1.0, 0.5)], float(time_at_clock(kernel, 0.5))
    ([5.0, 6.0], 6.0)
    """
    work = price.compute + price.cache + price.core_time_under_dram
    network = namespace(price.network, apart).where(apart, price.network, 0.0)
    memory = time - network - price.overhead
    return price.replaced(
        time=time,
        compute=0.0 * work,
        cache=0.0 * work,
        memory=memory,
        network=network,
        core_time_under_dram=work,
    )


def power_capped(price: Price, chip: Chip, idle: Number = 1.0, *, briefly: bool = False) -> Throttled:
    r"""A load, repeated without end, at the highest clock its chip's power limit and its dies' temperatures
    allow.

    .. math:: w_c \frac{E_c v(\phi)^2 + E_n}{w \, T(\phi)} + w_m \frac{E_m}{w \, T(\phi)} \le r
        \quad \text{for every limit}

    energy of the load in cores and caches E_c, DRAM E_m and links E_n at the highest clock; time T and energy
    v^2 at the share φ of it (`time_at_clock`, `voltage_energy`); w >= 1 stretches T by what the device waits
    for others; weights and room of a limit: `power_limits`. The left side grows with φ, which is found by
    halving; a load below all limits runs at φ = 1 exactly. Slow controllers average over milliseconds, so
    that a load is a whole step, or one kernel repeated; `briefly`, as in a benchmark of some ten
    milliseconds, more passes than the limit (`energy.burst`). DRAM above its refresh limit is refreshed twice
    as often.

    >>> from strata.hardware.chip import chip
    >>> load = Price(time=1e-3, compute=1e-3, energy=1.2)  # asks for 1.2 kW and what idles
    >>> held = power_capped(load, chip("h200"))
    >>> 0.5 < float(held.share) < 0.9, 690 < float(held.power) <= 0.989 * 700
    (True, True)
    """
    bounds = power_limits(chip, briefly)
    price = _refreshed(price, chip, idle)
    xp = namespace(
        price.energy,
        price.time,
        price.memory,
        chip.energy.power_limit,
        chip.energy.voltage_slope,
        idle,
        *(b.room for b in bounds),
    )
    memory = price.memory_bytes * chip.energy.memory
    core = price.energy - memory - price.link_energy
    span = time_at_clock(price, 1.0) * idle
    over: Mask = False
    for b in bounds:
        over = over | (b.core * (core + price.link_energy) + b.memory * memory > b.room * span)
    share: Number
    holds: Number
    if not _any(over):
        share, holds = 1.0 + 0.0 * span, 1.0
    else:
        share, holds = _slowed(over, price, core, bounds, memory, idle, chip.energy.voltage_slope)
    held = price_at_clock(price, share, chip)
    time = held.time * idle
    safe = xp.where(time > 0.0, time, 1.0)
    static, logic, dram = settled_power(chip, (held.energy - memory) / safe, memory / safe)
    return Throttled(held, share, static + held.energy / safe, static, logic, dram, holds)


def step_capped(
    price: Price, chip: Chip, time: Number, host: Number, after: Price | None = None
) -> Throttled:
    r"""A device's load in a step of such a time, waits for other stages and what comes `after` the passes
    included, after which it waits for its host: power is held in the mean of all that the controller sees.

    .. math:: w = 1 + \frac{\min(T_s - T - T_u, W - T'_u)}{T + T'_u}, \quad T'_u = \min(T_u, W)

    time of the load T, of what ends a step (sums of gradients, update) T_u, and of the step T_s; of the end
    and of waits for other stages only as much counts as the chip's controller looks back (`energy.window` W):
    both are longer in training, and passes after them run no faster for it. Other stages slow down with the
    device, the host does not.

    >>> from strata.hardware.chip import chip
    >>> load = Price(time=1e-2, compute=1e-2, energy=9.0)
    >>> busy, waits = (step_capped(load, chip("h200"), 1e-2, host) for host in (0.0, 1e-2))
    >>> float(busy.share) < 0.9, float(waits.share), float(waits.price.time)
    (True, 1.0, 0.01)
    >>> passes, sums = Price(time=4.0, compute=4.0, energy=3600.0), Price(time=4.0, network=4.0)
    >>> alone, bubble = (step_capped(passes, chip("h200"), time, 0.0) for time in (4.0, 8.0))
    >>> 0.0 < float(bubble.share - alone.share) < 0.02
    True
    >>> ended = step_capped(passes, chip("h200"), 8.0, 0.0, sums)
    >>> 0.0 < float(ended.share - alone.share) < 0.02, round(float(ended.price.time - bubble.price.time), 1)
    (True, 4.0)
    """
    window = chip.energy.window
    xp = namespace(price.time, time, window)
    load, left, rest = price, window, time - price.time
    if after is not None:
        xp = namespace(price.time, time, window, after.time)
        seen = xp.minimum(after.time, window)
        share = seen / xp.where(after.time > 0.0, after.time, 1.0)
        load, left, rest = price + after.times(share), window - seen, rest - after.time
    counted = load.time + xp.minimum(rest, left)
    waits = host * load.time / counted
    held = power_capped(load.later(waits), chip, counted / load.time)
    whole = held.price.later(-waits)
    if after is not None:
        whole = whole + price_at_clock(after.times(1.0 - share), held.share, chip)
    return replace(held, price=whole)


def _refreshed(price: Price, chip: Chip, idle: Number) -> Price:
    """A load whose DRAM may pass its refresh limit: where it would at the highest clock, DRAM is refreshed
    twice as often.

    The hotter branch is taken for good, so that a point never swings between the two.
    """
    heat, stack = chip.heat, chip.stack
    if heat is None or stack is None or stack.dram is None or not _any(heat.dram_limit > heat.refresh_limit):
        return price
    memory = price.memory_bytes * chip.energy.memory
    span = time_at_clock(price, 1.0) * idle
    safe = namespace(span).where(span > 0.0, span, 1.0)
    _, _, dram = settled_power(chip, (price.energy - memory) / safe, memory / safe)
    longer = refresh_left(stack.dram.timing, 0.0) / refresh_left(stack.dram.timing, 1.0)
    xp = namespace(dram, price.memory, longer)
    hot = (dram > heat.refresh_limit) & (heat.dram_limit > heat.refresh_limit)
    added = xp.where(hot, price.memory * (longer - 1.0), 0.0)
    return price.replaced(time=price.time + added, memory=price.memory + added, upper=price.upper + added)


def _any(over: Mask) -> bool:
    """Whether a point must slow down; a compiler cannot know, and always looks."""
    return bool(np.any(over)) if isinstance(over, bool | np.bool_ | np.ndarray) else True


def _slowed(over: Mask, *load: Any) -> tuple[Number, Number]:
    """The share of the clock that a load holds, and whether it keeps its limits; where one is passed."""
    xp = namespace(over)
    if not isinstance(over, np.ndarray):
        share, holds = _halved(*load)
        return xp.where(over, share, 1.0), xp.where(over, holds, 1.0)
    shape = np.broadcast_shapes(over.shape, *(np.shape(value) for value in leaves(load)))
    passed = np.broadcast_to(over, shape)
    share, holds = np.ones(shape), np.ones(shape)
    share[passed], holds[passed] = _halved(
        *map_leaves(lambda v: np.broadcast_to(v, shape)[passed] if np.ndim(v) else v, load)
    )
    return share, holds


def _halved(
    price: Price, core: Number, bounds: tuple[PowerLimit, ...], memory: Number, idle: Number, slope: Number
) -> tuple[Number, Number]:
    """The highest share of the clock within every limit (`power_capped`), and whether the lowest one is."""
    xp = namespace(
        core, memory, slope, price.memory, price.core_time_under_dram, idle, *(b.room for b in bounds)
    )
    busy, waits = price.compute + price.cache, price.network + price.overhead
    # Of each limit: what falls with the voltage, what does not, and room for a second of the load.
    terms = [(b.core * core, b.core * price.link_energy + b.memory * memory, b.room * idle) for b in bounds]
    low = 1.0 - slope

    def fits(tried: Number) -> Mask:
        voltage = low + slope * tried
        squared = voltage * voltage * tried
        span = busy + xp.maximum(price.memory * tried, price.core_time_under_dram) + waits * tried
        kept: Mask = True
        for falls, stays, room in terms:
            kept = kept & (falls * squared + stays * tried <= room * span)
        return kept

    def halved(state: tuple[Number, Number]) -> tuple[Number, Number]:
        share, step = state
        tried = share + step
        return share + xp.where(fits(tried), step, 0.0), 0.5 * step

    lowest = fits(LEAST)
    share, _ = repeated(STEPS, halved, (LEAST + xp.where(lowest, 0.0, 0.0), 0.5 * (1.0 - LEAST)))
    return share, xp.where(lowest, 1.0, 0.0)


def price_at_clock(price: Price, share: Number, chip: Chip) -> Price:
    """The price of a load at a share of the highest clock, bounds kept."""
    xp = namespace(price.memory, price.core_time_under_dram, share)
    waited = xp.maximum(price.memory, price.core_time_under_dram / share)
    time = time_at_clock(price, share)
    fixed = price.memory_bytes * chip.energy.memory + price.link_energy
    energy = (price.energy - fixed) * voltage_energy(share, chip.energy.voltage_slope) + fixed
    upper = xp.maximum(price.upper / share, time)
    return price.replaced(
        time=time,
        compute=price.compute / share,
        cache=price.cache / share,
        memory=waited,
        energy=energy,
        upper=upper,
    )
