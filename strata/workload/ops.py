"""The kinds of ops programs are made of: products, routed experts, attention, element-wise work, gathered
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeGuard, TypeVar

from strata.base.arrays import Number, ceil_div
from strata.base.precision import bytes_of
from strata.params import load_table
from strata.workload.graph import ONE, Extent, Op, Tensor, axes_of, total, volume

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MatMul(Op):
    """out[b, m, n] = in[b, m, k] weight[b, k, n]; `weight` and `activation` name the storage formats."""

    kind: ClassVar[str] = "matmul"
    category: ClassVar[str] = "matmul"
    multiplies: ClassVar[bool] = True

    m: Extent
    n: tuple[Extent, ...]
    k: Extent
    weight: str
    activation: str
    batch: Extent = ONE
    bias: bool = False
    tied: bool = False  # the weight is stored elsewhere already
    stored: bool = True  # False for products of two activations
    reads_weight: bool = False  # its second operand is a weight that another op stores: gradients of inputs
    joined: tuple[str, ...] = ()  # further axes of a contraction over extents side by side

    def flop(self) -> Number:
        return 2.0 * self.batch.size * self.m.size * total(self.n) * self.k.size

    def weight_elements(self) -> Number:
        if self.tied or not self.stored:
            return 0.0
        columns = self.batch.size * total(self.n)
        return columns * self.k.size + (columns if self.bias else 0.0)

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.weight)

    def tied_bytes(self) -> Number:
        return self.k.size * total(self.n) * bytes_of(self.weight) if self.tied else 0.0

    def output_bytes(self) -> Number:
        return self.batch.size * self.m.size * total(self.n) * bytes_of(self.activation)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        # Of a product with a weight of its own all operands are parts of the one activation; those of the
        # gradient of its input are gradients that its readers send back.
        if self.stored or self.reads_weight or place == 0:
            return (*axes_of(self.batch, self.m, self.k), *self.joined)
        return axes_of(self.batch, self.k, *self.n)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.batch, self.m, *self.n)

    def contracted_axes(self) -> tuple[str, ...]:
        return (*axes_of(self.k), *self.joined)

    def read_weight(self) -> Tensor | None:
        return Tensor("weight", (self.batch, self.k, *self.n), self.weight) if self.reads_weight else None

    def kept_operand(self, place: int) -> Tensor | None:
        if place > 0 or not self.weight_gradient:
            return None
        return Tensor("kept", (self.batch, self.m, self.k), self.activation)

    def gradient(self) -> tuple[Op, ...]:
        """Gradient of the input (m x k from n) and of the weight, or of the second operand (k x n from m)."""
        back = f"d_{self.output}"
        second = self.inputs[1] if len(self.inputs) > 1 else f"{self.name}_weight"
        dgrad = self.turned(
            name=f"{self.name}_dgrad",
            inputs=(back,) if self.stored or len(self.inputs) < 2 else (back, f"forward:{second}"),
            n=(self.k,),
            k=joined_extent(self.n),
            stored=False,
            reads_weight=self.stored,
            bias=False,
            joined=axes_of(*self.n)[1:],
        )
        wgrad = self.turned(
            name=f"{self.name}_wgrad",
            inputs=(f"forward:{self.inputs[0]}", back),
            output=f"d_{second}@{self.name}",
            m=self.k,
            k=self.m,
            stored=False,
            bias=False,
            joined=(),
            weight_gradient=self.stored,
        )
        return (dgrad,) if self.frozen and self.stored else (dgrad, wgrad)

    def gradient_place(self, place: int, gradients: tuple[Op, ...]) -> Op:
        # Operands of a product with a weight of its own are parts of the one activation.
        return gradients[0 if self.stored or place == 0 else 1]


def joined_extent(extents: tuple[Extent, ...]) -> Extent:
    """Side-by-side extents as one contraction extent, split as the first of them is (a fused q, k, v splits
    by heads).
    """
    first = extents[0]
    return first if len(extents) == 1 else Extent(first.count, total(extents) / first.count, first.axis)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Attention(Op):
    """Softmax attention of `queries` new tokens of each sequence over `span` earlier ones, read from a cache
    of `cached`.

    Its operands are the new tokens (queries and what they add to the cache) and the cache, in this order.
    """

    kind: ClassVar[str] = "attention"
    category: ClassVar[str] = "attention"

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
    products: str = ""  # format of the products where it is narrower than the activations
    latent: bool = False  # all heads share one latent (MLA)

    def flop(self) -> Number:
        per_pair = 2.0 * (self.key_dim + self.value_dim) * (2.5 if self.backward else 1.0)
        return per_pair * self.sequences.size * self.queries.size * self.span.size * self.heads.size

    def cache_bytes(self, page: Number) -> Number:
        if self.backward:
            return 0.0
        stored = self.sequences.size * self.held.size * self.kv_heads.size * self.kv_width * bytes_of(self.kv)
        return stored * paged(self.held.size, page)

    def output_bytes(self) -> Number:
        return self._rows() * self.value_dim

    def operand_axes(self, place: int) -> tuple[str, ...]:
        if place == 0:
            return axes_of(self.sequences, self.queries, self.heads, self.kv_heads)
        return axes_of(self.sequences, self.span, self.kv_heads)

    def stored_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.sequences, self.held, self.kv_heads) if place == 1 else ()

    def operand_bytes(self, place: int) -> Number | None:
        wide = bytes_of(self.activation)
        if place == 0:
            # Where all heads share one latent, what new tokens add to it does not move with their queries.
            added = self.kv_heads.size * self.kv_width if self.kv_heads.axis else 0.0
            return self.sequences.size * self.queries.size * (self.heads.size * self.key_dim + added) * wide
        stored = self.sequences.size * self.cached.size * self.kv_heads.size * self.kv_width * wide
        return stored * (2.0 if self.backward else 1.0)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.sequences, self.queries, self.heads)

    def contracted_axes(self) -> tuple[str, ...]:
        return axes_of(self.span)

    def partial_bytes(self) -> Number:
        """Partial outputs over parts of a cache come with one sum of exponentials each."""
        return self._rows() * (self.value_dim + 1.0)

    def _rows(self) -> Number:
        return self.sequences.size * self.queries.size * self.heads.size * bytes_of(self.activation)

    def gradient(self) -> tuple[Op, ...]:
        return (self.turned(reads_forward=True),)


def paged(tokens: Number, page: Number) -> Number:
    r"""Tokens a cache holds for a sequence over those it needs, where it is kept in blocks.

    .. math:: r = \frac{b \lceil n / b \rceil}{n}

    n tokens of a sequence, b of a block. Kwon et al., PagedAttention (SOSP 2023), sec. 4.1: only the last
    block is not full.

    >>> float(paged(1000.0, 16.0)), float(paged(1000.0, 1.0))
    (1.008, 1.0)
    """
    return page * ceil_div(tokens, page) / tokens


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class EagerKernels:
    """Kernels of an element-wise op in training where nothing is fused, as PyTorch runs them one by one:
    `streams` that move `moved` elements together for each element of the op (and `reread` again), and
    `singles` whose `passes` address every element by itself (strides, changes of format).
    """

    streams: float = 0.0
    moved: Number = 0.0
    singles: float = 0.0
    passes: Number = 0.0
    reread: Number = 0.0
    backward: EagerKernels | None = None

    @property
    def count(self) -> float:
        return self.streams + self.singles


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Vector(Op):
    """Element-wise or row-wise work: `reads` and `writes` count elements moved for each of m x n, with op
    counts beside.
    """

    kind: ClassVar[str] = "vector"
    category: ClassVar[str] = "vector"

    m: Extent
    n: tuple[Extent, ...]
    reads: Number = 1.0
    writes: Number = 1.0
    flop_per_element: Number = 0.0
    special_per_element: Number = 0.0
    precision: str
    parameters: tuple[Extent, ...] = ()  # a product: (vocab, hidden) for an embedding
    parameter_precision: str = "bf16"
    pieces: float = 1.0  # kernels it takes where nothing is fused: each reads and writes every element
    eager: EagerKernels | None = None  # the same in training, where that is known
    # loads a row waits for one after the other, where one core takes a whole row; None: elements are free
    trips: Number | None = None
    looked_up: tuple[str, ...] = ()  # axes of the parameters of which one entry is taken: a sum over the rest
    needs_whole: tuple[str, ...] = ()
    beside: tuple[Extent, ...] = ()  # that operands have and the result has not: it reads parts of them
    # a norm's operands are added up before anything else: residuals, and gradients of its readers
    adds: bool = False
    also_writes: Number = 0.0  # of `writes`, what is not its result: the residual that a norm added up
    # sums of each row that ranks with parts of it add up in fp32: the terms of a loss over a vocabulary
    row_sums: float = 0.0

    def elements(self) -> Number:
        return self.m.size * total(self.n)

    def vector_flop(self) -> Number:
        return self.elements() * self.flop_per_element

    def weight_elements(self) -> Number:
        return volume(self.parameters) if self.parameters else 0.0

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.parameter_precision)

    def output_bytes(self) -> Number:
        return self.elements() * self.writes * bytes_of(self.precision)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.m, *self.n, *self.beside)

    def whole_axes(self) -> tuple[str, ...]:
        return self.needs_whole

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.m, *self.n)

    def result_bytes(self) -> Number:
        written = self.output_bytes()
        if isinstance(self.also_writes, float) and self.also_writes == 0.0:
            return written
        return written - self.elements() * self.also_writes * bytes_of(self.precision)

    def contracted_axes(self) -> tuple[str, ...]:
        return axes_of(*self.n) if self.row_sums else self.looked_up

    def partial_bytes(self) -> Number:
        if self.row_sums:
            return self.m.size * self.row_sums * bytes_of("fp32")
        return self.elements() * bytes_of(self.precision)

    def gradient(self) -> tuple[Op, ...]:
        """It reads what the op read and the gradient of what it wrote, and writes the gradient of what it
        read.
        """
        # Gradients of scales are sums over rows, that of the operand has sums along each: a second pass.
        again = 2.0 if self.parameters and self.trips is not None else 0.0
        back = self.turned(
            reads_forward=True,
            reads=self.reads + self.writes + again,
            writes=self.reads,
            parameters=(),
            flop_per_element=2.0 * self.flop_per_element,
            looked_up=(),
            needs_whole=(),
            row_sums=0.0,
            eager=None if self.eager is None else self.eager.backward,
        )
        return (back,)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CrossEntropy(Vector):
    """The loss over logits of a format; its gradient is theirs."""

    kind: ClassVar[str] = "loss"

    logits: str = "bf16"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Gather(Vector):
    """Rows that go to or come from addresses of their own."""

    kind: ClassVar[str] = "gather"

    row: Number | None = None  # elements that lie together; all of a row where it is None
    # B/s of the link that rows pass once, where their table lies in the host's memory; None: in the device's
    host_link: Number | None = None

    def row_bytes(self) -> Number:
        return (total(self.n) if self.row is None else self.row) * bytes_of(self.precision)


Some: TypeAlias = T | tuple[T, ...]  # one of something, or several


def _several(given: Some[T]) -> tuple[T, ...]:
    return given if isinstance(given, tuple) else (given,)


@dataclass(frozen=True)
class RowOps:
    """Makes ops of one module on the same rows, in the same formats unless said."""

    module: str
    rows: Extent
    weights: str
    activations: str
    role: str = ""

    def product(
        self, name: str, inputs: Some[str], output: str, n: Some[Extent], k: Extent, /, **more: Any
    ) -> MatMul:
        """A product with a weight."""
        usual = {"weight": self.weights, "activation": self.activations, "k": k}
        return MatMul(**self._told(name, inputs, output, n) | usual | more)

    def vector(
        self,
        name: str,
        inputs: Some[str],
        output: str,
        n: Some[Extent],
        kind: type[Vector] = Vector,
        /,
        **more: Any,
    ) -> Vector:
        """Element-wise work, of a kind that may have fields of its own."""
        return kind(**self._told(name, inputs, output, n) | {"precision": self.activations} | more)

    def _told(self, name: str, inputs: Some[str], output: str, n: Some[Extent]) -> dict[str, Any]:
        edges = {"inputs": _several(inputs), "output": output, "m": self.rows, "n": _several(n)}
        return {"name": name, "module": self.module, "role": self.role, **edges}


def is_vector(op: Op) -> TypeGuard[Vector]:
    return isinstance(op, Vector)


def is_product(op: Op) -> TypeGuard[MatMul]:
    return op.kind == MatMul.kind


def is_attention(op: Op) -> TypeGuard[Attention]:
    return op.kind == Attention.kind


def _operations() -> dict[str, dict[str, tuple[float, float]]]:
    none = {"value": 0.0}
    return {
        kind: {
            op: (float(told.get("flop", none)["value"]), float(told.get("special", none)["value"]))
            for op, told in ops.items()
        }
        for kind, ops in load_table("onnx", "operations").items()
    }


OPERATIONS = _operations()  # by kind and op: sums, products and comparisons; roots, divisions and functions
