"""Requests that wait for a rank, in order of arrival or priority; and how many steps answers take."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil
from random import Random

from strata.simulate.server.request import Request
from strata.simulate.server.scheduling import NEVER, Scheduling


class WaitingRequests:
    """Those that came first, first; or those with the lowest number."""

    __slots__ = ("_backs", "_heap", "_line", "_serial")

    def __init__(self, priorities: bool) -> None:
        self._line: deque[Request] | None = None if priorities else deque()
        self._heap: list[tuple[float, int, Request]] = []
        self._serial = self._backs = 0

    def __len__(self) -> int:
        return len(self._heap) if self._line is None else len(self._line)

    def __iter__(self) -> Iterator[Request]:
        return iter([r for _, _, r in self._heap] if self._line is None else self._line)

    def add(self, request: Request) -> None:
        if self._line is None:
            self._serial += 1
            heappush(self._heap, (request.priority, self._serial, request))
        else:
            self._line.append(request)

    def back(self, request: Request) -> None:
        """To the front of its like: it has been let in before."""
        if self._line is None:
            self._backs += 1
            heappush(self._heap, (request.priority, -self._backs, request))
        else:
            self._line.appendleft(request)

    @property
    def head(self) -> Request | None:
        """Who is next; none where none waits."""
        if self._line:
            return self._line[0]
        return self._heap[0][2] if self._heap else None

    def next_seen(self, number: int) -> int:
        """The first step after that of a number that may have one that came too late for it."""
        found = NEVER
        for request in reversed(self._line or ()):
            if request.seen <= number:
                break
            found = min(found, request.seen)
        for _, _, request in self._heap:
            found = min(found, request.seen) if request.seen > number else found
        return found

    def tokens(self, number: int, most: int) -> int:
        """Tokens of prompts that the step of a number could have, up to `most`."""
        found = 0
        for request in self:
            if found >= most:
                break
            found += request.prompt if request.seen <= number else 0
        return found

    def pop(self) -> Request:
        return heappop(self._heap)[2] if self._line is None else self._line.popleft()


class AnswerSteps:
    """Decode steps that answers take: as many as on average, or drawn from the chances of tokens a step.

    >>> rules = Scheduling(tokens=8, sequences=1, tokens_per_step=1.5, drawn=(0.5, 0.5))
    >>> steps = AnswerSteps(rules, 0)
    >>> 1200 < sum(steps.of(20) for _ in range(100)) < 1450
    True
    """

    __slots__ = ("_chances", "_random", "_tokens")

    def __init__(self, rules: Scheduling, index: int) -> None:
        self._tokens, self._chances = rules.tokens_per_step, list(accumulate(rules.drawn))
        self._random = Random(rules.seed * 65537 + index)

    def of(self, tokens: int) -> int:
        if not self._chances:
            return ceil(tokens / self._tokens)
        rounds, most = 0, len(self._chances)
        while tokens > 0:
            rounds += 1
            tokens -= min(bisect_right(self._chances, self._random.random()), most - 1) + 1
        return rounds
