"""The fusion problems of a rank's blocks under one layout: what a mapping of layouts and partitions costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Number, ceil_div
from strata.errors import UnknownName
from strata.mapping.layout import Layout, Sharding
from strata.mapping.shard import shard
from strata.optimise.fusion.fusion_graph import fusion_problem
from strata.optimise.fusion.fusion_problem import OUTSIDE, FusionKernel, FusionProblem
from strata.optimise.layout import LayoutSetting
from strata.optimise.layouts.layout_options import axis_names, extents_of
from strata.precision import bytes_of
from strata.pricing.fused_block import tensor_sizes
from strata.pricing.fusion import STREAM_AXES
from strata.pricing.fusion_rules import FusionRules
from strata.workload.graph import Block, Graph, Op, is_collective
from strata.workload.ops import is_vector


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
    sram: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockProblem:
    """One block's fusion problem, and how often it runs."""

    block: str
    times: float
    problem: FusionProblem


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
    found = []
    for name, times, block in node_blocks(graph):
        read = outside_sizes(block, told, sharding) | sizes
        made = fusion_problem(
            block,
            setting.rank,
            rules=told.rules,
            stream_axes=axes,
            tiles=told.tiles,
            sizes=read,
            sram=told.sram,
            micro_batches=told.together,
            layers=0.0,
            held_bytes=0.0,
        )
        shaped = tuple(_shaped(made, block, setting, sharding))
        longest = min((k.columns for k in shaped if k.columns > 1), default=1.0)
        tiles = tuple(n for n in made.tiles if n <= longest) or (1,)
        tensors = made.tensors
        if told.rules.boundary == "no":
            tensors = tuple(t for t in tensors if OUTSIDE not in (t.source, t.target))
        chip = replace(made.chip, dram_capacity=float("inf"), **_rates(setting))
        here = {kernel.name for kernel in shaped}
        groups = (tuple(k for k in group if k in here) for group in told.pinned)
        pinned = tuple(group for group in groups if group)
        found.append(
            BlockProblem(
                block=name,
                times=times,
                problem=replace(made, kernels=shaped, chip=chip, pinned=pinned, tiles=tiles, tensors=tensors),
            )
        )
    _all_known(told.pinned, found)
    return tuple(found)


def _all_known(pinned: tuple[tuple[str, ...], ...], found: list[BlockProblem]) -> None:
    names = [k.name for each in found for k in each.problem.kernels]
    for group in pinned:
        for name in group:
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


def kernel_shape(op: Op, columns: Number, element: float) -> dict[str, Number]:
    """Rows, depth and FLOP of a kernel as an array of multipliers sees it: M x K x N with N streamed.

    Element-wise work has no depth; DFModel (2024) counts its operations beside those of products.
    """
    outputs = op.output_bytes() / element
    flop = op.flop()
    product = float(_least(flop)) > 0 and float(_least(outputs)) > 0  # scores of keys leave nothing behind
    return {
        "rows": outputs / columns,
        "depth": flop / (2.0 * outputs) if product else 0.0 * flop,
        "flop": flop + (op.vector_flop() if is_vector(op) else 0.0),
    }


def _least(value: Number) -> float:
    return float(np.min(value))


def _shaped(
    made: FusionProblem, block: Block, setting: LayoutSetting, sharding: Sharding | None
) -> Iterator[FusionKernel]:
    ops, axes = dict(kernel_ops(block)), streamed_axes(setting.graph)
    for kernel in made.kernels:
        op = ops.get(kernel.name)
        if op is None:
            yield kernel
            continue
        columns = float(kernel_columns(op, setting.graph, axes, sharding))
        shape = kernel_shape(op, columns, element_bytes(op, setting))
        sizes: dict[str, Any] = {key: float(value) for key, value in shape.items()}
        yield replace(kernel, columns=columns, **sizes)


def element_bytes(op: Op, setting: LayoutSetting) -> float:
    """Bytes of an element of what an op writes."""
    name = getattr(op, "activation", "") or next((a for _, a in setting.graph.formats), "bf16")
    return float(bytes_of(name))


def _rates(setting: LayoutSetting) -> dict[str, Any]:
    """Peak of products in the program's format, and the share of it that they reach."""
    formats = next(iter(setting.graph.formats), ("bf16", "bf16"))
    rate = setting.rank.device.matrix(*formats)
    return {"peak": float(rate.peak), "utilisation": float(rate.sustained) / float(rate.peak)}
