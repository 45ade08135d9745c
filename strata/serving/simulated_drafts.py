"""Guesses in a simulated service: what a step that verifies them costs, and the room that the draft takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strata.arrays import Array, Number
from strata.evaluate import evaluate
from strata.serving.speculation import MTP, Drafting, draft_engine, draft_time, named_drafting, quickest_plan
from strata.simulate.server.step_pricer import StepPricer
from strata.workload.model import Model
from strata.workload.tasks import decode

USUAL_CONTEXT = 2048.0  # tokens of a sequence at which memory is looked at


def mtp_drafting(model: Model, acceptance: float, window: float = 1.0) -> Drafting:
    """Multi-token prediction: the model's own module guesses, under the model's plan.

    >>> from strata.workload.model import model
    >>> round(mtp_drafting(model("deepseek-v3"), 0.8, 2.0).tokens, 3)
    2.44
    """
    return named_drafting(MTP, model, acceptance=acceptance, window=window)


def drafted_pricer(pricer: StepPricer, drafting: Drafting) -> StepPricer:
    """An engine whose decode steps verify guesses of a draft, which has weights and a cache of its own."""
    engine, system, draft = pricer.engine, pricer.system, drafting.draft
    plan = drafting.plan or (
        pricer.plan  # a module of the model lies as the model does
        if draft.name == pricer.model.name
        else quickest_plan(system, draft, float(np.max(pricer.lanes)), USUAL_CONTEXT, draft_engine(engine))
    )

    def guessing(batch: Number, context: Number) -> Array:
        rows = np.maximum(batch, plan.dp)
        told = {"window": drafting.window, "branches": drafting.branches}
        return np.asarray(draft_time(system, draft, plan, engine, batch=rows, context=context, **told))

    def held(batch: Number, context: Number) -> Array:
        rows = np.maximum(batch, plan.dp)
        used = evaluate(system, draft, decode(rows, context), plan, engine).metrics.memory_used
        return np.maximum(np.asarray(used, float) - float(np.asarray(engine.reserve)), 0.0)

    return replace(pricer, draft_tokens=drafting.size, guessing=guessing, draft_bytes=held)
