"""Ops whose work is told by formulas, and communication that a graph itself writes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strata.base.arrays import Number
from strata.base.precision import bytes_of
from strata.workload.graph import Collective, Extent, Op, axes_of, volume


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CustomOp(Op):
    """A kernel of stated work: operations and bytes for each element of its result, on one kind of unit.

    A layout that divides the result divides the work with it.
    """

    kind: ClassVar[str] = "custom"
    category: ClassVar[str] = "vector"

    extents: tuple[Extent, ...]  # of its result: a product
    flop_per_element: Number
    bytes_read: Number  # for each element of the result
    bytes_written: Number
    precision: str
    unit: str = "vector"  # or matrix
    gradient_flop: Number = 2.0  # operations of its gradient, over its own
    parameters: tuple[Extent, ...] = ()  # a product
    parameter_precision: str = "bf16"
    streamed: bool = False  # its bytes are DRAM's, whatever a cache could hold of them

    def elements(self) -> Number:
        return volume(self.extents)

    def work(self) -> Number:
        """All of its operations, on whichever unit."""
        return self.elements() * self.flop_per_element

    def flop(self) -> Number:
        return self.work() if self.unit == "matrix" else 0.0

    def vector_flop(self) -> Number:
        return self.work() if self.unit == "vector" else 0.0

    def weight_elements(self) -> Number:
        return volume(self.parameters) if self.parameters else 0.0

    def weight_bytes(self) -> Number:
        return self.weight_elements() * bytes_of(self.parameter_precision)

    def output_bytes(self) -> Number:
        return self.elements() * bytes_of(self.precision)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(*self.extents)

    def gradient(self) -> tuple[Op, ...]:
        """It reads what the op read and the gradient of what it wrote, and writes the gradient of what it
        read.
        """
        back = self.turned(
            reads_forward=True,
            flop_per_element=self.gradient_flop * self.flop_per_element,
            bytes_read=self.bytes_read + self.bytes_written,
            bytes_written=self.bytes_read,
            parameters=(),
        )
        return (back,)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Communication(Collective):
    """A collective that the program writes down itself, over a dimension of the mesh; nothing happens where
    the layout has no such dimension. Its payload is one rank's part of what it reads.
    """

    extents: tuple[Extent, ...]
    precision: str
    payload: Number = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload", self.output_bytes())

    def output_bytes(self) -> Number:
        return volume(self.extents) * bytes_of(self.precision)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(*self.extents)

    def gradient(self) -> tuple[Op, ...]:
        """The same bytes the other way: a sum over ranks passes the tree of a broadcast upwards."""
        return (self.turned(),)
