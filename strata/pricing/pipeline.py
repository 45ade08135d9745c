"""Pipelines: which layers and blocks a stage holds, what it sends, and what a mean device does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.base.arrays import Number, floor_div, namespace
from strata.base.memo import Memo, value_key
from strata.base.shipped import needed_model
from strata.mapping.layout import DEEPFLOW
from strata.mapping.training_plan import recomputed_layers
from strata.pricing.block import PricedBlock, PricedBlocks
from strata.pricing.network.collectives import price_collective
from strata.pricing.price import ZERO, Price, network_price, total_price
from strata.pricing.pricers import Pricing, Rank
from strata.software.trainer import SPLITS
from strata.workload.graph import Block, BlockSequence, Collective, Graph


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
    """How often a block stands in some stages; one of several chunks holds layers as the model mixes them."""
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


NETWORK = "network"  # medium of a fabric's dimensions between nodes
EXACTLY = 1e-9  # less of a head than that makes no difference but where shares end with a layer


def stage_send(given: Pricing, rank: Rank) -> Price:
    """One micro-batch's activations, as layers take them in, to the next stage; training: gradients back."""
    if not given.structure.pipelined:
        return ZERO
    order = given.graph.sequence
    entries = (b.entry for b in given.graph.blocks if b.entry is not None and order.starts_layer(b.name))
    op = Collective(name="to_next_stage", pattern="send", group="pp", payload=next(entries).bytes())
    once = price_collective(op, rank.placement.groups["pp"], rank.fabric)
    return once.times(given.sharding.handovers * (2.0 if given.training else 1.0))


def stages_seen(given: Pricing) -> Number:
    """The stages that can be slowest or fullest, on a leading axis; 0 without a pipeline."""
    if not given.structure.pipelined:
        return 0.0
    order, deepflow = given.graph.sequence, given.sharding.deepflow
    sizes = (given.sharding.stages, order.layers, len(order.period), given.structure.rank)
    prefix = order.prefix_layers if order.prefix else 0.0

    def nodes() -> Number:
        outer = stage_nodes(*sizes, prefix=prefix)
        if not deepflow:
            return outer
        inner = stage_nodes(*sizes, ends=1.0)
        return namespace(outer, inner).concatenate([outer, inner])

    return _STAGES.of(value_key("nodes", sizes, prefix, deepflow), nodes)


_STAGES = Memo(512)


def split_key(given: Pricing, what: str, names: tuple[str, ...]) -> Any:
    """What decides how often blocks stand in the stages that are looked at, as a key."""
    sharding, order = given.sharding, given.graph.sequence
    ends = stage_split(given) if given.training else None
    split = (sharding.stages, sharding.virtual_stages, ends, sharding.deepflow, given.structure.rank)
    return value_key(what, names, order, split)


def stage_counts_of(given: Pricing, blocks: PricedBlocks) -> list[Number]:
    """How often each block stands in the stages that can be slowest (leading axis), or in all."""
    if not given.structure.pipelined:
        return [b.block.count for b in blocks]
    key = split_key(given, "held", tuple([place_of(b) for b in blocks]))
    return _STAGES.of(key, lambda: counts_at_stages(given, [b.block for b in blocks], stages_seen(given)))


def counts_before_stages(given: Pricing, blocks: PricedBlocks, nodes: Number) -> list[Number]:
    """How often each block stands before the stages that can be slowest (`stages_seen`)."""
    order, stages, split = given.graph.sequence, given.sharding.stages, stage_split(given)
    places = [place_of(b) for b in blocks]
    return _STAGES.of(
        split_key(given, "before", tuple(places)),
        lambda: [counts_before(order, place, stages, nodes, *split) for place in places],
    )


def counts_at_stages(given: Pricing, blocks: Sequence[Block], nodes: Number) -> list[Number]:
    """How often each block stands in some stages of a pipeline (leading axis)."""
    order, stages = given.graph.sequence, given.sharding.stages
    names = [b.gradient_of or b.name for b in blocks]
    if given.sharding.deepflow:
        counts = needed_model("stage counts", DEEPFLOW)
        return [counts(order, name, stages, nodes) for name in names]
    return [split_counts(given, name, nodes) for name in names]


def place_of(b: PricedBlock) -> str:
    """The block of the sequence that a block or its gradient belongs to."""
    return b.block.gradient_of or b.block.name


def split_counts(given: Pricing, block: str, nodes: Number) -> Number:
    """How often a block of the sequence stands in some stages, as layers are split over them."""
    order, stages = given.graph.sequence, given.sharding.stages
    if not given.training:
        return stage_counts(order, block, stages, nodes)
    ends, head = stage_split(given)
    return stage_counts(order, block, stages, nodes, given.sharding.virtual_stages, ends, head)


def stage_split(given: Pricing) -> tuple[Number, Number | None]:
    """Whether embedding and head count as layers, and the head's work in layers where stages balance it."""
    trainer, ends = given.engine.training, given.sharding.training.split_ends
    if trainer is None or trainer.split == SPLITS[0]:
        return ends, None
    # a share that a layer meets exactly is one that it takes all until then to, or not yet beyond
    return ends, head_layers(given.unsharded_graph) * (1.0 - (trainer.split == SPLITS[1]) * EXACTLY)


def head_layers(graph: Graph) -> Number:
    """Work of the products behind all layers, over that of a mean layer's.

    >>> from strata.workload.program import program
    >>> from strata.workload.tasks import train
    >>> round(float(head_layers(program("llama-3-8b").trace(train(1.0, 8.0)))), 2)
    2.41
    """
    order = graph.sequence
    layers: Number = 0.0
    behind: Number = 0.0
    for block in graph.blocks:
        if block.direction != "forward" or block.name in order.first:
            continue
        work = sum((op.flop() for op in block.ops if op.multiplies), 0.0)
        if block.name in order.last:
            behind = behind + block.times * work
        else:
            layers = layers + block.times * work
    return behind * order.layers / layers


def again_share(given: Pricing, nodes: Number | None = None) -> Number:
    """Share of the layers that are recomputed, of those of some stages or of all."""
    sharding, layers = given.sharding, given.graph.sequence.layers
    stages, chunks = sharding.stages, sharding.virtual_stages
    if nodes is None:
        return recomputed_layers(layers, chunks * stages, sharding.training)
    ends, head = stage_split(given)
    held = namespace(nodes, chunks).where(
        chunks > 1.0,
        interleaved_layers(layers, stages, nodes, chunks, ends),
        stage_bounds(layers, stages, nodes, ends, head)[1],
    )
    return recomputed_layers(held, chunks, sharding.training)


def block_runs(b: PricedBlock, count: Number) -> Number:
    """How often so many copies of a block run."""
    repeats = b.block.repeats
    return count if isinstance(repeats, float) and repeats == 1.0 else count * repeats


def reaches_over_nodes(rank: Rank, *groups: str) -> Number:
    """1 where one of some groups of ranks, or of all, reaches over nodes."""
    over: Number = 0.0
    for group in groups or rank.placement.groups:
        placed = zip(rank.placement.groups.get(group, ()), rank.fabric.dimension, strict=False)
        for layout, dimension in placed:
            if dimension.medium == NETWORK:
                xp = namespace(layout.size, over)
                over = xp.maximum(xp.where(layout.size > 1, 1.0, 0.0), over)
    return over


def mean_device(
    given: Pricing, blocks: PricedBlocks, send: Price, waits: Number = 1.0
) -> tuple[Price, dict[str, Number]]:
    """Work of a mean device over the step, its time by category; `waits`: 1 where hand-overs are in line."""
    sharding, pipelined = given.sharding, given.structure.pipelined
    pieces, stages = sharding.microbatches, sharding.stages
    share = again_share(given) if given.training else 1.0
    parts = total_price(
        [(b.block.times, b.price) for b in blocks]
        + [(b.block.times * share, b.again) for b in blocks if b.again is not ZERO and given.training]
    )
    kinds: dict[str, Number] = {}
    for b in blocks:
        for kind, time in b.time_by_kind.items():
            kinds[kind] = kinds.get(kind, 0.0) + b.block.times * time
        for kind, time in b.again_by_kind.items():
            kinds[kind] = kinds.get(kind, 0.0) + b.block.times * share * time
    if not pipelined:
        return parts.times(pieces), {kind: time * pieces for kind, time in kinds.items()}
    if given.training:
        send = send.times(sharding.virtual_stages)
        send = network_price(send.time * waits, send.energy, upper=send.time)
    kinds["collective"] = kinds.get("collective", 0.0) + send.time * stages
    mean = (parts + send.times(stages)).times(pieces / stages)
    return mean, {kind: time * pieces / stages for kind, time in kinds.items()}


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
