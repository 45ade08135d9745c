"""Ops whose elements depend on all those before them along an axis: prefix sums and sorts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strata.arrays import Number
from strata.precision import bytes_of
from strata.workload.graph import ONE, Extent, Op, axes_of
from strata.workload.ops import Gather


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Scan(Op):
    """Prefix sums along the middle axis of [outer, length, inner]; inner 1: the axis whose elements are
    neighbours in memory.
    """

    kind: ClassVar[str] = "scan"
    category: ClassVar[str] = "vector"

    length: Extent
    precision: str
    outer: Extent = ONE
    inner: Extent = ONE

    def elements(self) -> Number:
        return self.outer.size * self.length.size * self.inner.size

    def vector_flop(self) -> Number:
        """One addition an element; operations of the vector units are not counted as useful."""
        return self.elements()

    def output_bytes(self) -> Number:
        return self.elements() * bytes_of(self.precision)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.outer, self.length, self.inner)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.outer, self.length, self.inner)

    def whole_axes(self) -> tuple[str, ...]:
        return axes_of(self.length)

    def gradient(self) -> tuple[Op, ...]:
        """The gradient of prefix sums is the sums from the other end: the same work."""
        inputs, output = (f"d_{self.output}",), f"d_{self.inputs[0]}@{self.name}"
        return (replace(self, name=f"{self.name}_backward", backward=True, inputs=inputs, output=output),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Sort(Op):
    """Lines of `length` keys brought into order, each key with a value (an index) that goes along."""

    kind: ClassVar[str] = "sort"
    category: ClassVar[str] = "vector"

    length: Extent
    precision: str  # of a key
    lines: Extent = ONE
    value_bytes: Number = 8.0  # that go along with a key

    def elements(self) -> Number:
        return self.lines.size * self.length.size

    def output_bytes(self) -> Number:
        return self.elements() * (bytes_of(self.precision) + self.value_bytes)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        return axes_of(self.lines, self.length)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.lines, self.length)

    def whole_axes(self) -> tuple[str, ...]:
        return axes_of(self.length)

    def gradient(self) -> tuple[Op, ...]:
        """Gradients go back to where their keys came from: elements at addresses of their own."""
        back = Gather(
            name=f"{self.name}_backward",
            module=self.module,
            inputs=(f"d_{self.output}",),
            output=f"d_{self.inputs[0]}@{self.name}",
            backward=True,
            m=self.lines,
            n=(self.length,),
            reads=1.0,
            writes=1.0,
            flop_per_element=0.0,
            special_per_element=0.0,
            precision=self.precision,
            row=1.0,
        )
        return (back,)
