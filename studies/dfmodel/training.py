"""Training of a language model in DFModel's setting: a layer on one rank of TP x PP x DP, and a batch.

Kernels, their sizes and their all-reduces are those of a program divided over tensor parallel ranks; times of
partitions are those of `pricing/fusion.py`, communication that of `network.py`. Degrees,
bandwidths and chips may be arrays where kernels run one by one or all as one; a free fusion is solved for one
system at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from dfmodel.network import (
    PUBLISHED_PASSES,
    dfmodel_all_reduce,
    stage_handover,
)
from dfmodel.systems import KernelTimes, StudyMachine, Topology, last_axis
from strata.base.arrays import Array, Number, namespace, register_pytree
from strata.base.errors import BadValue
from strata.base.precision import bytes_of
from strata.hardware.chip import Chip
from strata.mapping.layout import layout
from strata.mapping.shard import shard
from strata.optimise.fuse import Fusion, price_mapping
from strata.optimise.fusion.fusion_problem import FusionChip, FusionKernel, FusionProblem, FusionTensor
from strata.pricing.fusion import utilised_time
from strata.pricing.fusion_rules import FusionRules, fusion_rules
from strata.workload.dataflow import Dataflow
from strata.workload.graph import Extent, Graph, Op, is_collective
from strata.workload.tasks import Workload

TENSOR = "tp"  # dimension of a program's layout that tensor parallel ranks are
TILES = 512  # of a sequence: of its powers the least at which DFModel's runs fit


# --------------------------------------------------------------------------------------------------- a layer


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingLayer:
    """Kernels of a layer for one sequence on one tensor parallel rank, along the last axis, and the tensors
    between them, along the last axis of `bytes`.
    """

    rows: Array
    columns: Array
    depth: Array  # 0 of element-wise work
    flop: Array
    weights: Array  # B
    summed: Array  # B of partial sums that tensor parallel ranks add up behind a kernel
    gradients: Array  # B of weights' gradients that data parallel ranks add up
    bytes: Array  # of tensors
    useful: Number  # FLOP of the layer, on all ranks together
    token: Number  # B of one sequence's activations between layers
    tp: Number
    names: tuple[str, ...] = field(default=())
    backward: tuple[bool, ...] = field(default=())
    edges: tuple[tuple[int, int], ...] = field(default=())  # kernels that make and read each tensor

    @property
    def moved(self) -> Array:
        """Bytes of tensors that each kernel reads and writes where it is a partition of its own."""
        ends = np.zeros((len(self.edges), len(self.names)))
        for place, pair in enumerate(self.edges):
            ends[place, list(pair)] += 1.0
        return self.bytes @ ends


def _local(program: Dataflow, work: Workload, tp: Number) -> tuple[Graph, Graph]:
    """The layer whole, and one rank's share of it."""
    whole = program.trace(work)
    told = program.layout(**{TENSOR: tp})
    made = layout(told["mesh"], told["axes"])
    return whole, shard(whole, made.sharding(whole, work, made.active()))


def _elements(op: Op, precision: str) -> Number:
    return op.output_bytes() / bytes_of(precision)


def _work(op: Op, precision: str) -> Number:
    """Operations as DFModel counts them: two for each product, and one for each element of what sums over
    nothing.
    """
    return op.flop() if op.contracted_axes() else _elements(op, precision)


def _columns(op: Op, stream: frozenset[str], divided: frozenset[str]) -> Number:
    """Size along the streamed axis of a kernel's result, or, where it has none (weights' gradients), along
    the first side that is not divided.
    """
    sides = op.result_axes()
    whole = [axis for axis in sides if axis not in divided]
    along = next((axis for axis in sides if axis in stream), (whole or sides)[0])
    held = [getattr(op, f.name) for f in fields(op)]
    extents = [e for v in held for e in (v if isinstance(v, tuple) else (v,)) if isinstance(e, Extent)]
    return next(e.size for e in extents if e.axis == along)


def training_layer(program: Dataflow, tp: Number = 1.0) -> TrainingLayer:
    """Kernels of a layer that writes forward and backward out, divided over `tp` ranks as its layout says.

    >>> from strata.workload.program import program
    >>> layer = training_layer(program("dfmodel-gpt-training"), 8.0)
    >>> len(layer.names), len(layer.edges), [n for n, v in zip(layer.names, layer.summed) if v > 0]
    (41, 53, ['PROJ_GEMM', 'FFN1', 'FFN0_bwd', 'K_bwd'])
    """
    work = Workload(phase="train", batch=1.0, sequence=1.0, context=1.0)
    whole, local = _local(program, work, tp)
    ops = [op for block in local.blocks for op in block.ops]
    kernels = [op for op in ops if not is_collective(op)]
    places = {op.output: i for i, op in enumerate(kernels)}
    summed: list[Number] = [0.0] * len(kernels)
    for op in ops:
        if is_collective(op):
            summed[places[op.inputs[0]]] = summed[places[op.inputs[0]]] + op.payload
    stream = frozenset((program.stream, *(a for a, b in local.coordinates.items() if b == program.stream)))
    divided = frozenset(axis for _, axis in dict(program.layouts).get(TENSOR, ()))
    columns = _stack([_columns(op, stream, divided) for op in kernels])
    elements = _stack([_elements(op, program.precision) for op in kernels])
    flop = _stack([_work(op, program.precision) for op in kernels])
    products = np.array([bool(op.contracted_axes()) for op in kernels])
    held = [(op, op.read_weight()) for op in kernels]
    edges = [(places[t], i) for i, op in enumerate(kernels) for t in op.inputs if t in places]
    useful: Number = 0.0
    for block in whole.blocks:
        for op in block.ops:
            useful = useful + _work(op, program.precision)
    entry = whole.blocks[0].entry
    return TrainingLayer(
        rows=elements / columns,
        columns=columns,
        depth=np.where(products, flop / (2.0 * elements), 0.0),
        flop=flop,
        weights=_stack([op.weight_bytes() + (0.0 if w is None else w.bytes()) for op, w in held]),
        summed=_stack(summed),
        gradients=_stack([op.output_bytes() * float(op.weight_gradient) for op in kernels]),
        bytes=_stack([kernels[a].output_bytes() for a, _ in edges]),
        useful=useful,
        token=0.0 if entry is None else entry.bytes(),
        tp=tp,
        names=tuple(op.name for op in kernels),
        backward=tuple(op.backward for op in kernels),
        edges=tuple(edges),
    )


def _stack(values: Sequence[Number]) -> Array:
    """Numbers of kernels beside one another, along a new last axis."""
    return np.stack(np.broadcast_arrays(*(np.asarray(v, float) for v in values)), axis=-1)


# ------------------------------------------------------------------------------------------------- the ranks


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class DfmodelPlan:
    """How a model of equal layers trains on tp x pp x dp chips: micro-batches of one sequence."""

    tp: Number
    pp: Number
    dp: Number
    layers: Number  # of the model
    batch: Number  # sequences of a batch, over all chips
    sums: Number  # s/B of an all-reduce of tensor parallel ranks
    gradients: Number  # s/B of one of data parallel ranks
    link: Number  # B/s of one link between stages

    @property
    def samples(self) -> Number:
        """Sequences of a batch that one pipeline takes, each a micro-batch."""
        return self.batch / self.dp

    @property
    def stage(self) -> Number:
        """Layers of a stage."""
        return self.layers / self.pp


def rank_links(
    degrees: tuple[Number, Number, Number],
    topologies: Sequence[Topology],
    inner: Number,
    outer: Number,
    passes: Number = PUBLISHED_PASSES,
) -> dict[str, Number]:
    """Seconds a byte of all-reduces where tensor parallel ranks lie on the innermost dimension of a topology
    and pipelines and data parallel ranks on the outermost: fields of a `DfmodelPlan`.

    Topologies lie along axis 1 of (chip, topology, memory, link), as in `study_machine`.

    >>> torus, dragonfly = (("ring", "ring"), (8.0, 128.0)), (("full", "full"), (8.0, 128.0))
    >>> found = rank_links((8.0, 128.0, 1.0), [torus, dragonfly], 50e9, 50e9)
    >>> [round(float(v) * 1e12, 3) for v in found["sums"].ravel()]  # 2 x 7/8 and 2 x 1/8 of 20 ps
    [35.0, 5.0]
    """
    tp, pp, dp = degrees
    kinds = [t[0] for t in topologies]

    def along(values: list[Number], like: Number) -> Number:
        """One law for each topology, chosen along axis 1 of what they broadcast to."""
        shape = np.broadcast_shapes(np.shape(like), *(np.shape(v) for v in values), (1, len(kinds), 1, 1))
        wide = [np.broadcast_to(np.asarray(v, float), shape) for v in values]
        return np.stack([w[..., i, :, :] for i, w in enumerate(wide)], axis=-3)

    sums = [dfmodel_all_reduce(k[0], 1.0, tp, inner, passes) for k in kinds]
    gradients = [dfmodel_all_reduce(k[-1], 1.0, dp, outer, passes) for k in kinds]
    return {
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "sums": along(sums, tp),
        "gradients": along(gradients, dp),
        "link": outer,
    }


# ------------------------------------------------------------------------------------------------- its times


def layer_network(layer: TrainingLayer, plan: DfmodelPlan) -> Number:
    r"""Network time of each kernel for one sequence [s].

    .. math:: N_k = V_k t_{TP} + \frac{G_k t_{DP}}{m}

    V bytes of partial sums, G of weights' gradients, which are added up once for the m sequences of a
    pipeline; t seconds a byte. DFModel's published runs add the two up, in one partition too.

    >>> from strata.workload.program import program
    >>> shape = dict(hidden=25600, heads=160, head=160)
    >>> layer = training_layer(program("dfmodel-gpt-training", **shape), 8.0)
    >>> links = rank_links((8.0, 64.0, 2.0), [(("ring",) * 3, (8.0, 64.0, 2.0))], 50e9, 50e9)
    >>> plan = DfmodelPlan(layers=128.0, batch=3072.0, **links)
    >>> round(1e3 * float(layer_network(layer, plan).sum()), 6)  # logged: 14,705,664 ns
    14.705664
    """
    return layer.summed * last_axis(plan.sums) + layer.gradients * last_axis(plan.gradients) / last_axis(
        plan.samples
    )


def layer_times(
    layer: TrainingLayer,
    plan: DfmodelPlan,
    machine: StudyMachine,
    compute: Number | None = None,
) -> KernelTimes:
    """Times of the kernels of a layer for one sequence, each a partition of its own, or all one, which moves
    nothing: what `study_point` adds up.

    A kernel reaches a stated share of the peak, unless its time is given (`compute`, along the last axis).
    Weights cost nothing, however large, in DFModel's runs of kernels one by one.
    """
    busy = (
        utilised_time(layer.flop, last_axis(machine.peak), last_axis(machine.utilisation))
        if compute is None
        else compute
    )
    return KernelTimes(
        flop=layer.flop, compute=busy, memory=layer.moved / last_axis(machine.memory),
        network=layer_network(layer, plan), inside=0.0 * layer.flop,
    )  # fmt: skip


def batch_time(interval: Number, plan: DfmodelPlan, token: Number) -> Number:
    r"""Time of a batch of training through a pipeline of stages [s].

    .. math:: T = \tau \left(1 + \frac{PP - 1}{m \max(L - 1, 1)}\right) L m + T_{p2p}

    interval tau of one layer and sequence, m sequences of a pipeline, L layers of a stage, T_p2p of what
    stages hand over (`stage_handover`; none of one stage). DFModel (2024), program: stages are interleaved, a
    layer at a time, wherever they have more than two.

    >>> links = {"sums": 0.0, "gradients": 0.0, "link": 12.5e9}
    >>> plan = DfmodelPlan(tp=8.0, pp=4.0, dp=32.0, layers=60.0, batch=1792.0, **links)
    >>> round(float(batch_time(9.749507240944797e-3, plan, 10240 * 2048 * 2.0)), 6)  # Megatron, as logged
    8.623577
    """
    xp = namespace(interval, plan.pp, plan.layers, plan.batch)
    stage, samples = plan.stage, plan.samples
    filled = 1.0 + (plan.pp - 1.0) / (samples * xp.maximum(stage - 1.0, 1.0))
    sent = xp.where(plan.pp > 1.0, stage_handover(token, 1.0, 1.0, plan.layers, plan.link), 0.0)
    return interval * filled * stage * samples + sent


def batch_utilisation(time: Number, layer: TrainingLayer, plan: DfmodelPlan, peak: Number) -> Number:
    r"""Share of the peak of all chips that a batch reaches.

    .. math:: u = \frac{F\, L_{all} B}{P R\, T}

    FLOP F of a layer and sequence, all layers and sequences of a batch, P = TP PP DP chips of R [FLOP/s].
    """
    return layer.useful * plan.layers * plan.batch / (plan.tp * plan.pp * plan.dp * peak * time)


# ---------------------------------------------------------------------------------------------------- fusion


def fusion_chip(chip: Chip, **changes: Any) -> FusionChip:
    """A chip as fusion asks for it, by what its file states; `changes`: a memory of another technology.

    >>> from strata.hardware.chip import chip
    >>> made = fusion_chip(chip("dfmodel-sn30"), dram_bandwidth=300e9)
    >>> made.cores, made.array, round(made.peak / 1e12, 1), made.utilisation, made.dram_bandwidth
    (1280, (32.0, 6.0), 614.4, 0.9, 300000000000.0)
    """
    rate = next(iter(chip.compute.matrix_rate))
    made = FusionChip(
        sram=float(chip.cache.capacity), dram_bandwidth=float(chip.memory.bandwidth),
        dram_capacity=float(chip.memory.capacity), cores=int(chip.compute.cores),
        array=(float(chip.compute.tile_m), float(chip.compute.tile_n)), clock=float(chip.compute.max_clock),
        peak=float(chip.compute.matrix_rate[rate]), utilisation=float(chip.compute.matrix_efficiency[rate]),
    )  # fmt: skip
    return replace(made, **changes)


def layer_fusion(
    layer: TrainingLayer,
    plan: DfmodelPlan,
    chip: FusionChip,
    *,
    rules: FusionRules | str = "dfmodel-2024",
    tiles: tuple[int, ...] = (TILES,),
    **more: Any,
) -> FusionProblem:
    """The fusion problem of a layer on one rank of a plan; all of it plain numbers. `more`: other fields of
    the problem, as `max_partitions`.
    """
    network, weights = np.asarray(layer_network(layer, plan)).ravel(), np.asarray(layer.weights).ravel()
    shapes = [np.asarray(v).ravel() for v in (layer.rows, layer.columns, layer.depth, layer.flop)]
    kernels = tuple(
        FusionKernel(
            name=name, rows=float(shapes[0][i]), columns=float(shapes[1][i]), depth=float(shapes[2][i]),
            flop=float(shapes[3][i]), weight_bytes=float(weights[i]), network=(float(network[i]),),
            backward=layer.backward[i],
        )
        for i, name in enumerate(layer.names)
    )  # fmt: skip
    tensors = tuple(
        FusionTensor(name=layer.names[a], source=layer.names[a], target=layer.names[b], bytes=float(size))
        for (a, b), size in zip(layer.edges, np.asarray(layer.bytes).ravel(), strict=True)
    )
    return FusionProblem(
        kernels=kernels, tensors=tensors, chip=chip, tiles=tiles, rules=fusion_rules(rules),
        layers=float(np.asarray(plan.stage).ravel()[0]), **more,
    )  # fmt: skip


def partition_numbers(problem: FusionProblem, fusion: Fusion) -> tuple[int, ...]:
    """The partition of each kernel, in the order of the problem's kernels."""
    where = {name: i for i, p in enumerate(fusion.partitions) for name in p.kernels}
    return tuple(where[k.name] for k in problem.kernels)


def given_fusion(
    problem: FusionProblem, numbers: Sequence[int], tiles: Sequence[int] | None = None
) -> Fusion:
    """The mapping that `partition_numbers` told, priced anew."""
    names = [k.name for k in problem.kernels]
    if len(numbers) != len(names):
        raise BadValue(f"a mapping has a partition for each of {len(names)} kernels, but got {len(numbers)}")
    groups = [[n for n, at in zip(names, numbers, strict=True) if at == p] for p in range(max(numbers) + 1)]
    return price_mapping(problem, groups, tiles)
