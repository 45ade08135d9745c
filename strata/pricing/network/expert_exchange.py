"""Tokens between ranks of experts: uneven routing, and kernels made for it beside a library's all-to-all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from strata.arrays import Number, namespace
from strata.errors import BadValue
from strata.hardware.fabric import DIRECT, Fabric, with_library
from strata.hardware.transport import ANY
from strata.mapping.layout import Sharding
from strata.mapping.place import GroupLayout, spread
from strata.mapping.trainer import LIBRARY_EXCHANGE
from strata.memo import Memo, is_settled, value_key
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.expert_load import most_on_a_rank, shared_load
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.expert_levels import (
    expert_levels,
    forwarded_exchange,
    low_latency_exchange,
    message_bytes,
    reached_parts,
)
from strata.pricing.price import Price, network_price
from strata.workload.expert_ops import Combine, Dispatch, is_expert_product, is_routed
from strata.workload.graph import Collective, Exchange, Op, is_collective
from strata.workload.ops import is_vector


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
