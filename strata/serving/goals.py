"""What is best of plans that serve requests, the limits that clients set, and the most that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, log, log1p
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import UnknownName, require
from strata.serving.load_metrics import LoadMetrics
from strata.serving.requests import Requests
from strata.units import show

WIDTH = 0.05  # relative: the most that keeps limits is known within it
MOST_RUNS = 40  # in which it is looked for
UP = 2.0  # times a number, or its part, that is tried next at most
NOT_KEPT = 1e-9  # excess of what may keep limits, but is not known to


@dataclass(frozen=True, kw_only=True)
class ServingGoal:
    """What is best: a number of a load, larger is better, and how its loss is told."""

    name: str
    means: str
    value: Callable[[LoadMetrics, Requests], Array]
    fewest: bool = False  # with one request at once; else with as many as keep the limits


def _latency(load: LoadMetrics, requests: Requests) -> Array:
    return -(load.ttft + requests.later * load.tpot)


GOALS = {
    goal.name: goal
    for goal in (
        ServingGoal(name="throughput", means="tokens/s", value=lambda load, _: load.tokens_per_s),
        ServingGoal(name="cheapest", means="USD/Mtoken", value=lambda load, _: -load.cost_per_mtoken),
        ServingGoal(name="fastest", means="time of a request", value=_latency, fewest=True),
        ServingGoal(name="efficient", means="J/Mtoken", value=lambda load, _: -load.energy_per_mtoken),
    )
}


def serving_goal(name: str) -> ServingGoal:
    """A goal by its name.

    >>> serving_goal("cheapest").means
    'USD/Mtoken'
    """
    if name not in GOALS:
        raise UnknownName("goal", name, tuple(GOALS), ", ".join(GOALS))
    return GOALS[name]


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits on what clients see: mean times to the first token and between later ones [s], or of the first
    for a `share` of requests.
    """

    ttft: float = float("inf")
    tpot: float = float("inf")
    share: float | None = None

    def __post_init__(self) -> None:
        require(
            self.ttft > 0 and self.tpot > 0,
            "limits on latency must be positive",
            ttft=self.ttft,
            tpot=self.tpot,
        )
        require(
            self.share is None or 0.5 <= self.share < 1.0,
            "a share of requests lies between 0.5 and 1",
            share=self.share,
        )

    def nearest(self, seen: LoadMetrics) -> int:
        """Of some plans the one that misses the limits by least."""
        with np.errstate(invalid="ignore"):
            over = np.maximum(seen.ttft / self.ttft, seen.tpot / self.tpot)
        return int(np.argmin(np.where(np.isfinite(seen.ttft) & ~np.isnan(over), over, np.inf)))

    def used(self, seen: LoadMetrics) -> dict[str, float]:
        """What one load has of each limit, as a share of it."""
        first = float(seen.ttft if self.share is None else seen.ttft_at(self.share))
        return {"TTFT": first / self.ttft, "TPOT": float(seen.tpot) / self.tpot}

    def excess(self, seen: LoadMetrics) -> float:
        """Logarithm of what one load has of the limits at most: above 0 where one is not kept."""
        share = max(self.used(seen).values())
        over = log(share) if 0.0 < share < inf else share or -inf
        return over if bool(seen.within(**self.told)) else max(over, NOT_KEPT)

    @property
    def kinds(self) -> tuple[dict[str, float], dict[str, float]]:
        """Limits that a share of the requests keeps, and those on means, as far as there are any [s]."""
        limits = {n: v for n, v in (("ttft", self.ttft), ("tpot", self.tpot)) if v < inf}
        slo = {n: limits.pop(n) for n in ("ttft",) if self.share is not None and n in limits}
        return slo, limits

    def corrected(self, simulated: LoadMetrics, closed: LoadMetrics) -> ServingLimits:
        """Limits on the closed form that keep these of simulations, where its TPOT is off as for one load; of
        TTFT there is none where it refused that.
        """
        off = float(closed.tpot) / max(float(simulated.tpot), 1e-12)
        ttft = inf if str(closed.refusal) else self.ttft
        return replace(self, ttft=ttft, tpot=self.tpot * off) if 0.0 < off < inf else self

    @property
    def told(self) -> dict[str, Any]:
        return {"ttft": self.ttft, "tpot": self.tpot, "share": self.share}

    @property
    def text(self) -> str:
        return limits_text(self.ttft, self.tpot, self.share)


def limits_text(ttft: float, tpot: float, share: float | None = None) -> str:
    """Limits on latency as they follow a question; empty where there are none.

    >>> limits_text(2.0, 0.04, share=0.95)
    ', TTFT at most 2 s for 95 % of requests, TPOT at most 40 ms'
    """
    of = "" if share is None else f" for {share * 100:.4g} % of requests"
    limits = (("TTFT", ttft, of), ("TPOT", tpot, ""))
    return "".join(f", {k} at most {show(v, 's')}{of}" for k, v, of in limits if np.isfinite(v))


def largest_kept(
    excess: Callable[[float], float],
    start: float,
    least: float,
    most: float,
    *,
    width: float = WIDTH,
    near: float = 0.0,
    whole: bool = False,
    confirmed: Callable[[float], bool] = lambda _: True,
) -> tuple[float, float]:
    """The largest number with an `excess`, the logarithm of a share of limits, of at most 0, and the least
    above it with more: within a `width`, unless the excess is within `near` of 0, and `confirmed`. `whole`:
    as whole numbers.

    From `start` outwards, then along lines of logarithms, or by halving where the same end moves twice.

    >>> from math import log
    >>> largest_kept(lambda n: log(n / 37), 64.0, 1.0, 64.0, width=0.01, whole=True)
    (37.0, 38.0)
    """
    runs: dict[float, float] = {}
    low, high, tried = 0.0, inf, min(start, most)
    while len(runs) < MOST_RUNS and tried not in runs and least <= tried <= most:
        runs[tried] = excess(tried)
        while True:
            high = min([n for n, over in runs.items() if over > 0.0], default=inf)
            low = max([n for n, over in runs.items() if over <= 0.0 and n < high], default=0.0)
            close = high <= (1.0 + width) * low or high - low <= whole or runs.get(low, -inf) > -near
            if not low or not (close or low >= most) or confirmed(low):
                break
            runs[low] = NOT_KEPT
        if low and (close or low >= most):
            break
        tried = min(_next_tried(runs, low, high, width), most)
        tried = min(max(float(round(tried)), low + 1.0), high - 1.0) if whole else tried
    return low, high


def _next_tried(runs: dict[float, float], low: float, high: float, width: float) -> float:
    """A number between those that keep limits and those that do not, where half the width should be left; or
    beyond the last, each time farther.
    """
    aim, times = -0.5 * width, 2.0 ** (len(runs) - 1)
    if not isfinite(high):
        return low * exp(min(times * max(aim - runs[low], log1p(width)), log(UP)))
    if not low:
        return high / exp(min(times * max(runs[high] - aim, log1p(width)), log(UP)))
    *_, before, last = [over > 0.0 for over in runs.values()]
    halves = (len(runs) > 2 and before == last) or not isfinite(runs[high] - runs[low])
    place = 0.5 if halves else (aim - runs[low]) / (runs[high] - runs[low])
    return float(low * (high / low) ** min(max(place, 0.1), 0.9))
