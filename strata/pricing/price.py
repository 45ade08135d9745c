"""The price of an op: how long, what bound it, what it moved and spent."""

from __future__ import annotations

from dataclasses import dataclass, fields

from strata.arrays import Number, namespace

RESOURCES = ("compute", "cache", "memory", "network", "overhead")


@dataclass(frozen=True, eq=False, slots=True)
class Price:
    """Times [s] by resource, the time they add up to, its bounds, and the work behind it, all of one device."""

    time: Number = 0.0
    compute: Number = 0.0
    cache: Number = 0.0
    memory: Number = 0.0
    network: Number = 0.0
    overhead: Number = 0.0
    lower: Number = 0.0  # no design with these peaks is faster
    flop: Number = 0.0  # useful operations
    memory_bytes: Number = 0.0
    cache_bytes: Number = 0.0
    energy: Number = 0.0  # dynamic, without static power [J]

    def __add__(self, other: Price) -> Price:
        return Price(*(getattr(self, f) + getattr(other, f) for f in _FIELDS))

    def times(self, count: Number) -> Price:
        return Price(*(getattr(self, f) * count for f in _FIELDS))

    @property
    def upper(self) -> Number:
        """Time if nothing overlapped: the sum of all resources."""
        return self.compute + self.cache + self.memory + self.network + self.overhead


_FIELDS = tuple(f.name for f in fields(Price))
ZERO = Price()


def total_price(prices: list[tuple[Number, Price]]) -> Price:
    """The sum of prices, each so many times."""
    if not prices:
        return ZERO
    first_count, first = prices[0]
    sums = {f: getattr(first, f) * first_count for f in _FIELDS}
    for count, price in prices[1:]:
        for f in _FIELDS:
            value = getattr(price, f)
            if not (isinstance(value, float) and value == 0.0):
                sums[f] = sums[f] + value * count
    return Price(**sums)


def roofline(overhead: Number, compute: Number, cache: Number, memory: Number) -> Number:
    """Time of a kernel whose resources work side by side: the slowest, after a fixed floor [s].

    Williams, Waterman & Patterson, Commun. ACM 52 (2009): attainable performance is the least of the roofs.

    >>> float(roofline(2e-6, 1e-5, 3e-6, 8e-6))
    1.2e-05
    """
    xp = namespace(overhead, compute, cache, memory)
    return xp.maximum(xp.maximum(compute, cache), memory) + overhead
