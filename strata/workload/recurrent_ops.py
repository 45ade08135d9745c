"""Ops of recurrent language models: the gates of a cell, a table's lookup with its gradient, sums of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strata.arrays import Number
from strata.precision import bytes_of
from strata.workload.graph import Op, axes_of
from strata.workload.ops import Gather, Vector

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
