"""What must be computed: ops with extents, in blocks that repeat, joined by named tensors.

An `Extent` knows which logical axis it lies on; a plan splits axes, never ops. Structure (which ops, which
tensors) is fixed by model family and phase; every size is a number or an array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from strata.arrays import Number
from strata.errors import BadValue
from strata.precision import bytes_of
from strata.workload.routing import Routing

# Axes a plan may split; an extent without an axis is never divided.
AXES = (
    "",
    "tokens",
    "sequences",
    "queries",
    "normed",
    "grouped",
    "routed",
    "span",
    "held",
    "heads",
    "kv_heads",
    "ffn",
    "shared_ffn",
    "vocab",
    "experts",
    "expert_ffn",
)


@dataclass(frozen=True, eq=False, slots=True)
class Extent:
    """`count` indivisible units of `unit` elements along a logical axis; padding lets count exceed what is
    useful.
    """

    count: Number
    unit: Number = 1.0
    axis: str = ""

    @property
    def size(self) -> Number:
        return self.count * self.unit


ONE = Extent(1.0)


def total(extents: tuple[Extent, ...]) -> Number:
    """Elements along a dimension made of several extents side by side, as in a fused q, k, v projection."""
    size = extents[0].size
    for extent in extents[1:]:
        size = size + extent.size
    return size


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One kernel: its name, the module whose plan rules it, what it reads and what it makes."""

    kind: ClassVar[str] = "op"

    name: str
    module: str
    inputs: tuple[str, ...]
    output: str

    def weight_elements(self) -> Number:
        return 0.0

    def weight_bytes(self) -> Number:
        return 0.0


@dataclass(frozen=True, eq=False, slots=True)
class MatMul(Op):
    """out[b, m, n] = in[b, m, k] weight[b, k, n]; `weight` and `activation` name the storage precisions."""

    kind: ClassVar[str] = "matmul"

    m: Extent
    n: tuple[Extent, ...]
    k: Extent
    weight: str
    activation: str
    batch: Extent = ONE
    bias: bool = False
    tied: bool = False  # the weight is stored elsewhere already
    stored: bool = True  # False for products of two activations

    def flop(self) -> Number:
        return 2.0 * self.batch.size * self.m.size * total(self.n) * self.k.size

    def weight_elements(self) -> Number:
        if self.tied or not self.stored:
            return 0.0
        columns = self.batch.size * total(self.n)
        return columns * self.k.size + (columns if self.bias else 0.0)

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.weight)


@dataclass(frozen=True, eq=False, slots=True)
class ExpertMatMul(Op):
    """One product of the routed experts: each of `tokens` goes to `top_k` of `experts`, each k x n."""

    kind: ClassVar[str] = "experts"

    tokens: Extent
    top_k: Number
    experts: Extent
    all_experts: Number
    n: tuple[Extent, ...]
    k: Extent
    skew: Number
    weight: str
    activation: str
    bias: bool = False
    seen: Routing | None = None  # popularity from a trace, in place of the skew
    redundant_experts: Number = 0.0  # copies of popular experts beside all experts

    @property
    def slots(self) -> Number:
        """Experts of the layer with their redundant copies."""
        return self.all_experts + self.redundant_experts

    def flop(self) -> Number:
        share = self.experts.size / self.slots
        return 2.0 * self.tokens.size * self.top_k * share * total(self.n) * self.k.size

    def weight_elements(self) -> Number:
        return self.experts.size * total(self.n) * (self.k.size + (1.0 if self.bias else 0.0))

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.weight)


@dataclass(frozen=True, eq=False, slots=True)
class Attention(Op):
    """Softmax attention of `queries` new tokens of each sequence over `span` earlier ones, read from a cache
    of `cached`.
    """

    kind: ClassVar[str] = "attention"

    sequences: Extent
    queries: Extent
    span: Extent  # mean tokens a query attends to
    cached: Extent  # tokens of one sequence whose keys and values are read
    held: Extent  # tokens of one sequence the cache keeps
    heads: Extent
    kv_heads: Extent
    key_dim: Number
    value_dim: Number
    kv_width: Number  # elements stored for one token and kv head
    activation: str
    kv: str
    backward: bool = False
    products: str = ""  # format of the products where it is narrower than the activations
    latent: bool = False  # all heads share one latent (MLA)

    def flop(self) -> Number:
        per_pair = 2.0 * (self.key_dim + self.value_dim) * (2.5 if self.backward else 1.0)
        return per_pair * self.sequences.size * self.queries.size * self.span.size * self.heads.size

    def cache_bytes(self) -> Number:
        """Bytes the cache of one layer holds for these sequences."""
        return self.sequences.size * self.held.size * self.kv_heads.size * self.kv_width * bytes_of(self.kv)


@dataclass(frozen=True, eq=False, slots=True)
class Vector(Op):
    """Element-wise or row-wise work: `reads` and `writes` count elements moved for each of m x n, with op
    counts beside.
    """

    kind: ClassVar[str] = "vector"

    m: Extent
    n: tuple[Extent, ...]
    reads: Number
    writes: Number
    flop_per_element: Number
    special_per_element: Number
    precision: str
    parameters: tuple[Extent, ...] = ()  # a product: (vocab, hidden) for an embedding
    parameter_precision: str = "bf16"
    pieces: float = 1.0  # kernels it takes where nothing is fused: each reads and writes every element
    gathered: bool = False  # rows go to or come from addresses of their own
    # loads a row waits for one after the other, where one core takes a whole row; None: elements are free
    trips: Number | None = None

    def elements(self) -> Number:
        return self.m.size * total(self.n)

    def flop(self) -> Number:
        return self.elements() * self.flop_per_element

    def weight_elements(self) -> Number:
        size: Number = 1.0 if self.parameters else 0.0
        for extent in self.parameters:
            size = size * extent.size
        return size

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.parameter_precision)


@dataclass(frozen=True, eq=False, slots=True)
class Exchange:
    """Tokens on their way to experts or back: what kernels made for that send, and how uneven it is."""

    direction: str  # dispatch, combine, or "" where such kernels do not run (training)
    tokens: Number  # of one rank
    top_k: Number
    experts: Number  # of the layer
    width: Number  # elements of a token
    element: Number  # bytes of one element as sent
    busiest: Number = 1.0  # picks that fall on the busiest rank, over the mean
    # tokens that it gets, over the mean: one copy serves all of a token's picks on a rank
    received: Number = 1.0


@dataclass(frozen=True, eq=False, slots=True)
class Collective(Op):
    """Communication inside the group of one plan dimension; `payload` is the whole buffer of one rank, in
    bytes.
    """

    kind: ClassVar[str] = "collective"

    pattern: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send
    group: str
    payload: Number
    prefetch: bool = False  # it may run beside the block's own work
    steps: Number = 1.0  # one after the other, each with this payload
    overlaps: str = ""  # the op of the block whose equal parts run beside these steps
    exchange: Exchange | None = None  # of an all-to-all between experts


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """Ops in order that repeat `count` times. `part` and `layer` say which layers of the pattern hold it."""

    name: str
    part: int  # 0 attention, 1 ffn, -1 first end of the model, -2 last end
    layer: str
    count: Number
    ops: tuple[Op, ...]
    passes: str = "forward"  # or backward


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """Blocks in the order of the model; `inputs` are tensors that come from outside."""

    blocks: tuple[Block, ...]
    inputs: tuple[str, ...] = ("ids", "hidden", "cache")
    notes: tuple[str, ...] = field(default=())

    def ops(self) -> Iterator[tuple[Block, Op]]:
        for block in self.blocks:
            for op in block.ops:
                yield block, op

    def parameters(self) -> Number:
        """Stored weights, each counted once."""
        forward = (pair for pair in self.ops() if pair[0].passes == "forward")
        return sum((block.count * op.weight_elements() for block, op in forward), 0.0)

    def flop(self) -> Number:
        """Useful operations of one pass over the graph: matrix products and attention."""
        work = ((b, op) for b, op in self.ops() if isinstance(op, (MatMul, ExpertMatMul, Attention)))
        return sum((block.count * op.flop() for block, op in work), 0.0)


def check_graph(graph: Graph) -> None:
    """Raise where a law of graphs is broken: every input is made before it is read, names are unique in a
    block, axes known.
    """
    for block in graph.blocks:
        made = set(graph.inputs)
        seen: set[str] = set()
        for op in block.ops:
            missing = [name for name in op.inputs if name not in made]
            if missing:
                raise BadValue(
                    f"graph: {block.name}.{op.name} reads {missing[0]}, which nothing before it makes"
                )
            if op.name in seen:
                raise BadValue(f"graph: {block.name} has two ops called {op.name}")
            seen.add(op.name)
            made.add(op.output)
            for name in op.__dataclass_fields__:
                for extent in (v := getattr(op, name)) if isinstance(v := getattr(op, name), tuple) else (v,):
                    if isinstance(extent, Extent) and extent.axis not in AXES:
                        raise BadValue(
                            f"graph: {block.name}.{op.name}.{name} lies on an unknown axis '{extent.axis}'"
                        )


def of_shared_experts(op: Op) -> bool:
    """Whether it is a kernel of experts that all tokens pass: it needs nothing that is exchanged."""
    return op.name.startswith("shared_") and not isinstance(op, Collective)
