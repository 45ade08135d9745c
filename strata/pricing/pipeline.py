"""Pipelines: which layers a stage holds, and how stages and micro-batches add up to a step."""

from __future__ import annotations

from strata.arrays import Number, floor_div, namespace
from strata.workload.graph import BlockSequence


def stage_bounds(layers: Number, stages: Number, nodes: Number) -> tuple[Number, Number]:
    r"""First layer and number of layers of a stage, for a contiguous split as even as whole layers allow.

    .. math:: q = \lfloor L/P \rfloor, \quad r = L - qP, \quad n_j = q + [P-1-r \le j \le P-2]

    layers L, stages P, stage j counted from 0. The r longer stages stand just before the last, which also
    carries the head; the first carries the embedding.

    Same rule as vLLM's pipeline partition (vllm.distributed.utils.get_pp_indices, described in its
    documentation).

    >>> start, size = stage_bounds(61.0, 32.0, __import__("numpy").array([0.0, 1.0, 2.0, 30.0, 31.0]))
    >>> start.tolist(), size.tolist()
    ([0.0, 1.0, 2.0, 58.0, 60.0], [1.0, 1.0, 2.0, 2.0, 1.0])
    """
    xp = namespace(layers, stages, nodes)
    even = floor_div(layers, stages)
    rest = layers - even * stages
    first_long = stages - 1.0 - rest
    start = even * nodes + xp.minimum(xp.maximum(nodes - first_long, 0.0), rest)
    longer = (nodes >= first_long) & (nodes <= stages - 2.0)
    return start, even + xp.where(longer, 1.0, 0.0)


def stage_nodes(stages: Number, layers: Number, period: int, rank: int = 0, ends: float = 0.0) -> Number:
    """The stages that can be slowest, on a leading axis: the first two, a period's worth before and after the
    place where stages grow by a layer and before the end, and the last. Other stages hold the same kinds of
    layers as one of these. `rank` is the number of axes of what the stages are used with; `ends` stages at
    either end hold no layers.

    >>> stage_nodes(32.0, 61.0, 1).tolist()
    [0.0, 1.0, 1.0, 2.0, 30.0, 31.0]
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
    nodes = xp.stack(xp.broadcast_arrays(*(xp.asarray(p) for p in places)))
    nodes = xp.minimum(xp.maximum(nodes, 0.0), last)
    return nodes.reshape((nodes.shape[0],) + (1,) * (rank + 1 - nodes.ndim) + nodes.shape[1:])


def stage_counts(order: BlockSequence, block: str, stages: Number, nodes: Number) -> Number:
    """How often a block stands in each of some stages: blocks before and after all layers in the first and
    last one.
    """
    xp = namespace(nodes, stages)
    if block in order.first:
        return xp.where(nodes == 0.0, 1.0, 0.0)
    if block in order.last:
        return xp.where(nodes == stages - 1.0, 1.0, 0.0)
    start, size = stage_bounds(order.layers, stages, nodes)
    return order.within(start + size, block) - order.within(start, block)


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


def line_time(total: Number, slowest: Number, stages: Number, steps: Number, send: Number) -> Number:
    r"""Time of time steps that pass stages as a wave, one pass [s].

    .. math:: T = \frac{W}{S} + (P - 1) h + (S - 1) \max\Big(\frac{w}{S}, h\Big)

    all stages' work W and that of the slowest w over all S steps; P stages; hand-over h of one step, on links
    beside the stages. A line of deterministic servers: the first step passes all, then the slowest sets the
    pace (`simulate/wavefront.py` has the events).

    Hockney & Jesshope, Parallel Computers 2 (1988), sec. 1.3.

    >>> float(line_time(4.0 * 19.0, 4.0 * 12.0, 3.0, 4.0, 3.0))
    61.0
    """
    each = slowest / steps
    return total / steps + (stages - 1.0) * send + (steps - 1.0) * namespace(each, send).maximum(each, send)


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
