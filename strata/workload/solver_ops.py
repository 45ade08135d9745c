"""Dense factorisations: the op that a solver of linear systems is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strata.arrays import Number
from strata.precision import bytes_of
from strata.workload.graph import ONE, Extent, Op, axes_of


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LuFactor(Op):
    """P A = L U of square matrices in place, with partial pivoting, block of columns after block of columns.

    A block is factorised in panels, whose columns follow each other; what lies right of a block is updated by
    products as deep as it. Matrices of a batch follow each other.
    """

    kind: ClassVar[str] = "lu"
    category: ClassVar[str] = "matmul"

    order: Extent
    precision: str
    batch: Extent = ONE
    block: Number = 512.0  # columns whose updates of the rest are one product
    panel: Number = 64.0  # columns whose updates of the rest of the block are one product

    def flop(self) -> Number:
        r"""Useful operations.

        .. math:: F = \tfrac{2}{3} b n^3

        b matrices of order n. Golub & Van Loan, Matrix Computations (2013), sec. 3.2.

        >>> no = {"name": "", "module": "", "inputs": (), "output": ""}
        >>> float(LuFactor(order=Extent(300.0), precision="fp64", **no).flop())
        18000000.0
        """
        return 2.0 * self.batch.size * self.order.size**3 / 3.0

    def output_bytes(self) -> Number:
        return self.batch.size * self.order.size**2 * bytes_of(self.precision)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.batch, self.order)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.batch, self.order)

    def whole_axes(self) -> tuple[str, ...]:
        return axes_of(self.order)
