"""One matrix product, forward or with both of its gradients: the smallest program of kernel parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strata.arrays import Number, register_pytree
from strata.records import readable
from strata.workload.backward import with_backward
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Tensor, checked
from strata.workload.ops import MatMul
from strata.workload.tasks import Workload


@register_pytree
@readable()
@dataclass(frozen=True, eq=False, kw_only=True)
class Gemm:
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
        product = MatMul(
            name="product", module="product", inputs=("a",), output="c", m=rows, n=(columns,), k=depth,
            weight=self.weights, activation=self.activations,
        )  # fmt: skip
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
