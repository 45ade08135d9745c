"""Closed forms of collective algorithms inside one fabric dimension: steps of its latency at its sustained
bandwidth.

What a collective costs where no software is known. `ideal_times` has those that can be the cheapest,
`all_ideal_times` the others too, for whoever asks for one by name. `collective_schedules` has the same
algorithms message by message.
"""

from __future__ import annotations

from strata.base.arrays import Mask, Number, namespace
from strata.hardware.fabric import DIRECT, Dimension, peak_link
from strata.mapping.place import GroupLayout
from strata.pricing.network.algorithm_names import group_link, group_share
from strata.pricing.network.transport_times import AlgorithmTimes, double_tree, doublings


def ring_scatter(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a ring reduce-scatter or all-gather [s].

    .. math:: T = (p-1) (\alpha + n / (p \beta))

    payload n, the whole buffer [B]; ranks p; bandwidth β of one rank into the ring, one direction [B/s];
    latency α of a step [s]. Equal links, no reduction inside the network.

    Patarasuk & Yuan, J. Parallel Distrib. Comput. 69 (2009), sec. 3.

    >>> round(2 * ring_scatter(1e9, ranks=8, bandwidth=50e9, latency=1e-6), 6)
    0.035014
    """
    return (ranks - 1) * (latency + payload / (ranks * bandwidth))


def bidirectional_scatter(
    payload: Number, ranks: Number, bandwidth: Number, latency: Number, closed: Number
) -> Number:
    r"""Time of a reduce-scatter or all-gather in which every part goes both ways along a ring or a chain [s].

    .. math:: T = \lceil \tfrac{p-1}{2} \rceil \alpha + \frac{p-1}{p} \frac{n}{\beta} \;\text{(ring)}, \quad
              T = (p-1) \Big(\alpha + \frac{2 n}{p \beta}\Big) \;\text{(chain)}

    payload n, the whole buffer [B]; ranks p; bandwidth β of one rank, both its links together, one direction
    [B/s]; latency α [s]. Where the ring is closed, no part goes farther than half round; in an even one the
    farthest goes half and half. Else the last link of a chain carries the parts of all ranks before it, one
    after the other.

    Chan, Heimlich, Purkayastha & van de Geijn, Concurrency Computat.: Pract. Exper. 19 (2007), sec. 4:
    buckets both ways round.

    >>> ring, chain = (bidirectional_scatter(1e9, 8.0, 100e9, 1e-6, closed) for closed in (True, False))
    >>> round(float(ring) * 1e3, 3), round(float(chain) * 1e3, 3)
    (8.754, 17.507)
    """
    xp = namespace(payload, ranks, bandwidth)
    others = ranks - 1.0
    steps = xp.where(closed, xp.ceil(0.5 * others - 1e-9), others)
    return steps * latency + others * payload / (xp.where(closed, 1.0, 0.5) * ranks * bandwidth)


def direct_scatter(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a one-step reduce-scatter or all-gather through a switch [s]: every rank to every rank at
    once.

    .. math:: T = \alpha + \frac{p-1}{p} \frac{n}{\beta}

    Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19 (2005), sec. 4: the bandwidth term of
    all bandwidth-optimal algorithms; one step because a switch connects all pairs.

    >>> round(float(direct_scatter(1e9, 8.0, 50e9, 1e-6)), 6)
    0.017501
    """
    return (
        namespace(payload, ranks, bandwidth).where(ranks > 1, latency, 0.0)
        + (ranks - 1) / ranks * payload / bandwidth
    )


def halving_scatter(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a reduce-scatter by recursive halving, or an all-gather by doubling [s]; infinite unless p is
    a power of two.

    .. math:: T = \log_2 p \; \alpha + \frac{p-1}{p} \frac{n}{\beta}

    payload n, the whole buffer [B]; ranks p; bandwidth β to one partner [B/s]; latency α of a step [s].

    Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19 (2005), sec. 4.1 and 4.4.

    >>> [round(float(halving_scatter(1e9, p, 50e9, 1e-6)) * 1e3, 3) for p in (8.0, 6.0)]
    [17.503, inf]
    """
    xp = namespace(payload, ranks, bandwidth)
    steps = xp.log2(xp.maximum(ranks, 1.0))
    return where_power_of_two(ranks, steps * latency + (ranks - 1.0) / ranks * payload / bandwidth)


def where_power_of_two(ranks: Number, time: Number) -> Number:
    """A time where ranks are a power of two, else infinite.

    >>> float(where_power_of_two(8.0, 1.0)), float(where_power_of_two(6.0, 1.0))
    (1.0, inf)
    """
    xp = namespace(ranks, time)
    steps = xp.log2(xp.maximum(ranks, 1.0))
    return xp.where(abs(steps - xp.floor(steps + 0.5)) < 1e-9, time, float("inf"))


def one_shot_all_reduce(payload: Number, ranks: Number, bandwidth: Number, latency: Number) -> Number:
    r"""Time of a one-step all-reduce [s]: every rank sends its whole buffer to every other and adds up what
    it gets.

    .. math:: T = \alpha + (p-1) n / \beta

    For messages so small that a second step costs more than the extra bytes.

    >>> round(float(one_shot_all_reduce(8192.0, 8.0, 370e9, 1.25e-6)) * 1e6, 3)
    1.405
    """
    return (
        namespace(payload, ranks, bandwidth).where(ranks > 1, latency, 0.0)
        + (ranks - 1) * payload / bandwidth
    )


def device_links(dimension: Dimension) -> Number:
    """Links of one device in a dimension: to both neighbours along a ring or chain, to each member where all
    are joined in pairs, else one to a switch.

    >>> from strata.hardware.fabric import fabric, sized
    >>> [float(device_links(d)) for d in sized(fabric("torus-256"), (4, 2)).dimension[:2]]
    [2.0, 1.0]
    """
    if dimension.kind not in ("ring", "chain", "full"):
        return 1.0
    xp = namespace(dimension.size)
    others = xp.maximum(dimension.size - 1.0, 1.0)
    return others if dimension.kind == "full" else xp.minimum(2.0, others)


def group_bandwidth(layout: GroupLayout, dimension: Dimension) -> Number:
    """Bandwidth one rank sustains into its group inside a dimension, one direction [B/s]."""
    return group_link(layout, dimension) * dimension.efficiency


def partner_bandwidth(layout: GroupLayout, dimension: Dimension, partners: float) -> Number:
    """Bandwidth one rank sustains to so many partners in a direct dimension, one direction [B/s]: all it has
    through a switch, the links to them where each pair has one of its own.
    """
    xp = namespace(layout.size, dimension.size)
    share = group_share(dimension, xp.minimum(1.0 + partners, layout.size))
    return peak_link(dimension) * share * dimension.efficiency


def is_closed(layout: GroupLayout, dimension: Dimension) -> Mask:
    """Whether a group has a ring's closing link: one that goes all the way round; a smaller is a chain."""
    return dimension.kind == "ring" and layout.size * layout.stride >= dimension.size * (1.0 - 1e-9)


def dimension_scatter(payload: Number, layout: GroupLayout, dimension: Dimension) -> Number:
    """Reduce-scatter or all-gather inside one fabric dimension by its cheapest algorithm [s]."""
    bandwidth, latency = group_bandwidth(layout, dimension), dimension.latency
    if dimension.kind in DIRECT:
        return direct_scatter(payload, layout.size, bandwidth, latency)
    return bidirectional_scatter(
        payload, layout.size, bandwidth, latency * layout.stride, is_closed(layout, dimension)
    )


def dimension_exchange(payload: Number, layout: GroupLayout, dimension: Dimension) -> Number:
    r"""All-to-all inside one fabric dimension [s]; payload is what one rank sends in all, itself included.

    .. math:: T = \alpha + \frac{p-1}{p}\frac{n}{\beta} \;\text{(switch)}, \quad
              T = \frac{p}{2}\alpha + \frac{p}{4}\frac{n}{\beta} \;\text{(ring)}, \quad
              T = (p-1)\,\alpha + \frac{p}{2}\frac{n}{\beta} \;\text{(chain)}

    β counts both directions of a ring's links; the busiest link carries p/8 of what a rank sends in each
    direction of an even ring, and p/4 in the middle of a chain.

    Dally & Towles, Principles and Practices of Interconnection Networks (2004), sec. 3.3: bisection load of
    uniform traffic.

    >>> from strata.hardware.fabric import fabric
    >>> ring = fabric("torus-256").dimension[0]
    >>> time = dimension_exchange(1e9, GroupLayout(4.0, 1.0), ring)  # 2 x 0.2 us + 1 GB x 4 / (4 x 180 GB/s)
    >>> round(float(time) * 1e3, 3)
    5.556
    """
    bandwidth, latency, ranks = group_bandwidth(layout, dimension), dimension.latency, layout.size
    if dimension.kind in DIRECT:
        return direct_scatter(payload, ranks, bandwidth, latency)
    closed = is_closed(layout, dimension)
    xp = namespace(payload, ranks, bandwidth)
    loads = xp.where(closed, 4.0, 2.0)
    hops = xp.where(closed, ranks / 2.0, ranks - 1.0)
    return xp.where(ranks > 1, hops * latency * layout.stride + payload * ranks / (loads * bandwidth), 0.0)


def relayed_exchange(payload: Number, layout: GroupLayout, dimension: Dimension) -> Number:
    r"""All-to-all from neighbour to neighbour, one way round [s]: what is for the rank k places on is passed
    on k times.

    .. math:: T = \frac{p (p-1)}{2} \Big(\alpha + \frac{2 n}{p \beta}\Big)

    payload n, what one rank sends in all, itself included [B]; ranks p; bandwidth β of both links, one
    direction [B/s]. On a chain the way from the last rank to the first takes the links back, which are free,
    but p - 1 latencies.

    >>> from strata.hardware.fabric import fabric
    >>> ring = fabric("torus-256").dimension[0]
    >>> round(float(relayed_exchange(1e9, GroupLayout(4.0, 1.0), ring)) * 1e3, 3)
    16.668
    """
    ranks, closed = layout.size, is_closed(layout, dimension)
    xp = namespace(payload, ranks, dimension.size)
    step = xp.where(closed, 1.0, xp.maximum(ranks - 1.0, 1.0)) * dimension.latency * layout.stride
    return ranks * (ranks - 1.0) / 2.0 * (step + 2.0 * payload / (ranks * group_bandwidth(layout, dimension)))


def pipelined_broadcast(
    payload: Number, ranks: Number, bandwidth: Number, latency: Number, direct: bool
) -> Number:
    r"""Time of a broadcast in pieces that follow each other [s]: down two trees where ranks reach each other,
    else along a chain.

    .. math:: T = h \alpha + n / \beta, \quad h = \lceil \log_2 p \rceil \;\text{or}\; p - 1

    payload n [B]; ranks p; bandwidth β [B/s]; latency α of a step [s]. Pieces are small against n / β and
    large against α.

    Sanders, Speck & Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
    Comput. 35 (2009).

    >>> [round(float(pipelined_broadcast(1e9, 8.0, 50e9, 1e-6, direct)) * 1e3, 3) for direct in (True, False)]
    [20.003, 20.007]
    """
    hops = doublings(ranks) if direct else ranks - 1.0
    return hops * latency + payload / bandwidth


def ideal_times(pattern: str, payload: Number, layout: GroupLayout, dimension: Dimension) -> AlgorithmTimes:
    """Algorithms that can be the cheapest of a collective inside one dimension, with their times [s]."""
    direct = dimension.kind in DIRECT
    if pattern == "all_to_all":
        return {"exchange": dimension_exchange(payload, layout, dimension)}
    if pattern == "broadcast":
        return {"trees" if direct else "pipeline": _broadcast(payload, layout, dimension)}
    once = dimension_scatter(payload, layout, dimension)
    if not direct:
        name = "bidirectional ring" if dimension.kind == "ring" else "both ways"
        return {name: 2.0 * once if pattern == "all_reduce" else once}
    if pattern != "all_reduce":
        return {"scatter": once}
    bandwidth, latency = group_bandwidth(layout, dimension), dimension.latency
    times = {
        "scatter and gather": 2.0 * once,
        "one-shot": one_shot_all_reduce(payload, layout.size, bandwidth, latency),
    }
    if dimension.reduction is not None:
        xp = namespace(payload, layout.size, bandwidth, dimension.reduction)
        times["in switch"] = xp.where(
            dimension.reduction > 0, 2.0 * latency + payload / bandwidth, float("inf")
        )
    return times


def _broadcast(payload: Number, layout: GroupLayout, dimension: Dimension) -> Number:
    """Down two trees through a switch; else along the links, on a closed ring half of it each way."""
    bandwidth = group_bandwidth(layout, dimension)
    if dimension.kind in DIRECT:
        return pipelined_broadcast(payload, layout.size, bandwidth, dimension.latency, True)
    closed = is_closed(layout, dimension)
    halves = namespace(payload, bandwidth).where(closed, 1.0, 2.0)
    return pipelined_broadcast(
        payload, layout.size, bandwidth / halves, dimension.latency * layout.stride, False
    )


def all_ideal_times(
    pattern: str, payload: Number, layout: GroupLayout, dimension: Dimension
) -> AlgorithmTimes:
    """Every algorithm there is inside one dimension: `ideal_times`, and those that cannot be cheaper than one
    of them.

    They send the same bytes over no more links in no fewer steps: against one step through a switch, rings,
    halvings, trees and pairs in turn; against parts that go both ways, a ring's p - 1 steps and relays, which
    go one way and stop at every rank.
    """
    times = ideal_times(pattern, payload, layout, dimension)
    ranks, latency = layout.size, dimension.latency
    if dimension.kind not in DIRECT:
        return times | _dominated_along(pattern, payload, layout, dimension)
    rings, pairs = (partner_bandwidth(layout, dimension, partners) for partners in (2.0, 1.0))
    if pattern == "all_to_all":
        times["pairwise"] = (ranks - 1.0) * (latency + payload / (ranks * pairs))
    if pattern not in ("all_reduce", "all_gather", "reduce_scatter"):
        return times
    passes = 2.0 if pattern == "all_reduce" else 1.0
    times["ring"] = passes * ring_scatter(payload, ranks, rings, latency)
    times["halving-doubling"] = passes * halving_scatter(payload, ranks, pairs, latency)
    if pattern == "all_reduce":
        times["double tree"] = double_tree(payload, ranks, latency, 0.0, 1.0, rings)
    return times


def _dominated_along(
    pattern: str, payload: Number, layout: GroupLayout, dimension: Dimension
) -> AlgorithmTimes:
    """Algorithms along a ring or chain that another one beats."""
    if pattern == "all_to_all":
        return {"relay": relayed_exchange(payload, layout, dimension)}
    if pattern not in ("all_reduce", "all_gather", "reduce_scatter"):
        return {}
    closed, bandwidth, ranks = is_closed(layout, dimension), group_bandwidth(layout, dimension), layout.size
    xp = namespace(payload, ranks, dimension.size, bandwidth)
    # On a chain a ring goes there by every other rank and back by the others: twice as far, each wire for two
    # of its steps.
    twice, hops = xp.where(closed, 1.0, 2.0), xp.where(closed | (ranks < 3.0), 1.0, 2.0)
    passes = 2.0 if pattern == "all_reduce" else 1.0
    latency = dimension.latency * layout.stride * hops
    return {"ring": passes * ring_scatter(payload, ranks, bandwidth / twice, latency)}
