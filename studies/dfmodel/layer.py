"""A layer on one tensor parallel rank as a fusion problem in DFModel's setting, and what a mapping of it
asks of memory and network: the two intensities of its roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dfmodel.network import dfmodel_all_reduce
from dfmodel.training import (
    DfmodelPlan,
    TrainingLayer,
    batch_time,
    batch_utilisation,
    fusion_chip,
    layer_fusion,
    training_layer,
)
from strata.base.arrays import Number
from strata.hardware.chip import chip as make_chip
from strata.optimise.fuse import Fusion, MappingIntensity
from strata.optimise.fusion.fusion_problem import FusionChip, FusionProblem
from strata.pricing.fusion_rules import FusionRules
from strata.workload.dataflow import Dataflow
from strata.workload.program import program as make_program
from strata.workload.tasks import Workload

Pairs = frozenset[tuple[str, str]]


def forward_layer(program: Dataflow, tp: float = 1.0) -> TrainingLayer:
    """The forward kernels of a layer on one of `tp` ranks.

    >>> layer = forward_layer(make_program("dfmodel-gpt-forward"), 8.0)
    >>> len(layer.names), len(layer.edges), float(layer.weights.sum())
    (18, 21, 452984832.0)
    """
    layer, whole = training_layer(program, tp), training_layer(program, 1.0)
    ahead = [i for i, backward in enumerate(layer.backward) if not backward]
    place = {kernel: i for i, kernel in enumerate(ahead)}
    inside = [i for i, (a, b) in enumerate(layer.edges) if a in place and b in place]
    along_kernels = ("rows", "columns", "depth", "flop", "weights", "summed", "gradients")
    return replace(
        layer,
        **{name: getattr(layer, name)[..., ahead] for name in along_kernels},
        bytes=np.asarray(layer.bytes)[..., inside],
        useful=float(np.asarray(whole.flop)[..., ahead].sum()),
        names=tuple(layer.names[i] for i in ahead),
        backward=tuple(False for _ in ahead),
        edges=tuple((place[layer.edges[i][0]], place[layer.edges[i][1]]) for i in inside),
    )


def whole_operands(program: Dataflow) -> Pairs:
    """Pairs of kernels between which every tile of the second needs all that the first makes: it streams,
    and is read along another axis.

    >>> sorted(whole_operands(make_program("dfmodel-gpt-forward")))
    [('K', 'MHA_GEMM_1'), ('V', 'MHA_GEMM_2')]
    """
    graph = program.trace(Workload(phase="prefill", batch=1.0, sequence=1.0, context=1.0))
    ops = [op for block in graph.blocks for op in block.ops]
    makers = {op.output: op for op in ops}
    found = set()
    for op in ops:
        for place, tensor in enumerate(op.inputs):
            axes, maker = op.operand_axes(place), makers.get(tensor)
            if maker is not None and axes and program.stream not in axes:
                found |= {(maker.name, op.name)} if program.stream in maker.result_axes() else set()
    return frozenset(found)


@lru_cache(maxsize=64)
def _layer(
    name: str, sizes: tuple[tuple[str, float], ...], part: str, tp: float
) -> tuple[TrainingLayer, Pairs]:
    program = make_program(name, **dict(sizes))
    layer = forward_layer(program, tp) if part == "forward" else training_layer(program, tp)
    return layer, whole_operands(program)


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerRank:
    """A layer on one rank of TP x PP x DP chips with links of one bandwidth."""

    layer: TrainingLayer
    plan: DfmodelPlan
    problem: FusionProblem

    @property
    def peak(self) -> float:
        """FLOP/s of one chip: two for each multiplier and cycle."""
        return array_peak(self.problem.chip)

    def batch_time(self, fusion: Fusion) -> float:
        """Time of a batch through all layers [s]."""
        return float(batch_time(fusion.time, self.plan, self.layer.token))

    def utilisation(self, fusion: Fusion) -> float:
        """Share of the peak of all chips."""
        return float(batch_utilisation(self.batch_time(fusion), self.layer, self.plan, self.peak))


def array_peak(chip: FusionChip) -> float:
    r"""FLOP/s of a chip of cores with W x H multipliers.

    .. math:: P = 2\, C\, W H f

    >>> array_peak(fusion_chip(make_chip("dfmodel-sn10"))) / 1e12
    307.2
    """
    return 2.0 * chip.cores * chip.array[0] * chip.array[1] * chip.clock


def layer_rank(
    program: str,
    chip: str,
    *,
    sizes: dict[str, float] | None = None,
    part: str = "forward",
    degrees: tuple[float, float, float] = (1.0, 1.0, 1.0),
    links: tuple[str, float, float] = ("ring", 25e9, 1.0),
    layers: float = 1.0,
    batch: float = 1.0,
    chip_changes: dict[str, Any] | None = None,
    rules: FusionRules | str = "dfmodel-2024",
    tiles: Sequence[int] = (1,),
    **more: Any,
) -> LayerRank:
    """A program's layer on one rank: `part` forward or both; `degrees` TP, PP, DP; `links` their kind, B/s
    and passes of an all-reduce; `chip_changes` fields of the chip; `more` other fields of the problem.

    >>> rank = layer_rank("dfmodel-gpt-forward", "dfmodel-sn10", degrees=(8.0, 1.0, 1.0), tiles=(4,))
    >>> from strata.optimise.fuse import kernel_by_kernel
    >>> round(1e3 * kernel_by_kernel(rank.problem).time, 4)  # logged: 22.1381 ms
    22.1381
    """
    tp, pp, dp = degrees
    kind, link, passes = links
    layer, whole = _layer(program, tuple(sorted((sizes or {}).items())), part, tp)

    def spread(ranks: float) -> Number:
        return float(dfmodel_all_reduce(kind, 1.0, ranks, link, passes)) if ranks > 1.0 else 0.0

    plan = DfmodelPlan(
        tp=tp, pp=pp, dp=dp, layers=layers, batch=batch, sums=spread(tp), gradients=spread(dp), link=link
    )
    made = fusion_chip(make_chip(chip), **chip_changes or {})
    made = replace(made, peak=array_peak(made))
    problem = layer_fusion(layer, plan, made, rules=rules, tiles=tuple(tiles), **more)
    tensors = tuple(replace(t, whole=(t.source, t.target) in whole) for t in problem.tensors)
    return LayerRank(layer=layer, plan=plan, problem=replace(problem, tensors=tensors))


def mapping_intensity(name: str, flop: float, fusion: Fusion, link: float) -> MappingIntensity:
    r"""What a mapping asks of memory and network.

    .. math:: I_M = F / \sum_p B_p, \quad I_N = F / (b \sum_p N_p), \quad R = F / \sum_p T_p

    F of one chip, B bytes of partitions to and from DRAM, N their network time at b bytes a second.
    """
    moved = sum(p.traffic for p in fusion.partitions)
    sent = link * sum(p.network for p in fusion.partitions)
    return MappingIntensity(
        name=name,
        rate=flop / fusion.time,
        memory=flop / moved if moved else float("inf"),
        network=flop / sent if sent else float("inf"),
    )


def tile_counts(columns: int) -> tuple[int, ...]:
    """The least number of tiles of each length that a streamed axis can be cut into.

    >>> tile_counts(10)
    (1, 2, 3, 4, 5, 10)
    """
    return tuple(sorted({-(-columns // length) for length in range(1, columns + 1)}))
