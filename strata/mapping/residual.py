"""The residual stream held in parts by the ranks of a group (sequence parallelism): what blocks take in,
route and hand on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from strata.arrays import field_names, namespace
from strata.mapping.layout import Sharding
from strata.workload.expert_ops import ROUTER
from strata.workload.graph import Block, Extent, Op, Tensor, is_collective


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
    """Ops of a rank with the collectives that each of several layouts puts between them: of one layout they
    carry something only at the points it holds for.
    """
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
