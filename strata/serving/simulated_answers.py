"""Questions to a simulated service: the largest rate that keeps limits, latency over load, cost against what
users see. All runs of a question have the same requests (common random numbers): they differ by what is asked
alone. Where requests are drawn, a run of the largest rate has as many as it needs to be steady.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isfinite
from typing import Any

import numpy as np

from strata.base.errors import BadValue, UnknownName, require
from strata.base.pareto import non_dominated
from strata.base.records import Tabular, row_columns
from strata.mapping.plan import plan_text
from strata.serving.load_metrics import NOT_KEPT, WIDTH, largest_kept
from strata.serving.priced_service import PricedService, load_sizes
from strata.serving.simulated import Deployments, checked_limits, simulate_services
from strata.serving.simulated_result import LATENCIES, Served
from strata.serving.simulator.arrivals import BurstyArrivals, DailyArrivals
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.load import ENDLESS, MergedLoad, OpenLoad, SessionLoad
from strata.serving.simulator.saturation import FEW_REQUESTS, LEVEL, MOST_REQUESTS, SteadyShare
from strata.serving.simulator.scheduling import Request

ANEW = 7919  # added to seeds
FARTHEST = 14  # doublings or halvings of the load's own rate
BURSTS, SESSIONS = 10, 3  # bursts and sessions, one after the other, that a run has at least
SHARES = (0.2, 0.4, 0.6, 0.75, 0.9, 1.0, 1.1)  # of the highest rate that is served, where no rates are told


@dataclass(frozen=True, eq=False, kw_only=True)
class PacedLoad:
    """The same requests, so many times as fast; what follows an answer is not changed."""

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
    above: float  # the lowest that was tried and is not known to [1/s]; infinite where all do
    share: float
    run: Served | None  # at `rate`; its `steady` says how sure it is
    confirmed: Served | None = None  # at `rate`, requests drawn anew; none of a trace
    runs: list[tuple[float, Served]] = field(default_factory=list)  # all, as they were tried
    stopped: bool = False  # before it was found within the width that was asked for

    @property
    def width(self) -> float:
        """How far the answer may be too low, relative."""
        return self.above / self.rate - 1.0 if self.rate else inf

    @property
    def confidence(self) -> dict[str, Any] | None:
        """The share at the rate with its interval, of how many requests, and of how many drawn anew."""
        steady, again = (run.steady if run is not None else None for run in (self.run, self.confirmed))
        if steady is None:
            return None
        other = {"confirmed": again.kept, "confirmed_requests": again.requests} if again is not None else {}
        return {"level": LEVEL} | steady.to_dict() | other


def holds(run: Served, share: float) -> bool:
    """Whether a share of the requests keeps all limits, and the queue is not one that only grows."""
    if run.steady is not None:
        return run.steady.verdict == "kept"
    return not run.stopped and run.kept >= share and not run.saturated


def drawn_load(load: Load) -> Load:
    """The same load without an end, where its requests are drawn; where its rate follows the day, of whole
    days. Traces and clients who wait for their answers are what they are.
    """
    process = getattr(load, "process", None)
    if isinstance(load, OpenLoad) and isinstance(process, DailyArrivals):
        day = process.rate * process.period
        days = max(ceil(min(load.count, process.rate * load.duration) / day - 0.01), 1)
        return replace(load, count=ceil(days * day), duration=inf)
    if isinstance(load, OpenLoad):
        return replace(load, count=ENDLESS, duration=inf)
    if isinstance(load, SessionLoad) and not load.clients:
        return replace(load, count=ENDLESS)
    if isinstance(load, MergedLoad):
        endless = replace(load, loads=tuple(map(drawn_load, load.loads)))
        return endless if _endless(endless) else load
    inner: Any = load
    return replace(inner, load=drawn_load(inner.load)) if getattr(load, "load", None) is not None else load


def drawn_anew(load: Any) -> Any:
    """The same load with other draws."""
    changes: dict[str, Any] = {}
    if getattr(load, "loads", None):
        changes["loads"] = tuple(map(drawn_anew, load.loads))
    if getattr(load, "load", None) is not None:
        changes["load"] = drawn_anew(load.load)
    if getattr(load, "seed", None) is not None:
        changes["seed"] = load.seed + ANEW
    return replace(load, **changes)


def _parts(load: Any, speed: float = 1.0) -> list[tuple[Any, float]]:
    """Loads that one is made of, and how many times as fast each comes."""
    inner = getattr(load, "loads", None) or [one for one in (getattr(load, "load", None),) if one is not None]
    faster = speed * getattr(load, "speed", 1.0) if inner else speed
    return [part for one in inner for part in _parts(one, faster)] or [(load, speed)]


def _endless(load: Load) -> bool:
    counts = [(getattr(part, "count", 0), getattr(part, "duration", inf)) for part, _ in _parts(load)]
    return all(many == ENDLESS and duration == inf for many, duration in counts)


def _least(load: Any, speed: float) -> float:
    """Requests in which a load has had its bursts and its sessions, where it has any."""
    process, requests = getattr(load, "process", None), 0.0
    if isinstance(process, BurstyArrivals):
        requests = BURSTS * process.rate * (process.on + process.off)
    if not isinstance(load, SessionLoad):
        return requests
    turns = float(np.mean(load.turns.values or load.turns.mean))
    waits = turns * (load.think + load.tools * load.tool_time)
    rate = speed * (process.rate if process is not None else load.rate)
    return max(requests, SESSIONS * waits * rate) * turns * (1.0 + load.tools)


@dataclass(eq=False, kw_only=True)
class _RateSearch:
    services: Deployments
    load: Load
    slo: dict[str, float]
    means: dict[str, float]
    share: float
    router: str
    told: Callable[[float, Served], None] | None
    runs: list[tuple[float, Served]] = field(default_factory=list)
    again: Served | None = None  # of the last rate that was to be confirmed

    def __post_init__(self) -> None:
        self.drawn = drawn_load(self.load)
        self.sizes = load_sizes(self.drawn)
        if not isfinite(self.sizes.rate):
            raise BadValue("requests that all come at once have no rate: give a load with arrival times")
        counts = [getattr(part, "count", None) or 0 for part, _ in _parts(self.load)]
        self.most = max([MOST_REQUESTS, *[many for many in counts if many < ENDLESS]])
        requests = ENDLESS if self.sizes.more else self.sizes.requests
        self.misses = inf if _endless(self.drawn) else (1.0 - self.share) * requests

    def run(self, load: Load, rate: float, least: float, most: float) -> Served:
        paced = PacedLoad(load=load, speed=rate / self.sizes.rate)
        least = max(least, *[_least(part, speed) for part, speed in _parts(paced)])
        steady = SteadyShare(self.share, means=self.means, least=least, most=most, misses=self.misses)
        run = simulate_services(self.services, paced, router=self.router, slo=self.slo, steady=steady)
        if run.stopped:
            raise KeyboardInterrupt
        if load is self.drawn:
            self.runs.append((rate, run))
        if self.told is not None:
            self.told(rate, run)
        return run

    def excess(self, rate: float) -> float:
        """Logarithm of what requests have of the limits; above 0 where a rate is not known to keep them."""
        run = self.run(self.drawn, rate, 0.0, self.most)
        over = run.steady.excess if run.steady is not None else inf
        return min(over, 0.0) if holds(run, self.share) else max(over, NOT_KEPT)

    def confirmed(self, rate: float) -> bool:
        """Whether some thousand requests drawn anew do not deny a rate; traces are what they are."""
        if self.misses < inf:
            return True
        self.again = self.run(drawn_anew(self.drawn), rate, FEW_REQUESTS, FEW_REQUESTS)
        return self.again.steady is not None and self.again.steady.excess <= 0.0


def find_rate(
    services: Deployments,
    load: Load,
    slo: dict[str, float],
    *,
    share: float = 0.95,
    means: dict[str, float] | None = None,
    width: float = WIDTH,
    router: str = "least-loaded",
    told: Callable[[float, Served], None] | None = None,
) -> LargestRate:
    """The largest rate at which a share of the requests keeps limits on latency, within `width`; `means`:
    limits that they keep on average.

    Every run has the same requests, closer together or further apart: as many as it takes to know
    (`SteadyShare`), at most 20,000 or the load's count; of a trace its own. A rate whose queue grows, or that
    is not known to keep the share, is not claimed, nor one that 7,500 requests drawn anew deny.
    `told` hears of each run. Ctrl-C ends the search with what is known so far.
    """
    checked_limits(slo)
    checked_limits(means)
    require(bool(slo or means), "a largest rate needs a limit on a latency, like a ttft of 1 s")
    require(0 < share <= 1, "the share of requests that keep the limits lies between 0 and 1", share=share)
    require(width > 0, "the width of an answer is positive", width=width)
    asked: dict[str, Any] = {"slo": slo, "means": means or {}, "share": share}
    search = _RateSearch(services=services, load=load, router=router, told=told, **asked)
    runs, stopped, own = search.runs, False, search.sizes.rate
    ends = own * 2.0**-FARTHEST, own * 2.0**FARTHEST
    try:
        low, high = largest_kept(search.excess, own, *ends, width=width, confirmed=search.confirmed)
    except KeyboardInterrupt:
        stopped = True
        low = max([rate for rate, run in runs if holds(run, share)], default=0.0)
        high = min([rate for rate, run in runs if not holds(run, share)], default=inf)
    best = next((run for rate, run in runs if rate == low), None)
    again = search.again if best is not None and not stopped else None
    return LargestRate(
        rate=low, above=high, share=share, run=best, confirmed=again, runs=runs, stopped=stopped
    )


def highest_rate(services: Deployments, load: Load, router: str = "least-loaded") -> float:
    """Requests a second that are completed where all of a load wait at the beginning [1/s]."""
    sizes = load_sizes(load)
    fast = PacedLoad(load=load, speed=1e6 if isfinite(sizes.rate) else 1.0)
    return simulate_services(services, fast, router=router).rate


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadLatency:
    """Runs of the same requests at several rates."""

    runs: list[tuple[float, Served]]
    stopped: bool = False  # before the last of them

    def __iter__(self) -> Iterator[tuple[float, Served]]:
        return iter(self.runs)


def load_latency(
    services: Deployments,
    load: Load,
    rates: Sequence[float] | None = None,
    *,
    slo: dict[str, float] | None = None,
    router: str = "least-loaded",
    told: Callable[[float, Served], None] | None = None,
) -> LoadLatency:
    """What requests see at each of some rates [1/s], or at shares of the highest that is served."""
    sizes = load_sizes(load)
    if not isfinite(sizes.rate):
        raise BadValue("requests that all come at once have no rate: give a load with arrival times")
    if rates is None:
        most = highest_rate(services, load, router)
        rates = [share * most for share in SHARES]
    found: list[tuple[float, Served]] = []
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
    told: Callable[[float, Served], None] | None = None,
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


def answer_row(rate: float, run: Served) -> dict[str, Any]:
    """A run at a rate as one row [SI units]."""
    row: dict[str, Any] = {"fleet": run.fleet_text, "plan": plan_text(run.plan), "rate": rate}
    row |= {"completed_rate": run.rate, "tokens_per_s": run.tokens_per_s, "kept": run.kept}
    for name in ("ttft", "tpot", "latency"):
        times = run.times[name]
        row |= {f"{name}_mean": times.mean}
        row |= {f"{name}_p{100 * q:g}": times.percentile(q) for q in (0.5, 0.95, 0.99)}
    row |= {"cost_per_mtoken": run.cost_per_mtoken, "energy_per_token": run.energy_per_token}
    row |= {"power": run.power, "saturated": run.saturated}
    return row | (run.steady.to_dict() if run.steady is not None else {})
