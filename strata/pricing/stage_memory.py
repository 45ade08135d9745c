"""Memory of a step on the fullest device, of every stage of a pipeline, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from strata.arrays import Number
from strata.mapping.plan import Plan
from strata.mapping.training_plan import OFFLOAD, RECOMPUTE
from strata.pricing.footprint import (
    Footprint,
    footprint_of,
    fullest_stage,
    memory_by_purpose,
    resident_bytes,
)
from strata.pricing.given import Pricing
from strata.pricing.pipeline import counts_at_stages, stages_seen
from strata.pricing.training_memory import held_blocks, training_memory, update_memory
from strata.units import show
from strata.workload.graph import Block


def step_memory(
    given: Pricing, held: list[tuple[Block, Footprint]], counts: list[Number]
) -> dict[str, Number]:
    """Bytes by purpose on the device that holds most; counts as of `stage_counts_of`."""
    pipelined = given.structure.pipelined
    if not given.training:
        return memory_by_purpose(held, counts, given.sharding, pipelined=pipelined)
    blocks = held_blocks(held, counts, given.graph.sequence)
    found = training_memory(blocks, given.sharding, given.engine, stages_seen(given))
    return fullest_stage(found) if pipelined else found


def _held(given: Pricing, page: Number = 1.0) -> list[tuple[Block, Footprint]]:
    return [(b, footprint_of(b, given.sharding, True, page)) for b in given.graph.blocks]


def memory_beside(given: Pricing) -> dict[str, Number]:
    """Bytes that lie beside all blocks: of towers, and what the engine keeps free."""
    return resident_bytes(given.graph, given.sharding) | {"reserve": given.engine.reserve}


def _counts(given: Pricing, nodes: Number) -> list[Number]:
    if not given.structure.pipelined:
        return [b.count for b in given.graph.blocks]
    return counts_at_stages(given, given.graph.blocks, nodes)


def memory_in_step(given: Pricing) -> dict[str, Number]:
    """Bytes by purpose on the device that holds most, of a training step that is not priced."""
    held = _held(given, given.engine.kv_block_size)
    return step_memory(given, held, _counts(given, stages_seen(given))) | memory_beside(given)


def memory_by_stage(given: Pricing) -> dict[str, Number]:
    """Bytes by purpose of every stage of a training step of one point, on a leading axis."""
    stages = np.arange(float(given.sharding.stages))
    held = held_blocks(_held(given), _counts(given, stages), given.graph.sequence)
    found = training_memory(held, given.sharding, given.engine, stages)
    return {purpose: size + 0.0 * stages for purpose, size in (found | memory_beside(given)).items()}


def first_stage_at_update(given: Pricing) -> Number:
    """Bytes that a framework counts as allocated on the first stage while optimiser state is updated."""
    first = 0.0 * stages_seen(given)
    held = held_blocks(_held(given), _counts(given, first), given.graph.sequence)
    found = update_memory(held, given.sharding, given.engine, first)
    return np.asarray(found)[0] if given.structure.pipelined else found


MOST_LEVERS = 5  # that are told


def training_levers(
    plan: Plan,
    memory: dict[str, float],
    limit: float,
    needed: Callable[[Plan], float],
    microbatches: float,
    sequences: float,
) -> tuple[str, ...]:
    """Words on memory that does not fit: its largest purpose, then levers, those that suffice first.

    needed: bytes under another plan, infinite where that is not legal; sequences: of one data parallel rank.
    """
    used = sum(memory.values())
    largest = max(memory, key=lambda purpose: memory[purpose])
    found: list[tuple[bool, float, str, float]] = []
    for words, other in changed_plans(plan, microbatches, sequences):
        left = needed(other)
        if left < used:
            found.append((left > limit, len(found) if left <= limit else left, words, left))
    told = [f"(most of it is {largest}: {show(memory[largest], 'B')})"]
    for over, _, words, left in sorted(found)[:MOST_LEVERS]:
        margin = f"{show(abs(limit - left), 'B')} {'too much still' if over else 'to spare'}"
        told.append(f"{words}: {show(left, 'B')} ({margin})")
    return tuple(told)


def changed_plans(plan: Plan, microbatches: float, sequences: float) -> Iterator[tuple[str, Plan]]:
    """Plans one lever away, as words and plan; those that cost least time first."""
    dp, shards = float(plan.dp), float(plan.dp * plan.cp)
    for level in (1.0, 2.0, 3.0):
        if shards > 1 and level > plan.zero:
            yield f"zero={level:g}", replace(plan, zero=level)
    if plan.tp > 1 and not plan.sp:
        yield "sp=1", replace(plan, sp=1.0)
    if microbatches > 0 and sequences / microbatches >= 2 and sequences % (2 * microbatches) == 0:
        yield f"microbatches={2 * microbatches:g}", replace(plan, microbatches=2.0 * microbatches)
    for place, word in enumerate(RECOMPUTE):
        if place > plan.recompute:
            yield f"recompute={word}", replace(plan, recompute=float(place), recompute_layers=0.0)
    if plan.recompute_layers > 0:
        yield "recompute_layers=0 (all)", replace(plan, recompute_layers=0.0)
    for name in ("tp", "pp"):
        if dp % 2 == 0:
            more = 2.0 * float(getattr(plan, name))
            kept = 2.0 * microbatches if sequences >= 2 * microbatches else microbatches
            degrees = {name: more, "dp": dp / 2.0, "microbatches": kept}
            yield f"{name}={more:g} dp={dp / 2.0:g}", replace(plan, **degrees)
    for place, word in enumerate(OFFLOAD):
        if place > plan.offload:
            yield f"offload={word}", replace(plan, offload=float(place))
