"""Topology of a fabric: hops, bisection, links and bandwidth bounds in closed form.

A fabric is the Cartesian product of its dimensions: devices that differ in one coordinate only form a network
of that dimension's kind, and there are as many such networks as the other coordinates have values (the rails
of a cluster are one example). So hops add up, and a cut straight through one dimension crosses all of its
networks. A device's bandwidth into a dimension is split over its links there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from strata.base.arrays import Number, namespace
from strata.hardware.fabric import DIRECT, Dimension, Fabric, as_fabric, devices_of, peak_link, sized
from strata.hardware.money import Economics, dimension_price, economics

OPEN_SIZE = 4.0  # shown of a dimension whose size a system's name would give


# ---------------------------------------------------------------------- one network of one dimension


def diameter(dimension: Dimension) -> Number:
    r"""Steps between the two members of a dimension that are farthest apart.

    .. math::
        d = p - 1 \;\text{(chain)}, \quad d = \lfloor p/2 \rfloor \;\text{(ring)}, \quad
        d = \min(p - 1, 1) \;\text{(else)}

    size p. A step is what `latency` and `energy` count: through a switch it is one, whatever the links.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.2 and 5.2.

    >>> from strata.hardware.fabric import fabric
    >>> float(diameter(fabric("torus-256").dimension[0])), float(diameter(fabric("hgx-h200").dimension[0]))
    (2.0, 1.0)
    """
    xp, size = namespace(dimension.size), dimension.size
    if dimension.kind == "chain":
        return size - 1.0
    return xp.floor(size / 2.0) if dimension.kind == "ring" else xp.minimum(size - 1.0, 1.0)


def mean_hops(dimension: Dimension) -> Number:
    r"""Steps to a member of a dimension drawn at random, oneself included.

    .. math::
        h = \frac{p^2 - 1}{3p} \;\text{(chain)}, \quad
        h = \frac{\lfloor p^2/4 \rfloor}{p} \;\text{(ring)}, \quad h = \frac{p-1}{p} \;\text{(else)}

    size p. Oneself counts so that the means of several dimensions add up to that of the fabric.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 5.2.2.

    >>> from strata.hardware.fabric import fabric
    >>> float(mean_hops(fabric("torus-256").dimension[0])), float(mean_hops(fabric("torus-256").dimension[2]))
    (1.0, 0.5)
    """
    size = dimension.size
    if dimension.kind == "chain":
        return (size * size - 1.0) / (3.0 * size)
    return crossing_pairs(size) / size if dimension.kind == "ring" else (size - 1.0) / size


def crossing_pairs(size: Number) -> Number:
    """Pairs with one member in either half, the halves as equal as can be: floor(p / 2) ceil(p / 2).

    >>> float(crossing_pairs(5.0))
    6.0
    """
    return namespace(size).floor(size * size / 4.0)


def bisection(dimension: Dimension) -> Number:
    r"""Bandwidth between two halves of a dimension's members, as equal as can be, one direction [B/s].

    .. math::
        B = \lfloor p/2 \rfloor\, b/o \;\text{(switch)}, \quad B = b \;\text{(ring)}, \quad
        B = b/2 \;\text{(chain)}, \quad B = \frac{\lfloor p^2/4 \rfloor}{p-1}\, b/o \;\text{(full, dragonfly)}

    size p; bandwidth b of a device into the dimension [B/s], of which a link of a ring or chain has half, and
    a link to each of the others has 1/(p-1); oversubscription o.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.2.

    >>> from strata.hardware.fabric import fabric
    >>> bisection(fabric("hgx-h200").dimension[0]) / 1e9, bisection(fabric("torus-256").dimension[0]) / 1e9
    (1800.0, 200.0)
    """
    size, peak = dimension.size, peak_link(dimension)
    xp = namespace(size, peak)
    if dimension.kind == "switch":
        return xp.floor(size / 2.0) * peak
    if dimension.kind in DIRECT:
        return crossing_pairs(size) / xp.maximum(size - 1.0, 1.0) * peak
    return xp.where(size > 1, peak if dimension.kind == "ring" else peak / 2.0, 0.0)


def all_to_all_bound(dimension: Dimension) -> Number:
    r"""Most a device can send a second in an all-to-all of a dimension, its own part included [B/s].

    .. math:: \beta = \frac{p}{p-1}\, b/o \;\text{(switch, full, dragonfly)}, \quad
              \beta = \frac{p}{\lfloor p^2/4 \rfloor}\, b \;\text{(ring)}, \quad
              \beta = \frac{p}{\lfloor p^2/4 \rfloor}\, b/2 \;\text{(chain)}

    size p; what crosses the middle is :math:`\lfloor p^2/4 \rfloor / p` of what a device sends.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.3: bisection load of
    uniform traffic.

    >>> from strata.hardware.fabric import fabric
    >>> all_to_all_bound(fabric("torus-256").dimension[0]) / 1e9
    200.0
    """
    size, peak = dimension.size, peak_link(dimension)
    xp = namespace(size, peak)
    if dimension.kind in DIRECT:
        share = (size - 1.0) / size
    else:
        share = crossing_pairs(size) / size * (1.0 if dimension.kind == "ring" else 2.0)
    return xp.where(size > 1, peak / xp.maximum(share, 1e-30), np.inf)


def all_reduce_bound(dimension: Dimension) -> Number:
    r"""Most of a buffer that an all-reduce over a dimension can finish a second [B/s].

    .. math:: \beta = \frac{p}{2(p-1)}\, b/o, \qquad \beta = b/2 \;\text{(chain)}, \qquad
              \beta = b/o \;\text{(a switch that reduces)}

    size p. Every buffer but one must move, and its sum must come back: 2 (p-1) buffers over all links. Each
    link of a chain carries the whole buffer in either direction. A switch that adds up takes and gives it
    once.

    Patarasuk & Yuan, J. Parallel Distrib. Comput. 69 (2009), sec. 3.

    >>> from strata.hardware.fabric import fabric
    >>> [round(all_reduce_bound(fabric(n).dimension[0]) / 1e9, 1) for n in ("torus-256", "hgx-h200")]
    [133.3, 450.0]
    """
    size, peak = dimension.size, peak_link(dimension)
    xp = namespace(size, peak)
    share = 0.5 if dimension.kind == "chain" else 0.5 * size / xp.maximum(size - 1.0, 1e-30)
    if dimension.reduction is not None:
        share = xp.where(dimension.reduction > 0, xp.maximum(share, 1.0), share)
    return xp.where(size > 1, share * peak, np.inf)


def usable(dimension: Dimension) -> Number:
    """Bandwidth of a device when all use a dimension [B/s], the mean: ends of a chain lack one of two links.

    >>> from strata.hardware.fabric import fabric
    >>> usable(fabric("torus-256").dimension[0]) / 1e9, usable(fabric("torus-256").dimension[2]) / 1e9
    (200.0, 50.0)
    """
    return peak_link(dimension) * (
        (dimension.size - 1.0) / dimension.size if dimension.kind == "chain" else 1.0
    )


def links_of(dimension: Dimension) -> Number:
    """Links of one device into a dimension: stated, or the least of its kind; of a dragonfly global ones."""
    if dimension.links is not None:
        return dimension.links
    if dimension.kind == "full":
        return dimension.size - 1.0
    if dimension.kind == "dragonfly":
        return 1.0 if dimension.oversubscription is None else 1.0 / dimension.oversubscription
    return 1.0 if dimension.kind == "switch" else 2.0


def cables(dimension: Dimension) -> Number:
    """Links of one network of a dimension: those of a switch end at one device, others at two."""
    size = dimension.size
    ends = size - 1.0 if dimension.kind == "chain" else size
    links = ends * links_of(dimension) / (1.0 if dimension.kind == "switch" else 2.0)
    return namespace(size, links).where(size > 1, links, 0.0)


# ---------------------------------------------------------------------------------- the whole fabric


@dataclass(frozen=True, eq=False, kw_only=True)
class Measures:
    """What one dimension of a fabric offers, or the whole of it; bandwidths of one direction [B/s]."""

    name: str
    kind: str
    size: Number  # members of a network of this dimension; of the whole: devices
    networks: Number  # how many there are
    bandwidth: Number  # of one device, when all use it; of the whole: its ports together
    bisection: Number  # over all networks
    diameter: Number  # steps
    mean_hops: Number  # steps to another device drawn at random
    latency: Number  # to the farthest device [s]
    energy: Number  # of a byte to a device drawn at random [J/B]
    links: Number  # over all networks
    price: Number | None  # of all devices [USD]; None where a dimension has none
    all_reduce: Number  # bound: of the buffer
    all_to_all: Number  # bound: of what a device sends


@dataclass(frozen=True, eq=False)
class Topology:
    """A fabric with the measures of each of its dimensions, innermost first, and of the whole."""

    fabric: Fabric
    dimension: tuple[Measures, ...]
    whole: Measures
    opened: tuple[str, ...] = field(default=())  # dimensions whose size nobody gave, taken as OPEN_SIZE


def topology(
    given: Fabric | str, sizes: tuple[Number, ...] | None = None, money: Economics | None = None
) -> Topology:
    """Hops, bisection, links, cost and bandwidth bounds of a fabric, each dimension and the whole.

    >>> t = topology("hgx-h200", (8, 4))
    >>> float(t.whole.size), t.whole.bisection / 1e9, float(t.whole.diameter)
    (32.0, 800.0, 2.0)
    """
    joined = as_fabric(given) if sizes is None else sized(as_fabric(given), sizes)
    opened = tuple(d.name for d in joined.dimension if d.size is None)
    joined = replace(
        joined, dimension=tuple(replace(d, size=OPEN_SIZE) if d.size is None else d for d in joined.dimension)
    )
    devices, prices = devices_of(joined), money or economics()
    parts = tuple(_of_dimension(d, devices, prices) for d in joined.dimension)
    return Topology(joined, parts, _of_whole(joined, devices, parts), opened)


def _of_dimension(dimension: Dimension, devices: Number, money: Economics) -> Measures:
    price = dimension_price(dimension, money)
    size = dimension.size
    others = size / namespace(size).maximum(size - 1.0, 1.0)  # oneself is no destination
    networks = devices / size
    return Measures(
        name=dimension.name,
        kind=dimension.kind,
        size=size,
        networks=networks,
        bandwidth=usable(dimension),
        bisection=networks * bisection(dimension),
        diameter=diameter(dimension),
        mean_hops=mean_hops(dimension) * others,
        latency=diameter(dimension) * dimension.latency,
        energy=mean_hops(dimension) * others * dimension.energy,
        links=networks * cables(dimension),
        price=None if price is None else _used(dimension) * devices * price,
        all_reduce=all_reduce_bound(dimension),
        all_to_all=all_to_all_bound(dimension),
    )


def _used(dimension: Dimension) -> Number:
    """1 where a dimension has several members, else 0: nobody buys its links."""
    return namespace(dimension.size).where(dimension.size > 1, 1.0, 0.0)


def _of_whole(joined: Fabric, devices: Number, parts: tuple[Measures, ...]) -> Measures:
    """Hops and joules add up; of cuts through dimensions, and of what devices send, the least counts."""
    used: dict[str, Number] = {}
    injection: Number = 0.0
    returned: Number = 2.0
    bisected: Number = np.inf
    all_reduce: Number = np.inf
    all_to_all: Number = np.inf
    for dimension, of in zip(joined.dimension, parts, strict=True):
        xp = namespace(devices, of.size, of.bandwidth)
        shared = used.get(dimension.shares_links_of, 0.0)  # by an inner dimension's port that counts already
        used[dimension.name] = _used(dimension)
        own = dimension.bandwidth if dimension.kind != "chain" else of.bandwidth
        injection = injection + _used(dimension) * (1.0 - shared) * own
        bisected = xp.minimum(bisected, xp.where(of.size > 1, of.bisection, np.inf))
        # each network reduces its part of the buffer
        all_reduce = xp.minimum(all_reduce, of.networks * of.all_reduce)
        all_to_all = xp.minimum(all_to_all, of.all_to_all)
        if dimension.reduction is not None:
            returned = xp.where((dimension.reduction > 0) & (of.size > 1), 1.0, returned)
    xp = namespace(devices, injection)
    rest = devices - 1.0
    mean = sum(mean_hops(d) for d in joined.dimension)
    joules = sum(mean_hops(d) * d.energy for d in joined.dimension)
    others = devices / xp.maximum(rest, 1.0)
    prices = [of.price for of in parts if of.price is not None]
    sent = xp.where(returned > 1.0, 2.0 * rest / devices, 1.0)  # of its buffer, by every device
    return Measures(
        name=joined.name,
        kind="fabric",
        size=devices,
        networks=devices / devices,
        bandwidth=injection,
        bisection=xp.where(devices > 1, bisected, 0.0),
        diameter=sum(of.diameter for of in parts),
        mean_hops=mean * others,
        latency=sum(of.latency for of in parts),
        energy=joules * others,
        links=sum(of.links for of in parts),
        price=sum(prices) if len(prices) == len(parts) else None,
        all_reduce=xp.where(devices > 1, xp.minimum(all_reduce, injection / xp.maximum(sent, 1e-30)), np.inf),
        all_to_all=xp.where(devices > 1, xp.minimum(all_to_all, injection * others), np.inf),
    )
