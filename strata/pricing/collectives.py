"""Collectives on composed fabric dimensions: closed forms on symmetric groups, the cheapest legal algorithm."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.errors import BadValue
from strata.hardware.fabric import Dimension, Fabric, sustained_link
from strata.mapping.place import Spread
from strata.pricing.price import Price
from strata.workload.graph import Collective

PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def ring_scatter(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a ring reduce-scatter or all-gather [s].

    .. math:: T = (p-1) (\alpha + n / (p \beta))

    payload n, the whole buffer [B]; ranks p; bandwidth β of one rank into the ring, one direction [B/s]; latency α of a
    step [s]. Equal links, no reduction inside the network.

    Patarasuk & Yuan, J. Parallel Distrib. Comput. 69 (2009), sec. 3.

    >>> round(2 * ring_scatter(1e9, ranks=8, bandwidth=50e9, latency=1e-6), 6)
    0.035014
    """
    return (ranks - 1) * (latency + payload / (ranks * bandwidth))


def direct_scatter(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a one-step reduce-scatter or all-gather through a switch [s]: every rank to every rank at once.

    .. math:: T = \alpha + \frac{p-1}{p} \frac{n}{\beta}

    Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19 (2005), sec. 4: the bandwidth term of all
    bandwidth-optimal algorithms; one step because a switch connects all pairs.

    >>> round(float(direct_scatter(1e9, 8.0, 50e9, 1e-6)), 6)
    0.017501
    """
    return namespace(payload, ranks, bandwidth).where(ranks > 1, latency, 0.0) + (ranks - 1) / ranks * payload / bandwidth


def one_shot_all_reduce(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a one-step all-reduce [s]: every rank sends its whole buffer to every other and adds up what it gets.

    .. math:: T = \alpha + (p-1) n / \beta

    For messages so small that a second step costs more than the extra bytes.

    >>> round(float(one_shot_all_reduce(8192.0, 8.0, 370e9, 1.25e-6)) * 1e6, 3)
    1.405
    """
    return namespace(payload, ranks, bandwidth).where(ranks > 1, latency, 0.0) + (ranks - 1) * payload / bandwidth


def group_bandwidth(spread: Spread, dimension: Dimension) -> Number:
    r"""Bandwidth one rank has into its group inside a dimension, one direction [B/s].

    A switch gives a rank its whole port whoever it talks to. Where every pair has its own link, a group of g among N
    reaches only the links between its members: :math:`\beta (g-1)/(N-1)`. On rings and chains, groups that interleave
    with stride s share the wires: :math:`\beta / s`.
    """
    bandwidth = sustained_link(dimension)
    if dimension.kind == "switch":
        return bandwidth
    if dimension.kind == "full":
        xp = namespace(spread.size, dimension.size, bandwidth)
        return bandwidth * xp.maximum(spread.size - 1.0, 1.0) / xp.maximum(dimension.size - 1.0, 1.0)
    return bandwidth / spread.stride


def dimension_scatter(payload: Number, spread: Spread, dimension: Dimension) -> Number:
    """Reduce-scatter or all-gather inside one fabric dimension [s]."""
    bandwidth, latency = group_bandwidth(spread, dimension), dimension.latency
    if dimension.kind in ("switch", "full"):
        return direct_scatter(payload, spread.size, bandwidth, latency)
    # A chain lacks the closing link, so its ring runs there and back over the same wires.
    detour = 1.0 if dimension.kind == "ring" else 2.0
    return ring_scatter(payload, spread.size, bandwidth / detour, latency * spread.stride)


def dimension_exchange(payload: Number, spread: Spread, dimension: Dimension) -> Number:
    r"""All-to-all inside one fabric dimension [s]; payload is what one rank sends in all, itself included.

    .. math:: T = \alpha + \frac{p-1}{p}\frac{n}{\beta} \;\text{(switch)}, \quad
              T = \frac{p}{2}\alpha + \frac{p}{4}\frac{n}{\beta} \;\text{(ring)}, \quad
              T = p\,\alpha + \frac{p}{2}\frac{n}{\beta} \;\text{(chain)}

    β counts both directions of a ring's links; the busiest link carries p/8 of what a rank sends in each direction of an
    even ring, and p/4 in the middle of a chain.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.3: bisection load of uniform traffic.

    >>> from strata.hardware.fabric import fabric
    >>> ring = fabric("torus-256").dimension[0]
    >>> round(float(dimension_exchange(1e9, Spread(4.0, 1.0), ring)) * 1e3, 3)  # 2 x 0.2 us + 1 GB x 4 / (4 x 180 GB/s)
    5.556
    """
    bandwidth, latency, ranks = group_bandwidth(spread, dimension), dimension.latency, spread.size
    if dimension.kind in ("switch", "full"):
        return direct_scatter(payload, ranks, bandwidth, latency)
    xp = namespace(payload, ranks, bandwidth)
    loads = 4.0 if dimension.kind == "ring" else 2.0
    hops = ranks * 2.0 / loads
    return xp.where(ranks > 1, hops * latency * spread.stride + payload * ranks / (loads * bandwidth), 0.0)


def price_collective(op: Collective, spreads: tuple[Spread, ...], fabric: Fabric) -> Price:
    """Price of a collective of a group that is spread over a fabric's dimensions."""
    if op.pattern not in PATTERNS:
        raise BadValue(f"a collective must be one of {', '.join(PATTERNS)}, but got '{op.pattern}'")
    if op.pattern == "send":
        return _send(op.payload, spreads, fabric)
    scatter = op.pattern != "all_to_all"
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    inner: Number = 1.0
    passes = 2.0 if op.pattern == "all_reduce" else 1.0
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        payload = op.payload / inner if scatter else op.payload
        crossing = (spread.size - 1) / spread.size * payload
        if op.pattern == "all_reduce":
            time = time + _all_reduce(payload, spread, dimension)
        elif scatter:
            time = time + dimension_scatter(payload, spread, dimension)
        else:
            time = time + dimension_exchange(payload, spread, dimension)
        saved = 1.0 if dimension.reduction is None or op.pattern != "all_reduce" else 1.0 / (1.0 + dimension.reduction)
        lower = lower + passes * saved * crossing / dimension.bandwidth
        energy = energy + passes * crossing * dimension.energy
        inner = inner * spread.size
    # Nothing to send takes no time: a batch holds collectives that some of its points do not need.
    time = namespace(op.payload, time).where(op.payload > 0, time, 0.0)
    return Price(time=time, network=time, lower=lower, upper=time, link_energy=energy, energy=energy)


def _all_reduce(payload: Number, spread: Spread, dimension: Dimension) -> Number:
    """The cheapest of scatter-and-gather, one shot, and addition inside the switch where there is such a switch."""
    two_step = 2.0 * dimension_scatter(payload, spread, dimension)
    if dimension.kind not in ("switch", "full"):
        return two_step
    xp = namespace(payload, spread.size, dimension.bandwidth)
    bandwidth, latency = group_bandwidth(spread, dimension), dimension.latency
    time = xp.minimum(two_step, one_shot_all_reduce(payload, spread.size, bandwidth, latency))
    if dimension.reduction is None:
        return time
    in_switch = xp.where(spread.size > 1, 2.0 * latency + payload / bandwidth, 0.0)
    return xp.where(dimension.reduction > 0, xp.minimum(time, in_switch), time)


def _send(payload: Number, spreads: tuple[Spread, ...], fabric: Fabric) -> Price:
    """One rank to its neighbour in the group; the slowest dimension the group crosses counts."""
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        xp = namespace(payload, spread.size, dimension.bandwidth, time)
        crosses = spread.size > 1
        time = xp.maximum(time, xp.where(crosses, dimension.latency + payload / sustained_link(dimension), 0.0))
        lower = xp.maximum(lower, xp.where(crosses, payload / dimension.bandwidth, 0.0))
        energy = xp.where(crosses, payload * dimension.energy, energy)
    return Price(time=time, network=time, lower=lower, upper=time, link_energy=energy, energy=energy)
