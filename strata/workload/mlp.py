"""Programs of plain matrix products: one alone, and a multi-layer perceptron."""

from __future__ import annotations

from typing import Any, ClassVar

from strata.base.arrays import Number
from strata.base.records import readable
from strata.params import record
from strata.workload.backward import with_backward
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Tensor, checked
from strata.workload.ops import RowOps
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
