"""Collectives that a program writes down itself: they stand only where the layout has their ranks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from strata.workload.graph import Block, Graph, Op, is_collective


def without_idle_collectives(graph: Graph, active: Collection[str]) -> Graph:
    """The graph without collectives over groups of one rank: their readers read what they read."""
    idle = {
        f"{block.name}:{op.output}": f"{block.name}:{op.inputs[0]}"
        for block, op in graph.ops()
        if is_collective(op) and op.group not in active and op.inputs
    }
    if not idle:
        return graph
    return replace(graph, blocks=tuple(_relinked(block, idle) for block in graph.blocks))


def _relinked(block: Block, idle: dict[str, str]) -> Block:
    def source(tensor: str) -> str:
        """What stands in a tensor's place, by its name here or in another block."""
        far = ":" in tensor
        name = tensor if far else f"{block.name}:{tensor}"
        while name in idle:
            name = idle[name]
        return name if far else name.partition(":")[2]

    def kept(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        left = (op for op in ops if source(op.output) == op.output)
        return tuple(replace(op, inputs=tuple(source(t) for t in op.inputs)) for op in left)

    output = block.output
    if output is not None:
        output = replace(output, name=source(output.name))
    return replace(
        block,
        ops=kept(block.ops),
        nodes=tuple((weight, kept(ops)) for weight, ops in block.nodes),
        leaves=tuple(source(t) for t in block.leaves),
        output=output,
    )
