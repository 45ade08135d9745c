"""Plans of training that cannot be run, refused in one line with the nearest that can."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strata.base.errors import BadValue
from strata.mapping.plan import Plan, plan_text
from strata.mapping.rules import WHOLE_BATCH, divisors, near_divisors
from strata.mapping.training_plan import RECOMPUTE, training_violations
from strata.params.files import names
from strata.software.engine import Engine
from strata.software.engine import engine as make_engine
from strata.training.plan_search import batch_neighbours
from strata.workload.model import Model
from strata.workload.tasks import Workload

SELECTIVE = RECOMPUTE.index("selective")
ZERO_LEVELS = (0.0, 1.0, 2.0, 3.0)


def check_training_plan(plan: Plan, model: Model, work: Workload, devices: float) -> None:
    """Refuse a plan of training that cannot be run, with its legal neighbours.

    >>> import strata as st
    >>> check_training_plan(st.plan("tp=8,pp=4,dp=3"), st.model("llama-3-70b"), st.train(64, 4096), 96)
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: plan tp=8,dp=3,pp=4: dp=3 must divide the batch of 64 sequences; \
nearest: dp=2 or dp=4, or a batch of 63 or 66
    """
    for line in _broken(plan, model, work, devices):
        raise BadValue(f"plan {plan_text(plan)}: {line}")


def check_trainable(engine: Engine, model: Model, work: Workload) -> None:
    """Refuse software that does not train, and whole numbers as weights that are trained.

    >>> import strata as st
    >>> from strata.software.engine import engine
    >>> check_trainable(engine("vllm"), st.model("llama-3-8b"), st.train(8, 4096))
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: engine vllm samples and does not train; engines that do: deepflow-2021, \
ideal, megatron, megatron-2022, megatron-deepspeed, nanotron, nanotron-before-pp-fix, pytorch, torch-compile
    """
    if engine.training is None:
        able = [name for name in names("engine") if make_engine(name).training is not None]
        raise BadValue(f"engine {engine.name} samples and does not train; engines that do: {', '.join(able)}")
    if model.weights.startswith("int") and work.adapters is None:
        raise BadValue(
            f"weights of {model.weights} cannot be trained: a gradient's step is smaller than theirs; "
            "nearest: --weights fp8 or bf16, or adapters beside frozen ones (--lora 16)"
        )


def _either(name: str, values: list[int]) -> str:
    return " or ".join(f"{name}={value}" for value in values)


def _broken(plan: Plan, model: Model, work: Workload, devices: float) -> Iterator[str]:
    """What a plan breaks, the most telling first."""
    tp, cp, dp, pp, v = (float(x) for x in (plan.tp, plan.cp, plan.dp, plan.pp, plan.virtual_stages))
    batch, layers = float(work.batch), float(model.layers)
    if pp > layers:
        near = _either("pp", near_divisors(devices, pp, layers)[-1:])
        yield f"more stages than the {layers:g} layers of {model.name}; nearest: {near}"
    if float(plan.zero) not in ZERO_LEVELS:
        yield f"zero={float(plan.zero):g} is no level of ZeRO; nearest: zero={np.clip(plan.zero, 0, 3):.0f}"
    if tp * cp * dp * pp != devices:
        rest = devices / (tp * cp * pp)
        hint = f"dp={rest:g} makes them equal" if rest == np.floor(rest) else _dividing(tp, cp, pp, devices)
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


def _dividing(tp: float, cp: float, pp: float, devices: float) -> str:
    """Degrees that divide the devices, next to one that does not."""
    for name, degree in (("tp", tp), ("cp", cp), ("pp", pp)):
        if devices % degree:
            return f"{name} must divide them; nearest: {_either(name, near_divisors(devices, degree))}"
    return "tp x cp x pp must divide them"


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
