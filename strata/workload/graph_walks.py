"""Walks over a graph: the axes that its ops and the boundaries of its blocks lie on, which layouts can
divide; and the laws that it must keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from strata.base.errors import BadValue
from strata.workload.graph import Block, Extent, Graph, Op


def axis_names(axis: str) -> tuple[str, ...]:
    """The axes that an extent lies on: one, or those of a product.

    >>> axis_names("samples*heads")
    ('samples', 'heads')
    """
    return tuple(axis.split("*"))


def extents_of(op: Op) -> Iterator[Extent]:
    """Extents of an op that lie on an axis."""
    for f in fields(op):
        value = getattr(op, f.name)
        for extent in value if isinstance(value, tuple) else (value,):
            if isinstance(extent, Extent) and extent.axis:
                yield extent


def boundary_extents(block: Block) -> Iterator[Extent]:
    """Extents of what a block takes in and hands on."""
    for tensor in (block.entry, block.output):
        if tensor is not None:
            yield from (e for e in tensor.extents if e.axis)


def op_axes(graph: Graph) -> tuple[str, ...]:
    """Axes that some op has, in the order in which they come."""
    every = dict.fromkeys(extent.axis for _, op in graph.ops() for extent in extents_of(op))
    return tuple(dict.fromkeys(name for axis in every for name in axis_names(axis)))


def check_graph(graph: Graph) -> Graph:
    """The graph itself, after its laws were checked: raise where one is broken.

    Every tensor is made before it is read, in its block or, by `block:tensor`, in another one; names are
    unique in a block; a block hands on what it makes; the sequence and the blocks name each other; every node
    has the ops of its block.
    """
    blocks = {block.name: block for block in graph.blocks}
    _check(len(blocks) == len(graph.blocks), "two blocks have one name")
    made = {f"{b.name}:{op.output}" for b in graph.blocks for op in b.ops}
    made |= {f"{b.name}:{b.entry.name}" for b in graph.blocks if b.entry is not None}
    for block in graph.blocks:
        _check_block(graph, block, made)
    order = graph.sequence
    placed = {*order.first, *order.last, *order.prefix, *(n for names in order.period for n in names)}
    for name in placed:
        _check(name in blocks, f"the sequence names block {name}, which is not there")
    for block in graph.blocks:
        _check(
            (block.gradient_of or block.name) in placed, f"block {block.name} has no place in the sequence"
        )
    return graph


def _check_block(graph: Graph, block: Block, elsewhere: set[str]) -> None:
    known = {*graph.inputs, *((block.entry.name,) if block.entry else ())}
    names: set[str] = set()
    for op in block.ops:
        for tensor in op.inputs:
            there = tensor in known or (":" in tensor and tensor in elsewhere)
            _check(there, f"{block.name}.{op.name} reads {tensor}, which nothing before it makes")
        _check(op.name not in names, f"{block.name} has two ops called {op.name}")
        names.add(op.name)
        known.add(op.output)
    for tensor in block.leaves:
        _check(tensor in known, f"{block.name} hands on {tensor}, which it does not make")
    edges = [(op.kind, op.name, op.inputs, op.output) for op in block.ops]
    for _, ops in block.nodes:
        same = [(op.kind, op.name, op.inputs, op.output) for op in ops] == edges
        _check(same, f"{block.name} has a node with other ops than the block")


def _check(holds: bool, said: str) -> None:
    if not holds:
        raise BadValue(f"graph: {said}")
