r"""When requests arrive: at random, evenly, in bursts, or by the day; and how long prompts and answers are.

A rate that changes turns the clock of arrivals of unit rate u,

.. math:: t_i = \Lambda^{-1}(u_i), \qquad \Lambda(t) = \int_0^t \lambda(s)\,ds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol

import numpy as np

from strata.base.errors import UnknownName, require

DRAWN = 4096  # lengths and gaps drawn at a time
DAY = 86400.0  # [s]
FEWEST = 1e-3  # requests of a burst and a quiet time, on average: a slower rate has no bursts to speak of

SHAPES = ("fixed", "uniform", "lognormal", "exponential", "empirical")


class ArrivalProcess(Protocol):
    """Times in order, in lists of at most `DRAWN`, without end."""

    def times(self, random: np.random.Generator, count: int) -> Iterator[list[float]]: ...


def gamma_gaps(random: np.random.Generator, rate: float, burstiness: float, size: int) -> np.ndarray:
    """Gaps of a gamma distribution [s], whose squared coefficient of variation is `burstiness`.

    >>> gamma_gaps(np.random.default_rng(0), 4.0, 0.0, 2).tolist()
    [0.25, 0.25]
    """
    if burstiness == 0.0:
        return np.full(size, 1.0 / rate)
    shape = 1.0 / burstiness
    return random.gamma(shape, 1.0 / (rate * shape), size)


def _sizes(count: int) -> Iterator[int]:
    for begin in range(0, count, DRAWN):
        yield min(DRAWN, count - begin)


@dataclass(frozen=True, kw_only=True)
class GammaArrivals:
    """Gaps of a gamma distribution of squared variation `burstiness` (1: at random, Poisson; 0: evenly)."""

    rate: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        _check_rate(self.rate, self.burstiness)

    def times(self, random: np.random.Generator, count: int) -> Iterator[list[float]]:
        clock = 0.0
        for size in _sizes(count):
            gaps = gamma_gaps(random, self.rate, self.burstiness, size)
            times: list[float] = (clock + np.cumsum(gaps)).tolist()
            clock = times[-1]
            yield times


@dataclass(frozen=True, kw_only=True)
class BurstyArrivals:
    """A Markov-modulated Poisson process of two states: bursts at `peak` times the mean `rate`, quiet times
    in between at what is left of it; both last an exponential time, of means `on` and `off` [s].
    """

    rate: float
    peak: float = 4.0
    on: float = 10.0
    off: float = 30.0

    def __post_init__(self) -> None:
        _check_rate(self.rate, 1.0)
        require(0 < self.on < inf, "bursts last a positive time", on=self.on)
        require(0 < self.off < inf, "quiet times between bursts last a positive time", off=self.off)
        seldom = self.rate * (self.on + self.off) >= FEWEST
        require(seldom, f"a burst and a quiet time have {FEWEST:g} requests at least", rate=self.rate)
        most = (self.on + self.off) / self.on
        require(
            1 <= self.peak <= most,
            f"a burst has 1 to (on + off) / on = {most:g} times the mean rate",
            peak=self.peak,
        )

    @property
    def quiet(self) -> float:
        """The rate between bursts [1/s]."""
        return self.rate * max(1.0 - (self.peak - 1.0) * self.on / self.off, 0.0)

    def times(self, random: np.random.Generator, count: int) -> Iterator[list[float]]:
        """Arrivals at a rate that changes, from those of unit rate on the sum of the rate over time."""
        segments, unit = self._segments(random), 0.0
        sums, clocks = [0.0], [0.0]  # the sum of the rate at the ends of segments, and these
        for size in _sizes(count):
            drawn = unit + np.cumsum(random.exponential(1.0, size))
            unit = float(drawn[-1])
            while sums[-1] < unit:
                lasts, rate = next(segments)
                sums.append(sums[-1] + lasts * rate)
                clocks.append(clocks[-1] + lasts)
            yield np.interp(drawn, sums, clocks).tolist()
            sums, clocks = sums[-2:], clocks[-2:]

    def _segments(self, random: np.random.Generator) -> Iterator[tuple[float, float]]:
        while True:
            lasts = random.exponential(1.0, (256, 2)).tolist()
            for on, off in lasts:
                yield off * self.off, self.quiet
                yield on * self.on, self.peak * self.rate


@dataclass(frozen=True, kw_only=True)
class DailyArrivals:
    """A rate that is constant between the times of its table and repeats after `period`, with gaps of a gamma
    distribution on a clock that the rate turns.

    `rates`: pairs of the time from which a rate holds [s] and the rate [1/s], the first at 0.
    """

    rates: tuple[tuple[float, float], ...]
    period: float = DAY
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        require(bool(self.rates), "a rate over the day has at least one piece", rates=self.rates)
        starts = [t for t, _ in self.rates]
        require(starts[0] == 0, "the first rate of the day holds from 0", start=starts[0])
        rising = all(a < b for a, b in zip(starts, [*starts[1:], self.period], strict=True))
        require(rising, "rates of the day are in order of time, within the period", starts=starts)
        require(all(0 <= r < inf for _, r in self.rates), "rates are not negative", rates=self.rates)
        require(any(r > 0 for _, r in self.rates), "some rate of the day is positive", rates=self.rates)
        _check_rate(1.0, self.burstiness)

    @property
    def rate(self) -> float:
        """The mean over the period [1/s]."""
        return sum(lasts * rate for lasts, rate in self._pieces()) / self.period

    def _pieces(self) -> list[tuple[float, float]]:
        ends = [*[t for t, _ in self.rates[1:]], self.period]
        return [(end - t, rate) for (t, rate), end in zip(self.rates, ends, strict=True)]

    def times(self, random: np.random.Generator, count: int) -> Iterator[list[float]]:
        pieces = self._pieces()
        sums = np.cumsum([0.0, *[lasts * rate for lasts, rate in pieces]])
        clocks, unit = np.cumsum([0.0, *[lasts for lasts, _ in pieces]]), 0.0
        for size in _sizes(count):
            drawn = unit + np.cumsum(gamma_gaps(random, 1.0, self.burstiness, size))
            unit = float(drawn[-1])
            periods = np.floor(drawn / sums[-1])
            yield (periods * self.period + np.interp(drawn - periods * sums[-1], sums, clocks)).tolist()


def _check_rate(rate: float, burstiness: float) -> None:
    require(rate > 0 and isfinite(rate), "requests arrive at a positive rate", rate=rate)
    require(
        burstiness >= 0 and isfinite(burstiness), "burstiness must not be negative", burstiness=burstiness
    )


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of prompts or of answers, by a distribution with a given mean.

    `uniform`: between `low` and `high` times `mean` (which is the largest with high 1); `lognormal`: `spread`
    is the standard deviation of the logarithm; `empirical`: one of `values`. Values of prompts and answers
    that are `paired` are drawn from the same row. Lengths above `most` are cut to it.
    """

    mean: float = 0.0
    shape: str = "fixed"
    low: float = 0.8
    high: float = 1.0
    spread: float = 0.5
    values: tuple[int, ...] = ()
    paired: bool = False
    most: int = 2**31

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise UnknownName("distribution of lengths", self.shape, SHAPES)
        if self.shape == "empirical":
            require(bool(self.values), "empirical lengths need at least one value", values=len(self.values))
            least = min(self.values)
            require(least >= 1, "a length is at least 1 token", value=least)
            return
        require(
            self.mean >= 1 and isfinite(self.mean), "lengths have a mean of at least 1 token", mean=self.mean
        )
        if self.shape == "uniform":
            ordered = 0 <= self.low <= self.high < inf
            require(ordered, "uniform lengths lie between low and high", low=self.low, high=self.high)
        require(0 <= self.spread < inf, "the spread of lengths is not negative", spread=self.spread)

    def draw(self, random: np.random.Generator, count: int) -> list[int]:
        """Whole lengths of at least one token.

        >>> Lengths(mean=100, shape="uniform").draw(np.random.default_rng(0), 3)
        [93, 85, 81]
        """
        if self.shape == "fixed":
            drawn = np.full(count, self.mean)
        elif self.shape == "uniform":
            drawn = random.uniform(self.low * self.mean, self.high * self.mean, count)
        elif self.shape == "lognormal":
            drawn = random.lognormal(np.log(self.mean) - 0.5 * self.spread**2, self.spread, count)
        elif self.shape == "exponential":
            drawn = random.exponential(self.mean, count)
        else:
            drawn = random.choice(np.asarray(self.values, float), count)
        whole: list[int] = np.clip(np.rint(drawn), 1, self.most).astype(int).tolist()
        return whole


def drawn_pairs(
    random: np.random.Generator, input: Lengths, output: Lengths, count: int
) -> Iterator[tuple[int, int]]:
    """Lengths of prompts and answers, from the same rows where they are paired."""
    if input.paired and output.paired and len(input.values) == len(output.values):
        rows = random.integers(0, len(input.values), count).tolist()
        return ((min(input.values[i], input.most), min(output.values[i], output.most)) for i in rows)
    return zip(input.draw(random, count), output.draw(random, count), strict=True)
