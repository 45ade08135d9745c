"""The backward pass: Graph -> Graph with the gradient of every op, joined by true edges."""

from __future__ import annotations

from dataclasses import replace

from strata.workload.graph import Block, Graph, Op, Tensor, checked
from strata.workload.ops import is_vector

BACKWARD = ".backward"


def with_backward(graph: Graph) -> Graph:
    """The graph with one backward block for each forward block, last first: the gradient of every op, in
    reverse order.
    """
    made = [_backward(block, graph) for block in reversed(graph.blocks)]
    return checked(replace(graph, blocks=(*graph.blocks, *made)))


def _backward(block: Block, graph: Graph) -> Block:
    entry = None if block.output is None else _gradient_of(block.output)
    output = None if block.entry is None else _gradient_of(block.entry, block.output)
    every = [(weight, *_gradients(block, ops, graph)) for weight, ops in block.at_nodes()]
    return replace(
        block,
        name=block.name + BACKWARD,
        ops=every[0][1],
        nodes=tuple((weight, ops) for weight, ops, _ in every) if block.nodes else (),
        direction="backward",
        entry=entry,
        output=output,
        leaves=every[0][2],
        gradient_of=block.name,
        captured=True,
        chunked=False,
    )


def _gradient_of(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """The gradient of a boundary; as it is handed on, it lies like the boundary on the other side of the
    block.
    """
    extents = tensor.extents if like is None else like.extents
    return Tensor(f"d_{tensor.name}", extents, tensor.format)


def _gradients(block: Block, forward: tuple[Op, ...], graph: Graph) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """Gradient ops of a block, last first, and the gradients that leave it: those of what it takes in."""
    readers: dict[str, list[str]] = {}  # tensor -> gradients its readers send back
    made: list[Op] = []
    leaving = set(block.leaves) or {forward[-1].output}
    entry = "" if block.output is None else f"d_{block.output.name}"
    for op in reversed(forward):
        back = op.gradient()
        if not back:
            continue
        arrives = [entry] if op.output in leaving and entry else []
        arrives += readers.get(op.output, [])
        made += [_joined_up(gradient, op, tuple(arrives), block, graph) for gradient in back]
        for place, tensor in enumerate(op.inputs[: int(op.gradients)]):
            readers.setdefault(tensor, []).append(op.gradient_place(place, back).output)
    leaving_back = readers.get(block.entry.name, []) if block.entry is not None else []
    return tuple(made), tuple(leaving_back)


def _joined_up(gradient: Op, op: Op, arrives: tuple[str, ...], block: Block, graph: Graph) -> Op:
    """A gradient op whose edges name what is there: gradients that arrive, tensors of the forward block."""
    inputs: list[str] = []
    for name in gradient.inputs:
        if name == f"d_{op.output}":
            inputs += arrives
        elif name.startswith("forward:"):
            tensor = name.removeprefix("forward:")
            inputs.append(tensor if tensor in graph.inputs else f"{block.name}:{tensor}")
        else:
            inputs.append(name)
    # Readers of parts side by side send back gradients of parts; else all are of one shape and are added up.
    if len(arrives) > 1 and is_vector(gradient) and len(gradient.n) == 1:
        return replace(gradient, inputs=tuple(inputs), adds=True)
    return replace(gradient, inputs=tuple(inputs))
