"""Replicas that do the same for the same models: their router, adapters, and links that bring caches."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from itertools import pairwise
from math import inf
from random import Random

from strata.base.errors import UnknownName, require
from strata.serving.simulator.replica import SPREAD, Replica
from strata.serving.simulator.scheduling import Request
from strata.serving.simulator.step_table import line_at

ROUTERS = ("round-robin", "least-loaded", "power-of-two", "prefix-aware")


class Router:
    """Chooses among replicas: each in turn; the one with the fewest requests; the better of two drawn at
    random; or the one that has most of the prompt in its cache, unless it has too many requests.

    `weights`: how much each replica can take beside the others (replicas that are not alike): loads are
    compared by what they are of it, and in turn each gets its share.
    """

    def __init__(
        self,
        replicas: list[Replica],
        policy: str = "least-loaded",
        *,
        weights: Sequence[float] = (),
        seed: int = 0,
    ) -> None:
        if policy not in ROUTERS:
            raise UnknownName("router", policy, ROUTERS)
        require(bool(replicas), "a router has at least one replica", replicas=0)
        alike = not weights or len(weights) == len(replicas)
        require(alike, "each replica has a weight", weights=len(weights), replicas=len(replicas))
        require(all(w > 0 for w in weights), "weights of replicas are positive", weights=tuple(weights))
        self.replicas, self.policy, self._turn = replicas, policy, -1
        self.weights = [float(w) for w in weights]
        self._credit = [0.0] * len(replicas)
        self._random = Random(seed)

    def load(self, place: int) -> float:
        """Requests of a replica, for its weight."""
        count = self.replicas[place].outstanding
        return (count + 1) / self.weights[place] if self.weights else count

    def choose(self, request: Request) -> Replica:
        every = self.replicas
        if len(every) == 1:
            return every[0]
        if self.policy == "power-of-two":
            one, other = self._random.sample(range(len(every)), 2)
            return every[other if self.load(other) < self.load(one) else one]
        if self.policy == "round-robin" and self.weights:
            return every[self._by_share()]
        self._turn = (self._turn + 1) % len(every)
        if self.policy == "round-robin":
            return every[self._turn]
        turned = [*range(self._turn, len(every)), *range(self._turn)]  # of equals, each in turn
        least = min(turned, key=self.load)
        if self.policy == "least-loaded" or not request.prefix:
            return every[least]
        cached = [r.cached(request) for r in every]
        best = max(turned, key=cached.__getitem__)
        fair = SPREAD * (1 + sum([self.load(i) for i in turned]) / len(every))
        return every[best if cached[best] > 0 and self.load(best) <= fair else least]

    def _by_share(self) -> int:
        """In turn, as often as weights say: the one that is owed most."""
        whole = sum(self.weights)
        self._credit = [c + w for c, w in zip(self._credit, self.weights, strict=True)]
        place = max(range(len(self._credit)), key=self._credit.__getitem__)
        self._credit[place] -= whole
        return place


class KvLink:
    """Links that each bring one cache at a time, in the order they are asked for.

    `tokens` and `times`: how long a cache of so many tokens takes [s]; between them as lines, beyond the last
    as the last line goes on. `lanes`: links side by side; none: each cache has one of its own.

    >>> link = KvLink([0, 1000], [0.0, 0.5], lanes=1)
    >>> link.sent(0.0, 1000), link.sent(0.0, 500), link.sent(10.0, 2000)
    (0.5, 0.75, 11.0)
    """

    def __init__(self, tokens: Sequence[float], times: Sequence[float], lanes: int = 0) -> None:
        rising = len(tokens) >= 2 and all(a < b for a, b in pairwise(tokens))
        require(rising, "a link is priced at two lengths at least, in order", tokens=tuple(tokens))
        require(len(tokens) == len(times), "each length has its time", tokens=len(tokens), times=len(times))
        require(min(times) >= 0, "a cache takes no negative time", times=tuple(times))
        require(lanes >= 0, "links are counted", lanes=lanes)
        self._tokens, self._times = list(map(float, tokens)), list(map(float, times))
        self._free = [0.0] * lanes
        heapify(self._free)

    def time(self, tokens: float) -> float:
        """Of one cache on a link of its own [s]."""
        if tokens <= 0:
            return 0.0
        return max(line_at(self._tokens, self._times, tokens), 0.0)

    def sent(self, now: float, tokens: float) -> float:
        """When a cache that is ready now has arrived [s]."""
        took, begins = self.time(tokens), now
        if self._free:
            begins = max(now, self._free[0])
            heapreplace(self._free, begins + took)
        return begins + took


def at_once() -> KvLink:
    """A link that takes no time."""
    return KvLink([0.0, 1.0], [0.0, 0.0])


@dataclass(frozen=True, kw_only=True)
class AdapterRules:
    """Adapters that a pool serves: how many a replica holds at once, how long one takes to fetch [s]."""

    names: frozenset[str]
    slots: int
    fetch_time: float

    def __post_init__(self) -> None:
        require(bool(self.names), "a pool with adapters names them", names=0)
        require(self.slots >= 1, "a replica holds at least one adapter", slots=self.slots)
        good = 0 <= self.fetch_time < inf
        require(good, "fetching an adapter takes no negative time", fetch_time=self.fetch_time)


class AdapterSlots:
    """Adapters in the memory of one replica: least recently used go first, never one that is in use."""

    def __init__(self, rules: AdapterRules) -> None:
        self.rules = rules
        self._ready: OrderedDict[str, float] = OrderedDict()  # when each is, or will be, in memory
        self._users: dict[str, int] = {}
        self.waiting: deque[Request] = deque()

    def ready(self, request: Request, now: float) -> float | None:
        """When a request can go on, its adapter then held for it; none where all places are in use."""
        name = request.model
        if name not in self._ready:
            if len(self._ready) >= self.rules.slots:
                idle = next((n for n in self._ready if not self._users.get(n)), None)
                if idle is None:
                    return None
                del self._ready[idle]
            self._ready[name] = now + self.rules.fetch_time
        self._ready.move_to_end(name)
        self._users[name] = self._users.get(name, 0) + 1
        return max(now, self._ready[name])

    def release(self, request: Request) -> None:
        self._users[request.model] -= 1


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
        alike = (self.role == "prefill") == (self.then is not None)
        require(alike, "a pool hands on what it reads, and only that", role=self.role)
        if self.then is not None:
            decodes = self.then.role == "decode"
            require(decodes, "prompts are handed on to a pool of role decode", role=self.then.role)
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
