"""Replicas that serve together: arrivals, routers, pools that hand requests on, and the one clock of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

from strata.serving.simulator.pool import Pool
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.saturation import Overload, SaturationWatch
from strata.serving.simulator.scheduling import Request

SEEN = 16  # arrivals between two looks at how many wait
TURNS = 256  # of the clock between two questions whether to go on


class Load(Protocol):
    """Where requests come from: in order of arrival, and some because others are done."""

    def arrivals(self) -> Iterator[Request]: ...

    def after(self, request: Request, now: float) -> Iterable[Request]:
        """Requests that come because this one is done, or was refused, each at its arrival."""


Later = tuple[float, int, Callable[[Request, Any], None], Request, Any]


@dataclass(eq=False, kw_only=True)
class Fleet:
    """Pools of replicas, each behind its router, on one clock."""

    pools: tuple[Pool, ...]
    load: Load
    record: Callable[[Request], None]
    refuse: Callable[[Request], None]
    replicas: list[Replica] = field(init=False)  # of all pools
    clock: float = 0.0
    present: int = 0  # requests that have come and are not done
    refusals: Counter[str] = field(default_factory=Counter)  # how many, by why
    watch: SaturationWatch = field(default_factory=SaturationWatch)
    _events: list[tuple[float, int, int]] = field(default_factory=list)
    _later: list[Later] = field(default_factory=list)
    _serial: int = 0

    def __post_init__(self) -> None:
        self._entries = [p for p in self.pools if not any(q.then is p for q in self.pools)]
        self.pools = tuple(dict.fromkeys([*self.pools, *[p.then for p in self.pools if p.then is not None]]))
        self.replicas = [r for pool in self.pools for r in pool.replicas]
        self._pool_of: list[Pool] = [pool for pool in self.pools for _ in pool.replicas]
        for i, replica in enumerate(self.replicas):
            replica.index = i
        for pool in self.pools:
            pool.begin()
        self._done = [self._ends(pool, r) for pool in self.pools for r in pool.replicas]
        self._delay = min(r.rules.request_time for p in self._entries for r in p.replicas)
        inner = getattr(self.load, "load", self.load)
        self._watched = not getattr(inner, "clients", 0)  # clients that wait for answers never overrun

    @property
    def overloads(self) -> list[Overload]:
        """Times in which requests came faster than they were served."""
        return self.watch.overloads

    @property
    def saturated_from(self) -> float | None:
        """Since when the queue grew without end until the last arrival [s]; none where it did not."""
        return self.watch.start

    # -- the clock

    def run(self, until: float = float("inf"), each: Callable[[float], bool] | None = None) -> None:
        """Serve until nothing is left, `until` has passed, or `each`, asked now and then, says no."""
        arrivals = self.load.arrivals()
        next_ = next(arrivals, None)
        events, later, delay, turns = self._events, self._later, self._delay, 0
        while True:
            turns += 1
            if each is not None and not turns % TURNS and not each(self.clock):
                return
            if next_ is not None and (not later or next_.arrival + delay <= later[0][0]):
                time = next_.arrival + delay
                if not events or time <= events[0][0]:
                    request, next_ = next_, next(arrivals, None)
                    self.clock = time
                    if time > until:
                        return
                    if self._watched:
                        self._see(request.arrival, next_ is None)
                    self._arrive(request, None)
                    continue
            elif later and (not events or later[0][0] <= events[0][0]):
                self.clock, _, act, request, what = heappop(later)
                if self.clock > until:
                    return
                act(request, what)
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
            replica.end(self._done[index])
            self._start(replica)
            pool = self._pool_of[index]
            if pool.pending:
                self._fill(pool)
            if pool.slots:
                self._adapt(pool, replica)

    def _see(self, now: float, last: bool) -> None:
        """Look at the queue now and then."""
        watch = self.watch
        watch.arrive(now)
        if last or not watch.arrivals % SEEN:
            watch.see(now, sum([p.waiting for p in self.pools]))
        if last:
            watch.finish()

    def _at(
        self, time: float, act: Callable[[Request, Any], None], request: Request, what: Any = None
    ) -> None:
        self._serial += 1
        heappush(self._later, (time, self._serial, act, request, what))

    # -- requests

    def _arrive(self, request: Request, _: Any) -> None:
        self.present += 1
        entries = self._entries
        if len(entries) > 1 or (request.model and not entries[0].serves(request.model)):
            entries = [p for p in entries if p.serves(request.model)]
            if not entries:
                self._refuse(request, "no pool serves its model")
                return
        pool = entries[0]
        if len(entries) > 1:
            pool = min(entries, key=lambda p: p.outstanding / len(p.replicas))
        why = pool.refusal(request)
        if why:
            self._refuse(request, why)
            return
        replica = pool.choose(request)
        rules = replica.rules
        ready = self.clock + rules.request_time - self._delay
        if rules.token_time:
            ready = replica.taken_in = max(ready, replica.taken_in) + rules.token_time * request.input
        if ready > self.clock:
            self._at(ready, self._deliver, request, replica)
        else:
            self._deliver(request, replica)

    def _refuse(self, request: Request, why: str) -> None:
        request.state = "refused"
        self.present -= 1
        self.refusals[why] += 1
        self.refuse(request)
        self._follow(request, self.clock)

    def _follow(self, request: Request, now: float) -> None:
        for later in self.load.after(request, now):
            self._at(later.arrival + self._delay, self._arrive, later)

    def _deliver(self, request: Request, replica: Replica) -> None:
        """To a replica, once it has its adapter."""
        pool = self._pool_of[replica.index]
        if pool.slots and pool.adapters is not None and request.model in pool.adapters.names:
            slots = pool.slots[replica.index]
            ready = slots.ready(request, self.clock) if not slots.waiting else None
            if ready is None:
                slots.waiting.append(request)
                return
            if ready > self.clock:
                self._at(ready, self._enqueue, request, replica)
                return
        self._enqueue(request, replica)

    def _adapt(self, pool: Pool, replica: Replica) -> None:
        """Requests that waited for a place for their adapter."""
        slots = pool.slots[replica.index]
        while slots.waiting:
            ready = slots.ready(slots.waiting[0], self.clock)
            if ready is None:
                return
            self._at(ready, self._enqueue, slots.waiting.popleft(), replica)

    def _enqueue(self, request: Request, replica: Replica) -> None:
        version, steps = replica.version, replica.steps
        replica.enqueue(request, self.clock)
        if not steps:
            self._start(replica)
        elif replica.version != version:
            heappush(self._events, (replica.until, replica.index, replica.version))

    def _start(self, replica: Replica) -> None:
        if replica.start(self.clock):
            heappush(self._events, (replica.until, replica.index, replica.version))

    # -- requests that leave a replica

    def _ends(self, pool: Pool, replica: Replica) -> Callable[[Request], None]:
        """What happens to requests that a replica is done with."""
        then, slots = pool.then, pool.slots.get(replica.index)
        names = pool.adapters.names if pool.adapters is not None else frozenset()

        def done(request: Request) -> None:
            if slots is not None and request.model in names:
                slots.release(request)
            if then is not None and request.output > 1:
                self._hand_on(pool, then, request, replica)
            else:
                self.present -= 1
                self.record(request)
                self._follow(request, request.last)

        return done

    def _hand_on(self, pool: Pool, then: Pool, request: Request, reader: Replica) -> None:
        """A prompt is read: its cache goes to a replica that generates, and stays until it is there."""
        request.generated = 0  # where it goes on, it brings its prompt's cache and the token read last
        if pool.admission == "at-once":
            self._send(pool, then, then.choose(request), request, reader)
        else:
            then.pending.append((request, pool, reader))
            self._fill(then)

    def _fill(self, then: Pool) -> None:
        """Caches that waited for room, first come first served."""
        while then.pending:
            request, pool, reader = then.pending[0]
            replica = then.with_room(request)
            if replica is None:
                return
            then.pending.popleft()
            self._send(pool, then, replica, request, reader)

    def _send(self, pool: Pool, then: Pool, replica: Replica, request: Request, reader: Replica) -> None:
        """Over the link, what the other side has not."""
        then.promise(replica, request, 1)
        arrives = pool.link.sent(self.clock, request.input - replica.cached(request))
        # the server that decodes takes the request in as the one that read did
        self._at(arrives + replica.rules.request_time, self._sent, request, (pool, then, replica, reader))

    def _sent(self, request: Request, way: tuple[Pool, Pool, Replica, Replica]) -> None:
        _, then, replica, reader = way
        then.promise(replica, request, -1)
        cache, own, tokens = request.sending
        cache.release(request, own, tokens)
        request.sending = None
        if not reader.steps and reader.outstanding:  # prompts that waited for its blocks
            self._start(reader)
        request.first = -1.0  # its client hears from the side that decodes, once that has let it in
        self._deliver(request, replica)
