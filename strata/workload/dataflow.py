"""Any dataflow graph as a program: kernels that read and write tensors with named axes.

A kernel names the tensors it reads, the axes of what it writes, and those of its weight; everything else
follows as in an einsum: axes of both operands that the result lacks are summed over, those of all three are a
batch. Sizes are numbers, or expressions over other sizes and the workload.
"""

from __future__ import annotations

import math
from dataclasses import field, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, is_leaf
from strata.base.errors import BadValue, UnknownName, require
from strata.base.expression import calculate, mentions
from strata.base.records import readable
from strata.params import record
from strata.workload.backward import with_backward
from strata.workload.dataflow_kinds import SETTINGS, AxisSizes, KernelContext, Operand, UserKind, kinds_of
from strata.workload.graph import Block, BlockSequence, Graph, Tensor, checked
from strata.workload.graph_walks import op_axes
from strata.workload.protocol import Program
from strata.workload.tasks import Workload, forward

LAYER = "layer"
SIZE_LIMIT = 1e30  # the bytes of a tensor with ten axes of it are still a number
ONE_PLACE = "-"  # in the axes a tensor is read under: of this one a single entry


@readable("name", "kind", "reads", "writes", "weight")
@record
class DataflowKernel:
    """One kernel: its kind, the tensors it reads, the axes of the tensor it writes, which has its name.

    A tensor may be read under other names of its axes ("k: keys heads head"): the same coordinate, of another
    meaning to the reader; or at one place of an axis, written "-" ("qkv: rows - heads head"); further
    names are axes that the reader adds (places of a window). `settings` are what its kind asks for beside
    (operations an element, a formula).
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    format: str = ""  # of what it writes, where it is not the program's
    backward: bool = False  # it belongs to the backward pass of a graph that writes both passes out


KERNEL_FIELDS = tuple(f.name for f in fields(DataflowKernel) if f.name != "settings")


@readable("name", "sizes", "kernels")
@record
class Dataflow(Program):
    """A program of kernels, `layers` times with weights of their own.

    `sizes`: axis to its extent; `derived`: sizes as expressions over these and the workload's batch, sequence
    and context. `inputs`: tensors from outside with their axes; the first is what a layer takes in. `output`
    is what it hands on; tensors named after it leave as well (gradients of a graph that writes both passes
    out). `stream`: the axis along which fused kernels pass tiles on. `layouts`: what each dimension of its
    usual mesh divides, by kernel ("*": every kernel that has the axis). `kinds`: kinds of kernels of its own.
    `cited`: sources of its sizes.
    """

    name: str = "dataflow"
    sizes: dict[str, Number] = field(default_factory=dict)
    derived: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    kernels: tuple[DataflowKernel, ...] = ()
    output: str = ""
    precision: str = "bf16"
    stream: str = ""
    layers: Number = 1.0
    items: str = "batch"  # an expression: what one pass yields
    item: str = "item"
    layouts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    kinds: tuple[UserKind, ...] = ()
    title: str = ""
    source: str = ""
    cited: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, value in (*self.sizes.items(), ("layers", self.layers)):
            _check_size(self.name, name, value)

    @property
    def units(self) -> dict[str, Number]:
        return {**self.sizes, LAYER + "s": self.layers}

    @property
    def mesh_dimensions(self) -> tuple[str, ...]:
        """Dimensions of the mesh that a division of it is typed with: those it names, or its axes."""
        return tuple(name for name, _ in self.layouts) or self._open_axes()

    def _open_axes(self) -> tuple[str, ...]:
        """Axes that every kernel with them can divide, in the order they come; without layouts others stand
        in the unit of the one before them.
        """
        graph = self.trace(forward(1.0))
        ops, there = {op.name: op for _, op in graph.ops()}, op_axes(graph)
        axes, closed = [axis for _, shape in self.inputs for axis in shape], set[str]()
        for kernel in self.kernels:
            op, own = ops[kernel.name], (*kernel.writes, *kernel.weight)
            read = (op.operand_axes(place) for place in range(len(kernel.reads)))
            shapes = (op.result_axes(), op.contracted_axes(), *read)
            closed |= set(own) - {axis for shape in shapes for name in shape for axis in name.split("*")}
            axes += own
        return tuple(axis for axis in dict.fromkeys(axes) if axis in there and axis not in closed)

    def layout_text(self) -> str:
        """How a division is typed: with the dimensions it names, or with its axes."""
        typed = ",".join(f"{name}=2" for name in self.mesh_dimensions) or "nothing: it has no axes"
        return typed if self.layouts else f"{typed} (its axes; it names no layout)"

    def layout(self, **degrees: Number) -> dict[str, Any]:
        """Mesh and axes of its usual layout, or of plain axes by their names. A kernel that a dimension names
        takes what is said there in place of what is said for all.
        """
        mesh = dict.fromkeys((name for name, _ in self.layouts), 1.0) | degrees
        said = {name: dict(self.layouts).get(name, (("*", name),)) for name in mesh}
        kernels = dict.fromkeys(kernel for pairs in said.values() for kernel, _ in pairs if kernel != "*")
        told: dict[str, Any] = {"mesh": mesh, "axes": _dimensions_of("*", said)}
        for kernel in kernels:
            told[kernel] = dict.fromkeys(told["axes"], ()) | _dimensions_of(kernel, said)
        return told

    def division_over(self, devices: float) -> str:
        """The division over so many devices where none is asked for: each dimension of its mesh takes what
        its axes allow of those left, the last the rest.

        >>> two = (("tp", (("*", "heads"),)), ("dp", (("*", "samples"),)))
        >>> Dataflow(sizes={"heads": 12.0}, layouts=two).division_over(32.0)
        'tp=4,dp=8'
        """
        left, parts = int(devices), list[str]()
        for place, name in enumerate(self.mesh_dimensions):
            axes = [axis for _, axis in dict(self.layouts).get(name, ((name, name),))]
            known = [int(np.min(self.sizes[axis])) for axis in axes if axis in self.sizes]
            last = place == len(self.mesh_dimensions) - 1
            degree = left if last else math.gcd(left, *known)
            left //= degree
            parts += [f"{name}={degree}"] if degree > 1 else []
        return ",".join(parts)

    def with_changes(self, /, **changes: Any) -> Dataflow:
        """The program with sizes or fields replaced: a number, or an expression for a size.

        >>> Dataflow(sizes={"rows": 8.0}).with_changes(rows=16, layers=2).sizes
        {'rows': 16.0}
        """
        sizes, derived, own = dict(self.sizes), dict(self.derived), dict[str, Any]()
        plain = ("layers", "precision", "stream", "output", "items", "item")
        for key, value in changes.items():
            if key == "layers" and not is_leaf(value):
                raise BadValue(f"{self.name}: layers is a number, but got {value!r}")
            if key in plain:
                own[key] = value if isinstance(value, str) else value * 1.0
            elif key in sizes or key in derived:
                sizes.pop(key, None)
                derived.pop(key, None)
                if value is None or isinstance(value, bool | list | tuple | dict):
                    raise BadValue(f"{self.name}: size {key} is a number or an expression, but got {value!r}")
                if isinstance(value, str):
                    derived[key] = value
                else:
                    sizes[key] = value * 1.0
            else:
                known = [*sizes, *derived, *plain]
                raise UnknownName(f"size or field of {self.name}", key, known, ", ".join(known))
        return replace(self, sizes=sizes, derived=tuple(derived.items()), **own)

    def to_toml(self) -> str:
        """The program as the text of its file; `program()` reads it back."""
        from strata.workload.dataflow_file import dataflow_toml

        return dataflow_toml(self)

    def sized(self, work: Workload) -> dict[str, Number]:
        """Every size for a workload; expressions may stand in any order."""
        known: dict[str, Number] = {
            "batch": work.batch,
            "sequence": work.sequence,
            "context": work.context,
            **self.sizes,
        }
        waiting = dict(self.derived)
        for name in waiting:  # what the program says stands before what the workload brings
            known.pop(name, None)
        while waiting:
            ready = [
                name
                for name, text in waiting.items()
                if not any(mentions(text, other, f"size {name} of {self.name}") for other in waiting)
            ]
            if not ready:
                raise BadValue(f"{self.name}: sizes follow from each other in a circle: {', '.join(waiting)}")
            for name in ready:
                known[name] = calculate(waiting.pop(name), known, f"size {name} of {self.name}")
                _check_size(self.name, name, known[name])
        return known

    def divided_axes(self) -> frozenset[str]:
        """Axes that its layouts divide, and the one that tiles pass along. Where it names no layouts, the
        first axis of each side of a kernel is what can be divided.
        """
        return frozenset((*(axis for _, pairs in self.layouts for _, axis in pairs), self.stream))

    def trace(self, work: Workload) -> Graph:
        sizes = self.sized(work)
        tensors = {name: Operand(name, axes) for name, axes in self.inputs}
        context = KernelContext(AxisSizes(sizes, self.name, self.divided_axes()), self.precision, self.stream)
        kinds = kinds_of(self.kinds, self.name)
        ops, coordinates = [], dict[str, str]()
        for kernel in in_order(self):
            operands = [_operand(text, tensors, kernel, coordinates) for text in kernel.reads]
            for axis in (*kernel.writes, *kernel.weight, *(a for o in operands for a in o.axes)):
                if axis not in sizes:
                    raise UnknownName(
                        f"size of an axis of kernel {kernel.name}", axis, sizes, ", ".join(sizes)
                    )
            ops.append(kinds[kernel.kind](kernel, operands, context))
            tensors[kernel.name] = Operand(kernel.name, kernel.writes or operands[0].axes)
        entry = self._boundary(self.inputs[0], context) if self.inputs else None
        leaves = tuple(self.output.split()) or tuple(op.output for op in ops[-1:])
        for name in leaves:
            if name not in tensors:
                raise UnknownName(f"output of {self.name}", name, tensors, ", ".join(tensors))
        output = self._boundary((leaves[0], tensors[leaves[0]].axes), context) if leaves else None
        block = Block(
            name=LAYER,
            role=LAYER,
            ops=tuple(ops),
            count=self.layers,
            entry=entry,
            output=output,
            leaves=leaves,
        )
        graph = Graph(
            blocks=(block,),
            sequence=BlockSequence(period=((LAYER,),), layers=self.layers),
            items=calculate(self.items, sizes, f"items of {self.name}"),
            item=self.item,
            inputs=tuple(name for name, _ in self.inputs),
            formats=((self.precision, self.precision),),
            units=sizes | self.units,
            coordinates=coordinates,
            stream=self.stream,
        )
        written_out = any(kernel.backward for kernel in self.kernels)
        return with_backward(graph) if work.phase == "train" and not written_out else checked(graph)

    def _boundary(self, tensor: tuple[str, tuple[str, ...]], context: KernelContext) -> Tensor:
        name, axes = tensor
        return Tensor(name, context.sizes.extents(axes), self.precision)


def _dimensions_of(kernel: str, said: dict[str, tuple[tuple[str, str], ...]]) -> dict[str, tuple[str, ...]]:
    """Axes with the dimensions that divide them for a kernel."""
    found: dict[str, tuple[str, ...]] = {}
    for dimension, pairs in said.items():
        named = any(k == kernel for k, _ in pairs)
        for axis in (axis for k, axis in pairs if k == (kernel if named else "*")):
            found[axis] = (*found.get(axis, ()), dimension)
    return found


def _check_size(program: str, name: str, value: Number) -> None:
    """Sizes are positive, and products of some of them numbers; traced ones were looked at before."""
    if isinstance(value, int | float | np.ndarray | np.generic):
        if not np.all(np.asarray(value) > 0):
            raise BadValue(f"{program}: a size is positive, but got ({name}={value})")
        require(
            bool(np.all(np.asarray(value) < SIZE_LIMIT)),
            f"{program}: a size is below {SIZE_LIMIT:g}",
            **{name: value},
        )


def _operand(
    text: str, tensors: dict[str, Operand], kernel: DataflowKernel, coordinates: dict[str, str]
) -> Operand:
    """A tensor as a kernel reads it; other names of its axes are other names of its coordinates."""
    name, _, renamed = (part.strip() for part in text.partition(":"))
    if name not in tensors:
        raise UnknownName(f"tensor that {kernel.name} reads", name, tensors, ", ".join(tensors))
    made = tensors[name]
    if not renamed:
        return made
    axes = tuple(renamed.split())
    require(
        len(axes) >= len(made.axes),
        f"{kernel.name} reads {name} under as many axes as it has, or more",
        axes=" ".join(axes),
        of=" ".join(made.axes),
    )
    for new, old in zip(axes, made.axes, strict=False):
        if new not in (old, ONE_PLACE):
            coordinates[new] = coordinates.get(old, old)
            coordinates.setdefault(old, coordinates[new])
    return Operand(name, tuple(axis for axis in axes if axis != ONE_PLACE))


def in_order(program: Dataflow) -> list[DataflowKernel]:
    """Kernels so that each stands after those it reads; a cycle, an unknown kind, a tensor that nothing makes
    and a name given twice are told in one line.

    >>> late = DataflowKernel(name="b", kind="simd", reads=("a",))
    >>> early = DataflowKernel(name="a", kind="simd", reads=("x",))
    >>> made = Dataflow(inputs=(("x", ("rows",)),), kernels=(late, early))
    >>> [kernel.name for kernel in in_order(made)]
    ['a', 'b']
    """
    by_name: dict[str, DataflowKernel] = {}
    given = {name for name, _ in program.inputs}
    kinds = kinds_of(program.kinds, program.name)
    for kernel in program.kernels:
        if kernel.kind not in kinds:
            raise UnknownName(f"kind of kernel {kernel.name}", kernel.kind, kinds, ", ".join(sorted(kinds)))
        if kernel.name in by_name or kernel.name in given:
            raise BadValue(f"{program.name}: two tensors are called {kernel.name}")
        if not kernel.reads:
            raise BadValue(f"kernel {kernel.name}: it reads no tensor; a tensor from outside is an input")
        for key, _ in kernel.settings if kernel.kind in SETTINGS else ():
            words = (*SETTINGS[kernel.kind], *KERNEL_FIELDS)
            if key not in words:
                raise UnknownName(
                    f"setting of {kernel.kind} kernel {kernel.name}", key, words, ", ".join(words)
                )
        by_name[kernel.name] = kernel
    sources = {k.name: [text.partition(":")[0].strip() for text in k.reads] for k in program.kernels}
    for name, read in sources.items():
        for tensor in read:
            if tensor not in by_name and tensor not in given:
                known = {*by_name, *given}
                raise UnknownName(f"tensor that {name} reads", tensor, known, ", ".join(sorted(known)))
    placed, found = set(given), list[DataflowKernel]()
    waiting = list(program.kernels)
    while waiting:
        ready = [k for k in waiting if all(t in placed for t in sources[k.name])]
        if not ready:
            names = ", ".join(k.name for k in waiting)
            raise BadValue(f"{program.name}: these kernels wait for each other in a cycle: {names}")
        first = ready[0]
        found.append(first)
        placed.add(first.name)
        waiting.remove(first)
    return found
