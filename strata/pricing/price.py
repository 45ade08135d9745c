"""The price of an op: how long, what bound it, what it moved and spent. And how long communication lasts that
runs beside computation: whole, or tile by tile; and links that two share.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, namespace
from strata.hardware.fabric import Fabric
from strata.mapping.place import GroupLayout

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


# Times all ranks meet in a kernel that communicates by tiles. A gather or exchange starts when every peer's
# buffer is there; sums
# wait once more until all parts have come; tokens to experts are counted, the counts exchanged, then sent,
# and seen to have come.
MEETINGS = {
    **dict.fromkeys(("all_gather", "send", "all_to_all"), 1.0),
    **dict.fromkeys(("reduce_scatter", "all_reduce", "combine"), 2.0),
    "dispatch": 4.0,
}


def exposed(communication: Number, cover: Number) -> Number:
    r"""Time that remains of what may run beside other work: communication beside computation, a host that
    launches kernels ahead beside these, activations on their way beside a pass [s].

    .. math:: T = \max(0, c - h)

    No contention for cores or memory; the first and last pieces are not held back. PyTorch, CUDA semantics:
    calls return before their kernels have run. Rhu et al., vDNN, arXiv 1602.08124, sec. 3.2: activations.

    >>> float(exposed(3.0, 2.0)), float(exposed(1.0, 2.0))
    (1.0, 0.0)
    """
    return namespace(communication, cover).maximum(communication - cover, 0.0)


def beside(communication: Number, work: Number, busy: Number) -> Number:
    r"""Time that communication adds to work whose own collectives keep the same links busy for a part of it
    [s].

    .. math:: T = \max(0, c - (w - b))

    communication c; work w with its own collectives; b of it on links that c needs as well. Work and
    communication together never take less than the links they share: :math:`w + T \ge b + c`.

    >>> float(beside(3.0, 4.0, 0.0)), float(beside(3.0, 4.0, 2.0))
    (0.0, 1.0)
    """
    xp = namespace(work, busy)
    return exposed(communication, xp.maximum(work - busy, 0.0))


def share_links(one: tuple[GroupLayout, ...], other: tuple[GroupLayout, ...], fabric: Fabric) -> Number:
    """1 where two groups have links in common, else 0: a dimension that both cross, or whose traffic leaves
    by the same links.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> two = sized(fabric("hgx-h200"), (8, 4))
    >>> inner, across, all_of_it = spread(1.0, 8.0, two), spread(8.0, 4.0, two), spread(1.0, 32.0, two)
    >>> every = (inner, across), (inner, all_of_it), (across, all_of_it)
    >>> [float(share_links(*pair, two)) for pair in every]
    [0.0, 1.0, 1.0]
    """
    found: Number = 0.0
    links = [d.shares_links_of or d.name for d in fabric.dimension]
    for mine, a in zip(links, one, strict=True):
        for theirs, b in zip(links, other, strict=True):
            if mine == theirs:
                xp = namespace(a.size, b.size, found)
                found = xp.where((a.size > 1) & (b.size > 1), 1.0, found)
    return found


def while_sending(cores: Number, work: Number, sending: Number) -> Number:
    r"""Mean share of the cores that communication takes from work which may last longer [1].

    .. math:: \bar s = \min\left(s, \frac{s \, n}{c + s \, n}\right)

    share s while it sends, for n; work c on all cores: what it loses meanwhile is done later by all of them.

    >>> round(float(while_sending(0.2, 1.0, 0.5)), 4), float(while_sending(0.2, 1.0, 9.0))
    (0.0909, 0.2)
    """
    xp = namespace(cores, work, sending)
    lost = cores * sending
    whole = work + lost
    return xp.minimum(cores, lost / xp.where(whole > 0.0, whole, 1.0))


def in_pieces(first: Number, second: Number, pieces: Number) -> Number:
    r"""Time of two stages of which the second takes in piece by piece what the first makes [s].

    .. math:: T = \max\left(a + \frac{b}{w}, \frac{a}{w} + b\right)

    stages a and b, in w equal pieces: the first piece fills, the last drains, between them the slower stage
    rules. One piece is one stage after the other; never less than the larger stage, never more than both.

    Hockney & Jesshope, Parallel Computers 2 (1988), sec. 1.3: a pipeline of two stages.

    >>> [round(float(in_pieces(3.0, 2.0, w)), 2) for w in (1.0, 4.0, 1e9)]
    [5.0, 3.5, 3.0]
    """
    xp = namespace(first, second, pieces)
    return xp.maximum(first + second / pieces, first / pieces + second)


def own_first(link: Number, product: Number, pieces: Number) -> Number:
    r"""Time of a gather that feeds a product which starts with the rank's own piece [s].

    .. math:: T = \max\left(c, l + \frac{c}{w}\right)

    link time l of what the others hold; product c in w pieces, the first of which is there from the start,
    and the last of which waits for the last to arrive.

    >>> round(float(own_first(1.0, 4.0, 8.0)), 2), round(float(own_first(4.0, 1.0, 8.0)), 3)
    (4.0, 4.125)
    """
    return namespace(link, product, pieces).maximum(product, link + product / pieces)


def slowed(price: Price, cores: Number, moved: Number, bandwidth: Number) -> Price:
    r"""Kernels beside which communication takes some of the cores and of the memory's time.

    .. math:: T = \max\left(\frac{T_c}{1 - s} + \max\left(T_m, \frac{T_h}{1 - s}\right), \frac{b + d}{B}\right) + T_0

    time T_c bound by cores and caches, T_m bound by memory with cores busy for T_h of it, T_0 overheads;
    share s of the cores taken; bytes b of the kernels and d that communication moves through the memory, of
    sustained bandwidth B, meanwhile.

    >>> computed = Price(time=1.0, compute=1.0, memory_bytes=1e12)
    >>> streamed = Price(time=1.0, memory=1.0, core_time_under_dram=0.5, memory_bytes=4e12)
    >>> [round(float(slowed(p, 0.2, 1e12, 4e12).time), 3) for p in (computed, streamed)]
    [1.25, 1.25]
    """
    xp = namespace(price.memory, price.compute, price.memory_bytes, cores, moved, bandwidth)
    left = 1.0 - cores
    compute, cache, hidden = price.compute / left, price.cache / left, price.core_time_under_dram / left
    memory = xp.maximum(price.memory, hidden)
    # Kernels never stream faster than alone.
    alone = xp.minimum(price.memory_bytes / bandwidth, price.compute + price.cache + price.memory)
    memory = memory + xp.maximum(alone + moved / bandwidth - (compute + cache + memory), 0.0)
    time = compute + cache + memory + price.overhead
    return replace(
        price,
        time=time,
        compute=compute,
        cache=cache,
        memory=memory,
        core_time_under_dram=hidden,
        upper=xp.maximum(price.upper, time),
    )


def ring_exposed(passing: Number, work: Number, steps: Number) -> Number:
    r"""Time that passing keys round a ring adds to attention [s].

    .. math:: T = \max\left(0, c - a \frac{s}{s + 1}\right)

    s steps of the ring take c together; attention a is done in s + 1 equal parts, the first on keys that are
    there, each of the others while the next step passes. Tokens are dealt to ranks so that causal parts are
    equal.

    Liu, Zaharia & Abbeel, Ring Attention, arXiv 2310.01889, sec. 3.

    >>> ring_exposed(3.0, 4.0, 3.0), ring_exposed(5.0, 4.0, 3.0)
    (0.0, 2.0)
    """
    return namespace(passing, work, steps).maximum(passing - work * (steps / (steps + 1.0)), 0.0)
