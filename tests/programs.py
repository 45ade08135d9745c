"""Small programs that are no language models, as tests write them by hand: blocks of products and
element-wise work.
"""

from dataclasses import dataclass, field

from strata.workload.graph import Block, BlockSequence, Extent, Graph, Tensor
from strata.workload.ops import MatMul, Vector


@dataclass(frozen=True, eq=False)
class GraphProgram:
    """A program that is one graph, whatever the workload."""

    graph: Graph
    name: str = "by hand"
    units: dict = field(default_factory=dict)

    def trace(self, work):
        return self.graph


def extent(size, axis=""):
    return Extent(size * 1.0, 1.0, axis)


def product(name, source, output, *, m, n, k, module="g", **more):
    """A bf16 product with weights of its own; `more` may say otherwise."""
    kept = {"weight": "bf16", "activation": "bf16"} | more
    inputs = (source,) if isinstance(source, str) else source
    return MatMul(name=name, module=module, inputs=inputs, output=output, m=m, n=(n,), k=k, **kept)


def elementwise(name, source, output, *, m, n, module="g", **more):
    kept = {"reads": 1.0, "writes": 1.0, "flop_per_element": 1.0, "special_per_element": 0.0} | more
    n = n if isinstance(n, tuple) else (n,)
    inputs = (source,) if isinstance(source, str) else source
    kept = {"precision": "bf16"} | kept
    return Vector(name=name, module=module, inputs=inputs, output=output, m=m, n=n, **kept)


def one_block(*ops, name="body", inputs=("x",), **more):
    """A graph of a single block that reads tensors from outside."""
    block = Block(name=name, ops=ops, role=name, **more)
    return Graph(
        blocks=(block,), sequence=BlockSequence(first=(name,)), inputs=inputs, formats=(("bf16", "bf16"),)
    )


def tensor(name, *extents):
    return Tensor(name, extents, "bf16")
