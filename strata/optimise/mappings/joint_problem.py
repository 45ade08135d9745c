"""The fusion problems of a rank's blocks under one layout: what a mapping costs; and what the search of a
layer finds: the best mapping, its proof, and what a step takes beside its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number, ceil_div
from strata.base.errors import UnknownName
from strata.base.precision import bytes_of
from strata.mapping.layout import Layout, Sharding
from strata.mapping.shard import shard
from strata.optimise.fuse import Fusion
from strata.optimise.fusion.fusion_graph import fusion_problem, kernel_shape
from strata.optimise.fusion.fusion_problem import OUTSIDE, FusionProblem
from strata.optimise.layout import LayoutSetting
from strata.optimise.layouts.layout_states import RankMemory
from strata.pricing.fused_block import tensor_sizes
from strata.pricing.fusion import STREAM_AXES
from strata.pricing.fusion_rules import FusionRules
from strata.workload.graph import Block, Graph, Op, is_collective
from strata.workload.graph_walks import axis_names, extents_of


@dataclass(frozen=True, eq=False, kw_only=True)
class MapSettings:
    """What every layout of a program is fused with: rules, numbers of tiles, micro-batches that stream
    through a partition, groups of kernels that stay together, and bytes of tensors from outside, undivided.
    """

    rules: FusionRules
    tiles: tuple[int, ...]
    together: float = 1.0
    pinned: tuple[tuple[str, ...], ...] = ()
    outside: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockProblem:
    """One block's fusion problem, and how often it runs."""

    block: str
    times: float
    problem: FusionProblem


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedBlock(BlockProblem):
    """The same under a layout with its best partitions."""

    fusion: Fusion


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerMapping:
    """Layouts and partitions of all layers: seconds of one micro-batch on one rank."""

    layout: Layout
    options: dict[str, tuple[str, ...]]
    blocks: tuple[MappedBlock, ...]
    time: float
    kept: float  # bytes a rank keeps of all layers, and the most that is alive at once besides


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerCertificate:
    """The best mapping of a layer below a limit, if there is one, and what no mapping is quicker than."""

    best: LayerMapping | None
    bound: float
    nodes: int
    layouts: int  # priced in full
    combinations: int  # layouts there are
    reason: str = ""
    stopped: bool = False  # out of time before it was proved, or partitions by CP-SAT were
    interrupted: bool = False
    cramped: bool = False  # something was left out for its memory
    forward: tuple[float, float] = (0.0, 0.0)  # least forward pass of mappings below so many seconds
    near: tuple[LayerMapping, ...] = ()  # hardly slower ones, the best first
    beyond: float = 0.0  # what no other mapping is quicker than


@dataclass(frozen=True, eq=False, kw_only=True)
class BesideLayers:
    r"""What a step takes beside its layers, in seconds of these: hand-overs by options of a module, and the
    sum of gradients as far as the last backward pass does not hide it.

    .. math:: T = t + h + \max(0, g - \sigma (t - f))

    with layers t, forward pass f, hand-over h; sum of gradients g, of the elements that a rank holds; and
    sigma the share of a step that one pass is.
    """

    sends: dict[str, Array] = field(default_factory=dict)
    elements: dict[str, Array] = field(default_factory=dict)
    gradients: Callable[[float], float] | None = None  # seconds of the sum of so many elements
    hidden: float = 0.0  # sigma

    def total(self, layers: float, forward: float, alive: dict[str, Array]) -> float:
        """Below every step of open layouts whose layers, and forward passes, take at least so long."""
        found = layers
        if self.gradients is not None:
            held = sum(float(own[alive[m]].min()) for m, own in self.elements.items() if m in alive)
            passed = self.hidden * max(layers - forward, 0.0)
            found += max(0.0, self.gradients(held) - passed)
        return found + self.send(alive)

    def send(self, alive: dict[str, Array]) -> float:
        return sum(float(own[alive[m]].min()) for m, own in self.sends.items())


@dataclass(frozen=True, eq=False)
class RankRoom:
    """What a rank may keep: bytes, and how they are counted."""

    capacity: float
    keeps: RankMemory


def fusion_blocks(setting: LayoutSetting, layout: Layout, told: MapSettings) -> tuple[BlockProblem, ...]:
    """Fusion problems of all blocks of the graph of one rank under a layout."""
    sharding = layout.sharding(setting.graph, setting.work, layout.active())
    return block_problems(shard(setting.graph, sharding), setting, told, sharding)


def block_problems(
    graph: Graph, setting: LayoutSetting, told: MapSettings, sharding: Sharding | None = None
) -> tuple[BlockProblem, ...]:
    """Fusion problems of the blocks of a graph as it is, of one rank's or undivided."""
    axes = streamed_axes(setting.graph)
    known = {name.partition(":")[2]: size for name, size in tensor_sizes(graph).items()}
    sizes: dict[str, Number] = {**known, **tensor_sizes(graph)}

    def shape(op: Op) -> dict[str, float]:
        columns = float(kernel_columns(op, setting.graph, axes, sharding))
        sizes = kernel_shape(op, columns, element_bytes(op, setting))
        return {side: float(size) for side, size in sizes.items()}

    found = []
    for name, times, block in node_blocks(graph):
        read = outside_sizes(block, told, sharding) | sizes
        made = fusion_problem(
            block,
            setting.rank,
            shape,
            rules=told.rules,
            stream_axes=axes,
            tiles=told.tiles,
            sizes=read,
            micro_batches=told.together,
            layers=0.0,
        )
        longest = min((k.columns for k in made.kernels if k.columns > 1), default=1.0)
        tiles = tuple(n for n in made.tiles if n <= longest) or (1,)
        tensors = made.tensors
        if told.rules.boundary == "no":
            tensors = tuple(t for t in tensors if OUTSIDE not in (t.source, t.target))
        groups = (tuple(k for k in group if k in made.index) for group in told.pinned)
        pinned = tuple(group for group in groups if group)
        chip = replace(made.chip, **_rates(setting))
        found.append(
            BlockProblem(
                block=name,
                times=times,
                problem=replace(made, chip=chip, pinned=pinned, tiles=tiles, tensors=tensors),
            )
        )
    known_kernels(told.pinned, [k.name for each in found for k in each.problem.kernels])
    return tuple(found)


def known_kernels(pinned: Sequence[Sequence[str]], names: list[str]) -> None:
    """Refuse pinned kernels that no block has."""
    for name in (name for group in pinned for name in group):
        if name not in names:
            raise UnknownName("pinned kernel", name, names, ", ".join(names))


def node_blocks(graph: Graph) -> Iterator[tuple[str, float, Block]]:
    """Blocks with their runs; one that differs along its runs (a growing context) once for each node."""
    for block in graph.blocks:
        nodes = block.at_nodes()
        for number, (weight, ops) in enumerate(nodes):
            if not ops:
                continue
            name = block.name if len(nodes) == 1 else f"{block.name}/{number}"
            times = float(block.times) * float(weight if block.nodes else 1.0)
            yield name, times, replace(block, ops=tuple(ops), nodes=())


def streamed_axes(graph: Graph) -> tuple[str, ...]:
    """Axes along which tiles follow one another: the program's stream, and products of axes with it."""
    single = {graph.stream} if graph.stream else set(STREAM_AXES)
    products = {e.axis for _, op in graph.ops() for e in extents_of(op) if single & set(axis_names(e.axis))}
    return tuple(sorted(single | products))


def stream_size(graph: Graph) -> float | None:
    """Length of the program's stream, where it names one."""
    tensors = (t for block in graph.blocks for t in (block.entry, block.output) if t is not None)
    sizes = [float(e.size) for t in tensors for e in t.extents if e.axis == graph.stream]
    return max(sizes, default=None) if graph.stream else None


def kernel_columns(op: Op, graph: Graph, axes: tuple[str, ...], sharding: Sharding | None) -> Number:
    """Columns of a kernel along the stream: its own part of the program's stream, or of the axes that tiles
    of language models follow; one where it has none.
    """
    extents = [e for e in extents_of(op) if e.axis in axes]
    size = stream_size(graph)
    if size is None or not extents:
        found: Number = 1.0
        for e in extents:
            found = found * e.size
        return found
    return ceil_div(size, 1.0 if sharding is None else sharding.axis(op.module, graph.stream).parts)


def outside_sizes(block: Block, told: MapSettings, sharding: Sharding | None) -> dict[str, Number]:
    """Bytes of tensors from outside, as their first reader's layout divides them."""
    known, found = dict(told.outside), dict[str, Number]()
    for op in block.ops:
        for place, tensor in enumerate(op.inputs):
            if tensor in known and tensor not in found:
                parts: Number = 1.0
                if sharding is not None:
                    for axis in op.operand_axes(place):
                        parts = parts * sharding.axis(op.module, axis).parts
                found[tensor] = known[tensor] / parts
    return found


def unstated_bytes(graph: Graph) -> tuple[tuple[str, float], ...]:
    """Bytes of tensors that ops read from outside without a word on their size: elements of the axes that are
    read, nothing where an operand has none (indices).
    """
    found = dict[str, float]()
    for block in graph.blocks:
        there = {op.output for op in block.ops} | ({block.entry.name} if block.entry is not None else set())
        for op in block.ops:
            for place, tensor in enumerate(op.inputs):
                if tensor in there or is_collective(op) or op.operand_bytes(place) is not None:
                    continue
                axes = op.operand_axes(place)
                read = [float(e.size) for e in extents_of(op) if e.axis in axes]
                format = getattr(op, "activation", "") or getattr(op, "precision", "") or "bf16"
                size = float(bytes_of(format)) * float(np.prod(read)) if read else 0.0
                found[tensor] = max(size, found.get(tensor, 0.0))
    return tuple(found.items())


def kernel_ops(block: Block) -> Iterator[tuple[str, Op]]:
    """The ops of a block that are kernels, with the names that their kernels have."""
    taken = set[str]()
    for op in block.ops:
        if not is_collective(op):
            name = op.name if op.name not in taken else f"{op.name}_{len(taken)}"
            taken.add(name)
            yield name, op


def element_bytes(op: Op, setting: LayoutSetting) -> float:
    """Bytes of an element of what an op writes."""
    name = getattr(op, "activation", "") or next((a for _, a in setting.graph.formats), "bf16")
    return float(bytes_of(name))


def _rates(setting: LayoutSetting) -> dict[str, Any]:
    """Peak of products in the program's format, and the share of it that they reach."""
    formats = next(iter(setting.graph.formats), ("bf16", "bf16"))
    rate = setting.rank.device.matrix(*formats)
    return {"peak": float(rate.peak), "utilisation": float(rate.sustained) / float(rate.peak)}
