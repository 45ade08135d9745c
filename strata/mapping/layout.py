"""Layouts: which axis of a tensor lies on which ranks; and the collectives between two layouts of one tensor.

A layout says for each module which axis is divided over which group of ranks while its ops run. Everything
else follows: where a tensor was left otherwise than it is wanted, a collective stands between; a divided axis
that an op sums over leaves partial sums. Which collectives can exist is structure; their sizes are arrays,
nothing where a group has one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Mask, Number, ceil_div, namespace, register_pytree
from strata.base.errors import BadValue, require
from strata.base.records import readable
from strata.mapping.rules import AXIS_UNITS, LAYERS, MESH, Violation, mesh_degree
from strata.mapping.training_plan import TrainingPlan
from strata.software.trainer import Trainer
from strata.workload.graph import Block, Extent, Graph, Op
from strata.workload.graph_walks import axis_names, boundary_extents, op_axes
from strata.workload.tasks import Workload

# coordinate of a tensor -> groups of ranks that it is divided over
PartitionSpec = dict[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False, slots=True)
class AxisLayout:
    """How a logical axis is divided: its units into `parts`, each unit into `inside` pieces; `spec`:
    coordinates it runs along, each with its group (tokens run along sequences and positions).
    """

    parts: Number = 1.0
    inside: Number = 1.0
    spec: tuple[tuple[str, str], ...] = ()

    def local(self, extent: Extent) -> Extent:
        return Extent(ceil_div(extent.count, self.parts), extent.unit / self.inside, extent.axis)


UNDIVIDED = AxisLayout()
# Endings of modules in a layout: what differs for their gradients, and for those of weights.
GRADIENTS, WEIGHT_GRADIENTS = ".backward", ".wgrad"
DEEPFLOW = "deepflow-2021"  # rules of a layout
STAGES = "pp"  # the dimension of a mesh that cuts the sequence of blocks into stages of a pipeline


@dataclass(frozen=True, eq=False, kw_only=True)
class Alternative:
    """One of several ways a module may be laid out in a batch: which points take it, and how."""

    name: str = ""
    mask: Mask | None = None  # None: every point
    axes: dict[str, dict[str, AxisLayout]] = field(default_factory=dict)  # by module, where it differs
    ring: bool = False  # gathers go round in steps beside the op that waits for them

    def masked(self, payload: Number) -> Number:
        """A payload where this alternative holds, else nothing."""
        if self.mask is None or self.mask is True:
            return payload
        return 0.0 if self.mask is False else namespace(self.mask, payload).where(self.mask, payload, 0.0)


PLAIN = Alternative()


@dataclass(frozen=True, eq=False, kw_only=True)
class Sharding:
    """What `shard` divides a graph by, and what prices need to know of it: ranks of each active group, each
    axis's division (by module where one differs), how a step is scheduled, what is kept where.
    """

    active: frozenset[str]
    degrees: dict[str, Number]
    axes: dict[str, AxisLayout]
    modules: dict[str, dict[str, AxisLayout]] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = (PLAIN,)
    microbatches: Number = 1.0
    stages: Number = 1.0  # of a pipeline
    virtual_stages: Number = 1.0
    # times a stage hands on what it made while it works on a micro-batch: time steps of a recurrence
    handovers: Number = 1.0
    training: TrainingPlan = field(default_factory=TrainingPlan)
    trainer: Trainer | None = None  # formats in which sharded weights and their gradients cross
    zero: Number = 0.0  # ZeRO level
    # ranks that hold the same weights for other sequences: they shard weights and sum gradients
    replicas: Number = 1.0
    state_replicas: Number = 1.0  # ranks that hold the same weights at all: they shard optimiser state
    expert_replicas: Number = 1.0
    sequence_parts: Number = 1.0  # parts in which sums over a tensor group are kept (sequence parallel)
    # training: the group that holds the residual stream in parts, so that sums are scattered onto it and
    # gathered from it, and the axes under which blocks hand it on so
    sequence_group: str = ""
    residual_axes: tuple[tuple[str, str], ...] = ()
    # where plans of a batch differ in that: the layout of each kind, and the points it holds for
    variants: tuple[Sharding, ...] = ()
    where: Mask = True
    redundant_experts: Number = 0.0
    exchange_ranks: Number = 1.0  # ranks a token may have to be sent to
    gradient_sums: bool = False  # sums of weight gradients stand in the graph, not at the end of the step
    # as DeepFlow's program schedules an LSTM: ends on stages of their own, sums on links of their own
    deepflow: bool = False
    whole: bool = False  # nothing is divided
    # answers of `spec`
    known: dict[tuple[str, tuple[str, ...], str], PartitionSpec] = field(default_factory=dict)

    def axis(self, module: str, axis: str) -> AxisLayout:
        own = self.modules.get(module)
        found = own.get(axis) if own is not None else None
        found = found if found is not None else self.axes.get(axis)
        if found is None:
            return self._along(module, axis) if "*" in axis else UNDIVIDED
        return found

    def _along(self, module: str, axis: str) -> AxisLayout:
        """How the product of several axes lies: each as it lies alone."""
        parts, inside, spec = UNDIVIDED.parts, UNDIVIDED.inside, UNDIVIDED.spec
        for name in axis.split("*"):
            one = self.axis(module, name)
            parts, inside, spec = parts * one.parts, inside * one.inside, spec + one.spec
        return AxisLayout(parts, inside, spec)

    def spec(self, module: str, axes: tuple[str, ...], alternative: Alternative = PLAIN) -> PartitionSpec:
        """Where axes lie while a module's ops run, in coordinates."""
        key = (module, axes, alternative.name)
        known = self.known.get(key)
        if known is not None:
            return known
        own, found = alternative.axes.get(module), dict[str, tuple[str, ...]]()
        for axis in axes:
            layout = own.get(axis) if own is not None else None
            for coordinate, group in (layout or self.axis(module, axis)).spec:
                if group in self.active:
                    found[coordinate] = (*found.get(coordinate, ()), group)
        self.known[key] = found
        return found

    def by_axis(self, module: str, axes: tuple[str, ...]) -> PartitionSpec:
        """Where axes lie, each by its own name: two axes of a weight may be one coordinate of activations."""
        every = ((axis, self.axis(module, axis).spec) for axis in axes)
        groups = ((axis, tuple(group for _, group in spec if group in self.active)) for axis, spec in every)
        return {axis: on for axis, on in groups if on}

    def laid_out(self, op: Op) -> Op:
        """The op under its own pass's layout: `module.wgrad` of weights, `module.backward` of others."""
        if not op.backward or not self.modules:
            return op
        own = op.module + (WEIGHT_GRADIENTS if op.weight_gradient else GRADIENTS)
        return replace(op, module=own) if own in self.modules else op

    def role(self, block: Block) -> str:
        """Whose layout rules the boundary of a block: that of its role, or of gradients there."""
        own = block.role + GRADIENTS
        return own if block.direction == "backward" and own in self.modules else block.role


def module_of(op: Op) -> str:
    """The module whose forward ops an op belongs to.

    >>> from strata.workload.graph import Op
    >>> module_of(Op(name="a", module="hidden.wgrad", inputs=(), output="b"))
    'hidden'
    """
    return op.module.removesuffix(WEIGHT_GRADIENTS).removesuffix(GRADIENTS)


@dataclass(frozen=True, slots=True)
class Conversion:
    """One collective between two layouts of a tensor: pattern, group, and its payload in local tensors."""

    pattern: str
    group: str
    onto: str = ""  # the coordinate that the group divides afterwards, where there is one
    gathered: bool = False  # its buffer is the whole that the ranks hold together


def conversions(have: PartitionSpec, partial: tuple[str, ...], want: PartitionSpec) -> list[Conversion]:
    """The collectives that turn one layout of a tensor into another, in order.

    Partial sums are added up, in pieces where the reader wants them so; an axis that is divided and wanted
    whole is gathered; a group that goes on to divide another axis exchanges all with all; what is whole and
    wanted in pieces is only sliced.

    >>> [(c.pattern, c.group) for c in conversions({"n": ("tp",)}, (), {})]
    [('all_gather', 'tp')]
    >>> [(c.pattern, c.group) for c in conversions({"x": ("p",)}, (), {"y": ("p",)})]
    [('all_to_all', 'p')]
    >>> [conversions({}, ("tp",), want)[0].pattern for want in ({}, {"s": ("tp",)})]
    ['all_reduce', 'reduce_scatter']
    """
    found: list[Conversion] = []
    if not partial and have == want:
        return found
    held = {(coordinate, group) for coordinate, groups in have.items() for group in groups}
    wanted = {(coordinate, group) for coordinate, groups in want.items() for group in groups}
    new = wanted - held
    for group in partial:
        onto = next((pair for pair in sorted(new) if pair[1] == group), None)
        if onto is None:
            found.append(Conversion("all_reduce", group))
        else:
            found.append(Conversion("reduce_scatter", group, onto[0]))
            new.discard(onto)
    for _, group in sorted(held - wanted):
        onto = next((pair for pair in sorted(new) if pair[1] == group), None)
        if onto is None:
            found.append(Conversion("all_gather", group, gathered=True))
        else:
            found.append(Conversion("all_to_all", group, onto[0]))
            new.discard(onto)
    return found


@register_pytree
@readable("mesh")
@dataclass(frozen=True, eq=False)
class Layout:
    """A layout of any program: a mesh of ranks, and which axis lies on which of its dimensions, by module
    where they differ.

    The last dimension of the mesh is the outermost on the fabric; one called `pp` cuts the sequence of blocks
    into stages. A module `name.backward` or `name.wgrad` says what differs for gradients of activations and
    of weights. `st.layout` makes one from dictionaries.

    `rules`: "deepflow-2021" is there only to repeat that program's numbers. More than two stages leave the
    first and the last to what stands before and after all layers; time steps pass stages as a wave, with
    hand-overs beside; sums of gradients run on links of their own, one for each block; backward, W and A are
    gathered whole, W in every time step.
    """

    mesh: dict[str, Number]
    axes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    modules: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...] = ()
    name: str = ""  # how it is typed, where that is not by degrees of its mesh
    dimensions: tuple[str, ...] = ()  # of the mesh, innermost first: a compiler sorts dictionaries
    rules: str = ""

    def __post_init__(self) -> None:
        require(
            isinstance(self.mesh, dict), "the mesh of a layout is a dictionary of degrees", mesh=self.mesh
        )
        if not self.dimensions:
            object.__setattr__(self, "dimensions", tuple(self.mesh))

    @property
    def devices(self) -> Number:
        return math.prod(self.mesh.values(), start=1.0)

    def active(self) -> frozenset[str]:
        return frozenset(name for name, degree in self.mesh.items() if bool(np.any(np.asarray(degree) > 1)))

    def group_ranks(self, active: frozenset[str]) -> dict[str, tuple[Number, Number, None]]:
        """Groups with the distance between their members and their number, in the order of the mesh."""
        found: dict[str, tuple[Number, Number, None]] = {}
        stride: Number = 1.0
        for name in self.dimensions:
            degree = self.mesh[name]
            found[name] = (stride, degree, None)
            stride = stride * degree
        return found

    def sharding(self, graph: Graph, work: Workload, active: frozenset[str]) -> Sharding:
        own = {module: self._resolved(axes, graph.coordinates) for module, axes in self.modules}
        axes = self._resolved(self.axes, graph.coordinates)
        self._check_axes(graph, active)
        return Sharding(
            active=active,
            degrees=dict(self.mesh),
            axes=axes,
            modules=_with_gradients(axes, own),
            stages=self.mesh.get(STAGES, 1.0),
            handovers=_handovers(graph),
            gradient_sums=True,
            deepflow=self.rules == DEEPFLOW,
            whole=not active,
        )

    def _check_axes(self, graph: Graph, active: frozenset[str]) -> None:
        """Raise where ranks are told axes of which no op has any (nor, said for a module, a boundary)."""
        every, known = (self.axes, *(own for _, own in self.modules)), op_axes(graph)
        outer = (e.axis for b in graph.blocks for e in boundary_extents(b) if self.modules)
        there = {*known, *(name for axis in outer for name in axis_names(axis))}
        for group in sorted(active):
            said = dict.fromkeys(axis for axes in every for axis, groups in axes if group in groups)
            if said and there.isdisjoint(said):
                raise BadValue(
                    f"nothing can be divided along {' or '.join(said)} (dimension {group} of the mesh); "
                    f"axes that can be divided: {', '.join(known) or 'none'}"
                )

    def _resolved(
        self, axes: tuple[tuple[str, tuple[str, ...]], ...], coordinates: dict[str, str] = {}
    ) -> dict[str, AxisLayout]:
        found = {}
        for axis, groups in axes:
            parts = math.prod((self.mesh[group] for group in groups), start=1.0)
            along = coordinates.get(axis, axis)
            found[axis] = AxisLayout(parts, 1.0, tuple((along, group) for group in groups))
        return found

    def violations(self, units: dict[str, Number], work: Workload, devices: Number) -> list[Violation]:
        """Rules of legality with what they ask for and what there is."""
        ranks = self.devices
        found = [Violation(MESH, ranks != devices, ranks, devices)]
        for axes in (self.axes, *(own for _, own in self.modules)):
            for axis, layout in self._resolved(axes).items():
                if axis in units:
                    found.append(Violation(AXIS_UNITS, layout.parts > units[axis], layout.parts, units[axis]))
        if STAGES in self.mesh:
            stages, layers = self.mesh[STAGES], units.get("layers", 1.0)  # what has none is one stage
            most = layers + (2.0 if self.rules == DEEPFLOW and "layers" in units else 0.0)
            found.append(Violation(LAYERS, stages > most, stages, most))
        return found


def _with_gradients(
    axes: dict[str, AxisLayout], own: dict[str, dict[str, AxisLayout]]
) -> dict[str, dict[str, AxisLayout]]:
    """Whole layouts of modules: what is not said for one is as everywhere, for its gradients as for it."""
    found = {}
    for module, said in own.items():
        base = module.removesuffix(WEIGHT_GRADIENTS).removesuffix(GRADIENTS)
        found[module] = {**axes, **own.get(base, {}), **said}
    return found


def _handovers(graph: Graph) -> Number:
    """How often layers run with one set of weights: time steps, which stages work on one after the other."""
    order = graph.sequence
    return next((b.repeats for b in graph.blocks if order.in_layers(b.name)), 1.0)


def layout(mesh: dict[str, Any], axes: dict[str, Any] | None = None, **modules: dict[str, Any]) -> Layout:
    """A layout from dictionaries: mesh dimensions with their degrees (numbers or arrays), and axes with the
    dimensions they lie on.

    Keywords say what differs for a module; an axis may lie on one dimension or on several.

    >>> made = layout({"kp1": 4, "kp2": 2}, {"m": "kp1", "n": "kp2"}, norm={"m": ("kp1", "kp2")})
    >>> float(made.devices), made.axes
    (8.0, (('m', ('kp1',)), ('n', ('kp2',))))
    """
    mesh = {name: mesh_degree(degree, name) for name, degree in mesh.items()}

    def told(given: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        for axis, on in given.items():
            named = isinstance(on, str) or (
                isinstance(on, (tuple, list)) and all(isinstance(o, str) for o in on)
            )
            require(named, f"layout: axis {axis} lies on a dimension by name, or on several", got=on)
        found = tuple((axis, (on,) if isinstance(on, str) else tuple(on)) for axis, on in given.items())
        for axis, groups in found:
            for group in groups:
                require(
                    group in mesh, f"layout: axis {axis} lies on a dimension of the mesh", dimension=group
                )
        return found

    return Layout(mesh, told(axes or {}), tuple((m, told(own)) for m, own in modules.items()))
