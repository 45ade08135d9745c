"""Pipelines: which layers a stage holds, and how stages and micro-batches add up to a step."""

from __future__ import annotations

from strata.arrays import Number, floor_div, namespace
from strata.workload.graph import BlockSequence


def stage_start(
    layers: Number, stages: Number, nodes: Number, ends: Number = 0.0, head: Number | None = None
) -> Number:
    r"""The layer that a stage begins with, of a contiguous split; at the number of stages: all layers.

    .. math:: s_j = \mathrm{clip}\big(q j + \mathrm{clip}(j - P + 1 + r, 0, r) - e, 0, L\big), \quad
        q = \lfloor (L + 2e)/P \rfloor, \quad r = L + 2e - qP

    layers L, stages P, stage j counted from 0; e = 1 where embedding and head count as a layer each
    (Megatron-LM's --account-for-embedding-in-pipeline-split and -loss-). As even as whole layers allow: the r
    longer stages stand just before the last, as vLLM's pipeline partition has them
    (vllm.distributed.utils.get_pp_indices). Trainers that need an even split have r = 0.

    With `head`, the head's products over a layer's, stages are balanced by the work of products, as nanotron
    does it (huggingface/nanotron, models/base.py): a stage ends with the first layer that takes all until
    then beyond its share (or to it, where the head counts a trifle less),

    .. math:: s_j = \min\big(L, \max(j, \lfloor (L + h) j/P \rfloor + 1)\big), \quad j > 0

    >>> every = __import__("numpy").arange(9.0)
    >>> stage_start(126.0, 8.0, every, 1.0).tolist()
    [0.0, 15.0, 31.0, 47.0, 63.0, 79.0, 95.0, 111.0, 126.0]
    >>> stage_start(32.0, 8.0, every, head=2.16).tolist()
    [0.0, 5.0, 9.0, 13.0, 18.0, 22.0, 26.0, 30.0, 32.0]
    """
    xp = namespace(layers, stages, nodes, ends)
    if head is not None:
        ahead = xp.maximum(nodes, floor_div((layers + head) * nodes, stages) + 1.0)
        inside = xp.minimum(layers, xp.where(nodes > 0.0, ahead, 0.0))
        return xp.where(nodes >= stages, layers + 0.0 * inside, inside)
    placed = layers + 2.0 * ends
    even = floor_div(placed, stages)
    rest = placed - even * stages
    start = even * nodes + xp.minimum(xp.maximum(nodes - (stages - 1.0 - rest), 0.0), rest) - ends
    return xp.minimum(xp.maximum(start, 0.0), layers)


def stage_bounds(
    layers: Number, stages: Number, nodes: Number, ends: Number = 0.0, head: Number | None = None
) -> tuple[Number, Number]:
    """First layer and number of layers of a stage (`stage_start`).

    >>> start, size = stage_bounds(61.0, 32.0, __import__("numpy").array([0.0, 1.0, 2.0, 30.0, 31.0]))
    >>> start.tolist(), size.tolist()
    ([0.0, 1.0, 2.0, 58.0, 60.0], [1.0, 1.0, 2.0, 2.0, 1.0])
    """
    start = stage_start(layers, stages, nodes, ends, head)
    return start, stage_start(layers, stages, nodes + 1.0, ends, head) - start


def interleaved_layers(
    layers: Number, stages: Number, nodes: Number, virtual_stages: Number, ends: Number = 0.0
) -> Number:
    r"""Layers of a stage that holds several chunks of the model, each P chunks after the one before.

    .. math:: n_j = v q + \Big\lfloor \tfrac{C - 2 - j}{P} \Big\rfloor
        - \Big\lfloor \tfrac{C - 2 - r - j}{P} \Big\rfloor - e [j = 0] - e [j = P - 1]

    stages P of v chunks each, C = P v chunks in all, which split L + 2e layers as `stage_start` splits them
    over stages: q each, the r before the last one more.

    Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (SC 2021), sec. 2.2.

    >>> every = __import__("numpy").arange(8.0)
    >>> interleaved_layers(96.0, 8.0, every, 12.0).tolist()
    [12.0, 12.0, 12.0, 12.0, 12.0, 12.0, 12.0, 12.0]
    >>> interleaved_layers(126.0, 8.0, every, 8.0, 1.0).tolist()
    [15.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 15.0]
    """
    xp = namespace(layers, stages, nodes, virtual_stages, ends)
    chunks, placed = stages * virtual_stages, layers + 2.0 * ends
    even = floor_div(placed, chunks)
    rest = placed - even * chunks
    upto = chunks - 2.0 - nodes + stages  # counted from a round before the first: pieces of nothing below 0
    longer = floor_div(upto, stages) - floor_div(upto - rest, stages)
    first, last = nodes == 0.0, nodes == stages - 1.0
    held = virtual_stages * even + longer - xp.where(first, ends, 0.0) - xp.where(last, ends, 0.0)
    return xp.maximum(held, 0.0)


def stage_nodes(
    stages: Number, layers: Number, period: int, rank: int = 0, ends: float = 0.0, prefix: Number = 0.0
) -> Number:
    """The stages that can be slowest or fullest, on a leading axis: the first two, a period's worth before
    and after the place where stages grow by a layer and before the end, and the last; behind a `prefix` of so
    many layers of another kind also the first two without any of them, which keep most for their backward
    passes. Other stages hold the same kinds of layers as one of these. `rank` is the number of axes of what
    the stages are used with; `ends` stages at either end hold no layers.

    >>> stage_nodes(32.0, 61.0, 1).tolist(), stage_nodes(32.0, 61.0, 1, prefix=3.0).tolist()[-2:]
    ([0.0, 1.0, 1.0, 2.0, 30.0, 31.0], [3.0, 4.0])
    """
    xp = namespace(stages, layers)
    last = stages - 1.0
    inner = stages if ends == 0.0 else xp.maximum(stages - 2.0 * ends, 1.0)
    first_long = last - ends - (layers - floor_div(layers, inner) * inner)
    places = [
        0.0,
        1.0,
        *(first_long + i for i in range(-period, period)),
        *(last - i for i in range(period, -1, -1)),
    ]
    if not (isinstance(prefix, float) and prefix == 0.0):
        short = xp.maximum(floor_div(layers, inner), 1.0)  # layers of stages before they grow
        grown = xp.maximum(prefix - short * first_long, 0.0)
        clear = xp.ceil(xp.minimum(prefix / short, first_long)) + xp.ceil(grown / (short + 1.0))
        places += [clear, clear + 1.0]
    nodes = xp.stack(xp.broadcast_arrays(*(xp.asarray(p) for p in places)))
    nodes = xp.minimum(xp.maximum(nodes, 0.0), last)
    return nodes.reshape((nodes.shape[0],) + (1,) * (rank + 1 - nodes.ndim) + nodes.shape[1:])


def stage_counts(
    order: BlockSequence,
    block: str,
    stages: Number,
    nodes: Number,
    virtual_stages: Number = 1.0,
    ends: Number = 0.0,
    head: Number | None = None,
) -> Number:
    """How often a block stands in each of some stages: blocks before and after all layers in the first and
    last one. A stage of several chunks holds kinds of layers as the whole model mixes them.
    """
    xp = namespace(nodes, stages, virtual_stages)
    if block in order.first:
        return xp.where(nodes == 0.0, 1.0, 0.0)
    if block in order.last:
        return xp.where(nodes == stages - 1.0, 1.0, 0.0)
    start, size = stage_bounds(order.layers, stages, nodes, ends, head)
    inside = order.within(start + size, block) - order.within(start, block)
    if isinstance(virtual_stages, float) and virtual_stages == 1.0:
        return inside
    dealt = interleaved_layers(order.layers, stages, nodes, virtual_stages, ends)
    mixed = dealt * order.within(order.layers, block) / order.layers
    return xp.where(virtual_stages > 1.0, mixed, inside)


def counts_before(
    order: BlockSequence,
    block: str,
    stages: Number,
    nodes: Number,
    ends: Number = 0.0,
    head: Number | None = None,
) -> Number:
    """How often a block stands in all stages before each of some, one chunk a stage."""
    xp = namespace(nodes, stages)
    if block in order.first:
        return xp.where(nodes > 0.0, 1.0, 0.0)
    if block in order.last:
        return 0.0 * nodes
    return order.within(stage_start(order.layers, stages, nodes, ends, head), block)


def pipeline_time(
    stage: Number, stages: Number, microbatches: Number, virtual_stages: Number = 1.0
) -> Number:
    r"""Time for all micro-batches to pass a pipeline once [s].

    .. math:: T = t \left(m + \frac{P - 1}{v}\right)

    slowest stage t for one micro-batch; micro-batches m; stages P; v chunks a stage under an interleaved
    schedule.

    Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (SC 2021), sec. 2.2.

    >>> pipeline_time(1.0, 8.0, 32.0), pipeline_time(1.0, 8.0, 32.0, 2.0)
    (39.0, 35.5)
    """
    return stage * (microbatches + (stages - 1.0) / virtual_stages)


def decode_cycle(stage: Number, stages: Number, microbatches: Number) -> Number:
    r"""Time in which every sequence gains a token when micro-batches go round a pipeline without pause [s].

    .. math:: T = t \max(P, m)

    The pipeline is full when there are as many micro-batches as stages; fewer leave stages idle, more wait.

    >>> float(decode_cycle(1.0, 4.0, 2.0))
    4.0
    """
    return stage * namespace(stage, stages, microbatches).maximum(stages, microbatches)


def ring_exposed(passing: Number, work: Number, steps: Number) -> Number:
    r"""Time that passing keys round a ring adds to attention [s].

    .. math:: T = \max\left(0, c - a \frac{s}{s + 1}\right)

    s steps of the ring take c together; attention a is done in s + 1 equal parts, the first on keys that are
    there, each of the others while the next step passes. Tokens are dealt to ranks so that causal parts are
    equal.

    Liu, Zaharia & Abbeel, Ring Attention, arXiv 2310.01889, sec. 3.

    >>> ring_exposed(3.0, 4.0, 3.0), ring_exposed(5.0, 4.0, 3.0)
    (0.0, 2.0)
    """
    return namespace(passing, work, steps).maximum(passing - work * (steps / (steps + 1.0)), 0.0)
