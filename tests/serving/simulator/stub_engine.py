"""Engines with prices that can be added up by hand, and what becomes of requests in them."""

from dataclasses import dataclass, field

from strata.serving.simulator.fleet import Fleet
from strata.serving.simulator.kv_pool import KvPool
from strata.serving.simulator.pool import Pool, Router
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.scheduling import Request, Scheduling


@dataclass
class LinearPrices:
    """A step takes `base`, and so much for each sequence, each token in caches, each token read, and each
    that such a token attends to; `together` of each token is for the tokens of all ranks.
    """

    base: float = 0.01
    sequence: float = 1e-4
    context: float = 1e-6
    token: float = 1e-5
    attended: float = 1e-9
    together: float = 0.0
    idle: float = 10.0
    stages: int = 1
    lanes: int = 1
    power: float = 100.0

    @property
    def shares(self):
        return self.together > 0.0

    def saved(self, tokens, mean, reads):
        return self.together * (tokens - mean)

    def decode_steps(self, sequences, context, steps, growth=1.0):
        mean = context + 0.5 * (steps - 1) * growth * sequences
        each = self.base + (self.sequence + self.together) * sequences + self.context * mean
        return steps * each, steps * each * self.power

    def step(self, sequences, context, tokens, attended, alone=False):
        n, c = (0, 0.0) if alone else (sequences, context)
        time = self.base + (self.sequence + self.together) * n + self.context * c
        time += (self.token + self.together) * tokens + self.attended * attended
        return time, time * self.power


@dataclass
class GivenLoad:
    """Requests as they are given, and no others."""

    requests: list[Request]

    def arrivals(self):
        return iter(sorted(self.requests, key=lambda r: r.arrival))

    def after(self, request, now):
        return ()


class WatchedReplica(Replica):
    """Tells what its steps had, and that laws hold in each."""

    __slots__ = ("looked", "made", "present_time", "read")

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.made = self.read = 0
        self.present_time = self.looked = 0.0  # requests here times seconds, up to a time

    def start(self, now):
        going = super().start(now)
        assert going == (self.steps > 0)
        sending = any(rank.pool.used for rank in self.ranks)  # caches under way whose blocks are still held
        assert going or sending or not self.outstanding, "requests wait and nothing runs"
        for rank in self.ranks:
            pool = rank.pool
            assert pool.free >= 0 and pool.evictable >= 0 and pool.used <= pool.blocks
            assert len(rank.running) <= self.rules.sequences
            chunks = sum(c for _, c in rank.reading)
            assert chunks <= self.rules.tokens
            if self.rules.mixed and chunks:
                assert chunks + rank.generating * (1 + self.rules.drafted) <= self.rules.tokens
        return going

    def _see(self, now):
        self.present_time += self.outstanding * (now - self.looked)
        self.looked = now

    def enqueue(self, request, now):
        self._see(now)
        super().enqueue(request, now)

    def end(self, done):
        self._see(self.until)
        for rank in self.ranks:
            chunks = sum(c for _, c in rank.reading)
            self.read += chunks
            self.made += 0 if chunks and not self.rules.mixed else rank.generating * self.steps
        super().end(done)


@dataclass
class Service:
    """A fleet of stub engines that has served."""

    fleet: Fleet
    done: list[Request] = field(default_factory=list)
    refused: list[Request] = field(default_factory=list)

    @property
    def replicas(self):
        return self.fleet.replicas


def served(
    requests,
    *,
    prices=None,
    rules=None,
    blocks=4096,
    page=16,
    fixed=0,
    ranks=1,
    replicas=1,
    reuses=True,
    tiers=None,
    router="least-loaded",
    until=float("inf"),
    record=None,
):
    """Serve requests on stub engines; `tiers` makes the tiers of a rank."""
    prices = prices or LinearPrices()
    rules = rules or Scheduling(tokens=2048, sequences=64)

    def pools():
        return [KvPool(blocks, page, fixed, reuses, tiers() if tiers else None) for _ in range(ranks)]

    every = [WatchedReplica(i, prices, pools(), rules) for i in range(replicas)]
    load = requests if hasattr(requests, "arrivals") else GivenLoad(requests)
    found = Service(None)
    found.fleet = Fleet(
        pools=(Pool(replicas=every, router=Router(every, router)),),
        load=load,
        record=record or found.done.append,
        refuse=found.refused.append,
    )
    found.fleet.run(until)
    return found
