"""One rank's part of an op: every extent divided as its axis lies; what of a layout decides that; and
collectives that a program writes down itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from strata.arrays import field_names
from strata.mapping.layout import STAGES, Sharding
from strata.mapping.plan_layout import HOST_ACTIVATIONS, HOST_STATE, ORDERED, TRAINING_GROUPS
from strata.mapping.training_plan import SCHEDULE, TrainingPlan
from strata.workload.graph import Block, Extent, Graph, Op, is_collective


def as_divided(sharding: Sharding) -> Sharding:
    """A layout with what a rank's graph depends on, and nothing else: plans that schedule a step, or keep
    what it leaves, in other ways share their graph.
    """
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
