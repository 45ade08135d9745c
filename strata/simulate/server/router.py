"""Which replica a request goes to, by what each has to do and has in its cache."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from strata.errors import UnknownName, require
from strata.simulate.server.replica import SPREAD, Replica
from strata.simulate.server.request import Request

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
