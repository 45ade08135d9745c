"""The backward pass and the optimiser, derived from the forward blocks by rule."""

from __future__ import annotations

from dataclasses import replace

from strata.workload.graph import Attention, Block, ExpertMatMul, Extent, MatMul, Op, Vector, total
from strata.workload.model import Model


def backward_blocks(forward: list[Block], model: Model) -> list[Block]:
    """One backward block for each forward block, last first: the gradient of every op, in reverse order."""
    made = []
    for block in reversed(forward):
        ops: list[Op] = []
        for op in reversed(block.ops):
            ops += _gradient(op)
        made.append(
            Block(f"{block.name}.backward", block.part, block.layer, block.count, tuple(ops), "backward")
        )
    return made


def _gradient(op: Op) -> list[Op]:
    """Ops that carry the gradient of one op back: two products for a product, re-read and re-written data for
    the rest.
    """
    source = f"d_{op.output}"
    if isinstance(op, MatMul):
        return _matmul_gradient(op)
    if isinstance(op, ExpertMatMul):
        # Both gradients of a grouped product move the same operands through the same shapes, transposed.
        inputs = replace(
            op,
            name=f"{op.name}_dgrad",
            inputs=("hidden",),
            output=f"d_{op.inputs[0]}",
            n=(op.k,),
            k=_joined(op.n),
            bias=False,
        )
        return [inputs, replace(inputs, name=f"{op.name}_wgrad", output=f"dw_{op.name}")]
    if isinstance(op, Attention):
        return [replace(op, name=f"{op.name}_backward", inputs=("hidden",), output=source, backward=True)]
    if isinstance(op, Vector):
        # The gradient reads what the op read and the gradient of what it wrote, and writes the gradient of
        # what it read.
        back = replace(
            op,
            name=f"{op.name}_backward",
            inputs=("hidden",),
            output=source,
            reads=op.reads + op.writes,
            writes=op.reads,
            parameters=(),
        )
        return [replace(back, flop_per_element=2.0 * op.flop_per_element)]
    return []


def _joined(extents: tuple[Extent, ...]) -> Extent:
    """Side-by-side extents as one contraction extent, split as the first of them is (a fused q, k, v splits
    by heads).
    """
    first = extents[0]
    return first if len(extents) == 1 else Extent(first.count, total(extents) / first.count, first.axis)


def _matmul_gradient(op: MatMul) -> list[Op]:
    """Gradient of the input (m x k from n) and of the weight (k x n from m)."""
    dgrad = replace(
        op,
        name=f"{op.name}_dgrad",
        inputs=("hidden",),
        output=f"d_{op.inputs[0]}",
        n=(op.k,),
        k=_joined(op.n),
        stored=False,
        bias=False,
    )
    wgrad = replace(
        op,
        name=f"{op.name}_wgrad",
        inputs=("hidden",),
        output=f"dw_{op.name}",
        m=op.k,
        k=op.m,
        stored=False,
        bias=False,
    )
    return [dgrad, wgrad]
