"""Communication of a step that no work hides, by what it is for."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.pricing.block import PricedBlock
from strata.workload.graph import Collective, is_collective

# what collectives of a group are for; others go by their group's own name
PURPOSES = {"expert_tp": "ep", "expert_tp_dp": "ep"}
SHARDED = {"all_gather": "parameters", "reduce_scatter": "gradients"}  # of weights that ranks share out


def purpose_of(op: Collective) -> str:
    """What a collective is for: the dimension of the plan that asks for it, or weights that are sharded.

    >>> purpose_of(Collective(pattern="all_gather", group="dp_shard", payload=1.0, prefetch=True))
    'parameters'
    """
    if op.prefetch and op.pattern in SHARDED:
        return SHARDED[op.pattern]
    return PURPOSES.get(op.group, op.group)


def add_times(one: dict[str, Number], other: dict[str, Number]) -> dict[str, Number]:
    """Times by name, added up.

    >>> add_times({"tp": 1.0}, {"tp": 2.0, "gradients": 0.5})
    {'tp': 3.0, 'gradients': 0.5}
    """
    return one | {name: one.get(name, 0.0) + time for name, time in other.items()}


def exposed_in_blocks(
    blocks: tuple[PricedBlock, ...], sharding: Sharding, training: bool
) -> dict[str, Number]:
    """Time of collectives that kernels of their blocks do not hide, on a mean device over all micro-batches
    [s]; layers that are recomputed have theirs again, but for weights, which are there already.
    """
    level = sharding.training.recompute
    again = namespace(level).where(level > 1, 2.0, 1.0) if training else 1.0
    share = sharding.microbatches / sharding.stages
    found: dict[str, Number] = {}
    for b in blocks:
        for op, price in b.ops:
            if is_collective(op):
                often = again if b.block.direction == "forward" and not op.prefetch else 1.0
                time = (b.block.times * share * often) * price.time
                name = purpose_of(op)
                found[name] = found.get(name, 0.0) + time
    return found
