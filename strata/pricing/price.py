"""The price of an op: how long, what bound it, what it moved and spent."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.arrays import Number, namespace

RESOURCES = ("compute", "cache", "memory", "network", "overhead")
# What a step waits for beside its ops: a clock lowered by limits of power and heat (and DRAM refreshed twice
# as often), a pipeline that fills, drains and waits for its slowest stage, the engine's host.
WAITS = ("throttling", "bubble", "host")
BOUNDS = (*RESOURCES, *WAITS)


@dataclass(frozen=True, eq=False, kw_only=True)
class Price:
    """Time [s] and the work behind it, of one device; the resources' times add up to the time."""

    time: Number = 0.0
    compute: Number = 0.0
    cache: Number = 0.0
    memory: Number = 0.0
    network: Number = 0.0
    overhead: Number = 0.0
    lower: Number = 0.0  # no design with these peaks is faster
    upper: Number = 0.0  # nothing overlaps
    core_time_under_dram: Number = 0.0  # time of the cores and caches behind a slower DRAM
    flop: Number = 0.0  # useful operations
    memory_bytes: Number = 0.0
    cache_bytes: Number = 0.0
    link_energy: Number = 0.0  # the network's part of the energy [J]
    energy: Number = 0.0  # dynamic, without static power [J]
    saved: Number = 0.0  # by running beside other ops: how much longer without

    def __add__(self, other: Price) -> Price:
        more = other.__dict__
        return _price({name: value + more[name] for name, value in self.__dict__.items()})

    def times(self, count: Number) -> Price:
        return _price({name: value * count for name, value in self.__dict__.items()})

    def replaced(self, **changes: Number) -> Price:
        """The same with some fields changed.

        >>> Price(time=1.0, compute=1.0).replaced(time=2.0).compute
        1.0
        """
        return _price(self.__dict__ | changes)

    def later(self, wait: Number) -> Price:
        """The same after a wait for what is no resource of the device.

        >>> Price(time=1.0, compute=1.0).later(0.5).overhead
        0.5
        """
        return self.replaced(time=self.time + wait, overhead=self.overhead + wait, upper=self.upper + wait)


_NOTHING: dict[str, Number] = {f.name: 0.0 for f in fields(Price)}
ZERO = Price()


def _price(values: dict[str, Number]) -> Price:
    """A price of all its fields at once: a step makes fifty, and an ordinary call sets them one by one."""
    price = object.__new__(Price)
    price.__dict__.update(values)
    return price


def total_price(prices: list[tuple[Number, Price]]) -> Price:
    """The sum of prices, each so many times."""
    if not prices:
        return ZERO
    if len(prices) == 1 and prices[0][0].__class__ is float and prices[0][0] == 1.0:
        return prices[0][1]
    sums: dict[str, Number] = {}
    for count, price in prices:
        once = count.__class__ is float and count == 1.0
        for name, value in price.__dict__.items():
            if value.__class__ is not float or value != 0.0:
                more = value if once else value * count
                sums[name] = sums[name] + more if name in sums else more
    return _price(_NOTHING | sums)


def network_price(time: Number, energy: Number, *, lower: Number = 0.0, upper: Number | None = None) -> Price:
    """Price of communication: its time is the links' (`upper`: nothing hidden), its energy theirs [s, J]."""
    upper = time if upper is None else upper
    spent = {"link_energy": energy, "energy": energy}
    return _price(_NOTHING | {"time": time, "network": time, "lower": lower, "upper": upper} | spent)


def roofline_price(*, floor: Number, compute: Number, cache: Number, memory: Number, **work: Number) -> Price:
    r"""Price of a kernel whose resources work side by side: its time credited to the slowest of them.

    .. math:: T = \max(T_c, T_l, T_m) + T_0

    compute T_c, cache T_l and memory T_m; fixed floor T_0, credited to overhead [s]; `upper` is the time if
    nothing overlapped. `work` are the other fields of the price.

    Williams, Waterman & Patterson, Commun. ACM 52 (2009): attainable performance is the least of the roofs.

    >>> price = roofline_price(floor=2e-6, compute=1e-5, cache=3e-6, memory=8e-6)
    >>> [round(t * 1e6) for t in (price.time, price.compute, price.cache, price.overhead, price.upper)]
    [12, 10, 0, 2, 23]
    """
    xp = namespace(floor, compute, cache, memory)
    core = xp.maximum(compute, cache)
    busy = xp.maximum(core, memory)
    by_memory = (memory >= busy) & (compute < busy)
    compute_time, memory_time = xp.where(compute >= busy, busy, 0.0), xp.where(by_memory, busy, 0.0)
    time, upper = busy + floor, compute + cache + memory + floor
    credited = {
        "compute": compute_time,
        "cache": busy - compute_time - memory_time,
        "memory": memory_time,
        "overhead": floor,
        "core_time_under_dram": xp.where(by_memory, core, 0.0),
    }
    return _price(_NOTHING | work | credited | {"time": time, "upper": upper})


def bound_times(full: Price, held: Price, time: Number, hosted: Number) -> dict[str, Number]:
    """Time of a step by what binds it: of a mean device at the highest clock and at the one it holds, of all
    devices, and with the engine's host.

    Where ops of a device run beside each other and take longer together than the step, each has its part.
    """
    xp = namespace(full.time, held.time, time, hosted)
    inside = xp.minimum(1.0, time / held.time)
    found: dict[str, Number] = {name: getattr(full, name) * inside for name in RESOURCES}
    waits = (held.time - full.time, time - held.time, hosted - time)
    for name, wait, part in zip(WAITS, waits, (inside, 1.0, 1.0), strict=True):
        # a difference of sums: its last bits are noise
        found[name] = xp.where(wait > 1e-12 * time, wait * part, 0.0)
    return found


def kinds_at_clock(kinds: dict[str, Number], full: Price, held: Price) -> dict[str, Number]:
    """Times by category of op at the clock that is held, which collectives do not follow."""
    on_chip = full.time - full.network
    xp = namespace(on_chip)
    stretch = (held.time - held.network) / xp.where(on_chip > 0.0, on_chip, 1.0)
    return {kind: time if kind == "collective" else time * stretch for kind, time in kinds.items()}


def price_where(condition: Number, one: Price, other: Price) -> Price:
    """One price where a condition holds, else the other.

    >>> float(price_where(True, Price(time=1.0), Price(time=2.0)).time)
    1.0
    """
    if condition.__class__ in (bool, np.bool_):
        return one if condition else other
    xp = namespace(one.time, other.time)  # a single condition is no array
    more = other.__dict__
    return _price({name: _either(xp, condition, a, more[name]) for name, a in one.__dict__.items()})


def _either(xp: Any, condition: Number, a: Number, b: Number) -> Number:
    same = a is b or (isinstance(a, float) and isinstance(b, float) and a == b)
    return a if same else xp.where(condition, a, b)
