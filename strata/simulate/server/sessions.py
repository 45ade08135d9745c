"""Conversations and agents: turns that follow one another, each on all that was said before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from strata.errors import require
from strata.simulate.server.arrivals import ArrivalProcess, GammaArrivals
from strata.simulate.server.load import Lengths
from strata.simulate.server.request import Request


class _Session:
    """What is still to come of a session, and how its prompt begins."""

    __slots__ = ("calls", "prefix", "said", "turn")

    def __init__(
        self, calls: list[tuple[float, int, int]], prefix: tuple[tuple[Any, int], ...], said: int
    ) -> None:
        self.calls = calls  # the wait before each [s], tokens it adds, tokens of its answer; the next last
        self.prefix, self.said, self.turn = prefix, said, 0


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
        """The first turn of a new session, all of whose lengths and times are drawn now: they do not hang on
        how fast it is served.
        """
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
