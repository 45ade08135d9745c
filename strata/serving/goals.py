"""What is best of plans that serve requests, and the limits that clients set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import UnknownName, require
from strata.serving.load_metrics import LoadMetrics
from strata.serving.requests import Requests
from strata.units import show


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
        """What one load has of the limits at most, as a share of them: above 1 where one is not kept."""
        share = max(self.used(seen).values())
        return share if bool(seen.within(**self.told)) else max(share, 1.0 + 1e-9)

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
