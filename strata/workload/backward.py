"""The backward pass: Graph -> Graph with the gradient of every op, joined by true edges."""

from __future__ import annotations

from dataclasses import replace

from strata.workload.graph import Block, Graph, Op, Tensor, checked
from strata.workload.ops import is_vector

BACKWARD = ".backward"


def with_backward(graph: Graph) -> Graph:
    """The graph with one backward block for each forward block, last first: the gradient of every op, in
    reverse order.

    Where parts are frozen, blocks below all that is trained have none, and no op has a gradient that nothing
    asks for: as autograd, gradients flow to operands that come of something trained.
    """
    needed = _reached(graph)
    made = [
        _backward(block, graph, needed[block.name])
        for block in reversed(graph.blocks)
        if block.name in needed
    ]
    forward = [b if b.name in needed else replace(b, keeps=False) for b in graph.blocks]
    return checked(replace(graph, blocks=(*forward, *made)))


def _reached(graph: Graph) -> dict[str, bool | None]:
    """Blocks with a backward pass, and whether a gradient leaves each for what lies below: layers count as
    one, since what repeats is below itself. None where nothing is frozen: every tensor then has a gradient.
    """
    if not any(op.frozen for _, op in graph.ops()):
        return dict.fromkeys(block.name for block in graph.blocks)
    order = graph.sequence
    layers = {*order.prefix, *(name for names in order.period for name in names)}
    trained = {block.name: any(_trains(op) for op in block.ops) for block in graph.blocks}
    inside = any(trained[name] for name in layers)
    found: dict[str, bool | None] = {}
    below = False
    for name in order.first:
        if below or trained[name]:
            found[name] = below
        below = below or trained[name]
    if below or inside:
        found |= dict.fromkeys(layers, True)
    below = below or inside
    for name in order.last:
        if below or trained[name]:
            found[name] = below
        below = below or trained[name]
    return found


def _trains(op: Op) -> bool:
    """Whether it has weights that are trained, its own or those that another op stores."""
    held = (op.weight_elements(), op.tied_bytes())
    return not op.frozen and any(not isinstance(v, float) or v != 0.0 for v in held)


def _backward(block: Block, graph: Graph, below: bool | None) -> Block:
    entry = None if block.output is None else _gradient_of(block.output)
    output = None if block.entry is None or below is False else _gradient_of(block.entry, block.output)
    every = [(weight, *_gradients(block, ops, graph, below)) for weight, ops in block.at_nodes()]
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
    )


def _gradient_of(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """The gradient of a boundary; as it is handed on, it lies like the boundary on the other side of the
    block.
    """
    extents = tensor.extents if like is None else like.extents
    return Tensor(f"d_{tensor.name}", extents, tensor.format)


def _gradients(
    block: Block, forward: tuple[Op, ...], graph: Graph, below: bool | None
) -> tuple[tuple[Op, ...], tuple[str, ...]]:
    """Gradient ops of a block, last first, and the gradients that leave it: those of what it takes in, where
    something `below` asks for them.
    """
    readers: dict[str, list[str]] = {}  # tensor -> gradients its readers send back
    made: list[Op] = []
    leaving = set(block.leaves) or {forward[-1].output}
    entry = "" if block.output is None else f"d_{block.output.name}"
    asking = _asking(block, forward, below)
    for op in reversed(forward):
        back = op.gradient() if op.output in asking else ()
        if op.frozen:
            back = tuple(gradient for gradient in back if not gradient.weight_gradient)
        if not back:
            continue
        arrives = [entry] if op.output in leaving and entry else []
        arrives += readers.get(op.output, [])
        asked = any(tensor in asking for tensor in op.inputs[: int(op.gradients)])
        kept = [gradient for gradient in back if asked or gradient.weight_gradient or len(back) == 1]
        made += [_joined_up(gradient, op, tuple(arrives), block, graph) for gradient in kept]
        for place, tensor in enumerate(op.inputs[: int(op.gradients)]):
            if tensor in asking:
                readers.setdefault(tensor, []).append(op.gradient_place(place, back).output)
    leaving_back = readers.get(block.entry.name, []) if block.entry is not None else []
    return tuple(made), tuple(leaving_back)


def _asking(block: Block, forward: tuple[Op, ...], below: bool | None) -> set[str]:
    """Tensors of a block that come of something trained: all of them where nothing is frozen."""
    if below is None:
        return {name for op in forward for name in (op.output, *op.inputs)}
    asking = {block.entry.name} if block.entry is not None and below else set()
    for op in forward:
        if _trains(op) or any(name in asking for name in op.inputs):
            asking.add(op.output)
    return asking


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
