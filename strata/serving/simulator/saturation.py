"""Whether requests come faster than they are served, and which share keeps limits once that is steady."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

DRIFT = 0.02  # of arrivals that must be left waiting, in the long run, to call it growth
SURE = 3.0  # standard deviations of what comes at random that growth must pass
LEAST = 32.0  # requests that it must pass in any case
EPISODES = 64  # that are kept
FIRST_LOOK, NEXT_LOOK = 1000, 1.42  # requests served at the first look, and times as many at each next
FEW_REQUESTS, MOST_REQUESTS = 7500, 20000  # of fewer the interval is wider; of a run
HOPELESS = 4000  # requests after which a share is given up that the longest run would not show
LENIENT = 1 / 3  # of the interval by which it may yet move: about a standard error
BATCHES = 20  # of successive requests
LEVEL, T_LEVEL = 0.99, 2.861  # of confidence, both sides; Student's t there, BATCHES - 1 degrees of freedom
TURNOVERS = 10  # requests served after the warm-up for each that is present on average
CORRELATED = 0.6  # neighbouring batches, at most
TINY, HUGE = 1e-9, 1e9  # ratios of a latency to its limit between which logarithms are taken
FAR = 0.7  # logarithm of a ratio beyond which it is as late as any


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
        self._keep(now)

    def _keep(self, end: float) -> None:
        if len(self.overloads) < EPISODES:
            self.overloads.append(Overload(start=self._at, end=end, waiting=self.most, growth=self._growth))

    def finish(self) -> None:
        """Nothing arrives any more: what goes on now has no end."""
        if self._open:
            self._keep(inf)


def mser_warm_up(series: np.ndarray, group: int = 5) -> int:
    r"""Observations at the beginning that are not like the rest (MSER-5).

    .. math:: d^* = g \arg\min_{d \le m / 2} \frac{1}{(m - d)^2} \sum_{j > d} (y_j - \bar y_{> d})^2

    means y of m groups of g, five unless told; half of all where they never settle.

    White, Cobb & Spratt, Proc. Winter Simulation Conference (2000).

    >>> mser_warm_up(np.concatenate([np.arange(50.0), np.full(150, 50.0) + np.arange(150) % 2]))
    50
    """
    groups = series[: len(series) // group * group].reshape(-1, group).mean(axis=1)
    left = np.arange(len(groups), 0, -1)
    sums, squares = (np.cumsum(v[::-1])[::-1] for v in (groups, groups**2))
    return group * int(np.argmin(((squares - sums**2 / left) / left**2)[: len(groups) // 2 + 1]))


def neighbour_correlation(means: np.ndarray) -> float:
    r"""Of neighbours in a series, from von Neumann's ratio; 0 where they are not alike.

    .. math:: \phi = \max\left(0, 1 - \frac{\sum (x_{j+1} - x_j)^2}{2 \sum (x_j - \bar x)^2}\right)

    A series that grows or wanders has neighbours that are nearly alike: 1 - O(1/k) of k means.

    von Neumann, Ann. Math. Stat. 12 (1941).

    >>> [round(neighbour_correlation(np.array(v)), 3) for v in (range(20), [1, 2, 1, 2])]
    [0.986, 0.0]
    """
    spread = float(np.sum((means - means.mean()) ** 2))
    return max(0.0, 1.0 - float(np.sum(np.diff(means) ** 2)) / (2.0 * spread)) if spread > 0 else 0.0


class SteadyShare:
    r"""The share of requests that keep limits once a service is steady, or their means, and how sure it is.

    .. math:: h = t \sqrt{\max\left(1, \frac{7500}{n}\right) \frac{1 + \phi}{1 - \phi}
        \frac{1}{k (k - 1)} \sum_{j=1}^k (\ln q_j - \ln q)^2}

    A request has the largest ratio r of its latencies to their limits. Of the n requests after the warm-up q
    is the quantile of r at the share that is wanted, q_j that of each of k = 20 batches of successive ones, φ
    the correlation of neighbouring ln q_j, mended for so short a series: ln q is known within h (sectioning,
    99 %; wider where n is small, as a run is looked at several times). The share that is kept, of r at most
    1, lies between those of r at most exp(-h) and exp(h). Of a limit that requests keep on average (`means`)
    q is the mean of its ratios.

    The service is steady where the number of requests present has settled: the warm-up is over before half of
    the run, means of neighbouring batches are correlated by 0.6 at most, and ten times as many were served as
    are present. A queue that grows never is. Requests that are not drawn (`misses` is told) all count.
    `clients` who wait for their answers are as many all the time: they are served `most` requests, and the
    warm-up is of whole rounds, by the time to first token.

    Nakayama, ACM Trans. Model. Comput. Simul. 24 (2014); Tafazzoli & Wilson, IIE Trans. 43 (2011); Kendall,
    Biometrika 41 (1954).
    """

    def __init__(
        self,
        share: float,
        *,
        means: Mapping[str, float] | None = None,
        least: float = 0.0,
        most: float = MOST_REQUESTS,
        misses: float = inf,
        clients: int = 0,
    ) -> None:
        self.share, self.most, self.misses, self.clients = share, max(most, least), misses, clients
        self.means = dict(means or {})  # limits on mean latencies, by their names [s]
        self.kept, self.low, self.high = 0.0, 0.0, 1.0
        self.warm_up = self.requests = 0  # dropped at the beginning; served after it
        self.settled = self.growing = False
        # logarithms of the quantile and of the means, as shares of their limits, each with half its interval
        self._known = [(0.0, inf)]
        self._ratios, self._present, self._missed = array("d"), array("d"), 0
        self._means = [array("d") for _ in self.means]
        self._look = max(FIRST_LOOK, least)

    def add(self, ratio: float, present: float, means: Sequence[float] = ()) -> None:
        """A request is done, so many times as late as it may be, or refused (infinite); who is present, or of
        clients its time to first token; ratios of the latencies whose means are limited.
        """
        self._ratios.append(ratio)
        self._present.append(present)
        self._missed += ratio > 1.0
        for values, value in zip(self._means, means, strict=True):
            values.append(value)

    @property
    def verdict(self) -> str:
        """Whether limits are kept, missed or undecided; unsteady where the queue has not settled."""
        if self.misses < inf:
            kept = self.kept >= self.share and all(log <= 0.0 for log, _ in self._known[1:])
            return "kept" if kept and not self.growing else "missed"
        if any(log > half for log, half in self._known):
            return "missed"
        if self.growing or not self.settled:
            return "unsteady"
        return "kept" if all(log <= -half for log, half in self._known) else "undecided"

    @property
    def excess(self) -> float:
        """Logarithm of what requests have of the limits, at most 0 if kept; infinite as queues grow."""
        return inf if self.growing else max(log for log, _ in self._known)

    def to_dict(self) -> dict[str, Any]:
        """The share with its interval, and of how many requests."""
        shares = {"kept": self.kept, "kept_low": self.low, "kept_high": self.high}
        return shares | {"requests": self.requests, "warm_up": self.warm_up, "verdict": self.verdict}

    def over(self, present: int, overloaded: bool) -> bool:
        """Whether no more requests are needed; `overloaded`: the queue has grown for most of the run."""
        served = len(self._ratios)
        if self.misses < inf or self.clients:
            return self._missed > self.misses or bool(self.clients and served >= self.most)
        enough = served >= HOPELESS or (present > served and served + present >= FIRST_LOOK)
        self.growing = overloaded and enough
        if self.growing or served < self._look:
            return self.growing
        self._look = min(NEXT_LOOK * served, self.most if served < self.most else inf)
        self.measure()
        narrowed = sqrt(served / self.most) - LENIENT if self.settled else 0.0
        hopeless = served >= HOPELESS and any(log + half * narrowed > 0.0 for log, half in self._known)
        over = served >= self.most and served >= min(2 * TURNOVERS * present, 2 * self.most)
        return over or hopeless or self.verdict in ("kept", "missed")

    def finish(self, saturated: bool) -> None:
        """No more requests come, or are waited for."""
        self.growing |= saturated and self.misses < inf
        self.measure()

    def measure(self) -> None:
        """The share and its interval, of what was served so far."""
        ratios, present, count = np.array(self._ratios), np.array(self._present), self.clients or BATCHES
        drawn = self.misses == inf and len(present) >= count
        start = mser_warm_up(present, self.clients or 5) if drawn else 0
        width = (len(ratios) - start) // count
        self.warm_up = len(ratios) - count * width if self.misses == inf else 0
        ratios, present = ratios[self.warm_up :], present[self.warm_up :]
        self.requests = len(ratios)
        self.kept = self.low = self.high = float(np.mean(ratios <= 1.0)) if len(ratios) else 0.0
        if self.clients or not width:
            return
        logs = np.log(np.clip(ratios, TINY, HUGE))
        shares = [np.clip(np.array(v)[self.warm_up :], TINY, HUGE) for v in self._means]
        if self.misses < inf:
            every = [np.quantile(logs, self.share, method="higher"), *[np.log(v.mean()) for v in shares]]
            self._known = [(float(log), 0.0) for log in every]
            return
        batches = present.reshape(BATCHES, width).mean(axis=1)
        turned = self.requests >= TURNOVERS * batches.mean()
        early = start < len(self._present) // 2 - 5
        self.settled = early and turned and neighbour_correlation(batches) <= CORRELATED
        far = np.minimum(logs, FAR)
        each = np.quantile(far.reshape(BATCHES, width), self.share, axis=1, method="higher")
        self._known = [_section(float(np.quantile(far, self.share, method="higher")), each, far.size)]
        for v in shares:
            each = np.minimum(np.log(v.reshape(BATCHES, width).mean(axis=1)), FAR)
            self._known.append(_section(min(float(np.log(v.mean())), FAR), each, v.size))
        half = self._known[0][1]
        self.low, self.high = (float(np.mean(logs <= h)) for h in (-half, half))


def _section(log: float, each: np.ndarray, count: int) -> tuple[float, float]:
    """A logarithm with half its interval, from those of batches of `count` requests."""
    alike = min((neighbour_correlation(each) + 1.0 / BATCHES) / (1.0 - 3.0 / BATCHES), 0.95)
    variance = np.sum((each - log) ** 2) / (BATCHES * (BATCHES - 1)) * (1.0 + alike) / (1.0 - alike)
    return log, T_LEVEL * sqrt(variance * max(1.0, FEW_REQUESTS / count))
