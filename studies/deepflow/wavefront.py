"""Time steps of a recurrent network that pass the stages of a pipeline as a wave, as DeepFlow's program
schedules an LSTM.
"""

from __future__ import annotations

from strata.base.arrays import Number, namespace
from strata.pricing.block import PricedBlock
from strata.pricing.pipeline import block_runs, stage_counts
from strata.pricing.price import Price
from strata.pricing.pricers import Pricing
from strata.workload.graph import BlockSequence, is_collective


def wavefront_time(
    given: Pricing, blocks: tuple[PricedBlock, ...], counts: list[Number], send: Price
) -> Number:
    """Time of an LSTM's step as DeepFlow's program has it: each pass a wave of time steps over stages, then
    sums of gradients, those of every block on links of their own.
    """
    sharding, pipelined = given.sharding, given.structure.pipelined
    found: Number = 0.0
    last: Number = 0.0
    for direction in ("forward", "backward"):
        total: Number = 0.0
        by_stage: Number = 0.0
        for b, count in zip(blocks, counts, strict=True):
            if b.block.direction != direction:
                continue
            if all(is_collective(op) for op in b.block.ops):  # once, beside all time steps
                held = namespace(count).max(count, axis=0) if pipelined else count
                last = namespace(last, held, b.price.time).maximum(last, held * b.price.time)
                continue
            total = total + block_runs(b, b.block.count) * b.price.time
            by_stage = by_stage + block_runs(b, count) * b.price.time
        if not pipelined:
            found = found + total
            continue
        passes = 2.0 if given.training else 1.0
        hand_over = send.time / (passes * sharding.handovers)
        slowest = namespace(by_stage).max(by_stage, axis=0)
        if given.training or direction == "forward":
            found = found + line_time(total, slowest, sharding.stages, sharding.handovers, hand_over)
    return found + last


def line_time(total: Number, slowest: Number, stages: Number, steps: Number, send: Number) -> Number:
    r"""Time of time steps that pass stages as a wave, one pass [s].

    .. math:: T = \frac{W}{S} + (P - 1) h + (S - 1) \max\Big(\frac{w}{S}, h\Big)

    all stages' work W and that of the slowest w over all S steps; P stages; hand-over h of one step, on links
    beside the stages. A line of deterministic servers: the first step passes all, then the slowest sets the
    pace.

    Hockney & Jesshope, Parallel Computers 2 (1988), sec. 1.3.

    >>> float(line_time(4.0 * 19.0, 4.0 * 12.0, 3.0, 4.0, 3.0))
    61.0
    """
    each = slowest / steps
    return total / steps + (stages - 1.0) * send + (steps - 1.0) * namespace(each, send).maximum(each, send)


def ends_apart_counts(order: BlockSequence, block: str, stages: Number, nodes: Number) -> Number:
    """How often a block stands in each of some stages where more than two stages leave the first and the last
    to what stands before and after all layers, as DeepFlow lays an LSTM.

    >>> lstm = BlockSequence(first=("embedding",), period=(("cell",),), layers=2.0, last=("head",))
    >>> every = __import__("numpy").arange(4.0)
    >>> [ends_apart_counts(lstm, b, 4.0, every).tolist() for b in ("embedding", "cell")]
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]
    """
    xp = namespace(nodes, stages)
    together = stage_counts(order, block, stages, nodes)
    if block in order.first or block in order.last:
        return together
    inner = xp.maximum(stages - 2.0, 1.0)
    at = xp.minimum(xp.maximum(nodes - 1.0, 0.0), inner - 1.0)
    apart = stage_counts(order, block, inner, at)
    apart = xp.where((nodes > 0.0) & (nodes < stages - 1.0), apart, 0.0)
    return xp.where(stages > 2.0, apart, together)
