"""How rows of tokens reach the experts they picked, and their results come back, under a division of the
experts.

Experts are divided over ranks (`ep`), and each expert over ranks of its own (`expert_tp`). Tokens are
exchanged between ranks of experts and gathered among the ranks that hold parts of the same expert; where
experts are cut over several data parallel ranks (`expert_tp_dp`), these gather the tokens of all of them.
Results go the same ways back, as sums.
"""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.precision import bytes_of
from strata.workload.expert_ops import Combine, Dispatch, ExpertMatMul
from strata.workload.graph import Collective, Exchange, Tensor

# ranks of a tensor group hold the same tokens, and each brings back what its own experts made of them
PARTIAL_OVER = "tp"


def expert_collectives(
    op: Dispatch | Combine, experts: ExpertMatMul, sharding: Sharding, stream: Tensor, training: bool
) -> tuple[list[Collective], list[Collective]]:
    """Collectives before and after an op that moves rows between tokens and experts; stream: a rank's tokens
    as products read them; training: the trainer says which kernels carry them.
    """
    sends = op.route == "dispatch"
    suffix, pattern = ("gather", "all_gather") if sends else ("scatter", "reduce_scatter")
    tensor = op.output if sends else op.inputs[0]
    found: list[Collective] = []
    degrees, ranks = sharding.degrees, sharding.exchange_ranks
    apart = ranks > 1
    xp = namespace(ranks, op.width)

    def collective(
        name: str, kind: str, group: str, payload: Number, exchange: Exchange | None = None
    ) -> Collective:
        return Collective(
            name=f"{op.name}_{name}",
            module=op.module,
            inputs=(tensor,),
            output=tensor,
            pattern=kind,
            group=group,
            payload=payload,
            exchange=exchange,
        )

    if "ep" in sharding.active:
        # The ranks of a tensor group share out what they all hold.
        tokens = stream.extents[0].size / degrees.get("tp", 1.0)
        payload = exchange_bytes(tokens, ranks, op.top_k, op.width * bytes_of(op.precision))
        exchange = Exchange(
            direction=op.route,
            trains=training,
            tokens=tokens,
            top_k=experts.top_k,
            experts=experts.all_experts,
            width=op.width,
            element=bytes_of(op.precision),
            groups=experts.groups,
            top_groups=experts.top_groups,
            generates=experts.generates,
        )
        found.append(collective("exchange", "all_to_all", "ep", payload, exchange))
        if "expert_tp" in sharding.active:
            each = xp.where(apart, payload * degrees["expert_tp"], 0.0)
            found.append(collective(suffix, pattern, "expert_tp", each))
    if "expert_tp_dp" in sharding.active:
        every = experts.tokens.size * op.width * bytes_of(op.precision)
        found.append(collective(f"{suffix}_all", pattern, "expert_tp_dp", xp.where(apart, 0.0, every)))
    if sharding.sequence_group:
        # experts inside the group that holds parts of sequences: all its ranks need the tokens of each other
        every = xp.where(apart, 0.0, stream.bytes())
        found.append(collective(f"{suffix}_tokens", pattern, sharding.sequence_group, every))
    return ([], found) if sends else (found[::-1], [])


def exchange_bytes(tokens: Number, ranks: Number, top_k: Number, row: Number) -> Number:
    r"""Bytes one rank sends to bring tokens to their experts, or their results back: one copy to each
    distinct rank.

    .. math:: n = T R \left(1 - (1 - 1/R)^k\right) b

    tokens T of the rank; R ranks of which k uniform picks hit :math:`R (1 - (1 - 1/R)^k)` distinct ones; b
    bytes of a row.

    >>> round(exchange_bytes(64.0, 8.0, 8.0, 7168.0) / (64 * 7168), 3)  # copies of a token
    5.251
    """
    copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** top_k)
    return tokens * copies * row
