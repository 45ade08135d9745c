"""Kinds of kernels that dataflow programs are written with: each makes an op from axes and settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import BadValue, UnknownName
from strata.base.expression import calculate
from strata.base.precision import bytes_of
from strata.base.records import readable
from strata.base.units import sensible
from strata.params import record
from strata.workload.custom_ops import Communication, CustomOp
from strata.workload.fft import FftLines
from strata.workload.graph import ONE, Extent, Op
from strata.workload.ops import Gather, MatMul, Vector
from strata.workload.scan_ops import Scan, Sort

if TYPE_CHECKING:
    from strata.workload.dataflow import DataflowKernel

UNITS = ("vector", "matrix")  # that kernels of own kinds run on


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A tensor under the axes it is read by."""

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class AxisSizes:
    """Sizes of a program's axes, for a workload; `divided`: axes that layouts may divide, and the stream."""

    values: dict[str, Number]
    program: str
    divided: Collection[str] = field(default_factory=frozenset)

    def of(self, axis: str) -> Number:
        if axis not in self.values:
            raise UnknownName(f"size of an axis of {self.program}", axis, self.values, ", ".join(self.values))
        return self.values[axis]

    def product(self, axes: tuple[str, ...]) -> Number:
        """Elements along axes."""
        size: Number = 1.0
        for axis in axes:
            size = size * self.of(axis)
        return size

    def extent(self, axes: tuple[str, ...]) -> Extent:
        """Axes side by side in memory as one extent: those that may be divided are its count, the rest its
        unit. Where several may be, it lies on their product ("samples*heads").
        """
        if not axes:
            return ONE
        named = tuple(a for a in axes if a in self.divided) or axes[:1]
        rest = tuple(a for a in axes if a not in named)
        return Extent(self.product(named), self.product(rest), "*".join(named))

    def extents(self, axes: tuple[str, ...]) -> tuple[Extent, ...]:
        """One extent for each axis."""
        return tuple(Extent(self.of(axis), 1.0, axis) for axis in axes)


def _from_zero(value: Any, what: str) -> Any:
    """A number from 0, or a word; traced numbers were looked at before."""
    known = isinstance(value, int | float | np.ndarray | np.number)
    wrong = value is None or isinstance(value, list | tuple | dict)
    if wrong or (known and not np.all(sensible(value) & (value >= 0))):
        raise BadValue(f"{what} is a number from 0, but got {value}")
    return value


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
            value = calculate(value, self.sizes.values, f"{key} of kernel {kernel.name}")
        return _from_zero(value, f"{key} of kernel {kernel.name}")


def _gemm(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """A product of its first operand with its weight, or with its second operand."""
    if not kernel.weight and len(operands) < 2:
        raise BadValue(
            f"kernel {kernel.name}: a gemm reads a weight or a second tensor, but it has neither; "
            "a kernel of one tensor is a simd"
        )
    left, right, out, sizes = (
        operands[0].axes,
        kernel.weight or operands[1].axes,
        kernel.writes,
        context.sizes,
    )
    summed = _summed_axes(kernel, left, right)
    batch = tuple(a for a in out if a in left and a in right)
    rows = tuple(a for a in out if a in left and a not in right)
    columns = tuple(a for a in out if a in right and a not in left)
    rows = tuple(sorted(rows, key=lambda axis: axis != context.stream))
    # A kernel of the backward pass reads the weight that its forward kernel stores.
    stored = bool(kernel.weight) and not kernel.backward
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
        activation=kernel.format or context.precision,
        bias=bool(context.setting(kernel, "bias", 0.0)),
        tied=bool(context.setting(kernel, "tied", 0.0)),
        stored=stored,
        reads_weight=bool(kernel.weight) and not stored,
        backward=kernel.backward,
        weight_gradient=bool(context.setting(kernel, "weight_gradient", 0.0)),
    )


def _summed_axes(kernel: DataflowKernel, left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    """Axes a product sums over; axes that fit no product are named."""
    out = kernel.writes
    told = f"{' '.join(left)} x {' '.join(right)} -> {' '.join(out)}"
    summed = tuple(a for a in left if a in right and a not in out)
    if not summed or not out:
        raise BadValue(
            f"kernel {kernel.name}: a gemm sums over an axis that both operands have and its result lacks, "
            f"but got {told}"
        )
    lost = [a for a in (*left, *right) if a not in out and a not in summed]
    made = [a for a in out if a not in left and a not in right]
    if lost or made:
        wrong = f"{lost[0]} is in one operand alone" if lost else f"{made[0]} is in neither operand"
        hint = "; 'x: n c r' reads a tensor under one more axis r, as a convolution does" if lost else ""
        raise BadValue(f"kernel {kernel.name}: {wrong}, but got {told}{hint}")
    return summed


def _elementwise(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> dict[str, Any]:
    """What every element-wise kernel is told: rows along the stream, the rest beside."""
    axes, sizes = kernel.writes or operands[0].axes, context.sizes
    rows = tuple(a for a in axes if a == context.stream) or axes[:1]
    beside = tuple(a for a in axes if a not in rows)
    same = all(set(o.axes) == set(axes) for o in operands)
    moved = (
        float(len(operands)) if same else sum(sizes.product(o.axes) for o in operands) / sizes.product(axes)
    )
    return {
        **_named(kernel, operands, context),
        "m": sizes.extent(rows),
        "n": (sizes.extent(beside),),
        "reads": context.setting(kernel, "elements_read", moved),
        "writes": context.setting(kernel, "elements_written", 1.0),
        "flop_per_element": context.setting(kernel, "flop", 1.0),
        "special_per_element": context.setting(kernel, "special", 0.0),
        "looked_up": tuple(context.setting(kernel, "looked_up", "").split()),
        "needs_whole": tuple(context.setting(kernel, "whole", "").split()),
        "parameters": sizes.extents(kernel.weight),
        "parameter_precision": context.setting(kernel, "weight_format", context.precision),
    }


def _simd(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Element-wise or row-wise work: `flop` and `special` operations an element."""
    return Vector(**_elementwise(kernel, operands, context))


def _gather(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Rows from addresses of their own; `row` elements lie together. What it reads are addresses, so that
    each element of its result is one that was read, unless `elements_read` says how many are added up.
    """
    told = _elementwise(kernel, operands, context)
    told["reads"] = context.setting(kernel, "elements_read", 1.0)
    told["flop_per_element"] = context.setting(kernel, "flop", 0.0)
    return Gather(**told, row=context.setting(kernel, "row", 0.0) or None)


def _line_axes(
    kernel: DataflowKernel, operands: list[Operand], context: KernelContext
) -> tuple[tuple[str, ...], int]:
    """Axes of a kernel that works along one of them, and the place of that: `along`, or the last."""
    axes = kernel.writes or operands[0].axes
    along = context.setting(kernel, "along", axes[-1])
    if along not in axes:
        raise UnknownName(f"axis of {kernel.kind} kernel {kernel.name}", along, axes, " ".join(axes))
    return axes, axes.index(along)


def _named(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> dict[str, Any]:
    """What every op is told: its name, its edges, its format."""
    return {
        "name": kernel.name,
        "module": kernel.name,
        "inputs": tuple(o.name for o in operands),
        "output": kernel.name,
        "precision": kernel.format or context.precision,
        "backward": kernel.backward,
    }


def _fft(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Complex transforms along an axis, for all lines of the rest."""
    axes, place = _line_axes(kernel, operands, context)
    points, rest = context.sizes.extents(axes)[place], (*axes[:place], *axes[place + 1 :])
    return FftLines(points=points, lines=context.sizes.extents(rest), **_named(kernel, operands, context))


def _scan(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Prefix sums along an axis; axes after it lie closer together in memory."""
    axes, place = _line_axes(kernel, operands, context)
    length, outer, inner = (
        context.sizes.extent(part) for part in (axes[place : place + 1], axes[:place], axes[place + 1 :])
    )
    return Scan(length=length, outer=outer, inner=inner, **_named(kernel, operands, context))


def _sort(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
    """Lines along an axis brought into order, each key with an index that goes along."""
    axes, place = _line_axes(kernel, operands, context)
    length, lines = (
        context.sizes.extent(part) for part in (axes[place : place + 1], (*axes[:place], *axes[place + 1 :]))
    )
    value = context.setting(kernel, "value_bytes", 8.0)
    return Sort(length=length, lines=lines, value_bytes=value, **_named(kernel, operands, context))


def _communication(pattern: str) -> MakeOp:
    def make(kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
        over = context.setting(kernel, "over", "")
        if not over:
            raise BadValue(
                f'kernel {kernel.name}: {pattern} needs the dimension of the mesh it goes over (over = "tp")'
            )
        extents = context.sizes.extents(kernel.writes or operands[0].axes)
        return Communication(
            pattern=pattern, group=over, extents=extents, **_named(kernel, operands, context)
        )

    return make


@readable("name", "unit", "flop", "reads", "writes")
@record
class UserKind:
    """A kind of kernel of a program's own: operations and accesses as formulas.

    Formulas know every size, the kernel's settings, and `elements` (of the result), `inputs` (elements of all
    it reads), `weights` and `bytes` (of one element). `reads` and `writes` are in elements; `read_bytes` and
    `written_bytes` say bytes in their place. `gradient_flop`: operations of the gradient over its own.
    """

    name: str
    unit: str = "vector"
    flop: str = "elements"
    reads: str = "inputs + weights"
    writes: str = "elements"
    read_bytes: str = ""
    written_bytes: str = ""
    gradient_flop: str = "2"

    def make(self, kernel: DataflowKernel, operands: list[Operand], context: KernelContext) -> Op:
        if self.unit not in UNITS:
            raise UnknownName(f"unit of kind {self.name}", self.unit, UNITS, ", ".join(UNITS))
        sizes, axes = context.sizes, kernel.writes or operands[0].axes
        precision = kernel.format or context.precision
        width, elements = bytes_of(precision), sizes.product(axes)
        known = {
            **sizes.values,
            "elements": elements,
            "inputs": sum(sizes.product(o.axes) for o in operands),
            "weights": sizes.product(kernel.weight) if kernel.weight else 0.0,
            "bytes": width,
        }
        known |= {key: context.setting(kernel, key, 0.0) for key, _ in kernel.settings}

        def told(text: str, what: str) -> Number:
            where = f"{what} of kind {self.name}, kernel {kernel.name}"
            value: Number = _from_zero(calculate(text, known, where), f"{where}: '{text}'")
            return value

        read = told(self.read_bytes, "read_bytes") if self.read_bytes else told(self.reads, "reads") * width
        written = (
            told(self.written_bytes, "written_bytes")
            if self.written_bytes
            else told(self.writes, "writes") * width
        )
        return CustomOp(
            extents=sizes.extents(axes),
            flop_per_element=told(self.flop, "flop") / elements,
            bytes_read=read / elements,
            bytes_written=written / elements,
            unit=self.unit,
            gradient_flop=told(self.gradient_flop, "gradient_flop"),
            parameters=sizes.extents(kernel.weight),
            parameter_precision=context.precision,
            **_named(kernel, operands, context),
        )


MakeOp = Callable[["DataflowKernel", list[Operand], KernelContext], Op]
_ELEMENTWISE = ("flop", "special", "elements_read", "elements_written", "whole", "looked_up", "weight_format")
KINDS: dict[str, MakeOp] = {}
SETTINGS: dict[str, tuple[str, ...]] = {}  # what a kernel of a kind may be told beside


def register_kind(name: str, make: MakeOp, settings: tuple[str, ...] = ()) -> None:
    """Add a kind of kernel: a function from a kernel, its operands and the context to an op; `settings` are
    the words a kernel of it may have.
    """
    if name in KINDS:
        raise BadValue(f"kernels of kind '{name}' are known already; give the new kind a name of its own")
    KINDS[name], SETTINGS[name] = make, settings


register_kind("gemm", _gemm, ("weight_format", "bias", "tied", "weight_gradient"))
register_kind("simd", _simd, _ELEMENTWISE)
register_kind("gather", _gather, (*_ELEMENTWISE, "row"))
register_kind("fft", _fft, ("along",))
register_kind("scan", _scan, ("along",))
register_kind("sort", _sort, ("along", "value_bytes"))
register_kind("all_to_all", _communication("all_to_all"), ("over",))
register_kind("broadcast", _communication("broadcast"), ("over",))


def kinds_of(own: tuple[UserKind, ...], program: str) -> Mapping[str, MakeOp]:
    """Kinds that a program may use: those of the house, and its own."""
    for kind in own:
        if kind.name in KINDS:
            raise BadValue(f"{program}: kind '{kind.name}' is one of the house; give yours another name")
    return {**KINDS, **{kind.name: kind.make for kind in own}}
