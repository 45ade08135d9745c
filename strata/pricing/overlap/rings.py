"""Attention whose keys go round a ring of context ranks: done part by part, each beside the step that brings
the next keys, and results of parts merged.
"""

from __future__ import annotations

from dataclasses import replace

from strata.arrays import Number
from strata.precision import bytes_of
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.pipeline import ring_exposed
from strata.pricing.price import Price, network_price, price_where
from strata.pricing.pricers import PricedOp, Rank, price_op
from strata.workload.graph import Extent, Op, is_collective
from strata.workload.ops import Attention, is_attention

MERGE_FLOP = 4.0  # of an element: two factors of exponentials' sums, a product and an addition
SUM = "fp32"  # format in which results of parts are added up


def is_ring_step(op: Op) -> bool:
    """Whether it is passed round in steps beside another op."""
    return is_collective(op) and bool(op.overlaps)


def rings_shown(priced: list[PricedOp], rank: Rank, training: bool) -> list[PricedOp]:
    """Ops with what is passed round shown only as far as the parts of the op behind it do not cover it; in
    training attention is priced as the kernels of these parts.
    """
    made = dict(enumerate(priced))
    places = {op.name: place for place, (op, _) in enumerate(priced)}
    for place, (op, price) in enumerate(priced):
        if not (is_collective(op) and op.overlaps):
            continue
        over = places[op.overlaps]
        kernel, whole = made[over]
        if training and is_attention(kernel):
            parts = _in_parts(kernel, op.steps, rank)
            whole = price_where(op.payload > 0.0, parts, whole)
            made[over] = (kernel, whole)
        left = ring_exposed(price.time, whole.time, op.steps)
        made[place] = (op, network_price(left, price.energy, upper=price.time))
    return [made[place] for place in range(len(priced))]


def _in_parts(op: Attention, steps: Number, rank: Rank) -> Price:
    """Attention over one rank's keys after another's, and its results merged: forward each part's output is
    scaled by its share of the exponentials and added up, backward gradients of queries, keys and values are.

    Transformer Engine, context_parallel.py (cp_comm_type "p2p"): a kernel for each step, then a correction.
    """
    count = steps + 1.0
    part = replace(op, span=_over(op.span, count), cached=_over(op.cached, count))
    out = op.sequences.size * op.queries.size * op.heads.size * op.value_dim
    keys = op.sequences.size * part.cached.size * op.kv_heads.size * op.kv_width
    summed = out + keys if op.backward else out
    wide, narrow = bytes_of(SUM), bytes_of(op.activation)
    merge = vector_kernel(
        summed * (narrow + wide), summed * wide, MERGE_FLOP * summed, 0.0, rank.device
    ).times(steps)
    return price_op(part, rank).times(count) + merge


def _over(extent: Extent, count: Number) -> Extent:
    return replace(extent, unit=extent.unit / count)
