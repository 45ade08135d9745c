"""Whether requests come faster than they are served, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

DRIFT = 0.02  # of arrivals that must be left waiting, in the long run, to call it growth
SURE = 3.0  # standard deviations of what comes at random that growth must pass
LEAST = 32.0  # requests that it must pass in any case
EPISODES = 64  # that are kept


@dataclass(frozen=True, kw_only=True)
class Overload:
    """A time in which the queue grew without end in sight."""

    start: float  # [s]
    end: float  # when the queue was as short again, or inf
    waiting: int  # the most that waited
    growth: float  # requests a second by which the queue grew until it was told


class SaturationWatch:
    r"""Watches how many wait as requests arrive.

    .. math:: D = W - \delta A, \qquad D - \min D > h = 32 + 3 \sqrt{n (1 + c^2)}

    those that wait W, arrivals so far A, arrivals n since D was least, and the squared coefficient of
    variation c² of the gaps between arrivals: a queue that is stable brings D back to its least again and
    again, one that grows by more than δ of what arrives does not. Requests that arrive at one moment are a
    batch and no rate.
    """

    def __init__(self) -> None:
        self.arrivals = 0
        self.most = 0
        self.overloads: list[Overload] = []
        self._least, self._at, self._count, self._waiting = inf, 0.0, 0, 0
        self._first = self._last = -inf
        self._squares, self._span = 0.0, 0.0
        self._growth = 0.0  # of an overload that goes on
        self._open = False

    @property
    def start(self) -> float | None:
        """Since when the queue grows, where it does [s]."""
        return self._at if self._open else None

    @property
    def growth(self) -> float:
        return self._growth if self._open else 0.0

    def arrive(self, now: float) -> None:
        """One more request."""
        if self.arrivals:
            gap = now - self._last
            self._squares += gap * gap
            self._span += gap
        self.arrivals += 1
        self._last = now

    def see(self, now: float, waiting: int) -> None:
        """So many wait at this moment."""
        level = waiting - DRIFT * self.arrivals
        self.most = max(self.most, waiting)
        if level <= self._least:
            if self._open:
                self._close(now)
            self._least, self._at, self._count, self._waiting = level, now, self.arrivals, waiting
            return
        if now <= self._at:  # more of the batch that comes at this moment
            self._least, self._count, self._waiting = level, self.arrivals, waiting
            return
        if self._open:
            return
        count = self.arrivals - self._count
        mean = self._span / max(self.arrivals - 1, 1)
        varied = self._squares / max(self.arrivals - 1, 1) / mean**2 - 1.0 if mean > 0 else 0.0
        if level - self._least > LEAST + SURE * sqrt(count * (1.0 + max(varied, 0.0))):
            self._open = True
            self.most = waiting
            self._growth = (waiting - self._waiting) / (now - self._at)

    def _close(self, now: float) -> None:
        self._open = False
        if len(self.overloads) < EPISODES:
            told = Overload(start=self._at, end=now, waiting=self.most, growth=self._growth)
            self.overloads.append(told)

    def finish(self) -> None:
        """Nothing arrives any more: what goes on now has no end."""
        if self._open and len(self.overloads) < EPISODES:
            self.overloads.append(Overload(start=self._at, end=inf, waiting=self.most, growth=self._growth))
