"""The price of an op: how long, what bound it, what it moved and spent."""

from __future__ import annotations

from dataclasses import dataclass, fields

from strata.arrays import Number, namespace

RESOURCES = ("compute", "cache", "memory", "network", "overhead")


@dataclass(frozen=True, eq=False, slots=True)
class Price:
    """Time [s] and the work behind it, all of one device. The resources' times are shares of the time and add
    up to it.
    """

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
        return Price(*(getattr(self, f) + getattr(other, f) for f in _FIELDS))

    def times(self, count: Number) -> Price:
        return Price(*(getattr(self, f) * count for f in _FIELDS))


_FIELDS = tuple(f.name for f in fields(Price))
ZERO = Price()


def total_price(prices: list[tuple[Number, Price]]) -> Price:
    """The sum of prices, each so many times."""
    if not prices:
        return ZERO
    sums: dict[str, Number] = {}
    for count, price in prices:
        once = isinstance(count, float) and count == 1.0
        for f in _FIELDS:
            value = getattr(price, f)
            if not (isinstance(value, float) and value == 0.0):
                more = value if once else value * count
                sums[f] = sums[f] + more if f in sums else more
    return Price(**sums)


def roofline(
    floor: Number, launch: Number, compute: Number, cache: Number, memory: Number
) -> dict[str, Number]:
    r"""Time of a kernel whose resources work side by side [s], credited to the slowest, and its bound without
    overlap.

    .. math:: T = \max(\max(T_c, T_l, T_m) + T_0, T_h)

    compute T_c, cache T_l and memory T_m; fixed floor T_0; host time T_h to launch the kernel, which runs
    ahead of the device, so that only the longer of the two counts. Floor and launch are credited to overhead.

    Williams, Waterman & Patterson, Commun. ACM 52 (2009): attainable performance is the least of the roofs.

    >>> {k: round(float(v) * 1e6) for k, v in roofline(2e-6, 0.0, 1e-5, 3e-6, 8e-6).items()}
    {'time': 12, 'compute': 10, 'cache': 0, 'memory': 0, 'overhead': 2, 'upper': 23, 'core_time_under_dram': 0}
    """
    xp = namespace(floor, launch, compute, cache, memory)
    core = xp.maximum(compute, cache)
    work = xp.maximum(core, memory)
    computes = compute >= work
    waits = (memory >= work) & (compute < work)
    by_compute, by_memory = xp.where(computes, work, 0.0), xp.where(waits, work, 0.0)
    time, upper = work + floor, compute + cache + memory + floor
    if not (isinstance(launch, float) and launch == 0.0):
        time, upper = xp.maximum(time, launch), xp.maximum(upper, launch)
        floor = time - work
    credit = {
        "compute": by_compute,
        "cache": work - by_compute - by_memory,
        "memory": by_memory,
        "overhead": floor,
    }
    return {"time": time, **credit, "upper": upper, "core_time_under_dram": xp.where(waits, core, 0.0)}
