"""A recommender (DLRM): embedding tables beside small dense networks, joined by products of all pairs of
vectors.
"""

from __future__ import annotations

import itertools
from typing import Any

from strata.base.arrays import Number
from strata.base.errors import require
from strata.base.records import readable
from strata.params import record
from strata.workload.backward import with_backward
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Op, Tensor, checked
from strata.workload.mlp import RELU_FLOP
from strata.workload.ops import Gather, RowOps
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


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
