"""Latencies of any number of requests in bounded memory: means with confidence, percentiles from buckets."""

from __future__ import annotations

from collections import Counter
from math import ceil, exp, inf, log1p, sqrt
from typing import Any

import numpy as np

WIDTH = 0.002  # relative width of a bucket: a percentile is right within half of it
LEAST = 1e-6  # [s] shorter times share a bucket
AT_ONCE = 4096  # times that are counted together: one by one takes ten times as long
BATCHES = 32  # of successive requests, whose means tell how sure the mean is
T95 = 2.0395  # Student's t with BATCHES - 1 degrees of freedom, both sides 95 %


class LatencyStatistics:
    """Times as they come: mean, spread and percentiles, with how sure each is.

    >>> times = LatencyStatistics()
    >>> for i in range(1, 1001):
    ...     times.add(i / 1000)
    >>> round(times.mean, 6), abs(times.percentile(0.95) / 0.95 - 1) < WIDTH, times.count
    (0.5005, True, 1000)
    """

    __slots__ = ("_batch", "_batch_sum", "_counts", "_known", "_new", "_size", "_sums", "_weights")

    def __init__(self) -> None:
        self._new: list[float] = []  # not counted yet
        self._weights: list[int] = []  # how often each of these was, where they came so
        self._known = (0, 0.0, 0.0, inf)  # how many were counted, their sum, the largest, the least
        self._counts: Counter[int] = Counter()  # by bucket
        self._sums: list[float] = []
        self._size, self._batch, self._batch_sum = 1, 0, 0.0

    def add(self, value: float) -> None:
        self._new.append(value)
        if len(self._new) >= AT_ONCE:
            self._counted()

    def add_many(self, value: float, count: int) -> None:
        """The same time, so often; a mean of such has no confidence."""
        self._weights.append(count)
        self.add(value)

    def _counted(self) -> tuple[int, float, float, float]:
        if not self._new:
            return self._known
        new, (count, total, largest, least) = np.array(self._new), self._known
        often = np.array(self._weights or [1])
        places = np.where(new > LEAST, np.log(np.maximum(new, LEAST) / LEAST) / _LOG_WIDTH + 1.0, 0.0)
        if self._weights:
            for at, many in zip(places.astype(int).tolist(), self._weights, strict=True):
                self._counts[at] += many
        else:
            self._counts.update(places.astype(int).tolist())
            self._add_batches(new)
        many = int(often.sum()) if self._weights else len(new)
        ends = max(largest, float(new.max())), min(least, float(new.min()))
        self._known = (count + many, total + float((new * often).sum()), *ends)
        self._new, self._weights = [], []
        return self._known

    def _add_batches(self, values: np.ndarray) -> None:
        while len(values):
            part, values = np.split(values, [self._size - self._batch])
            self._batch += len(part)
            self._batch_sum += float(part.sum())
            if self._batch == self._size:
                self._sums.append(self._batch_sum)
                self._batch, self._batch_sum = 0, 0.0
                if len(self._sums) == 2 * BATCHES:  # neighbours become one
                    self._sums = [a + b for a, b in zip(self._sums[::2], self._sums[1::2], strict=True)]
                    self._size *= 2

    @property
    def count(self) -> int:
        return self._counted()[0]

    @property
    def total(self) -> float:
        return self._counted()[1]

    @property
    def largest(self) -> float:
        return self._counted()[2]

    @property
    def least(self) -> float:
        return self._counted()[3]

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def confidence(self) -> float:
        """Half the 95 % interval of the mean, from means of successive batches: neighbours in time are alike,
        so that single requests would tell too much [s]; infinite for fewer requests than batches.
        """
        if not self.count or len(self._sums) < BATCHES:
            return inf
        means = np.array(self._sums[: len(self._sums) // BATCHES * BATCHES]) / self._size
        return T95 * float(np.std(means, ddof=1)) / sqrt(len(means))

    def percentile(self, share: float) -> float:
        """The time that this share of requests does not pass [s]."""
        rank = ceil(share * self.count)
        if not self.count:
            return 0.0
        if rank <= 1:
            return self.least
        if rank >= self.count:
            return self.largest
        below = 0
        for at in sorted(self._counts):
            below += self._counts[at]
            if below >= rank:
                middle = LEAST * exp((at - 0.5) * _LOG_WIDTH) if at else LEAST
                return min(max(middle, self.least), self.largest)
        return self.largest

    def distribution(self) -> tuple[np.ndarray, np.ndarray]:
        """Upper ends of the buckets [s] and the share of requests up to each, for a picture of the CDF."""
        every, at = self.count, sorted(self._counts)
        share = np.cumsum([self._counts[i] for i in at]) / max(every, 1)
        return np.minimum(LEAST * np.exp(np.array(at) * _LOG_WIDTH), self.largest), share

    def summary(self) -> dict[str, Any]:
        """Mean with its confidence and the percentiles people ask for [s]."""
        shown = {f"p{100 * q:g}": self.percentile(q) for q in (0.5, 0.9, 0.95, 0.99)}
        return {"mean": self.mean, "confidence": self.confidence, **shown, "largest": self.largest}


_LOG_WIDTH = log1p(WIDTH)
