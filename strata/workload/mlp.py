"""Programs of plain matrix products: one alone, a multi-layer perceptron, and a recommender (DLRM) whose
small dense networks stand beside embedding tables, joined by products of all pairs of vectors.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from strata.base.arrays import Number
from strata.base.errors import require
from strata.base.records import readable
from strata.params import record
from strata.workload.backward import with_backward
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, Tensor, checked
from strata.workload.ops import Gather, RowOps
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


@readable()
@record
class Gemm(Program):
    """C (m x n) = A (m x k) W (k x n), `batch` times with the same W, as rows below each other.

    Axes: `rows`, `columns` (made) and `depth` (summed over). C is handed on as the next product takes its A.
    """

    kernel_modules: ClassVar[tuple[str, ...]] = ("product",)

    name: str = "gemm"
    m: Number = 8192.0
    k: Number = 8192.0
    n: Number = 8192.0
    weights: str = "fp16"
    activations: str = "fp16"

    @property
    def units(self) -> dict[str, Number]:
        return {"columns": self.n, "depth": self.k}

    def trace(self, work: Workload) -> Graph:
        rows = Extent(work.batch * self.m, 1.0, "rows")
        columns, depth = Extent(self.n, 1.0, "columns"), Extent(self.k, 1.0, "depth")
        make = RowOps("product", rows, self.weights, self.activations)
        product = make.product("product", "a", "c", columns, depth)
        block = Block(
            name="product",
            role="stream",
            ops=(product,),
            entry=Tensor("a", (rows, depth), self.activations),
            output=Tensor("next", (rows, Extent(self.n, 1.0, "depth")), self.activations),
            leaves=("c",),
        )
        graph = Graph(
            blocks=(block,),
            sequence=BlockSequence(first=("product",)),
            items=work.batch,
            item="product",
            formats=((self.weights, self.activations),),
            units=self.units,
            coordinates={"columns": "features", "depth": "features"},
        )
        return with_backward(graph) if work.phase == "train" else checked(graph)


RELU_FLOP = 1.0  # one comparison an element


@readable()
@record
class Mlp(Program):
    """Layers of width x width on rows of activations; axes `rows`, `columns` (made) and `depth` (summed
    over).

    DeepFlow's row-column division RC-{KP1}-{KP2} lays rows on one mesh dimension and columns on another, its
    column-row division CR-{KP1} lays depth on one.
    """

    name: str = "mlp"
    width: Number = 4096.0
    layers: Number = 8.0
    weights: str = "bf16"
    activations: str = "bf16"

    @property
    def units(self) -> dict[str, Number]:
        return {"columns": self.width, "depth": self.width, "layers": self.layers}

    mesh_dimensions = ("kp1", "kp2", "depth")

    def layout_text(self) -> str:
        return "kp1=4,kp2=2 (rows and columns), or depth=8"

    def layout(self, kp1: Number = 1.0, kp2: Number = 1.0, depth: Number = 1.0) -> dict[str, Any]:
        """The mesh and axes of RC-{kp1}-{kp2}, or of CR-{depth}."""
        axes = {"rows": "kp1", "columns": "kp2"}
        return {"mesh": {"kp1": kp1, "kp2": kp2, "depth": depth}, "axes": axes, "product": {"depth": "depth"}}

    def trace(self, work: Workload) -> Graph:
        rows = Extent(work.batch, 1.0, "rows")
        columns, depth = Extent(self.width, 1.0, "columns"), Extent(self.width, 1.0, "depth")
        formats = (self.weights, self.activations)
        product = RowOps("product", rows, *formats).product("product", "rows", "sums", columns, depth)
        activation = RowOps("activation", rows, *formats).vector(
            "relu", "sums", "out", columns, flop_per_element=RELU_FLOP
        )
        stream = Tensor("rows", (rows, depth), self.activations)
        layer = Block(
            name="layer",
            role="layer",
            count=self.layers,
            ops=(product, activation),
            entry=stream,
            output=stream,
            leaves=("out",),
        )
        graph = Graph(
            blocks=(layer,),
            sequence=BlockSequence(period=(("layer",),), layers=self.layers),
            items=work.batch,
            item="row",
            formats=((self.weights, self.activations),),
            units=self.units,
            coordinates={"columns": "features", "depth": "features"},
        )
        return with_backward(graph) if work.phase == "train" else checked(graph)


@readable()
@record
class Dlrm(Program):
    """Dense features through a bottom network, sparse ones through tables, their pairs through a top network.

    Axes: `samples` of the batch, `tables`. The usual layout divides tables over all devices while the
    networks are data parallel; between the two stands an all-to-all. Naumov et al., arXiv 1906.00091, secs. 2
    and 4.
    """

    name: str = "dlrm"
    tables: Number = 26.0
    rows: Number = 1e6  # of each table
    width: Number = 128.0  # of an embedding
    lookups: Number = 1.0  # rows of a table that are summed for a sample
    # widths, from the dense features to an embedding's
    bottom: tuple[Number, ...] = (13.0, 512.0, 256.0, 128.0)
    top: tuple[Number, ...] = (1024.0, 1024.0, 512.0, 256.0, 1.0)  # after the pairs, to the score
    precision: str = "bf16"
    table_precision: str = "fp32"

    @property
    def units(self) -> dict[str, Number]:
        return {"tables": self.tables}

    mesh_dimensions = ("all",)

    def layout_text(self) -> str:
        return "all=8 (tables divided, networks data parallel)"

    def layout(self, all: Number = 1.0) -> dict[str, Any]:
        """The mesh and axes of tables divided over all devices beside data parallel networks."""
        return {"mesh": {"all": all}, "axes": {"samples": "all"}, "tables": {"tables": "all", "samples": ()}}

    def trace(self, work: Workload) -> Graph:
        require(len(self.bottom) > 1, f"bottom of {self.name} has two widths or more", bottom=self.bottom)
        require(len(self.top) > 0, f"top of {self.name} has one width or more", top=self.top)
        samples = Extent(work.batch, 1.0, "samples")
        dense, sparse = Tensor("dense", (samples, Extent(self.bottom[0])), self.precision), ("sparse",)
        bottom = self._network("bottom", samples, dense.name, self.bottom)
        vectors = RowOps("ranking", Extent(self.tables + 1.0), self.precision, self.precision)
        inputs, width = ("embedded", bottom[-1].output), Extent(self.width)
        interact = vectors.product(
            "interaction", inputs, "pairs", vectors.rows, width, batch=samples, stored=False
        )
        top = self._network("top", samples, interact.output, (self._pairs(), *self.top))
        ops = (*bottom, self._lookup(samples, sparse), interact, *top)
        graph = Graph(
            blocks=(Block(name="ranking", role="ranking", ops=ops, entry=dense),),
            sequence=BlockSequence(first=("ranking",)),
            items=work.batch,
            item="sample",
            inputs=sparse,
            formats=((self.precision, self.precision),),
            units=self.units,
        )
        return with_backward(graph) if work.phase == "train" else checked(graph)

    def _pairs(self) -> Number:
        """Inputs of the top network: an embedding, and the product of each pair of vectors."""
        return self.width + (self.tables + 1.0) * self.tables / 2.0

    def _lookup(self, samples: Extent, sparse: tuple[str, ...]) -> Op:
        stored, tables = Extent(self.tables, self.width, "tables"), (self.table_precision,) * 2
        return RowOps("tables", samples, *tables).vector(
            "lookup",
            sparse,
            "embedded",
            stored,
            Gather,
            reads=self.lookups,
            flop_per_element=self.lookups,
            parameters=(stored, Extent(self.rows)),
            parameter_precision=self.table_precision,
            row=self.width,
        )

    def _network(self, name: str, samples: Extent, source: str, widths: tuple[Number, ...]) -> tuple[Op, ...]:
        """Layers of a dense network, each followed by its activation."""
        make, ops = RowOps("ranking", samples, self.precision, self.precision), list[Op]()
        for i, (taken, made) in enumerate(itertools.pairwise(widths)):
            layer, columns, sums = f"{name}_{i}", Extent(made), f"{name}_{i}_sums"
            product = make.product(layer, source, sums, columns, Extent(taken), bias=True)
            source = f"{layer}_out"
            ops += [product, make.vector(f"{layer}_relu", sums, source, columns, flop_per_element=RELU_FLOP)]
        return tuple(ops)
