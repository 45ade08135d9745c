"""Axes of a graph: what its ops and the boundaries of its blocks lie on, and layouts can divide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

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
