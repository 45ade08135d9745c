"""Plans of training that cannot be run, refused in one line with the nearest that can."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strata.errors import BadValue
from strata.mapping.divisors import divisors
from strata.mapping.plan import Plan, plan_text
from strata.mapping.training_plan import RECOMPUTE, SCHEDULE
from strata.search.training_search import batch_neighbours
from strata.workload.model import Model
from strata.workload.tasks import Workload

FULL, SELECTIVE = RECOMPUTE.index("full"), RECOMPUTE.index("selective")
DUALPIPE, INTERLEAVES = SCHEDULE.index("dualpipe"), SCHEDULE.index("1f1b")


def check_training_plan(plan: Plan, model: Model, work: Workload, devices: float) -> None:
    """Refuse a plan of training that cannot be run, with its legal neighbours.

    >>> import strata as st
    >>> check_training_plan(st.plan("tp=8,pp=4,dp=3"), st.model("llama-3-70b"), st.train(64, 4096), 96)
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: plan tp=8,dp=3,pp=4: dp=3 must divide the batch of 64 sequences; \
nearest: dp=2 or dp=4, or a batch of 63 or 66
    """
    for line in _broken(plan, model, work, devices):
        raise BadValue(f"plan {plan_text(plan)}: {line}")


def near_divisors(number: float, wanted: float, most: float = float("inf")) -> list[int]:
    """The divisors of a number on both sides of one that is none, at most so large.

    >>> near_divisors(80, 64), near_divisors(64, 3), near_divisors(512, 128, 80)
    ([40, 80], [2, 4], [64])
    """
    whole = [d for d in divisors(int(number)) if d <= most]
    below, above = [d for d in whole if d < wanted], [d for d in whole if d > wanted]
    return [*below[-1:], *above[:1]]


def _either(name: str, values: list[int]) -> str:
    return " or ".join(f"{name}={value}" for value in values)


def _broken(plan: Plan, model: Model, work: Workload, devices: float) -> Iterator[str]:
    """What a plan breaks, the most telling first."""
    tp, cp, dp, pp, v = (float(x) for x in (plan.tp, plan.cp, plan.dp, plan.pp, plan.virtual_stages))
    batch, layers = float(work.batch), float(model.layers)
    if pp > layers:
        near = _either("pp", near_divisors(devices, pp, layers)[-1:])
        yield f"more stages than the {layers:g} layers of {model.name}; nearest: {near}"
    if tp * cp * dp * pp != devices:
        rest = devices / (tp * cp * pp)
        hint = f"dp={rest:g} makes them equal" if rest == np.floor(rest) else "tp x cp x pp must divide them"
        yield f"tp x cp x dp x pp is {tp * cp * dp * pp:g}, but there are {devices:g} devices; {hint}"
    if dp > batch:
        fewer = max(d for d in divisors(int(batch)) if d <= dp)
        yield (
            f"fewer sequences ({batch:g}) than data parallel ranks ({dp:g}); nearest: dp={fewer} "
            f"or a batch of {dp:g}"
        )
    if batch % dp:
        near = _either("dp", near_divisors(batch, dp))
        yield (
            f"dp={dp:g} must divide the batch of {batch:g} sequences; nearest: {near}, "
            f"or a batch of {batch_neighbours(batch, dp)}"
        )
    each, pieces = batch / dp, float(plan.microbatches) or batch / dp
    if pieces > each or each % pieces:
        near = _either("microbatches", near_divisors(each, pieces, each))
        yield f"microbatches={pieces:g} must divide the {each:g} sequences of a rank; nearest: {near}"
    yield from _broken_schedule(plan, pp, v, pieces, layers)
    yield from _broken_recompute(plan, model, pp * v)
    shard = float(plan.dp_shard)
    if shard and (dp * cp) % shard:
        near = _either("dp_shard", near_divisors(dp * cp, shard))
        ranks = f"{dp * cp:g} ranks that hold the same weights"
        yield f"dp_shard={shard:g} must divide the {ranks}; nearest: {near}"


def _broken_schedule(plan: Plan, pp: float, v: float, pieces: float, layers: float) -> Iterator[str]:
    name = SCHEDULE[int(plan.schedule)]
    if v > 1 and pp == 1:
        yield "virtual stages interleave a pipeline, and pp=1 has none; nearest: virtual_stages=1 or pp=2"
    if v > 1 and plan.schedule != INTERLEAVES:
        yield f"schedule={name} has one chunk a stage; nearest: virtual_stages=1 or schedule=1f1b"
    if pp * v > layers:
        most = [d for d in range(1, int(v)) if pp * d <= layers]
        yield (
            f"pp x virtual_stages is {pp * v:g}, more than the {layers:g} layers; "
            f"nearest: virtual_stages={most[-1] if most else 1}"
        )
    if v > 1 and pieces % pp:
        near = [n for n in (np.floor(pieces / pp) * pp, np.ceil(pieces / pp) * pp) if n]
        yield (
            f"an interleaved schedule takes micro-batches in multiples of its {pp:g} stages, and there are "
            f"{pieces:g}; nearest: microbatches={' or '.join(f'{n:g}' for n in near)}, or virtual_stages=1"
        )
    if plan.schedule == DUALPIPE and (pp % 2 or pieces < 2 * pp):
        yield (
            "schedule=dualpipe needs an even number of stages and micro-batches at least twice as many, and "
            f"has {pp:g} and {pieces:g}; nearest: schedule=1f1b"
        )


def _broken_recompute(plan: Plan, model: Model, chunks: float) -> Iterator[str]:
    """Recomputation that a plan cannot have: parts of layers it does not recompute, more than there are."""
    some, own = float(plan.recompute_layers), np.ceil(float(model.layers) / chunks)
    if some and plan.recompute != FULL:
        yield (
            f"recompute_layers={some:g} says how many layers recompute=full recomputes, and this plan has "
            f"recompute={RECOMPUTE[int(plan.recompute)]}; nearest: recompute=full,recompute_layers={some:g}"
        )
    if some > own:
        yield f"recompute_layers={some:g}, but a chunk has {own:g} layers; nearest: recompute_layers={own:g}"
    if plan.recompute == SELECTIVE and "heads" not in model.units:
        yield (
            f"recompute=selective repeats attention, and {model.name} has none; "
            "nearest: recompute=none or recompute=full"
        )
