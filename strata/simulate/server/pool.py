"""Replicas that do the same part of the work for the same models, behind one router."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from strata.errors import UnknownName, require
from strata.simulate.server.adapters import AdapterRules, AdapterSlots
from strata.simulate.server.kv_link import KvLink, at_once
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request
from strata.simulate.server.router import Router

ADMISSIONS = ("at-once", "when-room")


@dataclass(eq=False, kw_only=True)
class Pool:
    """Replicas and what they do. One that reads prompts (role prefill) hands requests on to `then`, a pool of
    role decode, over `link`; a cache is sent at once, or when a replica has room for it.

    `models`: base models and adapters it serves; none named: all. `context`: the longest that prompt and
    answer may be. `most_waiting`: requests beyond which others are refused.
    """

    replicas: list[Replica]
    router: Router
    name: str = ""
    role: str = "both"
    models: frozenset[str] = frozenset()
    context: float = inf
    most_waiting: float = inf
    then: Pool | None = None
    link: KvLink = field(default_factory=at_once)
    admission: str = "at-once"
    adapters: AdapterRules | None = None
    slots: dict[int, AdapterSlots] = field(default_factory=dict)
    pending: deque[tuple[Request, Pool, Replica]] = field(default_factory=deque)  # read, until there is room
    coming: dict[int, list[int]] = field(default_factory=dict)  # of a replica: caches under way, and blocks
    anywhere: int = 0  # tokens of prompt and answer that each replica has blocks for

    def __post_init__(self) -> None:
        if self.admission not in ADMISSIONS:
            raise UnknownName("admission", self.admission, ADMISSIONS)
        reads = self.role == "prefill"
        require(
            reads == (self.then is not None), "a pool hands on what it reads, and only that", role=self.role
        )
        if self.then is not None:
            require(
                self.then.role == "decode",
                "prompts are handed on to a pool of role decode",
                role=self.then.role,
            )
        different = [r.rules.role for r in self.replicas if r.rules.role != self.role]
        require(not different, "replicas of a pool have its role", role=self.role, replicas=different)

    def begin(self) -> None:
        """Indices of replicas are told: adapters of each; and what fits into every one of them."""
        caches = [r.ranks[0].pool for r in self.replicas]
        self.anywhere = min([(cache.blocks - cache.fixed) * cache.page - 1 for cache in caches])
        if self.adapters is not None:
            self.slots = {r.index: AdapterSlots(self.adapters) for r in self.replicas}

    def serves(self, model: str) -> bool:
        if self.adapters is not None and model in self.adapters.names:
            return True
        return not model or not self.models or model in self.models

    @property
    def waiting(self) -> int:
        """Requests that no step has had yet."""
        count = len(self.pending) + sum([len(s.waiting) for s in self.slots.values()])
        return count + sum([len(rank.waiting) for r in self.replicas for rank in r.ranks])

    @property
    def outstanding(self) -> int:
        return len(self.pending) + sum([r.outstanding for r in self.replicas])

    def fits(self, replica: Replica, request: Request) -> bool:
        """Whether a replica could hold it with nothing else; where it only reads, the prompt."""
        if self.role != "prefill":
            return replica.fits(request)
        cache = replica.ranks[0].pool
        return cache.blocks_of(request.input + 1) <= cache.blocks

    def refusal(self, request: Request) -> str:
        """Why it can not be served here; "" where it can."""
        if request.input + request.output > self.context:
            return "longer than the context"
        if self.most_waiting < inf and self.waiting >= self.most_waiting:
            return "queue full"
        every = request.input + request.output
        if every > self.anywhere and not any([self.fits(r, request) for r in self.replicas]):
            return "longer than the cache"
        return self.then.refusal(request) if self.then is not None else ""

    def choose(self, request: Request) -> Replica:
        replica = self.router.choose(request)
        if request.input + request.output <= self.anywhere or self.fits(replica, request):
            return replica
        return min([r for r in self.replicas if self.fits(r, request)], key=lambda r: r.outstanding)

    def with_room(self, request: Request) -> Replica | None:
        """A replica whose cache has room for the prompt now, the one with the fewest requests."""
        best, fewest = None, inf
        for replica in self.replicas:
            sent, blocks = self.coming.get(replica.index, (0, 0))
            rank = min(replica.ranks, key=lambda r: r.outstanding)
            cache = rank.pool
            needs = cache.blocks_of(request.input + 1) + blocks
            for queued in rank.waiting:
                needs += cache.blocks_of(queued.input + 1)
            busy = replica.outstanding + sent
            room = needs <= cache.free + cache.evictable
            if room and busy < len(replica.ranks) * replica.rules.sequences and busy < fewest:
                best, fewest = replica, busy
        return best

    def promise(self, replica: Replica, request: Request, sign: int) -> None:
        """A cache is on its way to a replica, or has arrived."""
        found = self.coming.setdefault(replica.index, [0, 0])
        found[0] += sign
        found[1] += sign * replica.ranks[0].pool.blocks_of(request.input + 1)
