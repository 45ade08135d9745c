"""What makes a plan of training legal: batches that divide, schedules and recomputation that go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strata.arrays import Number, floor_div, namespace
from strata.mapping.rules import (
    DUAL_PIECES,
    EVEN_STAGES,
    INTERLEAVED,
    ONE_CHUNK,
    RECOMPUTED,
    SHARDS,
    WHOLE_BATCH,
    Violation,
    remainder,
)
from strata.mapping.training_plan import SCHEDULE
from strata.workload.tasks import Workload

if TYPE_CHECKING:
    from strata.mapping.plan import Plan

DUALPIPE_CODE = float(SCHEDULE.index("dualpipe"))


def training_violations(plan: Plan, work: Workload, pieces: Number) -> list[Violation]:
    """Rules that a training step adds, with the nearest legal degrees; `pieces`: its micro-batches.

    >>> from strata.mapping.plan import plan
    >>> from strata.workload.tasks import train
    >>> odd = plan(pp=4, virtual_stages=2, microbatches=6)
    >>> [v.neighbours() for v in training_violations(odd, train(12.0, 8.0), 6.0) if v.broken]
    [('microbatches=4 or 8',)]
    """
    xp = namespace(plan.dp, plan.pp, pieces, work.batch, plan.schedule)
    told = xp.maximum(plan.microbatches, 1.0)
    rows, dual = plan.dp * told, plan.schedule == DUALPIPE_CODE
    several = plan.virtual_stages > 1.0
    few = xp.minimum(pieces, 2.0 * plan.pp)
    # of a full pipeline: those of a single stage have nothing to interleave
    uneven = several & (plan.pp > 1.0) & (remainder(pieces, plan.pp) > 0)
    short = dual & (plan.pp > 1.0) & ((pieces < 2.0 * plan.pp) | (remainder(pieces, 2.0) > 0))
    lone = (plan.recompute_layers > 0) & (plan.recompute < 2)
    parts = (plan.recompute_modules > 0) & (plan.recompute != 1)
    copies = plan.dp * plan.cp
    apart = remainder(copies, xp.maximum(plan.dp_shard, 1.0))
    broken = (remainder(work.batch, rows) > 0) & (work.packed < 1)
    return [
        Violation(WHOLE_BATCH, broken, work.batch, rows, "dp x microbatches"),
        Violation(INTERLEAVED, uneven, pieces, plan.pp, "microbatches", *_multiples(pieces, plan.pp)),
        Violation(ONE_CHUNK, several & (plan.schedule > 0), plan.virtual_stages, 1.0),
        Violation(
            EVEN_STAGES,
            dual & (plan.pp > 1.0) & (remainder(plan.pp, 2.0) > 0),
            plan.pp,
            2.0 * floor_div(plan.pp, 2.0),
            "pp",
            *_multiples(plan.pp, 2.0),
        ),
        Violation(DUAL_PIECES, short, few, 2.0 * plan.pp, "microbatches", *_pairs(pieces, plan.pp)),
        Violation(SHARDS, (plan.dp_shard > 0) & (apart > 0), copies, plan.dp_shard, "dp_shard"),
        Violation(RECOMPUTED, lone | parts, xp.maximum(plan.recompute_layers, plan.recompute_modules), 0.0),
    ]


def _multiples(value: Number, unit: Number) -> tuple[Number, Number]:
    """The multiples of a unit next to a value."""
    below = unit * floor_div(value, unit)
    return below, below + unit


def _pairs(pieces: Number, stages: Number) -> tuple[Number, Number]:
    """Even numbers next to a value, two a stage at least."""
    xp, (below, above) = namespace(pieces, stages), _multiples(pieces, 2.0)
    return xp.where(below >= 2.0 * stages, below, 0.0), xp.maximum(above, 2.0 * stages)
