"""Options of a layout: on which mesh dimension each axis of a module may lie while its ops run; and the rules
of the choice between chips.

A paper's semantics are switches of `LayoutRules`, read from ``data/layout-rules``; options, tables and
solvers are the same for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.mapping.layout import AxisLayout, Layout, Sharding
from strata.params import Sources, sourced_record, text
from strata.workload.graph import ONE, Extent, Graph, Op
from strata.workload.graph_walks import axis_names, boundary_extents, extents_of
from strata.workload.tasks import Workload


@dataclass(frozen=True, eq=False, kw_only=True)
class LayoutRules:
    """Switches of the choice of layouts; each is a word of its file."""

    name: str = text("short name, as in the file's name")
    title: str = text("whose rules they are")
    objective: str = text(
        "time: kernels and collectives on the fabric; bytes: the bytes of all collectives",
        choices=("time", "bytes"),
    )
    consumers: str = text(
        "a tensor with several consumers is converted once for each layout it is wanted in, or for every "
        "consumer anew",
        choices=("shared", "replicated"),
    )
    sums: str = text(
        "partial sums are added up where they are read, in pieces if wanted so, or where they are made",
        choices=("at reader", "at kernel"),
    )
    exchanged: str = text(
        "bytes of an all-to-all: what one rank holds, or the whole tensor", choices=("share", "tensor")
    )
    stream: str = text("whether the axis that tiles pass along may be divided", choices=("divided", "whole"))
    outer: str = text(
        "a kernel with a batch axis (heads) may be divided anywhere, or must be along that axis",
        choices=("free", "forced"),
    )
    weights: str = text(
        "a kernel with a weight may run undivided, or must be divided", choices=("free", "divided")
    )
    placement: str = text(
        "mesh dimensions lie on fabric dimensions in any order and may share or span them, or each fills "
        "fabric dimensions of its own",
        choices=("any", "one each"),
    )
    step: str = text(
        "time of a training step: priced as any layout is, or by the formula of the pipeline of layers",
        choices=("priced", "formula"),
    )
    sources: Sources = field(default_factory=Sources, compare=False, repr=False)


def layout_rules(name: str | LayoutRules = "strata", /, **changes: Any) -> LayoutRules:
    """The rules of a shipped name or a TOML path, with some switches changed.

    >>> layout_rules().objective, layout_rules("dfmodel-2024", objective="time").objective
    ('time', 'time')
    """
    if isinstance(name, LayoutRules):
        return replace(name, **changes)
    return sourced_record(LayoutRules, "layout-rules", name, **changes)


@dataclass(frozen=True, eq=False)
class ModuleOptions:
    """The domain of one module: for each option the axis on every mesh dimension, "" where none is; axes of
    columns side by side (heads of queries and of keys) may lie there together, as "heads+kv_heads".
    """

    module: str
    dimensions: tuple[str, ...]  # of the mesh
    choices: tuple[tuple[str, ...], ...]

    def axes(self, option: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Axes with the dimensions they lie on, as a `Layout` has them.

        >>> ModuleOptions("q", ("tp", "dp"), (("heads", "tokens"),)).axes(0)
        (('heads', ('tp',)), ('tokens', ('dp',)))
        """
        found: dict[str, tuple[str, ...]] = {}
        for dimension, choice in zip(self.dimensions, self.choices[option], strict=True):
            for axis in together_axes(choice):
                found[axis] = (*found.get(axis, ()), dimension)
        return tuple(found.items())

    def __len__(self) -> int:
        return len(self.choices)


def chosen_layout(
    mesh: dict[str, Number], options: dict[str, ModuleOptions], choice: Mapping[str, int]
) -> Layout:
    """The layout of a mesh in which every module takes the option that is chosen for it."""
    return Layout(dict(mesh), modules=tuple((m, own.axes(choice[m])) for m, own in options.items()))


def together_axes(choice: str) -> tuple[str, ...]:
    """Axes of a choice for one mesh dimension.

    >>> together_axes("heads+kv_heads"), together_axes("")
    (('heads', 'kv_heads'), ())
    """
    return tuple(filter(None, choice.split("+")))


def module_options(
    graph: Graph, mesh: dict[str, Number], rules: LayoutRules, pinned: dict[str, dict[str, str]]
) -> dict[str, ModuleOptions]:
    """The options of every module of a graph, its blocks' boundaries among them, on a mesh.

    An axis lies on a dimension where its units divide evenly, no op needs it whole, and no other axis of the
    same operand is the same coordinate under another name. `pinned`: module to mesh
    dimension to axis ("" for none), fixed.
    """
    dimensions = tuple(d for d, degree in mesh.items() if float(degree) > 1)
    counts: dict[str, dict[str, float]] = {}  # by module: units of each extent, of one axis or of several
    barred: dict[str, set[str]] = {}
    forced: dict[str, tuple[str, ...]] = {}
    weighty: set[str] = set()
    beside: dict[tuple[str, ...], None] = {}  # axes of columns side by side
    for block in graph.blocks:
        for op in (op for _, ops in block.at_nodes() for op in ops):
            own = counts.setdefault(op.module, {})
            for extent in sorted(extents_of(op), key=lambda e: e.axis not in op.contracted_axes()):
                own[extent.axis] = _common(own.get(extent.axis), extent)
            whole = itertools.chain.from_iterable(map(axis_names, op.indivisible_axes()))
            barred.setdefault(op.module, set()).update((*whole, *_aliased(op, graph)))
            columns = getattr(op, "n", ())
            if isinstance(columns, tuple):
                beside[tuple(dict.fromkeys(e.axis for e in columns if e.axis))] = None
            outer = getattr(op, "batch", ONE)
            if outer.axis and float(outer.count) > 1:
                forced[op.module] = axis_names(outer.axis)
            if float(op.weight_bytes()) > 0 or op.read_weight() is not None:
                weighty.add(op.module)
        for extent in boundary_extents(block):
            own = counts.setdefault(block.role, {})
            own[extent.axis] = _common(own.get(extent.axis), extent)
    found = {}

    def along(axis: str) -> str:
        return graph.coordinates.get(axis, axis)

    alone = {a: n for sizes in counts.values() for a, n in sizes.items() if len(axis_names(a)) == 1}
    for module, sizes in counts.items():
        axes = dict.fromkeys(name for axis in sizes for name in axis_names(axis))
        legal = [a for a in axes if a not in barred.get(module, ())]
        if rules.stream == "whole":
            legal = [a for a in legal if along(a) != along(graph.stream)]
        units = sizes | {a: alone[a] for a in axes if a in alone and a not in sizes}
        units |= {a: float(n) for a, n in graph.units.items() if a in axes and np.ndim(n) == 0}
        legal += ["+".join(several) for several in beside if len(several) > 1 and set(several) <= set(legal)]
        choices = list(_choices(legal, units, dimensions, mesh))
        told = pinned.get(module, {})
        for place, dimension in enumerate(dimensions):
            if dimension in told:
                choices = [c for c in choices if c[place] == told[dimension]]
            elif rules.outer == "forced" and module in forced:
                choices = [c for c in choices if c[place] in forced[module]] or choices
            elif rules.weights == "divided" and module in weighty:
                choices = [c for c in choices if c[place]] or choices
        found[module] = ModuleOptions(module, dimensions, tuple(choices))
    return found


def _common(known: float | None, extent: Extent) -> float:
    """Units of an axis that several extents of a module have: what divides all of them."""
    count = float(extent.count)
    return count if known is None else float(np.gcd(int(known), int(count)))


def _choices(
    legal: list[str], units: dict[str, float], dimensions: tuple[str, ...], mesh: dict[str, Number]
) -> Iterator[tuple[str, ...]]:
    """Axes for every dimension, so that each extent is divided evenly: a product by all that lie on it."""
    for choice in itertools.product(("", *legal), repeat=len(dimensions)):
        parts: dict[str, float] = {}
        for dimension, chosen in zip(dimensions, choice, strict=True):
            for axis in together_axes(chosen):
                parts[axis] = parts.get(axis, 1.0) * float(mesh[dimension])
        even = True
        for extent, count in units.items():
            divided = float(np.prod([parts.get(axis, 1.0) for axis in axis_names(extent)]))
            even = even and (divided == 1.0 or count % divided == 0)
        if even:
            yield choice


def _aliased(op: Op, graph: Graph) -> Iterator[str]:
    """Axes that are another name for the coordinate of a second axis of the same tensor (keys beside tokens):
    divided, the two could not be told apart.
    """
    for extents in (*(op.operand_axes(place) for place in range(len(op.inputs))), op.result_axes()):
        axes = [name for extent in extents for name in axis_names(extent)]
        for axis in axes:
            along = graph.coordinates.get(axis, axis)
            if along != axis and any(a != axis and graph.coordinates.get(a, a) == along for a in axes):
                yield axis


def sharding_of_each(
    options: dict[str, ModuleOptions], graph: Graph, work: Workload, mesh: dict[str, Number]
) -> list[Sharding]:
    """Shardings in which every module takes its option of that number, its last one where it has fewer."""
    most = max((len(o) for o in options.values()), default=1)
    active = Layout(mesh).active()
    each = [{m: min(k, len(own) - 1) for m, own in options.items()} for k in range(most)]
    return [chosen_layout(mesh, options, choice).sharding(graph, work, active) for choice in each]


def sharding_of_all(options: dict[str, ModuleOptions], each: list[Sharding]) -> Sharding:
    """One sharding whose degrees are arrays over the options of a module: all of them priced in one call."""
    modules = {}
    for module, own in options.items():
        axes = dict.fromkeys(a for choice in own.choices for c in choice for a in together_axes(c))
        modules[module] = {
            axis: AxisLayout(np.array([each[k].axis(module, axis).parts for k in range(len(own))], float))
            for axis in axes
        }
    first = each[0]
    return Sharding(active=first.active, degrees=first.degrees, axes={}, modules=modules, gradient_sums=True)


def per_option(value: Number, count: int) -> Array:
    """A quantity for each of so many options."""
    return np.broadcast_to(np.asarray(value, float), (count,))
