"""One walk over an ONNX graph: values with their axes, constants with what is known of them, kernels drafted.

What depends on weights and shapes alone is folded away; what only looks at a tensor otherwise (a reshape, a
slice) is a view: the kernel that reads it names the tensor it looks at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.adapters.onnx.axes import (
    AxisProduct,
    OnnxAxis,
    Renaming,
    Size,
    as_size,
    dimension,
    flat,
    keep_apart,
    product_size,
    settle,
)
from strata.base.errors import BadValue

DATA, WEIGHT, CONSTANT = "data", "weight", "constant"
KNOWN = 4096  # elements of a constant that is carried along to find shapes


@dataclass(frozen=True, eq=False)
class OnnxValue:
    """A tensor: its dimensions as axes, what made it, and under which names a reader sees that one's axes."""

    dims: tuple[AxisProduct, ...]
    kind: str = DATA
    source: str = ""
    written: AxisProduct = ()  # axes of the tensor it looks at
    renamed: tuple[tuple[OnnxAxis, OnnxAxis], ...] = ()
    dropped: AxisProduct = ()  # axes it takes one entry of
    data: np.ndarray | None = None  # what a small constant holds
    table: AxisProduct | None = None  # axes of the stored weight, where it is some rows of one, or copies

    @property
    def stored(self) -> AxisProduct:
        """Axes of the weight that is stored for it."""
        return self.axes if self.table is None else flat(self.table)

    @property
    def shape(self) -> tuple[Size, ...]:
        return tuple(product_size(d) for d in self.dims)

    @property
    def axes(self) -> AxisProduct:
        return flat(axis for d in self.dims for axis in d)


@dataclass(eq=False)
class KernelRead:
    """A value as one kernel reads it: names that it changes, and axes it adds (places of a window)."""

    value: OnnxValue
    renamed: Renaming = field(default_factory=list)
    added: AxisProduct = ()

    def under(self) -> list[OnnxAxis | None]:
        """For each axis of the tensor behind the value the axis it is read as; None where one entry is."""
        dropped = set(flat(self.value.dropped))
        found: list[OnnxAxis | None] = []
        for axis in flat(self.value.written):
            now = axis
            for pair in self.value.renamed:  # one view after the other
                now = renamed_axis(now, (pair,))
            now = renamed_axis(now, self.renamed)
            found.append(None if axis in dropped or now in dropped else now)
        return [*found, *flat(self.added)]

    def seen(self) -> set[OnnxAxis]:
        """Axes that the view has, after renaming."""
        return {renamed_axis(a, self.renamed) for a in (*self.value.axes, *flat(self.added))}


def renamed_axis(axis: OnnxAxis, renamed: Iterable[tuple[OnnxAxis, OnnxAxis]]) -> OnnxAxis:
    """An axis under its new name, all renamings at once."""
    for old, new in renamed:
        for a, b in zip(reversed(flat((old,))), reversed(flat((new,))), strict=False):
            if a is axis:
                return b
    return axis


@dataclass(eq=False)
class KernelDraft:
    """A kernel before its axes have names. `weight` is what it stores; numbers of `settings` may be text
    that asks for axes by function.
    """

    name: str
    kind: str
    reads: list[KernelRead]
    writes: AxisProduct
    weight: AxisProduct = ()
    settings: dict[str, Any] = field(default_factory=dict)
    whole: AxisProduct = ()
    row: AxisProduct = ()
    looked_up: AxisProduct = ()
    beside: tuple[OnnxValue, ...] = ()  # constants that it reads: they are no tensors of the program


class OnnxTrace:
    """Values and kernels so far."""

    def __init__(self, infer: Callable[[str], tuple[Size, ...]]) -> None:
        self.values: dict[str, OnnxValue] = {}
        self.kernels: list[KernelDraft] = []
        self.stored: set[str] = set()  # weights that a kernel holds already
        self.names: set[str] = set()
        self.counts: dict[int, OnnxAxis] = {}  # so many equal weights of one kernel
        self.infer = infer
        self.open: dict[str, OnnxAxis] = {}  # axes of open dimensions by the formula of their size

    def draft(
        self,
        node: Any,
        kind: str,
        reads: Sequence[KernelRead],
        dims: Sequence[AxisProduct],
        *,
        suffix: str = "",
        stores: Sequence[OnnxValue] = (),
        **more: Any,
    ) -> OnnxValue:
        """A kernel that writes a new tensor; nothing where all it reads is known beforehand."""
        operands = [r for r in reads if r.value.kind == DATA]
        settings = dict(more.pop("settings", {}))
        made = tuple(dims)
        if not operands:
            weights = any(v.kind == WEIGHT for v in (*(r.value for r in reads), *stores))
            return OnnxValue(
                self.fresh(product_size(d) for d in made),
                WEIGHT if weights else CONSTANT,
                source=node.output[0],
            )
        new = tuple(v for v in stores if v.source not in self.stored)
        self.stored |= {v.source for v in new}
        if kind == "gemm" and stores:
            weight = stores[0].axes
            settings |= {} if new and new[0] is stores[0] else {"tied": 1.0}
            settings |= {"bias": 1.0} if stores[0] in new and len(stores) > 1 and stores[1] in new else {}
        else:
            weight = self._side_by_side(new)
        name = self._name(node, suffix)
        writes = flat(axis for d in made for axis in d)
        keep_apart((*writes, *(a for r in operands for a in r.seen()), *weight))
        beside = tuple(r.value for r in reads if r.value.kind != DATA and r.value.axes)
        self.kernels.append(
            KernelDraft(name, kind, operands, writes, weight, settings, beside=beside, **more)
        )
        return OnnxValue(made, DATA, name, writes)

    def fresh(self, shape: Iterable[Any]) -> tuple[AxisProduct, ...]:
        """Dimensions by sizes: one with the formula of an open dimension is that one, once in a tensor."""
        found, taken = list[AxisProduct](), set[str]()
        for size in map(as_size, shape):
            if size.text in self.open and size.text not in taken:
                found.append((self.open[size.text],))
            else:
                found.append(dimension(size, "keys" if size.text in taken else ""))
            taken |= set() if size.fixed else {size.text}
        return tuple(found)

    def _side_by_side(self, weights: Sequence[OnnxValue]) -> AxisProduct:
        """Weights of one kernel as one product of axes: of equal ones so many, else all elements in a row."""
        if not weights:
            return ()
        first = weights[0].stored
        if len(weights) == 1:
            return first or (OnnxAxis(Size(1), "one"),)
        if all(w.stored == first for w in weights):
            count = self.counts.setdefault(len(weights), OnnxAxis(Size(len(weights)), "weights"))
            return (count, *first)
        return (OnnxAxis(sum(map(product_size, (w.stored for w in weights)), Size(0)), "weights"),)

    def _name(self, node: Any, suffix: str) -> str:
        text = node.output[0].removesuffix("_output_0") + suffix
        base = re.sub(r"[^A-Za-z0-9_.]+", "_", text).strip("_") or node.op_type
        name, number = base, 1
        while name in self.names:
            number += 1
            name = f"{base}_{number}"
        self.names.add(name)
        return name

    def finish(self) -> None:
        """Renamings split alike on both sides; views that no renaming expresses become copies."""
        for _ in range(2):
            for kernel in self.kernels:
                for read in kernel.reads:
                    settle([*read.value.renamed, *read.renamed])
        done: list[KernelDraft] = []
        for kernel in self.kernels:
            if kernel.kind == "gemm":
                for place, read in enumerate(kernel.reads):
                    if not {a for a in read.under() if a is not None} <= read.seen():
                        done.append(self._copy(kernel, place, read))
            done.append(kernel)
        self.kernels = done

    def _copy(self, kernel: KernelDraft, place: int, read: KernelRead) -> KernelDraft:
        name = f"{kernel.name}_operand{place}"
        axes = read.value.axes
        made = KernelDraft(name, "simd", [KernelRead(read.value)], axes, settings={"flop": 0.0})
        value = replace(read.value, source=name, written=axes, renamed=(), dropped=())
        kernel.reads[place] = KernelRead(value, read.renamed, read.added)
        return made


def fresh(shape: Iterable[Any]) -> tuple[AxisProduct, ...]:
    return tuple(dimension(as_size(s)) for s in shape)


def kept_dims(like: OnnxValue, shape: Sequence[Size], strict: bool = True) -> list[AxisProduct]:
    """Dimensions of a shape: those of a value where sizes are the same, else new ones."""
    pairs = zip(like.dims, like.shape, shape, strict=strict)
    return [d if int(a) == int(b) else dimension(b) for d, a, b in pairs]


def constant(data: np.ndarray) -> OnnxValue:
    """A constant: small ones keep what they hold."""
    held = data if data.size <= KNOWN else None
    return OnnxValue(fresh(data.shape), CONSTANT, data=held)


@dataclass(eq=False)
class NodeCall:
    """A node as its rule takes it: values that it reads, None where one is left out, and its attributes."""

    trace: OnnxTrace
    node: Any
    inputs: Sequence[Any]
    attributes: dict[str, Any]

    @property
    def op(self) -> str:
        return str(self.node.op_type)

    @property
    def given(self) -> list[OnnxValue]:
        """What it reads, without what is left out."""
        return [value for value in self.inputs if value is not None]

    def get(self, key: str, usual: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(key, usual)

    def operand(self, place: int) -> Any:
        """A value that it reads, None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def known(self, place: int) -> np.ndarray | None:
        """What an operand holds, None where that is not known."""
        value = self.operand(place)
        return None if value is None else value.data

    def whole_numbers(self, place: int, key: str) -> list[Any] | None:
        """Whole numbers of an operand (newer opsets) or an attribute (older ones)."""
        data, stated = self.known(place), self.get(key)
        if data is not None:
            return list(np.ravel(data))
        return None if stated is None else list(stated) if isinstance(stated, list | tuple) else [stated]

    def inferred(self) -> tuple[AxisProduct, ...]:
        """Dimensions of its first result, as shape inference knows them."""
        return self.trace.fresh(self.trace.infer(self.node.output[0]))

    def draft(self, kind: str, reads: Sequence[OnnxValue | KernelRead], *how: Any, **more: Any) -> OnnxValue:
        """A kernel of the node."""
        under = [KernelRead(one) if isinstance(one, OnnxValue) else one for one in reads]
        return self.trace.draft(self.node, kind, under, *how, **more)

    def stored(self, kind: str, dims: Sequence[AxisProduct], **more: Any) -> OnnxValue:
        """A kernel that reads all that the node does; weights among it are stored by the kernel."""
        stores = [v for v in self.given if v.kind == WEIGHT]
        return self.draft(kind, [v for v in self.given if v.kind != WEIGHT], dims, stores=stores, **more)

    def copied(self, values: Sequence[OnnxValue], dims: Sequence[AxisProduct], **more: Any) -> OnnxValue:
        """Elements moved to a new tensor."""
        return self.draft("simd", values, dims, settings={"flop": 0.0}, **more)

    def refuse(self, why: str) -> BadValue:
        """One line on what of the node has no price."""
        return BadValue(f"{self.node.name or self.op}: {why}")


Rule = Callable[..., list[OnnxValue]]  # of a call and the values that it reads
