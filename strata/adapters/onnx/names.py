"""Names for the axes that were found in an ONNX graph, and its kernels written out as a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from strata.adapters.onnx.axes import OnnxAxis, flat
from strata.adapters.onnx.trace import KernelDraft, KernelRead, OnnxTrace, OnnxValue
from strata.workload.dataflow import ONE_PLACE, Dataflow, DataflowKernel

ONE = "one"  # the axis of a single number


class AxisNames:
    """One name for each axis: that of the open dimension it is, of the part it plays in products, or its
    size.
    """

    def __init__(self, symbols: dict[str, OnnxAxis], other: dict[str, str]) -> None:
        self.names: dict[OnnxAxis, str] = {}
        self.taken: set[str] = set()
        self.other = other
        for name, axis in symbols.items():
            parts = flat((axis,))
            if len(parts) == 1:
                self.give(parts[0], name)

    def give(self, axis: OnnxAxis, base: str) -> str:
        if axis not in self.names:
            wanted = self.other.get(base, base)
            name, number = wanted, 1
            while name in self.taken:
                number += 1
                name = f"{wanted}_{number}"
                name = self.other.get(f"{base}_{number}", name)
            self.taken.add(name)
            self.names[axis] = name
        return self.names[axis]

    def __call__(self, axes: Iterable[OnnxAxis | None]) -> tuple[str, ...]:
        return tuple(ONE_PLACE if a is None else self.name(a) for a in axes)

    def name(self, axis: OnnxAxis) -> str:
        return self.give(axis, axis.hint or f"d{int(axis.size)}")

    def sizes(self) -> tuple[dict[str, float], list[tuple[str, str]]]:
        """Fixed sizes and those that follow from others."""
        fixed = {name: float(int(a.size)) for a, name in self.names.items() if a.size.fixed}
        follow = [(n, a.size.text) for a, n in self.names.items() if not a.size.fixed and a.size.text != n]
        return fixed, follow


def _roles(kernels: list[KernelDraft], names: AxisNames) -> None:
    """Axes of products of two activations: those of all three tensors are heads; those summed over are a
    head, unless such a product made them: scores.
    """
    made: set[OnnxAxis] = set()
    for kernel in (k for k in kernels if k.kind == "gemm" and len(k.reads) == 2):
        a, b = ([x for x in r.under() if x is not None and x.size.fixed] for r in kernel.reads)
        for axis in (x for x in a if x in b):
            if axis in flat(kernel.writes):
                names.give(axis, "heads")
            elif axis not in made:
                names.give(axis, axis.hint or "head")
        made |= set(flat(kernel.writes))


def _needed(trace: OnnxTrace, outputs: list[OnnxValue]) -> list[KernelDraft]:
    """Kernels that something of what leaves the graph depends on."""
    wanted, kept = {value.source for value in outputs}, list[KernelDraft]()
    for kernel in reversed(trace.kernels):
        if kernel.name in wanted:
            kept.append(kernel)
            wanted |= {read.value.source for read in kernel.reads}
    return kept[::-1]


def written_out(
    trace: OnnxTrace,
    inputs: list[tuple[str, OnnxValue]],
    outputs: list[OnnxValue],
    symbols: dict[str, OnnxAxis],
    values: dict[str, float],
    batch: str,
    *,
    name: str,
    precision: str,
    names: dict[str, str],
) -> Dataflow:
    """The program: kernels with names in place of axes, sizes, and how it is usually divided."""
    trace.finish()
    kernels = _needed(trace, outputs)
    named = AxisNames(symbols, names)
    _roles(kernels, named)
    entered = tuple((source, named(flat(value.written))) for source, value in inputs)
    made = tuple(_kernel(kernel, named) for kernel in kernels)
    fixed, follow = named.sizes()
    if any(ONE in (*k.writes, *k.weight) for k in made):
        fixed[ONE] = 1.0
    derived = [(batch, "batch")] if batch and batch != "batch" else []
    first = entered[0][1][:1] if entered else ()
    items = "batch" if batch else (first[0] if first else "1")
    produced = {kernel.name for kernel in made}
    return Dataflow(
        name=name,
        sizes={**values, **fixed},
        derived=(*derived, *follow),
        inputs=entered,
        kernels=made,
        output=next((v.source for v in outputs if v.source in produced), ""),
        precision=precision,
        stream=batch,
        items=items,
        item="item",
        layouts=_layouts(made, entered, batch, fixed),
    )


def _kernel(draft: KernelDraft, names: AxisNames) -> DataflowKernel:
    writes = flat(draft.writes)
    reads = [_read(read, names) for read in draft.reads]
    settings = {k: v for k, v in draft.settings.items() if k not in ("per_read", "gathered")}
    if draft.kind != "gemm":
        seen = [[a for a in read.under() if a is not None] for read in draft.reads]
        if draft.settings.get("gathered") and len(seen) == 2:  # of a table only the rows asked for
            seen[0] = list(writes)
        shares = [_share(axes, writes, names) for axes in (*seen, *(v.axes for v in draft.beside))]
        if draft.settings.get("gathered") and len(seen) == 1:
            shares.append("1")
        settings.setdefault("elements_read", _sum(shares))
        if "per_read" in draft.settings:
            flop, special = draft.settings["per_read"]
            share = _share([a for a in draft.reads[0].value.axes], writes, names)
            settings |= {k: _sum([f"{v:g}*{share}"]) for k, v in (("flop", flop), ("special", special)) if v}
        if draft.whole:
            settings["whole"] = " ".join(names(flat(draft.whole)))
        if draft.looked_up:
            settings["looked_up"] = " ".join(names(flat(draft.looked_up)))
        if draft.kind == "gather":
            settings["row"] = "*".join(names(flat(draft.row))) or 1.0
    return DataflowKernel(
        name=draft.name,
        kind=draft.kind,
        reads=tuple(reads),
        writes=names(writes) or (ONE,),
        weight=names(flat(draft.weight)),
        settings=tuple(sorted(settings.items())),
    )


def _read(read: KernelRead, names: AxisNames) -> str:
    """A tensor as it is read: its name, and the axes where they are not as it was written."""
    under = names(read.under())
    own = names(flat(read.value.written))
    return read.value.source if under == own else f"{read.value.source}: {' '.join(under)}"


def _share(axes: Iterable[OnnxAxis], writes: tuple[OnnxAxis, ...], names: AxisNames) -> str:
    """Elements of an operand for each element written, as an expression."""
    have = tuple(dict.fromkeys(axes))
    above = "*".join(names(a for a in have if a not in writes))
    below = "*".join(names(a for a in writes if a not in have))
    return f"{above or 1}/({below})" if below else above or "1"


def _sum(terms: list[str]) -> Any:
    if all(term == "1" for term in terms):
        return float(len(terms))
    return " + ".join(terms)


def _layouts(
    kernels: tuple[DataflowKernel, ...],
    entered: tuple[tuple[str, tuple[str, ...]], ...],
    batch: str,
    fixed: Any,
) -> Any:
    """How it is usually divided: `dp` the batch; `tp` axes that one product writes and another sums over or
    keeps (heads, the width inside a feed-forward network), never both of one product with a weight, and none
    that some kernel needs whole (Shoeybi et al., Megatron-LM, sec. 3).
    """
    written = {**dict(entered), **{k.name: k.writes for k in kernels}}
    uses = Counter(axis for k in kernels for axis in {*k.writes, *k.weight})
    whole, made, summed, kept = set[str](), set[str](), set[str](), set[str]()
    rivals: dict[str, set[str]] = {}
    for k in kernels:
        reads = [_axes(text, written) for text in k.reads]
        whole |= set(dict(k.settings).get("whole", "").split())
        if k.kind != "gemm":
            whole |= {axis for axes in reads for axis in axes if axis not in k.writes}
        elif k.weight:
            inner = [a for a in k.weight if a not in k.writes]
            made, summed = made | (set(k.weight) - set(inner)), summed | set(inner)
            for a in k.weight:
                rivals.setdefault(a, set()).update(b for b in k.weight if b != a)
        else:
            kept |= {a for a in k.writes if all(a in axes for axes in reads)}
    free = [a for a in fixed if a in made and (a in summed or a in kept) and a not in whole]
    chosen: list[str] = []
    for axis in sorted(free, key=lambda a: (a not in kept, uses[a])):
        if not rivals.get(axis, set()) & set(chosen):
            chosen.append(axis)
    found = [("tp", tuple(("*", a) for a in chosen))] if chosen else []
    return (*found, *([("dp", (("*", batch),))] if batch else []))


def _axes(text: str, written: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Axes under which a tensor is read: those it was written with, where its reader says no others."""
    name, _, said = text.partition(":")
    return tuple(axis for axis in said.split() if axis != ONE_PLACE) or written[name]
