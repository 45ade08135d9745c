"""What would make a training step fit: its largest purpose of memory, and levers with what each leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from strata.mapping.plan import Plan
from strata.mapping.training_plan import OFFLOAD, RECOMPUTE
from strata.units import show

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
