"""Kinds of kernels that dataflow programs are written with: each makes an op from axes and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strata.arrays import Number
from strata.errors import BadValue, UnknownName
from strata.expression import calculate
from strata.workload.graph import ONE, Extent, Op
from strata.workload.ops import Gather, MatMul, Vector

if TYPE_CHECKING:
    from strata.workload.dataflow import DataflowKernel


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A tensor under the axes it is read by."""

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class AxisSizes:
    """Sizes of a program's axes, for a workload."""

    values: dict[str, Number]
    program: str

    def extent(self, axes: tuple[str, ...]) -> Extent:
        """Axes side by side in memory as one extent: a layout divides the first, the rest is its unit."""
        if not axes:
            return ONE
        for axis in axes:
            if axis not in self.values:
                raise UnknownName(
                    f"size of an axis of {self.program}", axis, self.values, ", ".join(self.values)
                )
        unit: Number = 1.0
        for axis in axes[1:]:
            unit = unit * self.values[axis]
        return Extent(self.values[axes[0]], unit, axes[0])


@dataclass(frozen=True, eq=False, slots=True)
class KernelContext:
    """What a kind finds when it makes an op: sizes, the program's format, the axis that tiles pass along."""

    sizes: AxisSizes
    precision: str
    stream: str

    def setting(self, kernel: DataflowKernel, key: str, usual: Any) -> Any:
        """A setting of a kernel: a number, or an expression over sizes."""
        value = dict(kernel.settings).get(key, usual)
        if isinstance(value, str) and not isinstance(usual, str):
            return calculate(value, self.sizes.values, f"{key} of kernel {kernel.name}")
        return value


def _gemm(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """A product of its first operand with its weight, or with its second operand."""
    left = operands[0].axes
    if not kernel.weight and len(operands) < 2:
        raise BadValue(f"kernel {kernel.name}: a gemm reads a weight or a second tensor, but it has neither")
    right = kernel.weight or operands[1].axes
    out, sizes = kernel.writes, context.sizes
    summed = tuple(a for a in left if a in right and a not in out)
    if not summed or not out:
        raise BadValue(
            f"kernel {kernel.name}: a gemm sums over an axis that both operands have and its result lacks, "
            f"but got {' '.join(left)} x {' '.join(right)} -> {' '.join(out)}"
        )
    batch = tuple(a for a in out if a in left and a in right)
    rows = tuple(a for a in out if a in left and a not in right)
    columns = tuple(a for a in out if a in right and a not in left)
    rows = tuple(sorted(rows, key=lambda axis: axis != context.stream))
    name = kernel.format or context.precision
    return MatMul(
        name=kernel.name,
        module=kernel.name,
        inputs=tuple(o.name for o in operands),
        output=kernel.name,
        m=sizes.extent(rows),
        n=(sizes.extent(columns),),
        k=sizes.extent(summed),
        batch=sizes.extent(batch),
        weight=context.setting(kernel, "weight_format", context.precision),
        activation=name,
        stored=bool(kernel.weight),
        backward=kernel.backward,
    )


def _elementwise(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> dict[str, Any]:
    """What every element-wise kernel is told: rows along the stream, the rest beside."""
    axes = kernel.writes or operands[0].axes
    rows = tuple(a for a in axes if a == context.stream) or axes[:1]
    beside = tuple(a for a in axes if a not in rows)
    return {
        "name": kernel.name,
        "module": kernel.name,
        "inputs": tuple(o.name for o in operands),
        "output": kernel.name,
        "m": context.sizes.extent(rows),
        "n": (context.sizes.extent(beside),),
        "reads": context.setting(kernel, "reads", float(len(operands))),
        "writes": context.setting(kernel, "writes", 1.0),
        "flop_per_element": context.setting(kernel, "flop", 1.0),
        "special_per_element": context.setting(kernel, "special", 0.0),
        "precision": kernel.format or context.precision,
        "needs_whole": tuple(context.setting(kernel, "whole", "").split()),
        "parameters": tuple(context.sizes.extent((axis,)) for axis in kernel.weight),
        "parameter_precision": context.setting(kernel, "weight_format", context.precision),
        "backward": kernel.backward,
    }


def _simd(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Element-wise or row-wise work: `flop` and `special` operations an element."""
    return Vector(**_elementwise(kernel, operands, context))


def _gather(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Rows from addresses of their own; `row` elements lie together."""
    return Gather(**_elementwise(kernel, operands, context), row=context.setting(kernel, "row", 0.0) or None)


MakeOp = Callable[["DataflowKernel", list[Operand], KernelContext], Op]
KINDS: dict[str, MakeOp] = {"gemm": _gemm, "simd": _simd, "gather": _gather}


def register_kind(name: str, make: MakeOp) -> None:
    """Add a kind of kernel: a function from a kernel, its operands and the context to an op."""
    if name in KINDS:
        raise BadValue(f"kernels of kind '{name}' are known already; give the new kind a name of its own")
    KINDS[name] = make
