"""Packet transport: messages cut into packets, stored and forwarded hop by hop, complete when acknowledged;
closed forms of collectives on symmetric groups (any traffic: `strata.pricing.network.routes`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.base.arrays import Number, namespace, register_pytree
from strata.hardware.transport import Packets

# the longest recursive doubling where sizes are not known before they are priced (inside a jit): 65536 ranks
DOUBLINGS = 16
_TIE = 1e-6  # half a tick rounds down, as ns-3 does it, whatever the last bit of a quotient is


@register_pytree
@dataclass(frozen=True, eq=False)
class PacketHop:
    """`count` equal links in series on a message's path, each shared by `sharing` such messages at once."""

    bandwidth: Number
    latency: Number
    sharing: Number = 1.0
    count: Number = 1.0


def packet_time(size: Number, bandwidth: Number, packets: Packets) -> Number:
    r"""Time of one packet on a wire [s]: whole ticks, the nearest unless told, and not less than the least.

    .. math:: s(n) = \tau \max(m, \lfloor n / (\tau \beta) + 1 - u \rfloor)

    size n, header included [B]; bandwidth β [B/s]; tick τ [s]; least m; part u of a tick from which it is
    rounded up.

    ns-3 3.37 manual, "Time": a data rate's transmission time is rounded to the clock's resolution.

    >>> clock = Packets(1000.0, 48.0, 60.0, 1e-9, 1.0)
    >>> [round(packet_time(1048.0, b * 1e9, clock) * 1e9) for b in (32.0, 64.0, 512.0)]  # 32.75, 16.4, 2.05
    [33, 16, 2]
    """
    xp = namespace(size, bandwidth, packets.tick, packets.least)
    return packets.tick * xp.maximum(
        packets.least, xp.floor(size / (bandwidth * packets.tick) + 1.0 - packets.up - _TIE)
    )


def packet_count(payload: Number, packets: Packets) -> Number:
    """Packets of a message, at least one.

    >>> packet_count(2001.0, Packets(1000.0, 50.0, 50.0, 1e-9))
    3.0
    """
    xp = namespace(payload, packets.payload)
    return xp.maximum(1.0, xp.ceil(payload / packets.payload))


def packet_slots(payload: Number, bandwidth: Number, packets: Packets) -> tuple[Number, Number, Number]:
    """Time on one link of a message's first packet, of its last, and of all of them [s].

    >>> first, last, every = packet_slots(2100.0, 1e9, Packets(1000.0, 50.0, 50.0, 1e-9))
    >>> round(first * 1e9), round(last * 1e9), round(every * 1e9)
    (1050, 150, 2250)
    """
    xp = namespace(payload, bandwidth, packets.payload)
    count = packet_count(payload, packets)
    last = packet_time(payload - (count - 1.0) * packets.payload + packets.header, bandwidth, packets)
    full = packet_time(packets.payload + packets.header, bandwidth, packets)
    return xp.where(count > 1.0, full, last), last, (count - 1.0) * full + last


def message_time(payload: Number, path: Sequence[PacketHop], packets: Packets) -> Number:
    r"""Time of a message over a path, until its acknowledgement is back [s].

    .. math:: T = \max_b \Big( \sum_{h<b} s_h + m_b S_b + \sum_{h>b} l_h \Big) + \sum_h (2 \alpha_h + a_h)
              + \max_b \Big( (m_b - 1) a_b - \sum_h \alpha_h \Big)^+

    s, l time of the first and last packet on a link, S of all packets of the message [s]; m messages share a
    link; α latency of a hop, a time of an acknowledgement [s]. Every node stores a packet before it forwards
    it; the busiest link b is kept busy, links before it delay its start by one packet, links after it its
    end. Other messages on a link are of the same size; their acknowledgements wait behind the packets and go
    while the last packet is still on its way.

    Kermani & Kleinrock, Virtual cut-through, Computer Networks 3 (1979), sec. 2: store and forward of packets
    in series.

    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> # 1 B/ns: three packets on the first link, one more on the second, ends 2 us away and back
    >>> link = PacketHop(1e9, 500e-9)
    >>> round(message_time(3000.0, (link, link), clock) * 1e9)
    6300
    """
    xp = namespace(
        payload, packets.payload, *(v for h in path for v in (h.bandwidth, h.latency, h.sharing, h.count))
    )
    slots = [packet_slots(payload, hop.bandwidth, packets) for hop in path]
    started: Number = 0.0  # when the first packet reaches a hop
    done: Number = 0.0  # when the last packet has left it
    back: Number = 0.0
    away: Number = 0.0
    replies: Number = 0.0
    for hop, (first, last, every) in zip(path, slots, strict=True):
        reply = packet_time(packets.reply, hop.bandwidth, packets)
        done = xp.maximum(done + hop.count * last, started + (hop.count - 1.0) * first + hop.sharing * every)
        started = started + hop.count * first
        back = back + hop.count * (2.0 * hop.latency + reply)
        away = away + hop.count * hop.latency
        replies = xp.maximum(replies, (hop.sharing - 1.0) * reply)
    return done + back + xp.maximum(0.0, replies - away)


@register_pytree
@dataclass(frozen=True, eq=False)
class GridAxis:
    """One dimension of a grid: size, its links' bandwidth [B/s], latency [s]; `wraps` 1 a ring, 0 a chain."""

    size: Number
    bandwidth: Number
    latency: Number
    wraps: Number = 1.0


@register_pytree
@dataclass(frozen=True, eq=False)
class SwitchTree:
    """Switches of `inner` ranks each, `outer` of them under one more; links of hosts, and of switches up."""

    inner: Number
    outer: Number
    bandwidth: Number
    latency: Number
    up_bandwidth: Number
    up_latency: Number


def grid_ring_step(payload: Number, axis: GridAxis, packets: Packets) -> Number:
    r"""Every rank to the next one along an axis [s]; on a chain the last reaches the first back over all its
    links.

    .. math:: T = T_0 + \tfrac{3}{2} (d - 2) \frac{S}{T_0} s \quad\text{(chain)}

    On a chain the acknowledgement of the long way passes links that are busy with the neighbours' next
    messages for S of T₀: it finds a packet on the wire, half of it left, and one more before it.

    >>> chain = GridAxis(4.0, 1e9, 500e-9, 0.0)
    >>> # 3 hops: 3 x 1000 + 6 x 500, and 500 for the way back
    >>> round(grid_ring_step(950.0, chain, Packets(1000.0, 50.0, 0.0, 1e-9)) * 1e9)
    6500
    """
    xp = namespace(payload, axis.size, axis.wraps, axis.bandwidth)
    longest = xp.where(axis.wraps > 0, 1.0, xp.maximum(axis.size - 1.0, 1.0))
    first, _, every = packet_slots(payload, axis.bandwidth, packets)
    time = message_time(payload, (PacketHop(axis.bandwidth, axis.latency, 1.0, longest),), packets)
    return time + 1.5 * (longest - 1.0) * first * every / xp.maximum(time, packets.tick)


def grid_all_gather(block: Number, axes: Sequence[GridAxis], packets: Packets) -> Number:
    r"""All-gather by rings, one dimension after the other, innermost first [s]; block is what one rank has
    [B].

    .. math:: T = \sum_i (d_i - 1)\, T_{step}(b \prod_{j<i} d_j)

    >>> axes = (GridAxis(4.0, 32e9, 32e-9), GridAxis(4.0, 32e9, 32e-9))
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> round(grid_all_gather(512.0, axes, clock) * 1e9)  # the harness in validation/ns3: 657
    657
    """
    time: Number = 0.0
    for axis in axes:
        time = time + (axis.size - 1.0) * grid_ring_step(block, axis, packets)
        block = block * axis.size
    return time


def grid_all_reduce(payload: Number, axes: Sequence[GridAxis], packets: Packets) -> Number:
    r"""All-reduce by rings, dimension by dimension [s]: scattered inwards to outwards, gathered back; payload
    is the buffer [B].

    .. math:: T = 2 \sum_i (d_i - 1)\, T_{step}(\lceil n / \prod_{j \le i} d_j \rceil)

    >>> axes = (GridAxis(4.0, 32e9, 32e-9), GridAxis(4.0, 32e9, 32e-9))
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> round(grid_all_reduce(65536.0, axes, clock) * 1e9)  # the harness in validation/ns3: 4866
    4866
    """
    time: Number = 0.0
    pieces: Number = 1.0
    for axis in axes:
        pieces = pieces * axis.size
        piece = namespace(payload, pieces).ceil(payload / pieces)
        time = time + 2.0 * (axis.size - 1.0) * grid_ring_step(piece, axis, packets)
    return time


def grid_all_to_all(block: Number, axes: Sequence[GridAxis], packets: Packets, whole: bool = True) -> Number:
    r"""All-to-all by relays, dimension by dimension [s]: a block for the rank k places on is passed on k
    times.

    .. math:: T = \sum_i \frac{d_i (d_i - 1)}{2}\, T_{step}(b N / d_i)

    block is what one rank has for one other [B]; N ranks in all, d of them along a dimension. `whole=False`
    moves one block in each step, not those of all ranks behind the neighbour: the schedule that ASTRA-sim's
    rings run, an optimistic one.

    >>> axes = (GridAxis(4.0, 32e9, 32e-9), GridAxis(4.0, 32e9, 32e-9))
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> # the harness: the same
    >>> [round(grid_all_to_all(512.0, axes, clock, whole) * 1e9) for whole in (True, False)]
    [1620, 1008]
    """
    ranks = math.prod((axis.size for axis in axes), start=1.0)
    time: Number = 0.0
    for axis in axes:
        carried = block * ranks / axis.size if whole else block
        time = time + axis.size * (axis.size - 1.0) / 2.0 * grid_ring_step(carried, axis, packets)
    return time


def tree_message(
    payload: Number,
    tree: SwitchTree,
    crosses: Number,
    host_sharing: Number,
    up_sharing: Number,
    packets: Packets,
) -> Number:
    """A message between two hosts [s]: two hops below one switch, four where it crosses the outer one."""
    xp = namespace(crosses, payload, host_sharing, up_sharing)
    host = PacketHop(tree.bandwidth, tree.latency, host_sharing)
    outer = PacketHop(tree.up_bandwidth, tree.up_latency, up_sharing)
    below = message_time(payload, (host, host), packets)
    across = message_time(payload, (host, outer, outer, host), packets)
    return xp.where(crosses, across, below)


def _crossing(size: Number, tree: SwitchTree, ahead: Number, packets: Packets) -> tuple[Number, Number]:
    r"""One exchange of all hosts of a switch over its link upwards [s]: when the first of them is done, and
    how far the last is behind.

    Hosts that begin earlier fill the queue first, so a small lead grows from step to step, and the round
    trips of some hide behind the packets of others. With the last host `ahead` (D) behind the first and the
    others evenly between, a message that takes x on the link and y to inject finds

    .. math:: q = \sum_{i<m} \max(0, 1 - \frac{i D}{(m-1) y})
        \quad\text{of the m messages before its own last packet.}

    The first is done after :math:`T_m - (m - q) x`, the last after :math:`\max(T_m, D + T_1)`, with T₁ the
    time of one message alone. But acknowledgements wait behind the packets too: no host is further ahead than
    the latency of the way.

    >>> two = SwitchTree(8.0, 2.0, 256e9, 128e-9, 32e9, 512e-9)
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> # eight messages of 264 ns, all but a packet each at once
    >>> [round(t * 1e9) for t in _crossing(8000.0, two, 0.0, clock)]
    [4486, 231]
    """
    xp = namespace(size, tree.inner, tree.bandwidth, tree.up_bandwidth, ahead)
    ranks = xp.maximum(tree.inner, 1.0)
    alone = tree_message(size, tree, True, 1.0, 1.0, packets)
    together = tree_message(size, tree, True, 1.0, ranks, packets)
    _, last, link = packet_slots(size, tree.up_bandwidth, packets)
    inject = packet_slots(size, tree.bandwidth, packets)[2]
    lead = xp.maximum(ahead / xp.maximum(ranks - 1.0, 1.0), 1e-3 * packets.tick) / xp.maximum(
        inject, packets.tick
    )
    met = xp.minimum(ranks, xp.floor(1.0 / lead) + 1.0)
    queued = met - lead * met * (met - 1.0) / 2.0
    first = together - xp.maximum((ranks - queued) * link, (ranks - 1.0) * last)
    done = xp.maximum(together, ahead + alone)
    spread = xp.minimum(done - xp.maximum(alone, first), 2.0 * (tree.latency + tree.up_latency))
    return done - spread, spread


def _pair_steps(tree: SwitchTree, sizes: Sequence[tuple[float, Number]], packets: Packets) -> Number:
    """Exchanges of (distance, bytes); all hosts of a switch cross its one link upwards."""
    xp = namespace(tree.inner, tree.outer, tree.bandwidth, *(size for _, size in sizes))
    ranks = tree.inner * tree.outer
    time: Number = 0.0
    ahead: Number = 0.0
    for distance, size in sizes:
        first, spread = _crossing(size, tree, ahead, packets)
        crosses = (distance >= tree.inner) & (distance < ranks)
        below = xp.where(
            distance < xp.minimum(tree.inner, ranks), tree_message(size, tree, False, 1.0, 1.0, packets), 0.0
        )
        time = time + xp.where(crosses, first, below)
        ahead = xp.where(crosses, spread, ahead)
    return time + ahead


def _distances(tree: SwitchTree) -> list[float]:
    """Distances 1, 2, 4, … as many as the largest group doubles; steps too many take no time."""
    ranks = tree.inner * tree.outer
    known = isinstance(ranks, (int, float, np.ndarray, np.number))
    return [2.0**k for k in range(math.ceil(math.log2(np.max(ranks))) if known else DOUBLINGS)]


def tree_all_gather(block: Number, tree: SwitchTree, packets: Packets, outer_first: bool = True) -> Number:
    r"""All-gather by recursive doubling [s]; block is what one rank has [B]; ranks a power of two.

    .. math:: T = \sum_{k < \log_2 p} T_{pair}(2^k b)

    Messages double from step to step, so the order of distances says who carries the large ones. Outer level
    first (distances p/2, p/4, … 1): the link upwards, which a whole switch shares, carries each block once,
    :math:`g (N_{outer} - 1) b` in all; the mirror of a reduce-scatter by halving that begins inside, and the
    order of the runs published with DeepStack (ASTRA-sim's). Inner level first (1, 2, … p/2): it carries g
    times as much.

    Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19 (2005), sec. 4.1.

    >>> two = SwitchTree(8.0, 8.0, 256e9, 128e-9, 32e9, 512e-9)
    >>> published = Packets(1000.0, 48.0, 60.0, 1e-9, 1.0)
    >>> ways = [tree_all_gather(131072.0, two, published, order) for order in (True, False)]
    >>> round(float(ways[1] / ways[0]), 1)
    7.0

    >>> one = SwitchTree(8.0, 1.0, 32e9, 32e-9, 32e9, 32e-9)
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> round(tree_all_gather(512.0, one, clock) * 1e9)  # the harness in validation/ns3: 602
    602
    """
    xp = namespace(tree.inner, tree.outer)
    ranks = tree.inner * tree.outer
    if outer_first:  # steps beyond a smaller group's ranks stand first there, and take no time
        steps = [(d, block * xp.maximum(ranks / (2.0 * d), 1.0)) for d in reversed(_distances(tree))]
    else:
        steps = [(d, block * d) for d in _distances(tree)]
    return _pair_steps(tree, steps, packets)


def tree_all_reduce(payload: Number, tree: SwitchTree, packets: Packets) -> Number:
    r"""All-reduce by recursive halving, then doubling [s] (Rabenseifner); ranks a power of two.

    .. math:: T = 2 \sum_{k < \log_2 p} T_{pair}(n / 2^{k+1})

    Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19 (2005), sec. 4.4.

    >>> one = SwitchTree(8.0, 1.0, 32e9, 32e-9, 32e9, 32e-9)
    >>> clock = Packets(1000.0, 50.0, 50.0, 1e-9)
    >>> round(tree_all_reduce(65536.0, one, clock) * 1e9)  # the harness in validation/ns3: 4782
    4782
    """
    xp = namespace(payload, tree.inner)
    halves = [(d, xp.ceil(payload / (2.0 * d))) for d in _distances(tree)]
    return _pair_steps(tree, [*halves, *reversed(halves)], packets)


def tree_ring_step(payload: Number, tree: SwitchTree, packets: Packets) -> Number:
    """Every rank to the next one [s]; with several switches one rank of each crosses to the next switch."""
    return tree_message(payload, tree, tree.outer > 1.0, 1.0, 1.0, packets)


def tree_ring_all_gather(block: Number, tree: SwitchTree, packets: Packets) -> Number:
    """All-gather by one ring over all ranks [s]."""
    return (tree.inner * tree.outer - 1.0) * tree_ring_step(block, tree, packets)


def tree_ring_all_reduce(payload: Number, tree: SwitchTree, packets: Packets) -> Number:
    """All-reduce by one ring over all ranks [s]."""
    ranks = tree.inner * tree.outer
    return (
        2.0 * (ranks - 1.0) * tree_ring_step(namespace(payload, ranks).ceil(payload / ranks), tree, packets)
    )


def tree_all_to_all(block: Number, tree: SwitchTree, packets: Packets) -> Number:
    r"""All-to-all with every pair at once [s]; block is what one rank has for one other [B].

    Of p ranks, g below a switch: a host's link carries p - 1 messages, a switch's link upwards :math:`g (p -
    g)`.
    """
    ranks = tree.inner * tree.outer
    return tree_message(
        block, tree, tree.outer > 1.0, ranks - 1.0, tree.inner * (ranks - tree.inner), packets
    )
