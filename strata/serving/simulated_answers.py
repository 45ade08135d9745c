"""Questions to a simulated service: the largest rate that keeps limits, latency over load, cost against what
users see. All runs of a question have the same requests (common random numbers): they differ by what is asked
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.frames import Tabular, row_columns
from strata.mapping.plan import plan_text
from strata.pareto import non_dominated
from strata.serving.priced_service import PricedService, load_sizes
from strata.serving.simulated import checked_limits, simulate_services
from strata.serving.simulated_pools import Deployments
from strata.serving.simulated_result import LATENCIES, ServiceSimulation
from strata.simulate.server.fleet import Load
from strata.simulate.server.request import Request

WIDTH = 0.03  # relative: a rate is found within it
MOST_RUNS = 40
SHARES = (0.2, 0.4, 0.6, 0.75, 0.9, 1.0, 1.1)  # of the highest rate that is served, where no rates are told


@dataclass(frozen=True, eq=False, kw_only=True)
class PacedLoad:
    """The same requests, so many times as fast: arrivals are that much closer, what follows an answer is not
    changed.
    """

    load: Load
    speed: float

    def __post_init__(self) -> None:
        require(0 < self.speed < inf, "a load is made faster by a positive number", speed=self.speed)

    def arrivals(self) -> Iterator[Request]:
        for request in self.load.arrivals():
            request.arrival /= self.speed
            yield request

    def after(self, request: Request, now: float) -> Iterable[Request]:
        return self.load.after(request, now)


@dataclass(frozen=True, eq=False, kw_only=True)
class LargestRate:
    """The largest rate of requests at which a share of them keeps the limits."""

    rate: float  # that keeps them [1/s]; 0 where even one request at a time does not
    above: float  # the lowest that was tried and does not [1/s]; infinite where all did
    share: float
    run: ServiceSimulation | None  # at `rate`
    runs: list[tuple[float, ServiceSimulation]] = field(default_factory=list)  # all, as they were tried
    stopped: bool = False  # before it was found within the width that was asked for

    @property
    def width(self) -> float:
        """How far the answer may be too low, relative."""
        return self.above / self.rate - 1.0 if self.rate else inf


def holds(run: ServiceSimulation, share: float) -> bool:
    """Whether a share of the requests keeps all limits, and the queue is not one that only grows."""
    whole = not (run.stopped or run.given_up)
    return whole and run.kept >= share and not run.saturated


def find_rate(
    services: Deployments,
    load: Load,
    slo: dict[str, float],
    *,
    share: float = 0.95,
    width: float = WIDTH,
    router: str = "least-loaded",
    told: Callable[[float, ServiceSimulation], None] | None = None,
) -> LargestRate:
    """The largest rate at which a share of the requests keeps limits on latency, by halving within `width`.

    Every run has the same requests, closer together or further apart. `told` hears of each run. Ctrl-C ends
    the search with what is known so far.
    """
    checked_limits(slo)
    require(bool(slo), "a largest rate needs a limit, like slo={'ttft': 1.0}", slo=slo)
    require(0 < share <= 1, "the share of requests that keep the limits lies between 0 and 1", share=share)
    require(width > 0, "the width of an answer is positive", width=width)
    sizes = load_sizes(load)
    if not isfinite(sizes.rate):
        raise BadValue("requests that all come at once have no rate: give a load with arrival times")
    runs: list[tuple[float, ServiceSimulation]] = []
    misses = inf if sizes.more else (1.0 - share) * sizes.requests

    def kept(rate: float) -> bool:
        paced = PacedLoad(load=load, speed=rate / sizes.rate)
        run = simulate_services(services, paced, router=router, slo=slo, misses=misses)
        if run.stopped:
            raise KeyboardInterrupt
        runs.append((rate, run))
        if told is not None:
            told(rate, run)
        return holds(run, share)

    stopped = False
    try:
        low, high = _bracket(kept, sizes.rate)
        while low and isfinite(high) and high / low > 1.0 + width and len(runs) < MOST_RUNS:
            middle = sqrt(low * high)
            low, high = (middle, high) if kept(middle) else (low, middle)
    except KeyboardInterrupt:
        stopped = True
        low = max([rate for rate, run in runs if holds(run, share)], default=0.0)
        high = min([rate for rate, run in runs if not holds(run, share)], default=inf)
    best = next((run for rate, run in runs if rate == low), None)
    return LargestRate(rate=low, above=high, share=share, run=best, runs=runs, stopped=stopped)


def _bracket(kept: Callable[[float], bool], start: float) -> tuple[float, float]:
    """A rate that is kept and one that is not, from a first guess: by doubling or halving."""
    rate, good = start, kept(start)
    for _ in range(14):
        other = rate * 2.0 if good else rate / 2.0
        if kept(other) != good:
            return (rate, other) if good else (other, rate)
        rate = other
    return (rate, inf) if good else (0.0, rate)


def highest_rate(services: Deployments, load: Load, router: str = "least-loaded") -> float:
    """Requests a second that are completed where all of a load wait at the beginning [1/s]."""
    sizes = load_sizes(load)
    fast = PacedLoad(load=load, speed=1e6 if isfinite(sizes.rate) else 1.0)
    return simulate_services(services, fast, router=router).rate


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadLatency:
    """Runs of the same requests at several rates."""

    runs: list[tuple[float, ServiceSimulation]]
    stopped: bool = False  # before the last of them

    def __iter__(self) -> Iterator[tuple[float, ServiceSimulation]]:
        return iter(self.runs)


def load_latency(
    services: Deployments,
    load: Load,
    rates: Sequence[float] | None = None,
    *,
    slo: dict[str, float] | None = None,
    router: str = "least-loaded",
    told: Callable[[float, ServiceSimulation], None] | None = None,
) -> LoadLatency:
    """What requests see at each of some rates [1/s]; at shares of the highest that is served where none is
    told.
    """
    sizes = load_sizes(load)
    if not isfinite(sizes.rate):
        raise BadValue("requests that all come at once have no rate: give a load with arrival times")
    if rates is None:
        most = highest_rate(services, load, router)
        rates = [share * most for share in SHARES]
    found: list[tuple[float, ServiceSimulation]] = []
    for rate in rates:
        require(rate > 0, "rates are positive", rate=rate)
        run = simulate_services(
            services, PacedLoad(load=load, speed=rate / sizes.rate), router=router, slo=slo
        )
        if run.stopped:
            return LoadLatency(runs=found, stopped=True)
        found.append((rate, run))
        if told is not None:
            told(rate, run)
    return LoadLatency(runs=found)


@dataclass(frozen=True, kw_only=True)
class CostPoint:
    """A deployment at a rate: what users see of it and what it costs."""

    fleet: str
    rate: float  # [1/s]
    seen: float  # the percentile of the latency asked for [s]
    cost: float  # of a million tokens generated [USD]
    energy: float  # of a token [J]
    saturated: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class CostFrontier(Tabular):
    """Deployments at rates: which are on the frontier of cost against a latency."""

    latency: str
    share: float
    points: list[CostPoint]
    best: list[CostPoint]  # no other is both cheaper and quicker; quickest first
    stopped: bool = False  # before all were tried

    def columns(self) -> dict[str, Any]:
        """Every point, the best marked."""
        best = {id(p) for p in self.best}
        return row_columns({**vars(p), "best": id(p) in best} for p in self.points)


def cost_frontier(
    candidates: Sequence[Sequence[PricedService]],
    load: Load,
    *,
    latency: str = "tpot",
    share: float = 0.95,
    rates: Sequence[float] | None = None,
    slo: dict[str, float] | None = None,
    told: Callable[[float, ServiceSimulation], None] | None = None,
) -> CostFrontier:
    """Cost of a million tokens against a percentile of a latency, over deployments and rates; with `slo` only
    of runs in which the share keeps those limits.
    """
    if latency not in LATENCIES:
        raise UnknownName("latency", latency, LATENCIES)
    points, stopped = [], False
    for services in candidates:
        made = load_latency(services, load, rates, slo=slo, told=told)
        stopped = stopped or made.stopped
        for rate, run in made:
            if slo and run.kept < share:
                continue
            points.append(
                CostPoint(
                    fleet=run.fleet_text,
                    rate=rate,
                    seen=run.times[latency].percentile(share),
                    cost=run.cost_per_mtoken,
                    energy=run.energy_per_token,
                    saturated=run.saturated,
                )
            )
        if stopped:
            break
    fair = [p for p in points if not p.saturated and isfinite(p.cost)]
    scores = np.array([[-p.seen, -p.cost] for p in fair]).reshape(-1, 2)
    kept = non_dominated(scores).tolist()
    best = [p for p, on in zip(fair, kept, strict=True) if on]
    best.sort(key=lambda p: (p.seen, p.cost))
    return CostFrontier(latency=latency, share=share, points=points, best=best, stopped=stopped)


def answer_row(rate: float, run: ServiceSimulation) -> dict[str, Any]:
    """A run at a rate as one row [SI units]."""
    row: dict[str, Any] = {"fleet": run.fleet_text, "plan": plan_text(run.plan), "rate": rate}
    row |= {"completed_rate": run.rate, "tokens_per_s": run.tokens_per_s, "kept": run.kept}
    for name in ("ttft", "tpot", "latency"):
        times = run.times[name]
        row |= {f"{name}_mean": times.mean}
        row |= {f"{name}_p{100 * q:g}": times.percentile(q) for q in (0.5, 0.95, 0.99)}
    row |= {"cost_per_mtoken": run.cost_per_mtoken, "energy_per_token": run.energy_per_token}
    return row | {"power": run.power, "saturated": run.saturated}
