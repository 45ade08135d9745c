"""What a sequence waits for while it gets a token, by what binds: of served requests, and of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from strata.mapping.engine import request_time
from strata.pricing.price import BOUNDS
from strata.result import Result
from strata.serving.curve import Curve
from strata.serving.load import closed_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.steps import ServedSteps

GENERATING, READING, WAITING, STEP = "generating", "reading", "waiting", "step"
QUEUE, REQUEST = "queue", "request"  # what requests wait for beside bounds of steps
Part = tuple[str, str]  # a stage and what binds it


@dataclass(frozen=True, kw_only=True)
class TokenTime:
    """Time of one sequence for one token [s], by stage and by what binds: `parts` add up to `time`."""

    batch: float
    tokens_per_s: float
    parts: Mapping[Part, float]

    @property
    def time(self) -> float:
        r"""Time of a sequence for a token [s] (Little's law).

        .. math:: \tau = \frac{N}{X}

        sequences N of the whole system at once, tokens X a second.

        >>> TokenTime(batch=8.0, tokens_per_s=400.0, parts={}).time
        0.02
        """
        return self.batch / self.tokens_per_s


def _shared(result: Result, time: float) -> dict[str, float]:
    """A time by what binds a result's steps."""
    every = {bound: float(np.asarray(result.summary.resources[bound])) for bound in BOUNDS}
    return {bound: time * seconds / sum(every.values()) for bound, seconds in every.items()}


def served_token_time(curve: Curve, batch: float, seen: LoadMetrics | None = None) -> TokenTime:
    r"""Of the first plan of a curve with so many clients, each waiting for its answer.

    .. math:: \tau = \frac{1}{O} \left(W + Q + R + (O - 1) (T + B)\right)

    tokens O of an answer; the engine's time to take a request in W, queues Q, reading its prompt R; a step
    that generates T, and what prompts of others make it longer B. R is shared out by what binds steps that
    read and generate, B by what binds steps that only read. `seen`: what clients see, else in closed form.
    """
    one = curve.at(0)
    seen, asked = closed_load(one, batch).at(0, 0) if seen is None else seen, one.requests
    active = np.atleast_2d(seen.active)
    steps = ServedSteps(
        system=one.system,
        model=one.model,
        requests=asked,
        plan=one.plan_at(0),
        engine=one.engine,
        pieces=float(one.between(one.pieces, active)[0, 0]),
        drafting=None,
    )
    step = float(one.between(one.step, active)[0, 0]) / one.gain
    alone = steps.priced(steps.reading_alone())
    taken_in = np.asarray(request_time(one.engine, asked.input), float)
    intake = min(float(np.max(taken_in)), float(seen.waits))
    stages = (
        (GENERATING, _shared(steps.priced(steps.generating(active[0, 0])), asked.later * step)),
        (READING, _shared(steps.priced(steps.reading(active[0, 0])), float(seen.reads))),
        (READING, _shared(alone, asked.later * (float(seen.tpot) - step))),
        (WAITING, {REQUEST: intake, QUEUE: float(seen.waits) - intake}),
    )
    total = batch / float(seen.tokens_per_s)
    return TokenTime(batch=batch, tokens_per_s=float(seen.tokens_per_s), parts=_added(stages, total))


def step_token_time(result: Result) -> TokenTime:
    """Of a single step, whether or not it fits: resources of steps have no infinite times."""
    batch = float(np.asarray(result.workload.batch))
    span = sum(float(np.asarray(seconds)) for seconds in result.summary.resources.values())
    tokens = float(np.asarray(result.steps[-1].items)) / span
    parts = _added(((STEP, _shared(result, 1.0)),), batch / tokens)
    return TokenTime(batch=batch, tokens_per_s=tokens, parts=parts)


def _added(stages: tuple[tuple[str, dict[str, float]], ...], total: float) -> dict[Part, float]:
    """Times of equal stages and bounds added up, so that all of them make the total: what is left by
    halving in `closed_load` (1e-9) is spread.
    """
    parts: dict[Part, float] = {}
    for stage, times in stages:
        for bound, time in times.items():
            parts[stage, bound] = parts.get((stage, bound), 0.0) + time
    scale = total / sum(parts.values())
    return {part: time * scale for part, time in parts.items() if time != 0.0}
