"""The way of a cache from the replicas that read prompts to those that generate."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from itertools import pairwise

from strata.errors import require
from strata.simulate.server.surfaces import line_at


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
