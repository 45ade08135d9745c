"""Collectives on composed fabric dimensions: closed forms on symmetric groups, the cheapest legal algorithm."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.errors import BadValue
from strata.hardware.fabric import DIRECT, Dimension, Fabric, group_share, peak_link, sustained_link
from strata.mapping.place import Spread
from strata.pricing.price import Price
from strata.pricing.transports import Ways, direct_ways, pair_ways, ring_ways, send_ways
from strata.workload.graph import Collective

PATTERNS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")


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


def group_link(spread: Spread, dimension: Dimension) -> Number:
    r"""Peak bandwidth one rank has into its group inside a dimension, one direction [B/s].

    The links its group reaches (`group_share`). On rings and chains, groups that interleave with stride s share the wires:
    :math:`\beta / s`.
    """
    link = peak_link(dimension) * group_share(dimension, spread.size)
    return link if dimension.kind in DIRECT else link / spread.stride


def group_bandwidth(spread: Spread, dimension: Dimension) -> Number:
    """Bandwidth one rank sustains into its group inside a dimension, one direction [B/s]."""
    return group_link(spread, dimension) * dimension.efficiency


def dimension_scatter(payload: Number, spread: Spread, dimension: Dimension) -> Number:
    """Reduce-scatter or all-gather inside one fabric dimension [s]."""
    bandwidth, latency = group_bandwidth(spread, dimension), dimension.latency
    if dimension.kind in DIRECT:
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
    if dimension.kind in DIRECT:
        return direct_scatter(payload, ranks, bandwidth, latency)
    xp = namespace(payload, ranks, bandwidth)
    loads = 4.0 if dimension.kind == "ring" else 2.0
    hops = ranks * 2.0 / loads
    return xp.where(ranks > 1, hops * latency * spread.stride + payload * ranks / (loads * bandwidth), 0.0)


def broadcast(payload: Number, ranks: Number, bandwidth: Number, latency: Number, direct: bool) -> Number:
    r"""Time of a broadcast in pieces that follow each other [s]: down two trees where ranks reach each other, else along a chain.

    .. math:: T = h \alpha + n / \beta, \quad h = \lceil \log_2 p \rceil \;\text{or}\; p - 1

    payload n [B]; ranks p; bandwidth β [B/s]; latency α of a step [s]. Pieces are small against n / β and large against α.

    Sanders, Speck & Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Comput. 35 (2009).

    >>> [round(float(broadcast(1e9, 8.0, 50e9, 1e-6, direct)) * 1e3, 3) for direct in (True, False)]
    [20.003, 20.007]
    """
    xp = namespace(payload, ranks, bandwidth)
    hops = xp.ceil(xp.log2(xp.maximum(ranks, 1.0)) - 1e-9) if direct else ranks - 1.0
    return hops * latency + payload / bandwidth


def ways(pattern: str, payload: Number, spread: Spread, dimension: Dimension) -> Ways:
    """Each legal way of a collective inside one fabric dimension, with its time [s]; groups of one take none."""
    if dimension.moves is None:
        return _ideal_ways(pattern, payload, spread, dimension)
    link, by, ranks = group_link(spread, dimension), dimension.moves, spread.size
    if pattern == "broadcast":
        wait = dimension.latency * by.rings.step["simple"]
        return {"trees": by.rings.start["simple"] + broadcast(payload, ranks, by.rings.share["all_gather"] * link, wait, True)}
    if pattern == "all_to_all":
        found = pair_ways(payload, ranks, link, by.pairs)
    else:
        found = ring_ways(pattern, payload, ranks, link, dimension.latency, by.rings, dimension.reduction)
    if pattern == "all_reduce" and by.direct is not None:
        found |= direct_ways(payload, ranks, link, by.direct)
    return found


def _ideal_ways(pattern: str, payload: Number, spread: Spread, dimension: Dimension) -> Ways:
    """Closed forms where no software is known: steps of the dimension's latency at its sustained bandwidth."""
    if pattern == "all_to_all":
        return {"exchange": dimension_exchange(payload, spread, dimension)}
    if pattern == "broadcast":
        direct = dimension.kind in DIRECT
        step = dimension.latency if direct else dimension.latency * spread.stride
        return {"trees" if direct else "pipeline": broadcast(payload, spread.size, group_bandwidth(spread, dimension), step, direct)}
    once = dimension_scatter(payload, spread, dimension)
    if pattern != "all_reduce":
        return {"scatter": once}
    found = {"scatter and gather": 2.0 * once}
    if dimension.kind not in DIRECT:
        return found
    bandwidth, latency = group_bandwidth(spread, dimension), dimension.latency
    found["one-shot"] = one_shot_all_reduce(payload, spread.size, bandwidth, latency)
    if dimension.reduction is not None:
        xp = namespace(payload, spread.size, bandwidth, dimension.reduction)
        found["in switch"] = xp.where(dimension.reduction > 0, 2.0 * latency + payload / bandwidth, float("inf"))
    return found


def least(found: Ways) -> Number:
    """The cheapest way's time."""
    first, *others = found.values()
    for time in others:
        first = namespace(first, time).minimum(first, time)
    return first


def dimension_time(pattern: str, payload: Number, spread: Spread, dimension: Dimension) -> Number:
    """Time of a collective inside one fabric dimension by its cheapest way [s]; none for a group of one."""
    time = least(ways(pattern, payload, spread, dimension))
    return namespace(spread.size, time).where(spread.size > 1, time, 0.0)


def algorithm(op: Collective, spreads: tuple[Spread, ...], fabric: Fabric) -> tuple[str, ...]:
    """The way a single collective takes in each fabric dimension, innermost first; "" where it does not cross one.

    >>> from strata.hardware.fabric import fabric, sized
    >>> from strata.mapping.place import spread
    >>> node = sized(fabric("torus-256"), (4, 4, 1, 1, 1))
    >>> algorithm(Collective("sum", "", (), "", "all_reduce", "tp", 1e6), spread(1.0, 4.0, node), node)
    ('scatter and gather', '', '', '', '')
    """
    _check(op.pattern)
    names, inner = [], 1.0
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        payload = op.payload if op.pattern in ("all_to_all", "broadcast", "send") else op.payload / inner
        found = _send_ways(payload, dimension) if op.pattern == "send" else ways(op.pattern, payload, spread, dimension)
        names.append(min(found, key=lambda name: float(found[name])) if spread.size > 1 else "")
        inner = inner * spread.size
    return tuple(names)


def _check(pattern: str) -> None:
    if pattern not in PATTERNS:
        raise BadValue(f"a collective must be one of {', '.join(PATTERNS)}, but got '{pattern}'")


def price_collective(op: Collective, spreads: tuple[Spread, ...], fabric: Fabric) -> Price:
    """Price of a collective of a group that is spread over a fabric's dimensions."""
    _check(op.pattern)
    if op.pattern == "send":
        return _send(op.payload, spreads, fabric)
    scatter = op.pattern not in ("all_to_all", "broadcast")
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    inner: Number = 1.0
    passes = 2.0 if op.pattern == "all_reduce" else 1.0
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        payload = op.payload / inner if scatter else op.payload
        crossing = (spread.size - 1) / spread.size * payload
        time = time + dimension_time(op.pattern, payload, spread, dimension)
        saved = 1.0 if dimension.reduction is None or op.pattern != "all_reduce" else 1.0 / (1.0 + dimension.reduction)
        lower = lower + passes * saved * crossing / dimension.bandwidth
        energy = energy + passes * crossing * dimension.energy
        inner = inner * spread.size
    # Nothing to send takes no time: a batch holds collectives that some of its points do not need.
    time = namespace(op.payload, time).where(op.payload > 0, time, 0.0)
    return Price(time=time, network=time, lower=lower, upper=time, link_energy=energy, energy=energy)


def _send_ways(payload: Number, dimension: Dimension) -> Ways:
    """Each way of one message to a neighbour."""
    if dimension.moves is None:
        return {"send": dimension.latency + payload / sustained_link(dimension)}
    return send_ways(payload, peak_link(dimension), dimension.moves.pairs)


def _send(payload: Number, spreads: tuple[Spread, ...], fabric: Fabric) -> Price:
    """One rank to its neighbour in the group; the slowest dimension the group crosses counts."""
    time: Number = 0.0
    lower: Number = 0.0
    energy: Number = 0.0
    for spread, dimension in zip(spreads, fabric.dimension, strict=True):
        xp = namespace(payload, spread.size, dimension.bandwidth, time)
        crosses = spread.size > 1
        time = xp.maximum(time, xp.where(crosses, least(_send_ways(payload, dimension)), 0.0))
        lower = xp.maximum(lower, xp.where(crosses, payload / dimension.bandwidth, 0.0))
        energy = xp.where(crosses, payload * dimension.energy, energy)
    return Price(time=time, network=time, lower=lower, upper=time, link_energy=energy, energy=energy)
