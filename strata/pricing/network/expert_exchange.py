"""Tokens between ranks of experts: uneven routing, and kernels made for it beside a library's all-to-all.

Kernels of two kinds, as DeepEP has them. Low latency: a message for each pick straight to the expert's rank,
over the node's links or by an adapter. Forwarded (its normal kernels, for many tokens): a token crosses the
network once for each node that holds some of its experts, and is passed on inside that node. Both are held by
the slower of adapters and links, and one node is the case of no adapters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue
from strata.base.memo import Memo, is_settled, value_key
from strata.base.precision import bytes_of
from strata.hardware.fabric import DIRECT, Dimension, Fabric, peak_link, with_library
from strata.hardware.transport import ANY, ExpertTransport
from strata.mapping.layout import Sharding
from strata.mapping.place import GroupLayout, spread
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.expert_load import most_on_a_rank, reached_parts, shared_load
from strata.pricing.network.algorithm_names import group_share
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.transport_times import adapter_time, expert_exchange
from strata.pricing.price import Price, network_price
from strata.software.trainer import LIBRARY_EXCHANGE
from strata.workload.expert_ops import Combine, Dispatch, is_expert_product, is_routed
from strata.workload.graph import Collective, Exchange, Op, is_collective
from strata.workload.ops import is_vector

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


def uneven_routing(ops: tuple[Op, ...], device: Device, sharding: Sharding) -> tuple[Op, ...]:
    """The ops of a block of experts as routing and engine leave them: exchanges of the busiest rank."""
    experts = next((op for op in ops if is_expert_product(op)), None)
    if experts is None:
        return ops
    taken = device.matrix(experts.weight, experts.activation).activation
    ranks = sharding.exchange_ranks
    if device.software.served:
        ops = tuple(_expert_rows(op, taken, ranks) for op in ops)
    if not any(is_collective(op) and op.exchange for op in ops):
        return ops
    by_library = sharding.trainer is None or sharding.trainer.expert_exchange == LIBRARY_EXCHANGE
    xp = namespace(ranks, experts.all_experts)
    share = most_on_a_rank(
        shared_load(experts, device, experts.ranks), ranks, xp.maximum(experts.slots / ranks, 1.0)
    )
    share = xp.minimum(share, ranks)
    more = received(share, ranks, experts.top_k)
    made: list[Op] = []
    for op in ops:
        if is_collective(op) and op.exchange is not None:
            narrow = op.exchange.direction == "dispatch" and not op.exchange.trains
            element = taken if narrow else op.exchange.element
            op = replace(op, exchange=replace(op.exchange, busiest=share, received=more, element=element))
            if op.exchange is not None and op.exchange.trains and by_library:
                op = _row_for_each_pick(op, op.exchange)
        elif sharding.trainer is not None and by_library and is_routed(op):
            op = _sorted_again(op, ranks)
        made.append(op)
    return tuple(made)


def _row_for_each_pick(op: Collective, made: Exchange) -> Collective:
    """An exchange of training by the library: each pick of a token is a row of its own."""
    payload = made.tokens * made.top_k * made.width * made.element
    return replace(op, payload=payload, exchange=replace(made, direction="", received=made.busiest))


def _sorted_again(op: Dispatch | Combine, ranks: Number) -> Op:
    """An op that sorts rows of tokens, and once more by the experts of a rank where ranks exchange them: a
    read and a write of every row (Megatron-LM, core/transformer/moe/token_dispatcher.py).
    """
    rows = op.m.size * op.top_k * op.width / op.elements()
    rows = namespace(ranks, rows).where(ranks > 1.0, rows, 0.0)
    return replace(op, reads=op.reads + rows, writes=op.writes + rows)


def _expert_rows(op: Op, taken: Number, exchanged: Number) -> Op:
    """Rows of experts as serving kernels write them: in products' format, unless ranks exchange them."""
    if op.backward or not is_vector(op) or op.route != "dispatch":
        return op
    xp = namespace(exchanged, taken)
    return replace(op, writes=op.writes * xp.where(exchanged > 1.0, 1.0, taken / bytes_of(op.precision)))


def received(share: Number, ranks: Number, top_k: Number) -> Number:
    r"""Tokens the busiest rank gets over the mean, where a token is sent to a rank once however many of its
    experts are there.

    .. math:: y = \frac{1 - (1 - x/R)^k}{1 - (1 - 1/R)^k}

    share x of picks on the busiest of R ranks over the mean; k picks a token. As in `exchange_bytes`, with
    the busiest rank's own chance :math:`x/R` of a pick. Never above :math:`R`: no rank gets more than all
    tokens.

    >>> [round(float(received(x, 8.0, 8.0)), 3) for x in (1.0, 2.0, 8.0)]
    [1.0, 1.371, 1.523]
    """
    xp = namespace(share, ranks, top_k)
    cheapest = 1e-12  # groups of one hold every token already: the ratio is 1
    return (1.0 - (1.0 - xp.minimum(share / ranks, 1.0)) ** top_k + cheapest) / (
        1.0 - (1.0 - 1.0 / ranks) ** top_k + cheapest
    )


def uneven(more: Number, spreads: tuple[GroupLayout, ...], fabric: Fabric) -> Number:
    r"""What the busiest link carries in an exchange, over a balanced one: the most of the dimensions the
    group crosses.

    .. math:: u = y \;\text{(any pair direct)}, \quad u = 1 + (y - 1) \min(1, 4/p) \;\text{(ring, chain)}

    y as `received`. A switch's busiest port is the busiest rank's. On a ring of p, the links beside that rank
    carry :math:`p n / 8` each way in passing and :math:`(y - 1) n / 2` more for it; a chain with that rank at
    its end has the same ratio.

    >>> from strata.hardware.fabric import fabric
    >>> eight, names = (GroupLayout(8.0, 1.0),), ("hgx-h200", "tpu-v4-torus")
    >>> [round(float(uneven(1.5, eight, fabric(n))), 3) for n in names]
    [1.5, 1.25]
    """
    cheapest: Number = 0.0
    for layout, dimension in zip(spreads, fabric.dimension, strict=False):  # outer dimensions may be left out
        xp = namespace(layout.size, cheapest)
        part = 1.0 if dimension.kind in DIRECT else xp.minimum(1.0, 4.0 / layout.size)
        cheapest = xp.maximum(cheapest, xp.where(layout.size > 1, part, 0.0))
    return 1.0 + (more - 1.0) * cheapest


@dataclass(frozen=True, eq=False, kw_only=True)
class ExchangeCost:
    """Tokens to their experts or back by kernels made for it: time [s], and the bytes that published
    bandwidths count: those that stay included, a copy for each node, inside one node for each rank, or a
    message for each pick of low latency [B].
    """

    time: Number
    bytes: Number

    @property
    def bandwidth(self) -> Number:
        """Bytes counted a second."""
        return self.bytes / self.time


def expert_exchange_cost(
    on: Fabric,
    direction: str,
    *,
    ranks: Number,
    tokens: Number,
    top_k: Number,
    experts: Number,
    width: Number,
    precision: str,
    low_latency: bool = True,
    top_nodes: Number = float("inf"),
    cores: Number = float("nan"),
) -> ExchangeCost:
    """A dispatch of the tokens of each rank, or their combine, with the layout of an earlier one, by kernels
    of low latency or by those for many tokens.

    `tokens` of a rank go to `top_k` of the `experts`, on at most `top_nodes` nodes; `cores` copy where that
    is said. The ranks are the fabric's first.

    >>> from strata.hardware.fabric import fabric, sized
    >>> node = sized(fabric("hgx-h200"), (8, 1))
    >>> sizes = {"tokens": 128.0, "top_k": 8.0, "experts": 256.0, "width": 7168.0, "precision": "bf16"}
    >>> round(float(expert_exchange_cost(node, "combine", ranks=8.0, **sizes).time) * 1e6)
    68
    """
    joined = with_library(on, ANY)
    levels = expert_levels(direction, spread(1.0, ranks, joined), joined)
    if levels is None:
        raise BadValue(f"{on.name} has no transport that knows expert exchange kernels")
    xp = namespace(ranks, cores, levels.nodes)
    usual = float("inf") if levels.kernels.cores is None else levels.kernels.cores
    kernels = replace(levels.kernels, notify=None, cores=xp.where(xp.isnan(cores), usual, cores))
    levels = replace(levels, kernels=kernels)
    made = Exchange(
        direction=direction,
        tokens=tokens,
        top_k=top_k,
        experts=experts,
        width=width,
        element=bytes_of(precision),
        groups=levels.nodes,
        top_groups=xp.minimum(levels.nodes, top_nodes),
    )
    time = (low_latency_exchange if low_latency else forwarded_exchange)(made, levels)[0]
    if not np.all(np.isfinite(time)):
        kind = "low-latency" if low_latency else "forwarding"
        raise BadValue(f"no {kind} kernels for exchanges between experts are known on {on.name}")
    parts = xp.where(levels.nodes > 1, levels.nodes, levels.node)
    copies = top_k if low_latency else reached_parts(parts, top_k, made.groups, made.top_groups)
    sent = tokens * copies * message_bytes(direction, width, made.element, kernels)
    return ExchangeCost(time=time, bytes=sent)


def price_exchange(op: Collective, spreads: tuple[GroupLayout, ...], fabric: Fabric) -> Price:
    """Price of an exchange as its busiest rank has it: the library's all-to-all, a copy to each rank, or
    kernels where quicker: a message to each expert, or a copy to each node. Energy is a mean rank's.
    """
    key = value_key(op.pattern, op.payload, op.exchange, spreads) if is_settled(fabric) else None
    return _EXCHANGES.of(key and (fabric, key), lambda: _price_exchange(op, spreads, fabric))


_EXCHANGES = Memo(2048)


def _price_exchange(op: Collective, spreads: tuple[GroupLayout, ...], fabric: Fabric) -> Price:
    made = op.exchange
    assert made is not None
    scale = uneven(made.received, spreads, fabric)
    found = price_collective(replace(op, payload=op.payload * scale), spreads, fabric)
    time, lower, energy = found.time, found.lower / scale, found.energy / scale
    levels = expert_levels(made.direction, spreads, fabric)
    if levels is None:
        return network_price(time, energy, lower=lower)
    for direct, crossed in (low_latency_exchange(made, levels), forwarded_exchange(made, levels)):
        xp = namespace(direct, time, lower, *crossed)
        least: Number = 0.0
        joules: Number = 0.0
        for sent, dimension in zip(crossed, levels.dimensions, strict=True):
            least = xp.maximum(least, sent / dimension.bandwidth)
            joules = joules + sent * dimension.energy
        lower = xp.where(direct < float("inf"), xp.minimum(lower, least), lower)
        energy = xp.where(direct < time, joules, energy)
        time = xp.minimum(time, direct)
    return network_price(time, energy, lower=lower)
