"""One rank's part of an op; states of tensors between ops; collectives that a program writes itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strata.base.arrays import Number, field_names, namespace
from strata.mapping.layout import PLAIN, STAGES, Alternative, Conversion, PartitionSpec, Sharding
from strata.mapping.plan_layout import HOST_ACTIVATIONS, HOST_STATE, ORDERED, TRAINING_GROUPS
from strata.mapping.training_plan import SCHEDULE, TrainingPlan
from strata.workload.expert_ops import ROUTER
from strata.workload.graph import Block, Extent, Graph, Op, Tensor, is_collective


def as_divided(sharding: Sharding) -> Sharding:
    """A layout with what a rank's graph depends on, and nothing else: other plans share that graph."""
    if sharding.gradient_sums or sharding.variants:
        return sharding
    beside = {STAGES, ORDERED, HOST_STATE, HOST_ACTIVATIONS, *SCHEDULE}
    whole_weights: dict[str, Any] = {}
    if "fsdp" not in sharding.active:
        beside |= TRAINING_GROUPS
        whole_weights = {"zero": 0.0, "replicas": 1.0, "state_replicas": 1.0}
    return replace(
        sharding,
        active=sharding.active - beside,
        degrees={name: ranks for name, ranks in sharding.degrees.items() if name not in beside},
        microbatches=1.0,
        stages=1.0,
        virtual_stages=1.0,
        training=TrainingPlan(),
        expert_replicas=1.0,
        sequence_parts=1.0,
        known={},
        **whole_weights,
    )


def divide(op: Op, sharding: Sharding, known: dict[tuple[int, str], Extent]) -> Op:
    """The op of one rank: every extent divided as its axis lies; extents that ops share stay shared."""
    kind: type[Any] = type(op)
    values: dict[str, Any] = {}
    for name in field_names(kind):
        value = getattr(op, name)
        if value.__class__ is Extent:
            value = _local(value, op.module, sharding, known)
        elif value.__class__ is tuple and value and value[0].__class__ is Extent:
            value = tuple([_local(e, op.module, sharding, known) for e in value])
        values[name] = value
    made: Op = kind(**values)
    return made


def _local(extent: Extent, module: str, sharding: Sharding, known: dict[tuple[int, str], Extent]) -> Extent:
    if not extent.axis:
        return extent
    key = (id(extent), module if module in sharding.modules else "")
    made = known.get(key)
    if made is None:
        made = known[key] = sharding.axis(module, extent.axis).local(extent)
    return made


def without_idle_collectives(graph: Graph, active: Collection[str]) -> Graph:
    """The graph without collectives over groups of one rank: their readers read what they read."""
    idle = {
        f"{block.name}:{op.output}": f"{block.name}:{op.inputs[0]}"
        for block, op in graph.ops()
        if is_collective(op) and op.group not in active and op.inputs
    }
    if not idle:
        return graph
    return replace(graph, blocks=tuple(_relinked(block, idle) for block in graph.blocks))


def _relinked(block: Block, idle: dict[str, str]) -> Block:
    def source(tensor: str) -> str:
        """What stands in a tensor's place, by its name here or in another block."""
        far = ":" in tensor
        name = tensor if far else f"{block.name}:{tensor}"
        while name in idle:
            name = idle[name]
        return name if far else name.partition(":")[2]

    def kept(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        left = (op for op in ops if source(op.output) == op.output)
        return tuple(replace(op, inputs=tuple(source(t) for t in op.inputs)) for op in left)

    output = block.output
    if output is not None:
        output = replace(output, name=source(output.name))
    return replace(
        block,
        ops=kept(block.ops),
        nodes=tuple((weight, kept(ops)) for weight, ops in block.nodes),
        leaves=tuple(source(t) for t in block.leaves),
        output=output,
    )


@dataclass(frozen=True, eq=False, slots=True)
class TensorState:
    """How a tensor was left by the op that made it, under one of the alternatives a batch has."""

    spec: PartitionSpec
    partial: tuple[str, ...] = ()
    bytes: Callable[[], Number] = float  # of one rank, before `pieces`
    summed: Callable[[], Number] = float  # as partial sums
    producer: str = ""
    alternative: Alternative = PLAIN
    pieces: Number = 1.0  # that a sum was left in

    def added_up(self, made: list[Conversion], degrees: dict[str, Number]) -> TensorState:
        """Its partial sums added up, in pieces where its first reader wanted them so."""
        spec, pieces = dict(self.spec), self.pieces
        for one in made:
            if one.pattern == "reduce_scatter":
                spec[one.onto] = (*spec.get(one.onto, ()), one.group)
                pieces = pieces * degrees[one.group]
        return replace(self, partial=(), spec=spec, pieces=pieces)


TensorStates = tuple[TensorState, ...]  # one, or one for each alternative


def alike(left: dict[str, TensorStates], tensors: Sequence[str]) -> list[tuple[str, ...]]:
    """Tensors of a sum, in order of the last of each group: partial sums that lie alike on all ranks are
    added there first and go between ranks as one; each of the others by itself.

    >>> tp = TensorState({}, ("tp",))
    >>> cut = TensorState({"rows": ("cp",)}, ("tp",))
    >>> alike({"a": (tp,), "b": (cut,), "c": (tp,), "d": (TensorState({}),)}, "abcd")
    [('b',), ('a', 'c'), ('d',)]
    """
    groups: dict[object, list[str]] = {}
    for tensor in dict.fromkeys(tensors):
        states = left.get(tensor, ())
        key: object = tensor
        if any(state.partial for state in states):
            specs = [tuple(sorted(state.spec.items())) for state in states]
            key = tuple(specs if any(spec != specs[0] for spec in specs) else specs[:1])
        groups[key] = [*groups.pop(key, []), tensor]
    return [tuple(group) for group in groups.values()]


def added(left: dict[str, TensorStates], tensors: Sequence[str]) -> TensorStates:
    """Tensors that lie alike, added up on each rank: partial sums over the groups of any of them (a rank of a
    group that one of them is whole on adds it, the others nothing), as large as the last.
    """
    every = [left.get(tensor, ()) for tensor in tensors]
    if len(every) == 1:
        return every[0]
    longest = max(every, key=len)

    def groups(place: int) -> tuple[str, ...]:
        found = (states[min(place, len(states) - 1)].partial for states in every)
        return tuple(dict.fromkeys(group for partial in found for group in partial))

    return tuple(
        replace(every[-1][min(place, len(every[-1]) - 1)], partial=groups(place), alternative=one.alternative)
        for place, one in enumerate(longest)
    )


def residual_in_parts(block: Block, sharding: Sharding) -> Block:
    """A block that takes in, routes and hands on the residual stream in the parts that ranks hold of it."""
    if not sharding.residual_axes:
        return block
    axes = dict(sharding.residual_axes)

    def renamed(extent: Extent) -> Extent:
        return replace(extent, axis=axes[extent.axis]) if extent.axis in axes else extent

    def ends(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else replace(tensor, extents=tuple(renamed(e) for e in tensor.extents))

    def routed(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(_with_extents(op, renamed) if op.role == ROUTER else op for op in ops)

    nodes = tuple((weight, routed(ops)) for weight, ops in block.nodes)
    return replace(
        block, entry=ends(block.entry), output=ends(block.output), ops=routed(block.ops), nodes=nodes
    )


def _with_extents(op: Op, change: Callable[[Extent], Extent]) -> Op:
    values = {name: getattr(op, name) for name in field_names(type(op))}
    changed: dict[str, Any] = {name: change(e) for name, e in values.items() if isinstance(e, Extent)}
    return replace(op, **changed)


def side_by_side(ops: list[Op], runs: list[list[Op]], variants: tuple[Sharding, ...]) -> list[Op]:
    """Ops of a rank with each layout's collectives, which carry something only where that layout holds."""
    made, places = list[Op](), [0] * len(runs)
    for op in (*ops, None):
        for i, (run, variant) in enumerate(zip(runs, variants, strict=True)):
            while places[i] < len(run) and run[places[i]] is not op:
                one = run[places[i]]
                assert is_collective(one)
                if one.exchange is None:
                    payload = namespace(variant.where, one.payload).where(variant.where, one.payload, 0.0)
                    made.append(replace(one, name=one.name + variant.sequence_group, payload=payload))
                elif i == 0:  # every rank sends its own tokens, however it held them
                    made.append(one)
                places[i] += 1
            places[i] += 1
        if op is not None:
            made.append(op)
    return made
