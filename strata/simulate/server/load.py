"""Where requests come from: arrivals at random or in bursts, clients that each wait for their answer, or rows
that were recorded; and how long prompts and answers are. Every draw has a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from strata.errors import UnknownName, require
from strata.simulate.server.request import Request

DRAWN = 4096  # lengths and gaps drawn at a time
SHAPES = ("fixed", "uniform", "lognormal", "exponential", "empirical")


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens of prompts or of answers, by a distribution with a given mean.

    `uniform`: between `low` and `high` times `mean` (which is the largest with high 1); `lognormal`: `spread`
    is the standard deviation of the logarithm; `empirical`: one of `values`.
    """

    mean: float = 0.0
    shape: str = "fixed"
    low: float = 0.8
    high: float = 1.0
    spread: float = 0.5
    values: tuple[int, ...] = ()
    most: int = 2**31

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise UnknownName("distribution of lengths", self.shape, SHAPES)
        require(
            self.mean >= 1 or bool(self.values), "lengths have a mean of at least 1 token", mean=self.mean
        )

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


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenLoad:
    """Requests that arrive whatever becomes of the others: at a rate [1/s], with gaps of a gamma distribution
    whose squared coefficient of variation is `burstiness` (1: at random, Poisson; 0: evenly).
    """

    rate: float
    input: Lengths
    output: Lengths
    count: int
    burstiness: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.rate > 0, "requests arrive at a positive rate", rate=self.rate)
        require(self.count >= 1, "at least one request must arrive", count=self.count)
        require(self.burstiness >= 0, "burstiness must not be negative", burstiness=self.burstiness)

    def arrivals(self) -> Iterator[Request]:
        random, clock = np.random.default_rng(self.seed), 0.0
        for begin in range(0, self.count, DRAWN):
            size = min(DRAWN, self.count - begin)
            gaps = self._gaps(random, size)
            times = (clock + np.cumsum(gaps)).tolist()
            clock = times[-1]
            rows = zip(times, self.input.draw(random, size), self.output.draw(random, size), strict=True)
            for i, (time, read, written) in enumerate(rows):
                yield Request(begin + i, time, read, written)

    def _gaps(self, random: np.random.Generator, size: int) -> np.ndarray:
        if self.burstiness == 0.0:
            return np.full(size, 1.0 / self.rate)
        shape = 1.0 / self.burstiness
        return random.gamma(shape, 1.0 / (self.rate * shape), size)

    def after(self, request: Request, now: float) -> Iterable[Request]:
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosedLoad:
    """Clients that each send a request, wait for the whole answer, think, and send the next; all begin at
    once, or `apart` after one another [s].
    """

    clients: int
    input: Lengths
    output: Lengths
    count: int  # requests in all
    think: float = 0.0  # mean of an exponential distribution [s]
    apart: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.clients >= 1, "at least one client must ask", clients=self.clients)
        require(self.count >= self.clients, "each client asks at least once", count=self.count)

    def arrivals(self) -> Iterator[Request]:
        self._begin()
        for i in range(self.clients):
            yield self._next(i * self.apart)

    def _begin(self) -> None:
        state = self.__dict__
        state["_random"], state["_sent"], state["_lengths"] = np.random.default_rng(self.seed), 0, []

    def _next(self, time: float) -> Request:
        state = self.__dict__
        if not state["_lengths"]:
            random = state["_random"]
            pairs = zip(self.input.draw(random, DRAWN), self.output.draw(random, DRAWN), strict=True)
            state["_lengths"] = list(pairs)[::-1]
        read, written = state["_lengths"].pop()
        state["_sent"] += 1
        return Request(state["_sent"] - 1, time, read, written)

    def after(self, request: Request, now: float) -> Iterable[Request]:
        if self.__dict__["_sent"] >= self.count:
            return ()
        wait = self.__dict__["_random"].exponential(self.think) if self.think else 0.0
        return (self._next(now + wait),)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedLoad:
    """Requests that were recorded, in order of arrival."""

    rows: Sequence[tuple[float, int, int]]  # arrival [s], input and output tokens

    def arrivals(self) -> Iterator[Request]:
        for i, (time, read, written) in enumerate(sorted(self.rows)):
            yield Request(i, time, read, written)

    def after(self, request: Request, now: float) -> Iterable[Request]:
        return ()
