"""Replicas that serve together: arrivals, a router, and the one clock of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Protocol

from strata.errors import UnknownName
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request

ROUTERS = ("round-robin", "least-loaded", "prefix-aware")
SPREAD = 1.25  # times the mean load that a replica may have and still get a request for its cache


class Load(Protocol):
    """Where requests come from: in order of arrival, and some because others are done."""

    def arrivals(self) -> Iterator[Request]: ...

    def after(self, request: Request, now: float) -> Iterable[Request]:
        """Requests that come because this one is done, each at its arrival."""


class Router:
    """Which replica a request goes to."""

    def __init__(self, replicas: list[Replica], policy: str = "least-loaded") -> None:
        if policy not in ROUTERS:
            raise UnknownName("router", policy, ROUTERS)
        self.replicas, self.policy, self._turn = replicas, policy, -1

    def choose(self, request: Request) -> Replica:
        every = self.replicas
        if len(every) == 1:
            return every[0]
        self._turn = (self._turn + 1) % len(every)
        if self.policy == "round-robin":
            return every[self._turn]
        turned = every[self._turn :] + every[: self._turn]  # of equals, each in turn
        least = min(turned, key=lambda r: r.outstanding)
        if self.policy == "least-loaded" or not request.prefix:
            return least
        best = max(turned, key=lambda r: r.cached(request))
        fair = SPREAD * (1 + sum([r.outstanding for r in every]) / len(every))
        return best if best.cached(request) > 0 and best.outstanding <= fair else least


@dataclass(eq=False, kw_only=True)
class Fleet:
    """Replicas behind a router, on one clock."""

    replicas: list[Replica]
    router: Router
    load: Load
    record: Callable[[Request], None]
    refuse: Callable[[Request], None]
    clock: float = 0.0
    _events: list[tuple[float, int, int]] = field(default_factory=list)
    _follow: list[tuple[float, int, Request]] = field(default_factory=list)
    _serial: int = 0

    def run(self, until: float = float("inf"), each: Callable[[float], bool] | None = None) -> None:
        """Serve until nothing is left, `until` has passed, or `each`, asked now and then, says no."""
        arrivals = self.load.arrivals()
        next_ = next(arrivals, None)
        events, turns = self._events, 0
        while True:
            turns += 1
            if each is not None and not turns % 4096 and not each(self.clock):
                return
            follow = self._follow
            from_load = next_ is not None and (not follow or next_.arrival <= follow[0][0])
            coming = next_ if from_load else follow[0][2] if follow else None
            delay = self.replicas[0].rules.request_time
            if coming is not None and (not events or coming.arrival + delay <= events[0][0]):
                if from_load:
                    next_ = next(arrivals, None)
                else:
                    heappop(follow)
                self.clock = coming.arrival + delay
                if self.clock > until:
                    return
                self._arrive(coming)
                continue
            if not events:
                return
            time, index, version = heappop(events)
            replica = self.replicas[index]
            if version != replica.version or not replica.steps:
                continue
            self.clock = time
            if time > until:
                return
            replica.end(self._done)
            self._start(replica)

    def _arrive(self, request: Request) -> None:
        replica = self.router.choose(request)
        if not replica.fits(request):
            self.refuse(request)
            return
        version, steps = replica.version, replica.steps
        replica.enqueue(request, self.clock)
        if not steps:
            self._start(replica)
        elif replica.version != version:
            heappush(self._events, (replica.until, replica.index, replica.version))

    def _start(self, replica: Replica) -> None:
        if replica.start(self.clock):
            heappush(self._events, (replica.until, replica.index, replica.version))

    def _done(self, request: Request) -> None:
        self.record(request)
        for later in self.load.after(request, request.last):
            self._serial += 1
            heappush(self._follow, (later.arrival, self._serial, later))
