"""Where requests come from: arrivals at random or in bursts, clients that each wait for their answer, or rows
that were recorded; and how long prompts and answers are. Every draw has a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf, isfinite

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.simulate.server.arrivals import DRAWN, ArrivalProcess, GammaArrivals
from strata.simulate.server.fleet import Load
from strata.simulate.server.request import Request

ENDLESS = 2**62  # requests of a load that ends otherwise, or not at all
SHAPES = ("fixed", "uniform", "lognormal", "exponential", "empirical")


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


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenLoad:
    """Requests that arrive whatever becomes of the others: at a rate [1/s], with gaps of a gamma distribution
    whose squared coefficient of variation is `burstiness` (1: at random, Poisson; 0: evenly), or as a
    `process` says; `count` of them, or fewer where `duration` is over before [s].
    """

    rate: float = 0.0  # not read where there is a process
    input: Lengths
    output: Lengths
    count: int
    burstiness: float = 1.0
    process: ArrivalProcess | None = None
    duration: float = inf
    seed: int = 0

    def __post_init__(self) -> None:
        if self.process is None:
            GammaArrivals(rate=self.rate, burstiness=self.burstiness)
        require(self.count >= 1, "at least one request must arrive", count=self.count)
        require(self.duration > 0, "requests arrive for a positive time", duration=self.duration)

    def arrivals(self) -> Iterator[Request]:
        random, key = np.random.default_rng(self.seed), 0
        process = self.process or GammaArrivals(rate=self.rate, burstiness=self.burstiness)
        for times in process.times(random, self.count):
            pairs = drawn_pairs(random, self.input, self.output, len(times))
            for time, (read, written) in zip(times, pairs, strict=True):
                if time > self.duration:
                    return
                yield Request(key, time, read, written)
                key += 1

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
        require(0 <= self.think < inf, "a time to think is not negative", think=self.think)
        require(0 <= self.apart < inf, "clients begin one after another", apart=self.apart)

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
            state["_lengths"] = list(drawn_pairs(random, self.input, self.output, DRAWN))[::-1]
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


Shares = tuple[tuple[str, float], ...]  # names, and the share of requests that have each


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledLoad:
    """A load whose requests are for one of some models or adapters and have one of some priorities, each with
    its share; turns of a session keep those of its first.
    """

    load: Load
    models: Shares = ()
    priorities: Shares = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for what, shares in (("models", self.models), ("priorities", self.priorities)):
            good = all(0 <= share < inf for _, share in shares) and (
                not shares or sum(s for _, s in shares) > 0
            )
            require(good, f"shares of {what} are not negative, and one is positive", shares=shares)
        for name, _ in self.priorities:
            try:
                float(name)
            except ValueError:
                raise BadValue(f"a priority is a number, but got '{name}'") from None

    def arrivals(self) -> Iterator[Request]:
        self.__dict__["_labels"] = self._drawn()
        for request in self.load.arrivals():
            yield self._label(request)

    def _drawn(self) -> Iterator[tuple[str, float]]:
        """Labels without end."""
        random = np.random.default_rng([self.seed, 1])
        while True:
            models = self._choice(random, self.models) or [""] * DRAWN
            priorities = [float(p) for p in self._choice(random, self.priorities)] or [0.0] * DRAWN
            yield from zip(models, priorities, strict=True)

    @staticmethod
    def _choice(random: np.random.Generator, shares: Shares) -> list[str]:
        if not shares:
            return []
        parts = np.array([s for _, s in shares])
        chosen = random.choice(len(shares), DRAWN, p=parts / parts.sum()).tolist()
        return [shares[i][0] for i in chosen]

    def _label(self, request: Request) -> Request:
        model, priority = next(self.__dict__["_labels"])
        request.model = model or request.model
        request.priority = priority if self.priorities else request.priority
        return request

    def after(self, request: Request, now: float) -> Iterable[Request]:
        for later in self.load.after(request, now):
            if later.session is not None and later.session == request.session:
                later.model, later.priority = request.model, request.priority
                yield later
            else:
                yield self._label(later)


@dataclass(frozen=True, eq=False, kw_only=True)
class RepeatedPrompts:
    """A load whose requests each ask one of so many prompts again, drawn anew: what a prefix cache has of it
    need not be read. A prompt has one length.
    """

    load: Load
    prompts: int
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.prompts >= 1, "requests have at least one prompt", prompts=self.prompts)

    def arrivals(self) -> Iterator[Request]:
        self.__dict__["_random"] = np.random.default_rng([self.seed, 2])
        self.__dict__["_lengths"] = {}
        return (self._prompted(request) for request in self.load.arrivals())

    def _prompted(self, request: Request) -> Request:
        prompt = int(self.__dict__["_random"].integers(self.prompts))
        request.input = self.__dict__["_lengths"].setdefault(prompt, request.input)
        request.prefix = ((("prompt", prompt), request.input - 1),)  # the last token is read in any case
        return request

    def after(self, request: Request, now: float) -> Iterable[Request]:
        return (self._prompted(later) for later in self.load.after(request, now))


@dataclass(frozen=True, eq=False, kw_only=True)
class MergedLoad:
    """Several loads at once; the key of a request begins with the place of its load."""

    loads: tuple[Load, ...]

    def arrivals(self) -> Iterator[Request]:
        every = [self._keyed(i, load.arrivals()) for i, load in enumerate(self.loads)]
        return merge(*every, key=lambda r: r.arrival)

    @staticmethod
    def _keyed(place: int, requests: Iterable[Request]) -> Iterator[Request]:
        for request in requests:
            request.key = (place, request.key)
            yield request

    def after(self, request: Request, now: float) -> Iterable[Request]:
        place = request.key[0]
        return self._keyed(place, self.loads[place].after(request, now))
