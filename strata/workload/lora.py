"""Fine-tuning: parts of a program that are not trained, and low-rank adapters beside its products.

Graph -> Graph, before gradients are made: products of a frozen base keep their weights and pass gradients on,
but have no gradient of a weight, and so neither gradients nor optimiser state in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strata.base.arrays import Number, lowest
from strata.base.errors import BadValue, require
from strata.base.records import brief
from strata.base.units import box_shape
from strata.params import record
from strata.workload.backward import with_backward
from strata.workload.expert_ops import ROUTER
from strata.workload.graph import Block, Extent, Graph, Op, axes_of, total
from strata.workload.ops import MatMul, RowOps, Vector, is_product, is_vector

# What tensor ranks divide of an adapter: the rank of the first product beside one whose columns are divided,
# the columns of the second beside one whose depth is, gathered or, under sequence parallelism, exchanged for
# rows (ParallelLinearAdapter of NVIDIA NeMo, with its a2a).
RANK_AXIS, COLUMN_AXIS = "adapter_rank", "adapter_columns"
ROWS, SPLIT_ROWS = "tokens", "sp_tokens"  # rows of products, and of what sequence parallelism splits
ADAPTER = "adapter"  # the role of ops that are trained beside a frozen base
ALL_MODULES = ("attention", "ffn", "moe")
MASK = 0.5  # elements of 2 bytes: dropout writes one byte more for each element it keeps or drops


@record
class Lora:
    r"""Low-rank adapters: two products of rank r beside each product of some modules, added to its result.

    .. math:: y = x W + \frac{\alpha}{r} (x A) B

    A [k, r] and B [r, n] are trained, the base W [k, n] and everything else is not. Hu et al., LoRA, arXiv
    2106.09685, sec. 4.1. Modules are those of the program's products: attention (q, k, v and output), ffn,
    moe (what all tokens pass; router and routed experts stay as they are), or one product of them:
    attention.qkv. The rank may be an array.
    """

    rank: Number
    modules: tuple[str, ...] = ALL_MODULES
    weights: str = "bf16"  # format of A and B, and of their products
    dropout: bool = False  # inputs of A are dropped at random, by a kernel that also writes a mask
    fused: bool = False  # B scales and adds in its own product, and the base adds to the adapter's gradient

    @property
    def title(self) -> str:
        """In words."""
        return f"adapters of rank {brief(self.rank)} beside {', '.join(self.modules)}"

    def __post_init__(self) -> None:
        require(lowest(self.rank) > 0, "rank of adapters must be positive", rank=self.rank)
        require(bool(self.modules), "modules of adapters must name at least one module")
        box_shape([tuple(self.rank.shape)] if hasattr(self.rank, "shape") else [])


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class AdapterSum(Vector):
    """What an adapter adds to a product, scaled by a kernel of its own; the gradient of the base is that of
    the sum, and only the adapter's is scaled. Fused, the product reads what it adds to and writes the sum as
    its result, and gradients are scaled as they are read.
    """

    fused: bool = False

    def gradient(self) -> tuple[Op, ...]:
        (back,) = Vector.gradient(self)
        assert is_vector(back)
        moved = 0.0 if self.fused else 1.0
        return (replace(back, inputs=(f"d_{self.output}",), reads=moved, writes=moved, adds=False),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Dropout(Vector):
    """Elements dropped at random, with a mask of what was kept.

    Its gradient reads the mask, and a second kernel adds it to that of the base; fused, the product for that
    reads it and adds its own.
    """

    linear: ClassVar[bool] = True
    fused: bool = False

    def partial_bytes(self) -> Number:
        kept = Vector.partial_bytes(self)
        return kept if self.backward else kept * (1.0 + MASK)

    def gradient(self) -> tuple[Op, ...]:
        (back,) = Vector.gradient(self)
        assert is_vector(back)
        reads, writes = (2.0, 1.0) if self.fused else (3.0, 2.0)
        return (replace(back, inputs=(f"d_{self.output}",), reads=reads + MASK, writes=writes),)


def training_graph(graph: Graph, adapters: Lora | None, frozen: tuple[str, ...]) -> Graph:
    """The graph of a training step: the forward graph with what is frozen and what is added beside it, and
    the gradients that are still needed.
    """
    known = tuple(dict.fromkeys(op.module for _, op in graph.ops() if _has_weights(op)))
    for module in frozen:
        require(module in known, f"frozen must be modules of {', '.join(known)}", frozen=module)
    if adapters is not None:
        require(not frozen, "adapters freeze all of the base: name no frozen modules beside", frozen=frozen)
        graph = adapted_graph(graph, adapters)
    elif frozen:
        require(set(frozen) != set(known), "nothing is left to train", frozen=", ".join(frozen))
        blocks = (_with_ops(block, [_frozen_in(op, frozen) for op in block.ops]) for block in graph.blocks)
        graph = replace(graph, blocks=tuple(blocks))
    return with_backward(graph)


def _has_weights(op: Op) -> bool:
    elements = op.weight_elements()
    return not (isinstance(elements, float) and elements == 0.0)


def _frozen_in(op: Op, modules: tuple[str, ...]) -> Op:
    return replace(op, frozen=True) if op.module in modules else op


def _with_ops(block: Block, ops: list[Op]) -> Block:
    """A block with other ops; sizes that change over iterations have them at the first node alone."""
    require(not block.nodes, f"parts of {block.name} cannot be frozen: its sizes change over iterations")
    return replace(block, ops=tuple(ops))


def adapted_graph(graph: Graph, adapters: Lora) -> Graph:
    """The graph with every weight frozen and adapters beside the products of some modules."""
    blocks = [_adapted_block(block, adapters) for block in graph.blocks]
    if not any(op.role == ADAPTER for block in blocks for op in block.ops):
        products = [op for _, op in graph.ops() if _adapts(op, None)]
        there = [*dict.fromkeys(op.module for op in products), *map(_address, products)]
        raise BadValue(
            f"modules of adapters must be of {', '.join(there)}, but got {', '.join(adapters.modules)}"
        )
    formats = tuple(dict.fromkeys((*graph.formats, *((adapters.weights, a) for _, a in graph.formats))))
    return replace(graph, blocks=tuple(blocks), formats=formats)


def _adapts(op: Op, modules: tuple[str, ...] | None) -> bool:
    """Whether an op is a product with a weight of its own that adapters may stand beside."""
    if not is_product(op) or not op.stored or op.tied:
        return False
    product = _address(op)
    return modules is None or product in modules or (op.module in modules and op.role != ROUTER)


def _address(op: Op) -> str:
    """How people name one product: by its module and its own name."""
    return f"{op.module}.{op.name}"


def _adapted_block(block: Block, adapters: Lora) -> Block:
    ops: list[Op] = []
    renamed: dict[str, str] = {}
    for op in block.ops:
        inputs = tuple(renamed.get(name, name) for name in op.inputs)
        base = replace(op, frozen=True, inputs=inputs)
        ops.append(base)
        if is_product(base) and _adapts(base, adapters.modules):
            beside = _adapter(base, adapters)
            ops += beside
            renamed[op.output] = beside[-1].output
    made = _with_ops(block, ops)
    leaves = block.leaves or (block.ops[-1].output,)
    return replace(made, leaves=tuple(renamed.get(name, name) for name in leaves)) if renamed else made


def _adapter(base: MatMul, adapters: Lora) -> list[Op]:
    """Ops of one adapter: its two products, and their result added to that of the base."""
    name, rank = f"{base.name}_adapter", adapters.rank * 1.0
    by_columns, by_depth = bool(axes_of(*base.n)), bool(base.k.axis)
    ops: list[Op] = []
    source = base.inputs
    if adapters.dropout:
        drop = {"writes": 1.0 + MASK, "flop_per_element": 2.0, "fused": adapters.fused}
        rows = RowOps(base.module, base.m, base.weight, base.activation, ADAPTER)
        ops.append(rows.vector(f"{name}_dropout", source, f"{name}_kept", base.k, Dropout, **drop))
        source = (ops[-1].output,)
    trained = replace(base, weight=adapters.weights, bias=False, frozen=False, role=ADAPTER)
    split = RANK_AXIS if by_columns and not by_depth else ""
    first = replace(
        trained, name=f"{name}_in", inputs=source, output=f"{name}_low", n=(Extent(rank, 1.0, split),)
    )
    summed, columns = base.m, base.n
    if by_depth and not by_columns:  # ranks add up the base's result, and may leave it in parts of rows
        summed = Extent(base.m.count, base.m.unit, SPLIT_ROWS if base.m.axis == ROWS else base.m.axis)
        columns = (Extent(total(base.n), 1.0, COLUMN_AXIS),)
    second = replace(
        trained, name=f"{name}_out", inputs=(first.output,), output=f"{name}_high", n=columns,
        k=Extent(rank),
    )  # fmt: skip
    added = RowOps(base.module, summed, base.weight, base.activation, ADAPTER).vector(
        f"{name}_sum",
        (base.output, second.output),
        f"{base.output}_adapted",
        base.n,
        AdapterSum,
        reads=1.0 if adapters.fused else 3.0,
        writes=0.0 if adapters.fused else 2.0,
        flop_per_element=2.0,
        adds=True,
        fused=adapters.fused,
    )
    return [*ops, first, second, added]
