"""Memory of a step on the fullest device, and of every stage of a pipeline."""

from __future__ import annotations

import numpy as np

from strata.arrays import Number
from strata.pricing.footprint import (
    Footprint,
    footprint_of,
    fullest_stage,
    memory_by_purpose,
    resident_bytes,
)
from strata.pricing.given import Pricing
from strata.pricing.stage_times import counts_at_stages, stages_seen
from strata.pricing.training_memory import training_memory, update_memory
from strata.workload.graph import Block


def step_memory(
    given: Pricing, held: list[tuple[Block, Footprint]], counts: list[Number]
) -> dict[str, Number]:
    """Bytes by purpose on the device that holds most; counts as of `stage_counts_of`."""
    pipelined = given.structure.pipelined
    if not given.training:
        return memory_by_purpose(held, counts, given.sharding, pipelined=pipelined)
    order = given.graph.sequence
    found = training_memory(held, counts, given.sharding, order, given.engine, stages_seen(given))
    return fullest_stage(found) if pipelined else found


def memory_in_step(given: Pricing) -> dict[str, Number]:
    """Bytes by purpose on the device that holds most, of a training step that is not priced."""
    held = [(b, _held(given, b)) for b in given.graph.blocks]
    found = step_memory(given, held, _counts(given, stages_seen(given)))
    return {**found, **resident_bytes(given.graph, given.sharding), "reserve": given.engine.reserve}


def _held(given: Pricing, block: Block) -> Footprint:
    return footprint_of(block, given.sharding, True, given.engine.page)


def memory_by_stage(given: Pricing) -> dict[str, Number]:
    """Bytes by purpose of every stage of a training step of one point, on a leading axis."""
    stages = np.arange(float(given.sharding.stages))
    held = [(b, footprint_of(b, given.sharding, True)) for b in given.graph.blocks]
    found = training_memory(
        held, _counts(given, stages), given.sharding, given.graph.sequence, given.engine, stages
    )
    beside = resident_bytes(given.graph, given.sharding) | {"reserve": given.engine.reserve}
    return {purpose: size + 0.0 * stages for purpose, size in (found | beside).items()}


def first_stage_at_update(given: Pricing) -> Number:
    """Bytes that a framework counts as allocated on the first stage while optimiser state is updated."""
    held = [(b, footprint_of(b, given.sharding, True)) for b in given.graph.blocks]
    first = 0.0 * stages_seen(given)
    found = update_memory(
        held, _counts(given, first), given.sharding, given.graph.sequence, given.engine, first
    )
    return np.asarray(found)[0] if given.structure.pipelined else found


def _counts(given: Pricing, nodes: Number) -> list[Number]:
    if not given.structure.pipelined:
        return [b.count for b in given.graph.blocks]
    return counts_at_stages(given, given.graph.blocks, nodes)
