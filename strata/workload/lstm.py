"""Recurrent language models: embedding, layers of LSTM, GRU or plain cells over time steps, projection and
softmax.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import UnknownName, require
from strata.base.precision import bytes_of
from strata.base.records import readable
from strata.params import record
from strata.workload.backward import with_backward
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, Tensor, axes_of, checked
from strata.workload.ops import Gather, MatMul, RowOps, Vector
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

ROW_SUM_BYTES = 4.0  # sums of exponentials are kept in fp32


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CellGates(Vector):
    """The element-wise part of a recurrent cell: it reads sums of all gates and hands on the hidden state.

    The cell's own state is read and written where it lies, so that `handed` of the elements it writes go to
    other ops: one forward, the gradients of all gates backward.
    """

    handed: Number = 1.0
    gates: Number = 4.0

    def output_bytes(self) -> Number:
        return self.elements() * self.handed * bytes_of(self.precision)

    def gradient(self) -> tuple[Op, ...]:
        (back,) = Vector.gradient(self)
        assert isinstance(back, CellGates)
        return (replace(back, handed=self.gates),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableLookup(Gather):
    """Rows of a table; its gradient adds rows to the table's, over all that were looked up."""

    kind: ClassVar[str] = "gather"

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(*self.parameters) if self.backward else axes_of(self.m, *self.n)

    def contracted_axes(self) -> tuple[str, ...]:
        return axes_of(self.m) if self.backward else self.looked_up

    def output_bytes(self) -> Number:
        return self.weight_bytes() if self.backward else self.elements() * bytes_of(self.precision)

    def gradient(self) -> tuple[Op, ...]:
        inputs = (f"d_{self.output}", *(f"forward:{name}" for name in self.inputs))
        # a row's gradient and the table's row are read, the row is written back
        return (
            replace(
                self, name=f"{self.name}_wgrad", inputs=inputs, output=f"d_{self.name}_table", backward=True,
                weight_gradient=True, reads=2.0, writes=1.0, flop_per_element=1.0,
            ),
        )  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class RowSums(Vector):
    """Sums over whole rows, such as a softmax needs: divided columns leave partial sums of two numbers a row
    (the largest element and the sum of exponentials).
    """

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.m)

    def contracted_axes(self) -> tuple[str, ...]:
        return axes_of(*self.n)

    def output_bytes(self) -> Number:
        return 2.0 * self.m.size * ROW_SUM_BYTES

    def partial_bytes(self) -> Number:
        return self.output_bytes()

    def gradient(self) -> tuple[Op, ...]:
        return ()  # part of the gradient of what is normalised by them


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Normalise(Vector):
    """Elements of rows by what is known of each row, which has one number a row and not one an element."""

    def operand_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.m) if place == 1 and not self.backward else axes_of(self.m, *self.n)


@dataclass(frozen=True)
class Cell:
    """A kind of cell for each hidden unit: gates, exponentials or tanh, other operations (biases among them),
    elements read (sums of gates and state) and written (state and hidden).
    """

    gates: float
    special: float
    flop: float
    reads: float
    writes: float


# LSTM: three sigmoids and two tanh; f c + i g, o tanh(c), four biases; c is read and written beside the four
# sums and h (Hochreiter & Schmidhuber, Neural Comput. 9 (1997); DeepFlow counts the same 5 and 8). GRU: two
# sigmoids and a tanh; n + z (h - n), r n, three biases (Cho et al., arXiv 1406.1078). Vanilla: one tanh, a
# bias.
CELLS = {
    "lstm": Cell(gates=4.0, special=5.0, flop=8.0, reads=5.0, writes=2.0),
    "gru": Cell(gates=3.0, special=3.0, flop=7.0, reads=4.0, writes=1.0),
    "vanilla": Cell(gates=1.0, special=1.0, flop=1.0, reads=1.0, writes=1.0),
}
SOFTMAX_READS = ("projection", "hidden")


@readable()
@record
class Lstm(Program):
    """A recurrent language model of `steps` time steps, every block once a step with the same weights.

    Axes: `rows` (sequences), `columns` that a product makes, `units` of element-wise work on them, `depth`
    that it sums over, `entries` and `width` of the embedding's table. `vocab` 0 (None): cells alone, as
    benchmarks of kernels have them; `projection` 0 (None): none; without `input_projection` a cell's product
    is that of the hidden state alone. With `softmax_reads="hidden"` the softmax reads the hidden state and
    the projection stands beside it, as DeepFlow counts its parameters; else it reads the projection. With
    `host_link` [B/s] looked-up rows come from the host's memory by it, and their gradients go back, as
    DeepFlow times them; None: the table lies in the device's memory.
    """

    kernel_modules: ClassVar[tuple[str, ...]] = ("hidden", "softmax", "embedding", "projection")

    name: str = "lstm"
    cell: str = "lstm"
    vocab: Number | None = 40000.0
    layers: Number = 2.0
    hidden: Number = 4096.0
    projection: Number | None = None
    steps: Number = 20.0
    input_projection: bool = True
    softmax_reads: str = "projection"
    host_link: Number | None = None
    weights: str = "fp16"
    activations: str = "fp16"

    def __post_init__(self) -> None:
        if self.cell not in CELLS:
            raise UnknownName("cell of a recurrent model", self.cell, CELLS, ", ".join(CELLS))
        known = self.softmax_reads in SOFTMAX_READS
        require(
            known, f"softmax_reads is one of {', '.join(SOFTMAX_READS)}", softmax_reads=self.softmax_reads
        )
        # What is there is structure, not a size: nothing of a size is None, and a flag is no number.
        for size in ("vocab", "projection"):
            if isinstance(getattr(self, size), float | int) and getattr(self, size) == 0:
                object.__setattr__(self, size, None)
        object.__setattr__(self, "input_projection", bool(np.all(self.input_projection)))

    @property
    def units(self) -> dict[str, Number]:
        least = {"columns": self.hidden, "depth": self.hidden, "units": self.hidden, "layers": self.layers}
        return least | ({} if self.vocab is None else {"entries": self.vocab, "width": self.hidden})

    def trace(self, work: Workload) -> Graph:
        rows = Extent(work.batch, 1.0, "rows")
        stream = Tensor("x", (rows, Extent(self.hidden, 1.0, "depth")), self.activations)
        blocks = [self._cell(rows, stream)]
        first: tuple[str, ...] = ()
        last: tuple[str, ...] = ()
        if self.vocab is not None:
            blocks = [self._embedding(rows, stream), *blocks, self._head(rows, stream)]
            first, last = ("embedding",), ("head",)
        graph = Graph(
            blocks=tuple(blocks),
            sequence=BlockSequence(first=first, period=(("cell",),), layers=self.layers, last=last),
            items=work.batch,
            item="sequence",
            inputs=("words",),
            formats=((self.weights, self.activations),),
            units=self.units,
            coordinates=dict.fromkeys(("columns", "units", "depth", "width"), "features"),
        )
        return with_backward(graph) if work.phase == "train" else checked(graph)

    def _embedding(self, rows: Extent, stream: Tensor) -> Block:
        assert self.vocab is not None
        width, entries = Extent(self.hidden, 1.0, "width"), Extent(self.vocab, 1.0, "entries")
        lookup = self._ops("embedding", rows).vector(
            "lookup",
            "words",
            "looked_up",
            width,
            TableLookup,
            parameters=(entries, width),
            parameter_precision=self.weights,
            looked_up=("entries",),
            host_link=self.host_link,
        )
        return Block(
            name="embedding", role="stream", ops=(lookup,), repeats=self.steps, output=stream,
            leaves=("looked_up",),
        )  # fmt: skip

    def _cell(self, rows: Extent, stream: Tensor) -> Block:
        """One layer at one time step: the product of its input and its state with all gates, then the
        gates.
        """
        kind = CELLS[self.cell]
        depth = Extent(self.hidden, 2.0 if self.input_projection else 1.0, "depth")
        make, columns = self._ops("hidden", rows), Extent(self.hidden, kind.gates, "columns")
        gates = make.product("gates", "x", "sums", columns, depth, bias=True)
        pointwise = make.vector(
            "cell",
            "sums",
            "h",
            Extent(self.hidden, 1.0, "units"),
            CellGates,
            reads=kind.reads,
            writes=kind.writes,
            flop_per_element=kind.flop,
            special_per_element=kind.special,
            gates=kind.gates,
            pieces=kind.special,
        )
        return Block(
            name="cell", role="stream", count=self.layers, repeats=self.steps, ops=(gates, pointwise),
            entry=stream, output=stream, leaves=("h",),
        )  # fmt: skip

    def _head(self, rows: Extent, stream: Tensor) -> Block:
        """Projection and softmax of one time step."""
        assert self.vocab is not None
        ops: list[Op] = []
        source, width = "x", self.hidden
        if self.projection is not None:
            ops.append(self._product("projection", rows, "x", self.hidden, self.projection))
            if self.softmax_reads == "projection":
                source, width = ops[0].output, self.projection
        logits = self._product("softmax", rows, source, width, self.vocab, bias=True)
        words, make = Extent(self.vocab, 1.0, "units"), self._ops("softmax", rows)
        counted = {"flop_per_element": 2.0, "special_per_element": 1.0, "writes": 0.0}
        sums = make.vector("row_sums", logits.output, "row_sums", words, RowSums, **counted)
        counted = {"flop_per_element": 1.0, "special_per_element": 1.0, "pieces": 3.0, "gradients": 1}
        inputs = (logits.output, sums.output)
        normalise = make.vector("normalise", inputs, "shares", words, Normalise, **counted)
        ops += [logits, sums, normalise]
        return Block(name="head", role="stream", ops=tuple(ops), repeats=self.steps, entry=stream)

    def _product(
        self, module: str, rows: Extent, source: str, taken: Number, made: Number, *, bias: bool = False
    ) -> MatMul:
        columns, depth = Extent(made, 1.0, "columns"), Extent(taken, 1.0, "depth")
        name, output = f"{module}_product", f"{module}_sums"
        return self._ops(module, rows).product(name, source, output, columns, depth, bias=bias)

    def _ops(self, module: str, rows: Extent) -> RowOps:
        return RowOps(module, rows, self.weights, self.activations)
