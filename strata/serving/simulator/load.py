"""Where requests come from: arrivals at a rate, clients that wait, recorded rows, sessions, all seeded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf
from typing import Any

import numpy as np

from strata.base.errors import BadValue, require
from strata.serving.simulator.arrivals import DRAWN, ArrivalProcess, GammaArrivals, Lengths, drawn_pairs
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.scheduling import Request

ENDLESS = 2**62  # requests of a load that ends otherwise, or not at all


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
    """Clients that ask, wait for the answer and think; all begin at once, or `apart` one by one [s]."""

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
    """A load whose requests ask one of so many prompts again, each of one length: a prefix cache has it."""

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


@dataclass(slots=True)
class _Session:
    """What is still to come of a session, and how its prompt begins."""

    # the wait before each [s], tokens it adds, tokens of its answer; the next last
    calls: list[tuple[float, int, int]]
    prefix: tuple[tuple[Any, int], ...]
    said: int
    turn: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class SessionLoad:
    """Sessions of several turns. The prompt of a turn is all before it and `input` new tokens; the user
    thinks between turns. An agent calls `tools` in each turn beside: after each answer a tool runs for
    `tool_time`, and what it finds, `tool_tokens`, is asked about next. All sessions of one of `groups` begin
    with the same `system` tokens.

    Sessions arrive at a rate or as a `process` says, whatever becomes of the others, or `clients` have one
    after the other. A session ends early where its next turn would pass `context`.
    """

    input: Lengths
    output: Lengths
    count: int  # sessions in all
    turns: Lengths = Lengths(mean=4.0)
    rate: float = 0.0
    process: ArrivalProcess | None = None
    clients: int = 0
    think: float = 0.0  # mean of an exponential distribution [s]
    system: int = 0
    groups: int = 1
    tools: float = 0.0  # calls of tools a turn: mean of a geometric distribution
    tool_time: float = 0.0  # mean of an exponential distribution [s]
    tool_tokens: Lengths = Lengths(mean=256.0)
    context: float = inf
    name: str = "session"  # of the load: sessions of two loads are not one another's
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.count >= 1, "at least one session must begin", count=self.count)
        open_, closed = self.rate > 0 or self.process is not None, self.clients > 0
        require(
            open_ != closed,
            "sessions arrive at a rate, or a number of clients have them",
            rate=self.rate,
            clients=self.clients,
        )
        require(self.clients >= 0, "clients are counted", clients=self.clients)
        for what, value in (("think", self.think), ("tool_time", self.tool_time), ("tools", self.tools)):
            require(0 <= value < inf, f"{what} of a session must not be negative", value=value)
        require(self.system >= 0, "a system prompt has a number of tokens", system=self.system)
        require(self.groups >= 1, "sessions have at least one system prompt", groups=self.groups)

    def arrivals(self) -> Iterator[Request]:
        state = self.__dict__
        state["_random"], state["_begun"], state["_live"] = np.random.default_rng(self.seed), 0, {}
        if self.clients:
            for _ in range(min(self.clients, self.count)):
                yield from self._begin(0.0)
            return
        process = self.process or GammaArrivals(rate=self.rate)
        # times have a seed of their own: they are drawn many at once, sessions one by one
        for times in process.times(np.random.default_rng([self.seed, 1]), self.count):
            for time in times:
                yield from self._begin(time)

    def _begin(self, now: float) -> Iterable[Request]:
        """The first turn of a new session; all lengths and times are drawn now, however fast it goes."""
        state = self.__dict__
        random, number = state["_random"], state["_begun"]
        state["_begun"] += 1
        turns = self.turns.draw(random, 1)[0]
        tools = [0] * turns
        if self.tools:
            tools = (random.geometric(1.0 / (1.0 + self.tools), turns) - 1).tolist()
        asked, thought = self.input.draw(random, turns), random.exponential(1.0, turns).tolist()
        extra = sum(tools)
        answers = self.output.draw(random, turns + extra)
        ran, found = random.exponential(1.0, extra).tolist(), self.tool_tokens.draw(random, extra)
        calls = []
        for wait, tokens, uses in zip(thought, asked, tools, strict=True):
            calls.append((self.think * wait, tokens, answers.pop()))
            calls += [(self.tool_time * ran.pop(), found.pop(), answers.pop()) for _ in range(uses)]
        group = int(random.integers(self.groups)) if self.groups > 1 else 0
        prefix = (((self.name, "system", group), self.system),) if self.system else ()
        state["_live"][number] = _Session(calls[::-1], prefix, self.system)
        return self._turn(number, now, waits=False)

    def _turn(self, number: int, now: float, waits: bool = True) -> Iterable[Request]:
        """The next turn of a session; none where it is over."""
        live = self.__dict__["_live"]
        session = live[number]
        wait, tokens, answer = session.calls.pop() if session.calls else (0.0, 0, 0)
        prompt = session.said + tokens
        if not answer or (session.turn and prompt + answer > self.context):
            del live[number]
            return ()
        name = (self.name, number, session.turn)
        later = bool(session.calls)
        request = Request(
            (number, session.turn),
            now + (wait if waits else 0.0),
            prompt,
            answer,
            prefix=session.prefix,
            session=(self.name, number),
            turn=session.turn,
            keep=name if later else None,
        )
        session.turn, session.said = session.turn + 1, prompt + answer
        session.prefix = (*session.prefix, (name, prompt + answer - 1))
        return (request,)

    def after(self, request: Request, now: float) -> Iterable[Request]:
        number, state = request.session[1], self.__dict__
        if request.state == "refused":  # nothing to go on from
            state["_live"].pop(number, None)
        found = self._turn(number, now) if number in state["_live"] else ()
        if not found and self.clients and state["_begun"] < self.count:
            return self._begin(now)
        return found
