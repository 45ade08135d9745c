"""Requests that wait for a rank, in order of arrival or priority."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from strata.simulate.server.request import Request
from strata.simulate.server.scheduling import NEVER


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

    def pop(self) -> Request:
        return heappop(self._heap)[2] if self._line is None else self._line.popleft()
