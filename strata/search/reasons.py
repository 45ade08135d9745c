"""Why one answer is better than another: the ratio of two as a product of reasons, which adds up in
logarithms. And what a sequence waits for while it gets a token, by what binds: of served requests, of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from strata.base.units import show
from strata.pricing.price import BOUNDS
from strata.result import Result
from strata.serving.curve import Curve
from strata.serving.load import closed_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.steps import ServedSteps
from strata.software.engine import request_time

GENERATING, READING, WAITING, STEP = "generating", "reading", "waiting", "step"
QUEUE, REQUEST = "queue", "request"  # what requests wait for beside bounds of steps
Part = tuple[str, str]  # a stage and what binds it
TOLD = 4  # reasons of a sentence
SMALL = 0.03  # of all that reasons do in logarithms: what does less is told with the rest
LEAST = 5e-3  # a factor that is told
SAME = 1e-3  # reasons that do less together, in logarithms, make no difference
ON_CHIP = ("compute", "cache", "memory")
FLIP, FLIP_SAVES = 4.0, 0.02  # another resource binds: times apart, and share of the whole
SHORT = {"memory": "DRAM", "compute": "compute", "cache": "caches"}
BATCH, PRICE, POWER = "batch", "price", "power"
WORDS = {
    "memory": "DRAM time",
    "compute": "compute time",
    "cache": "cache time",
    "network": "network time",
    "overhead": "fixed times of kernels",
    "host": "host time of the engine",
    "bubble": "pipeline bubble",
    "throttling": "throttling",
    QUEUE: "queues",
    REQUEST: "taking requests in",
}
DURING = {GENERATING: "", STEP: "", READING: " while prompts are read", WAITING: ""}


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One of the causes of a ratio between two answers: `share` is what it adds to the ratio's logarithm."""

    what: str  # a stage of a token's time, or batch, price, power
    bound: str = ""  # what binds that stage
    share: float
    before: float  # of the one compared with, and of this one [s]; sequences; USD/h or W of the system
    after: float
    saves: float = 0.0  # of a token's time
    said: str

    @property
    def factor(self) -> float:
        """What it multiplies the ratio by."""
        return math.exp(self.share)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How one answer compares with another: `ratio` is the product of all reasons' factors."""

    ratio: float
    reasons: tuple[Reason, ...]
    common_batch: float  # at which times are compared
    text: str


@dataclass(frozen=True, kw_only=True)
class Measure:
    """An answer as it is compared: its token time, that at any other batch, what it costs and draws."""

    own: TokenTime
    at: Callable[[float], TokenTime]
    least: float  # the smallest batch that its plan divides
    limited_by: str
    dollars: float  # of the system [USD/s]; nan where it has no price
    power: float  # [W]


def log_mean(a: float, b: float) -> float:
    r"""Logarithmic mean of two positive numbers.

    .. math:: L(a, b) = \frac{a - b}{\ln a - \ln b}, \qquad L(a, a) = a

    Ang, Energy Policy 33 (2005) 867, eq. 3: parts of a difference over it add up to the ratio's logarithm.

    >>> log_mean(2.0, 2.0), round(log_mean(1.0, math.e), 6)
    (2.0, 1.718282)
    """
    gap = (a - b) / b
    # near 1 the quotient of two small numbers has no digits left; the series has
    return b * (1.0 + 0.5 * gap) if abs(gap) < 1e-6 else (a - b) / math.log(a / b)


def times_apart(before: TokenTime, after: TokenTime) -> dict[Part, float]:
    r"""What each part of a token's time adds to the logarithm of the time's ratio (additive logarithmic mean
    Divisia index).

    .. math:: \ln \frac{\tau}{\tau'} = \sum_i \frac{t_i - t'_i}{L(\tau, \tau')}

    time τ before with its parts t, τ' after. Ang, Energy Policy 33 (2005) 867, table 1.

    >>> one = TokenTime(batch=1.0, tokens_per_s=0.25, parts={("step", "memory"): 3.0, ("step", "host"): 1.0})
    >>> two = TokenTime(batch=1.0, tokens_per_s=0.5, parts={("step", "memory"): 1.0, ("step", "host"): 1.0})
    >>> {part[1]: round(share / math.log(2), 9) for part, share in times_apart(one, two).items()}
    {'memory': 1.0, 'host': 0.0}
    """
    mean = log_mean(before.time, after.time)
    return {
        part: (before.parts.get(part, 0.0) - after.parts.get(part, 0.0)) / mean
        for part in dict.fromkeys((*before.parts, *after.parts))
    }


def why_different(before: Measure, after: Measure, goal: str, means: str) -> Difference:
    r"""Why an answer is so many times another one by a goal (throughput, cheapest, fastest, efficient).

    .. math:: \ln \frac{X'(N')}{X(N)} = \ln \frac{X'(N')}{X'(m)} + \sum_i \frac{t_i - t'_i}{L(\tau, \tau')}
              + \ln \frac{X(m)}{X(N)}

    Both are priced at the smaller of their batches m: there times differ by what binds (`times_apart`); what
    is left, batches do, with the longer steps they make. Cost adds the ratio of prices, energy that of
    powers, and a sequence's time counts X / N.
    """
    common = max(min(before.own.batch, after.own.batch), before.least, after.least)
    old, new = before.at(common), after.at(common)
    sign = 1.0 if goal == "throughput" else -1.0
    reasons = [_time_reason(part, share * sign, old, new) for part, share in times_apart(old, new).items()]
    batch = math.log(old.tokens_per_s / before.own.tokens_per_s)
    batch += math.log(after.own.tokens_per_s / new.tokens_per_s)
    if goal == "fastest":
        batch -= math.log(after.own.batch / before.own.batch)
    reasons.append(_batch_reason(sign * batch, before, after))
    spent = {"cheapest": (PRICE, before.dollars, after.dollars, "USD/h of the system", 3600.0)}
    spent["efficient"] = (POWER, before.power, after.power, "power", 1.0)
    if goal in spent:
        what, a, b, word, scale = spent[goal]
        share = math.log(b / a) if a > 0 and b > 0 else math.nan
        a, b = a * scale, b * scale
        words = f"{word} {_number(b, what)} instead of {_number(a, what)}"
        reasons.append(Reason(what=what, share=share, before=a, after=b, said=words))
    reasons.sort(key=lambda r: -abs(r.share))
    total = math.fsum(r.share for r in reasons)
    ratio = math.exp(total)
    return Difference(
        ratio=ratio, reasons=tuple(reasons), common_batch=common, text=_sentence(ratio, means, reasons)
    )


def _number(value: float, what: str) -> str:
    return show(value, "W") if what == POWER else f"{value:.3g}"


def _time_reason(part: Part, share: float, old: TokenTime, new: TokenTime) -> Reason:
    a, b = old.parts.get(part, 0.0), new.parts.get(part, 0.0)
    saves = (a - b) / old.time
    named = WORDS[part[1]] + DURING[part[0]]
    words = f"{named} {_change(a, b, saves)}"
    return Reason(what=part[0], bound=part[1], share=share, before=a, after=b, saves=saves, said=words)


def _batch_reason(share: float, before: Measure, after: Measure) -> Reason:
    a, b = before.own.batch, after.own.batch
    limits = [one.limited_by for one in (after, before) if one.limited_by]
    by = f" (limits: {' and '.join(dict.fromkeys(limits))})" if len(set(limits)) > 1 else ""
    by = f" ({limits[0]} limit)" if limits and not by else by
    return Reason(
        what=BATCH, share=share, before=a, after=b, said=f"batch {b:g} instead of {a:g}{by if a != b else ''}"
    )


Clause = tuple[float, str]  # what a reason adds to the ratio's logarithm, and the reason in words


def _clauses(reasons: list[Reason]) -> list[Clause]:
    """Reasons as they are told. An op's time is credited to what binds it: where that is another resource of
    the chip in the two answers, its time seems to come from nowhere, so that such a stage is told as one.
    """
    clauses: list[Clause] = []
    for stage in (GENERATING, STEP, READING):
        own = [r for r in reasons if r.what == stage and r.bound in ON_CHIP]
        large = [r for r in own if abs(r.saves) >= FLIP_SAVES]
        if any(max(r.before, r.after) > FLIP * min(r.before, r.after) for r in large):
            clauses.append(_flipped(own, stage))
            reasons = [r for r in reasons if r not in own]
    clauses += [(r.share, r.said) for r in reasons]
    return sorted(clauses, key=lambda clause: -abs(clause[0]))


def _flipped(own: list[Reason], stage: str) -> Clause:
    before, after = (math.fsum(values) for values in zip(*((r.before, r.after) for r in own), strict=True))
    first = max(own, key=lambda reason: reason.before).bound
    second = max(own, key=lambda reason: reason.after).bound
    instead = "" if first == second else f" instead of {SHORT[first]}"
    how = _change(before, after, math.fsum(r.saves for r in own))
    words = f"kernels{DURING[stage]}, most bound by {SHORT[second]}{instead}, {how}"
    return math.fsum(r.share for r in own), words


def _change(a: float, b: float, saves: float) -> str:
    if a > 0 and b > 0:
        how = f"{a / b:.3g}x shorter" if a >= b else f"{b / a:.3g}x longer"
    else:
        how = "gone" if a > 0 else "new"
    return f"{how}, {'saves' if saves >= 0 else 'adds'} {abs(saves) * 100:.0f} % of the time"


def _sentence(ratio: float, means: str, reasons: list[Reason]) -> str:
    """The ratio and its largest reasons, each with its factor; the product of factors is the ratio."""
    if math.isnan(ratio):
        return f"no {means}: a price or a power is not known"
    clauses = _clauses(reasons)
    whole = math.fsum(abs(share) for share, _ in clauses)
    if whole < SAME:
        return f"the same {means}"
    shown = [clause for clause in clauses[:TOLD] if abs(clause[0]) >= max(SMALL * whole, LEAST)]
    rest = math.exp(math.fsum(clause[0] for clause in clauses if clause not in shown))
    parts = [f"{words} (x{math.exp(share):.3g})" for share, words in shown]
    parts += [f"the rest x{rest:.3g}"] if abs(rest - 1.0) >= LEAST else []
    return f"{ratio:.3g}x {means}: {'; '.join(parts)}"


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
