"""Memory of one device: weights, cache, activations, and what training adds."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, ceil_div, namespace
from strata.mapping.plan import Plan
from strata.mapping.shard import SUMMED
from strata.precision import bytes_of
from strata.workload.graph import Attention, Block, ExpertMatMul, MatMul, Op, Vector, total

# Mixed-precision Adam keeps an fp32 copy of the weights and two fp32 moments, and adds up gradients in fp32
# (Rajbhandari et al., ZeRO, arXiv 1910.02054, sec. 3.1; Megatron accumulates gradients in fp32).
OPTIMISER_BYTES, GRADIENT_BYTES = 12.0, 4.0


@dataclass(frozen=True, eq=False, slots=True)
class Footprint:
    """Bytes one repetition of a block keeps on a device."""

    weights: Number = 0.0
    parameters: Number = 0.0
    expert_share: Number = 0.0  # part of weights and parameters that belongs to routed experts
    tied: Number = 0.0  # weights another block stores, which a pipeline may put on another device
    cache: Number = 0.0
    activations: Number = 0.0  # kept for the backward pass
    scratch: Number = 0.0  # alive while the block runs


def output_bytes(op: Op) -> Number:
    """Bytes an op writes for the ops after it."""
    if isinstance(op, MatMul):
        return op.batch.size * op.m.size * total(op.n) * bytes_of(op.activation)
    if isinstance(op, ExpertMatMul):
        routed = op.tokens.size * op.top_k * op.experts.size / op.slots
        return routed * total(op.n) * bytes_of(op.activation)
    if isinstance(op, Attention):
        return op.sequences.size * op.queries.size * op.heads.size * op.value_dim * bytes_of(op.activation)
    if isinstance(op, Vector):
        return op.elements() * op.writes * bytes_of(op.precision)
    return 0.0


def paged(tokens: Number, page: Number) -> Number:
    r"""Tokens a cache holds for a sequence over those it needs, where it is kept in blocks.

    .. math:: r = \frac{b \lceil n / b \rceil}{n}

    n tokens of a sequence, b of a block. Kwon et al., PagedAttention (SOSP 2023), sec. 4.1: only the last
    block is not full.

    >>> float(paged(1000.0, 16.0)), float(paged(1000.0, 1.0))
    (1.008, 1.0)
    """
    return page * ceil_div(tokens, page) / tokens


def footprint_of(block: Block, training: bool, plan: Plan, page: Number = 1.0) -> Footprint:
    """What one repetition of a block keeps: its weights, the cache of its attention in blocks of `page`
    tokens, its activations.
    """
    weights: Number = 0.0
    parameters: Number = 0.0
    routed: Number = 0.0
    tied: Number = 0.0
    cache: Number = 0.0
    kept: Number = 0.0
    widest: Number = 0.0
    for op in block.ops:
        if block.passes == "forward":
            weights = weights + op.weight_bytes()
            parameters = parameters + op.weight_elements()
            if isinstance(op, MatMul) and op.tied:
                tied = tied + op.k.size * total(op.n) * bytes_of(op.weight)
            if isinstance(op, ExpertMatMul):
                routed = routed + op.weight_elements()
        if isinstance(op, Attention) and not op.backward and not training:
            cache = cache + op.cache_bytes() * paged(op.held.size, page)
        written = output_bytes(op)
        # summed over the tensor group and, with sp, kept in pieces
        if isinstance(op, MatMul) and op.k.axis in SUMMED:
            written = written / namespace(plan.sp, plan.tp).where(plan.sp > 0, plan.tp, 1.0)
        kept = kept + written
        widest = namespace(widest, written).maximum(widest, written)
    experts = (
        routed / parameters
        if any(isinstance(op, ExpertMatMul) for op in block.ops) and block.passes == "forward"
        else 0.0
    )
    return Footprint(weights, parameters, experts, tied, cache, kept if training else 0.0, 2.0 * widest)


def training_state(parameters: Number, weights: Number, zero: Number, dp: Number) -> Number:
    r"""Bytes of weights, gradients and optimiser state of one device under ZeRO.

    .. math:: M = \frac{w}{d_3} + \frac{4 n}{d_2} + \frac{12 n}{d_1}

    parameters n; weight bytes w; each d is dp where the ZeRO level reaches it, else 1.

    Rajbhandari et al., ZeRO, arXiv 1910.02054, sec. 5 (with fp32 gradients).

    >>> float(training_state(7.5e9, 15e9, 0.0, 64.0) / 1e9), round(float(training_state(7.5e9, 15e9, 1.0, 64.0) / 1e9, ), 1)
    (135.0, 46.4)
    """
    xp = namespace(parameters, zero, dp)
    return (
        weights / xp.where(zero > 2, dp, 1.0)
        + GRADIENT_BYTES * parameters / xp.where(zero > 1, dp, 1.0)
        + OPTIMISER_BYTES * parameters / xp.where(zero > 0, dp, 1.0)
    )
