"""Tokens between ranks of experts over several levels of a fabric, by kernels made for it.

Two kinds, as DeepEP has them. Low latency: a message for each pick straight to the expert's rank, over the
node's links or by an adapter. Forwarded (its normal kernels, for many tokens): a token crosses the network
once for each node that holds some of its experts, and is passed on inside that node. Both are held by the
slower of adapters and links, and one node is the case of no adapters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from strata.arrays import Number, namespace
from strata.hardware.fabric import Dimension, Fabric, peak_link, sustained_link
from strata.hardware.transport import ExpertTransport
from strata.mapping.place import GroupLayout
from strata.pricing.network.algorithm_names import group_share
from strata.pricing.network.transport_times import expert_exchange
from strata.workload.graph import Exchange

WAYS = ("dispatch", "combine")
NARROW = 1.0  # bytes of an element up to which scales travel with it


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertLevels:
    """The dimension whose transport has kernels for experts, and those around it that a group reaches into;
    `sizes`: its members on each, the node's own first.
    """

    kernels: ExpertTransport
    dimensions: tuple[Dimension, ...]
    sizes: tuple[Number, ...]
    fits: Any  # whether no dimension inside the node's divides the group

    @property
    def node(self) -> Number:
        """Ranks of the group in a node."""
        return self.sizes[0]

    @property
    def nodes(self) -> Number:
        """Nodes that the group reaches into."""
        return math.prod(self.sizes[1:], start=1.0)

    @property
    def link(self) -> Number:
        """Peak of a rank's links inside a node, as far as its group can use them [B/s]."""
        return peak_link(self.dimensions[0]) * group_share(self.dimensions[0], self.sizes[0])


def expert_levels(direction: str, spreads: tuple[GroupLayout, ...], fabric: Fabric) -> ExpertLevels | None:
    """The levels that kernels for experts run over; none where the fabric's transports have none."""
    fits: Any = True
    for i, dimension in enumerate(fabric.dimension):
        moves = dimension.transport_model
        if moves is not None and moves.experts is not None and direction in WAYS:
            sizes = tuple(spread.size for spread in spreads[i:])
            dimensions = fabric.dimension[i:]
            return ExpertLevels(kernels=moves.experts, dimensions=dimensions, sizes=sizes, fits=fits)
        fits = fits & (spreads[i].size <= 1)
    return None


def message_bytes(way: str, width: Number, element: Number, by: ExpertTransport) -> Number:
    """Bytes of one pick's message: a header and the scales of narrow elements go out; plain elements come
    back.

    >>> by = ExpertTransport(start={}, expert={}, share={}, lane=1e9, header=16.0, scale=0.03125)
    >>> float(message_bytes("dispatch", 7168.0, 1.0, by)), float(message_bytes("combine", 7168.0, 2.0, by))
    (7408.0, 14336.0)
    """
    if way == "combine":
        return width * element
    return width * (element + namespace(element).where(element <= NARROW, by.scale, 0.0)) + by.header


def reached_parts(parts: Number, top_k: Number, groups: Number, top_groups: Number) -> Number:
    r"""Distinct parts (nodes, ranks) that hold experts of a token, in the mean.

    .. math:: d = \min\left(P - P (1 - 1/P)^k,\; d_g\right), \quad
              d_g = \max\left(1, P - P (1 - g/G)^{G/P}\right) \;(P \le G), \quad
              d_g = L - (L - g)(1 - 1/L)^{k - g}, \; L = P g / G \;(P > G)

    P equal parts of the experts; k picks of a token, from the best g of G groups of experts (1 of 1 where the
    router knows no groups). The best expert of each group that is chosen is picked; other picks fall on the
    chosen groups evenly. Against drawn routings within 5 %.

    DeepSeek-V3 technical report (arXiv 2412.19437), sec. 2.1.2: node-limited routing, 4 of 8 groups.

    >>> [round(float(reached_parts(n, 8.0, 8.0, 4.0)), 2) for n in (1.0, 2.0, 8.0, 64.0)]
    [1.0, 1.88, 4.0, 7.34]
    >>> round(float(reached_parts(8.0, 8.0, 1.0, 1.0)), 3)
    5.251
    """
    xp = namespace(parts, top_k, groups, top_groups)
    even = parts * (1.0 - (1.0 - 1.0 / parts) ** top_k)
    few = xp.maximum(parts * (1.0 - (1.0 - top_groups / groups) ** (groups / parts)), 1.0)
    held = xp.maximum(parts * top_groups / groups, 1.0)  # parts that hold the groups of a token
    more = xp.maximum(top_k - top_groups, 0.0)
    many = held - (held - xp.minimum(top_groups, held)) * (1.0 - 1.0 / held) ** more
    return xp.minimum(even, xp.where(parts <= groups, few, many))


def adapter_time(payload: Number, messages: Number, post: Number, dimension: Dimension) -> Number:
    r"""Time of what a rank sends to other nodes by its adapter [s]; nothing where it sends nothing.

    .. math:: T_b = \alpha + m\,\tau + n / \beta

    payload n [B] in m messages, each posted in τ [s]; latency α of the outer dimension and the bandwidth β
    that it sustains [B/s].

    >>> from strata.hardware.fabric import fabric
    >>> network = fabric("hgx-h100").dimension[1]  # 50 GB/s, of which 0.9 is sustained; 5 us
    >>> round(float(adapter_time(128 * 8 * 7408 / 2, 128 * 8 / 2, 0.0, network)) * 1e6, 1)
    89.3
    """
    xp = namespace(payload, messages, dimension.bandwidth)
    time = dimension.latency + messages * post + payload / sustained_link(dimension)
    return xp.where(payload > 0, time, 0.0)


def beyond(levels: ExpertLevels) -> tuple[Number, ...]:
    """Part of even traffic between nodes that crosses each dimension around the node, or one further out."""
    inside: Number = 1.0
    parts = []
    for size in levels.sizes[1:]:
        parts.append(1.0 - inside / levels.nodes)
        inside = inside * size
    return tuple(parts)


def leaving_time(payload: Number, messages: Number, levels: ExpertLevels) -> Number:
    """Time of what a rank sends beyond its node [s]: of the dimensions around it, the slowest; payload and
    messages are those to all nodes, its own too.
    """
    post = 0.0 if levels.kernels.message is None else levels.kernels.message
    slowest: Number = 0.0
    outer = zip(beyond(levels), levels.dimensions[1:], levels.sizes[1:], strict=True)
    for part, dimension, size in outer:
        xp = namespace(part, payload, messages, slowest)
        share = group_share(dimension, size)
        time = adapter_time(payload * part / share, messages * part, post, dimension)
        slowest = xp.maximum(slowest, xp.where(size > 1, time, 0.0))
    return slowest


def crossed_bytes(inside: Number, payload: Number, levels: ExpertLevels) -> tuple[Number, ...]:
    """Bytes a rank sends over its links of each level: inside the node, then around it."""
    parts = (*beyond(levels), 0.0)
    each = (payload * (part - further) for part, further in pairwise(parts))
    return (inside, *each)


def low_latency_exchange(made: Exchange, levels: ExpertLevels) -> tuple[Number, tuple[Number, ...]]:
    """Time of an exchange by a message for each pick, and bytes a mean rank sends over each level; infinite
    where the kernels do not take so many tokens.
    """
    by, ranks = levels.kernels, levels.node * levels.nodes
    picks = made.tokens * made.top_k
    sent = picks * message_bytes(made.direction, made.width, made.element, by)
    busiest = sent * made.busiest
    time = expert_exchange(
        busiest,
        levels.node,
        made.experts,
        levels.link,
        made.direction,
        by,
        nodes=levels.nodes,
        between=leaving_time(busiest, picks * made.busiest, levels),
    )
    legal = levels.fits & (ranks > 1)
    if by.limit is not None:
        legal = legal & (made.tokens <= by.limit)
    crossed = crossed_bytes((levels.node - 1.0) / ranks * sent, sent, levels)
    return namespace(legal, time).where(legal, time, float("inf")), crossed


def forwarded_exchange(made: Exchange, levels: ExpertLevels) -> tuple[Number, tuple[Number, ...]]:
    r"""Time of an exchange that sends a token to a node once and forwards it there [s], and bytes a mean rank
    sends over each level; infinite where there are no such kernels, and in steps that only generate: captured
    graphs do not wait for the host, which must know what will come.

    .. math:: T = T_0 + \frac{T_n}{2} + \max\left(T_b(d_N n),\; \frac{p-1}{p}\frac{d_R n}{f \beta},\;
              \frac{d_R n}{c\,\gamma}\right)

    tokens of n bytes, copied to the :math:`d_N` nodes and :math:`d_R` ranks that have experts of them
    (`reached_parts`), p ranks a node; share f of the links β; c cores copy γ each; start :math:`T_0`, and
    half of the notification :math:`T_n` before a dispatch for each way, as both must go so. Uneven routing:
    `received` of the busiest rank, never more than every token to every node.

    DeepEP (https://github.com/deepseek-ai/DeepEP), normal kernels: NVLink and RDMA forwarding.

    >>> from strata.hardware.fabric import fabric, sized, with_library
    >>> from strata.mapping.place import spread
    >>> two = with_library(sized(fabric("hgx-h200"), (8, 2)), "any")
    >>> levels = expert_levels("combine", spread(1.0, 16.0, two), two)
    >>> sizes = {"tokens": 4096.0, "top_k": 8.0, "experts": 256.0, "width": 7168.0, "element": 2.0}
    >>> made = Exchange(direction="combine", **sizes)
    >>> time, (inside, around) = forwarded_exchange(made, levels)
    >>> round(float(around) / 1e6, 1), round(float(inside) / 1e6, 1)  # MB: 1 copy by wire, 5.6 forwarded
    (58.5, 331.5)
    """
    by, node, nodes = levels.kernels, levels.node, levels.nodes
    row = made.tokens * message_bytes(made.direction, made.width, made.element, by)
    wires = row * reached_parts(nodes, made.top_k, made.groups, made.top_groups)
    copies = row * reached_parts(nodes * node, made.top_k, made.groups, made.top_groups)
    crossed = crossed_bytes((node - 1.0) / node * copies, wires, levels)
    xp = namespace(wires, copies, made.received, nodes, levels.fits)
    if by.forward is None or made.generates:
        return float("inf") + 0.0 * copies, crossed
    busiest = xp.minimum(wires * made.received, xp.maximum(nodes * row, wires))
    time = xp.maximum(
        leaving_time(busiest, 0.0, levels),  # chunks of many tokens each: posting them is no time
        crossed[0] * made.received / (by.forward * levels.link),
    )
    if by.core is not None and by.cores is not None:
        time = xp.maximum(time, copies * made.received / (by.cores * by.core))
    notify = 0.0 if by.notify is None else by.notify / 2.0
    legal = levels.fits & (node * nodes > 1)
    return xp.where(legal, by.start[made.direction] + notify + time, float("inf")), crossed
