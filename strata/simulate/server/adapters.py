"""Adapters (LoRA) of one base model on a replica: a few in memory, others fetched when they are asked for."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from math import inf

from strata.errors import require
from strata.simulate.server.request import Request


@dataclass(frozen=True, kw_only=True)
class AdapterRules:
    """Adapters that a pool serves beside its base model: how many a replica holds at once, and how long one
    takes to fetch [s]. Steps are priced as the base model's.
    """

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
