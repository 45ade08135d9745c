"""Dataflow programs written in Python: a graph that takes kernels one by one and becomes a `Dataflow`."""

from __future__ import annotations

from typing import Any

from strata.base.arrays import Number
from strata.base.errors import BadValue, UnknownName
from strata.workload.dataflow import Dataflow, DataflowKernel
from strata.workload.dataflow_file import checked_program
from strata.workload.dataflow_kinds import UserKind, kinds_of


class TensorName(str):
    """The name of a tensor of a program, as a kernel reads it."""

    __slots__ = ()

    def under(self, axes: str) -> TensorName:
        """The same tensor under other names of its axes.

        >>> TensorName("k").under("keys heads head")
        'k: keys heads head'
        """
        return TensorName(f"{self.partition(':')[0]}: {axes}")


class DataflowBuilder:
    """A program in the making; every method that adds a tensor returns its name."""

    def __init__(self, name: str, sizes: dict[str, Number | str], **told: Any) -> None:
        for axis, size in sizes.items():
            if size is None or isinstance(size, bool | list | tuple | dict):
                raise BadValue(
                    f"{name}: size {axis} is a number, an array or an expression, but got {size!r}"
                )
        self.name, self.sizes, self.told = name, sizes, told
        self.inputs: dict[str, tuple[str, ...]] = {}
        self.kernels: dict[str, DataflowKernel] = {}
        self.kinds: dict[str, UserKind] = {}
        self.layouts: dict[str, list[tuple[str, str]]] = {}

    def input(self, name: str, axes: str) -> TensorName:
        """A tensor from outside; the first is what a layer takes in."""
        self._check_axes(axes, f"input {name}")
        self._free(name)
        self.inputs[name] = tuple(axes.split())
        return TensorName(name)

    def kind(self, name: str, **formulas: str) -> None:
        """A kind of kernel of the program's own: see `UserKind`."""
        known = tuple(UserKind.__dataclass_fields__)
        for key in formulas:
            if key not in known:
                raise UnknownName(f"key of kind {name}", key, known, ", ".join(known))
        self.kinds[name] = UserKind(name=name, **formulas)

    def kernel(
        self,
        kind: str,
        name: str,
        *reads: str,
        writes: str = "",
        weight: str = "",
        format: str = "",
        backward: bool = False,
        **settings: Any,
    ) -> TensorName:
        """A kernel of any kind; what it writes has its name, and the axes of what it reads first unless told
        otherwise.
        """
        kinds = kinds_of(tuple(self.kinds.values()), self.name)
        if kind not in kinds:
            raise UnknownName(f"kind of kernel {name}", kind, kinds, ", ".join(sorted(kinds)))
        self._free(name)
        for axes in (writes, weight, *(text.partition(":")[2] for text in reads)):
            self._check_axes(axes, f"kernel {name}")
        for text in reads:
            tensor = text.partition(":")[0]
            if tensor not in self.inputs and tensor not in self.kernels:
                known = [*self.inputs, *self.kernels]
                raise UnknownName(f"tensor that {name} reads", tensor, known, ", ".join(known))
        self.kernels[name] = DataflowKernel(
            name=name,
            kind=kind,
            reads=tuple(str(text) for text in reads),
            writes=tuple(writes.split()),
            weight=tuple(weight.split()),
            settings=tuple(settings.items()),
            format=format,
            backward=backward,
        )
        return TensorName(name)

    def gemm(self, name: str, *reads: str, writes: str, weight: str = "", **settings: Any) -> TensorName:
        """A product of a tensor with a weight, or with a second tensor, summed over what the result lacks."""
        return self.kernel("gemm", name, *reads, writes=writes, weight=weight, **settings)

    def simd(self, name: str, *reads: str, writes: str = "", **settings: Any) -> TensorName:
        """Element-wise or row-wise work."""
        return self.kernel("simd", name, *reads, writes=writes, **settings)

    def layout(self, dimension: str, *axes: str, **kernels: str) -> None:
        """What a dimension of the mesh divides: axes wherever they stand, or an axis of one kernel."""
        found = self.layouts.setdefault(dimension, [])
        for kernel, axis in (*(("*", axis) for axis in axes), *kernels.items()):
            self._check_axes(axis, f"layout {dimension}")
            found.append((kernel, axis))

    def program(self, output: str = "", **told: Any) -> Dataflow:
        """The program, after everything about it was looked at; keywords as of `dataflow`."""
        sizes = {k: v * 1.0 for k, v in self.sizes.items() if not isinstance(v, str)}
        made = Dataflow(
            name=self.name,
            sizes=sizes,
            derived=tuple((k, v) for k, v in self.sizes.items() if isinstance(v, str)),
            inputs=tuple(self.inputs.items()),
            kernels=tuple(self.kernels.values()),
            kinds=tuple(self.kinds.values()),
            layouts=tuple((name, tuple(pairs)) for name, pairs in self.layouts.items()),
            output=str(output),
            **{**self.told, **told},
        )
        return checked_program(made)

    def _check_axes(self, axes: str, what: str) -> None:
        if not isinstance(axes, str):
            raise BadValue(f"{what}: axes are names with spaces between them, but got {axes!r}")
        for axis in axes.split():
            if axis not in self.sizes and axis not in ("batch", "sequence", "context"):
                raise UnknownName(f"size of an axis of {what}", axis, self.sizes, ", ".join(self.sizes))

    def _free(self, name: str) -> None:
        if name in self.inputs or name in self.kernels:
            raise BadValue(f"{self.name}: two tensors are called {name}")


def dataflow(
    name: str,
    *,
    layers: Number = 1.0,
    precision: str = "bf16",
    stream: str = "",
    items: str = "batch",
    item: str = "item",
    **sizes: Number | str,
) -> DataflowBuilder:
    """A program to be filled with kernels; keywords beside are sizes of axes: numbers, or expressions over
    each other and the workload's batch, sequence and context.

    >>> g = dataflow("block", hidden=1024, inner="4*hidden", tokens="batch")
    >>> x = g.input("x", "tokens hidden")
    >>> up = g.gemm("up", x, weight="hidden inner", writes="tokens inner")
    >>> down = g.gemm("down", g.simd("gelu", up, flop=8), weight="inner hidden", writes="tokens hidden")
    >>> made = g.program(output=g.simd("add", down, x))
    >>> from strata.workload.tasks import forward
    >>> float(made.trace(forward(1.0)).parameters())
    8388608.0
    """
    told = {"layers": layers * 1.0, "precision": precision, "stream": stream, "items": items, "item": item}
    return DataflowBuilder(name, sizes, **told)
