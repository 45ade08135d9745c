"""Plans of training that cannot be run, refused in one line with the nearest that can."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strata.errors import BadValue
from strata.mapping.divisors import divisors
from strata.mapping.plan import Plan, plan_text
from strata.mapping.rules import WHOLE_BATCH, near_divisors
from strata.mapping.training_plan import RECOMPUTE
from strata.mapping.training_rules import training_violations
from strata.search.training_search import batch_neighbours
from strata.workload.model import Model
from strata.workload.tasks import Workload

SELECTIVE = RECOMPUTE.index("selective")


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
    yield from _broken_chunks(pp, v, layers)
    for found in training_violations(plan, work, pieces):
        if found.broken and found.rule is not WHOLE_BATCH:  # told above, degree by degree
            near = " or ".join((*found.neighbours(), *found.rule.levers))
            yield f"{found.rule.relation}; nearest: {near}"
    yield from _broken_recompute(plan, model, pp * v)


def _broken_chunks(pp: float, v: float, layers: float) -> Iterator[str]:
    if v > 1 and pp == 1:
        yield "virtual stages interleave a pipeline, and pp=1 has none; nearest: virtual_stages=1 or pp=2"
    if pp * v > layers:
        most = [d for d in range(1, int(v)) if pp * d <= layers]
        yield (
            f"pp x virtual_stages is {pp * v:g}, more than the {layers:g} layers; "
            f"nearest: virtual_stages={most[-1] if most else 1}"
        )


def _broken_recompute(plan: Plan, model: Model, chunks: float) -> Iterator[str]:
    """Recomputation that a model has no use for: of more layers than there are, of attention it lacks."""
    some, own = float(plan.recompute_layers), np.ceil(float(model.layers) / chunks)
    if some > own:
        yield f"recompute_layers={some:g}, but a chunk has {own:g} layers; nearest: recompute_layers={own:g}"
    if plan.recompute == SELECTIVE and "heads" not in model.units:
        yield (
            f"recompute=selective repeats attention, and {model.name} has none; "
            "nearest: recompute=none or recompute=full"
        )
