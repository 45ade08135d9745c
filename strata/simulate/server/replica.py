"""An engine that steps by itself: ranks that step together, and the time of what they do.

Between two events nothing but the length of the caches changes, so that many decode steps are one event; a
request that arrives in between cuts them at the end of the step under way.
"""

from __future__ import annotations

from collections.abc import Callable

from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.rank import NEVER, EngineRank, Scheduling
from strata.simulate.server.request import Request
from strata.simulate.server.step_table import StepTable


class Replica:
    """Ranks that step together, each with its own cache; a step takes as long as the fullest needs."""

    __slots__ = (
        "busy",
        "energy",
        "held",
        "index",
        "number",
        "ranks",
        "rules",
        "served",
        "started",
        "steps",
        "table",
        "total_steps",
        "until",
        "version",
    )

    def __init__(self, index: int, table: StepTable, pools: list[KvPool], rules: Scheduling) -> None:
        self.index, self.table, self.rules = index, table, rules
        self.ranks = [EngineRank(pool, rules) for pool in pools]
        self.busy = self.energy = 0.0
        self.steps = 0  # of the event under way; 0: it waits for requests
        self.total_steps = self.served = 0
        self.started = self.until = 0.0
        self.number = 0  # of the next step
        self.held = NEVER  # number of the step since which prompts wait for more of them
        self.version = 0  # of the event under way: one that was cut is another

    @property
    def outstanding(self) -> int:
        return sum([r.outstanding for r in self.ranks])

    def cached(self, request: Request) -> int:
        """Tokens of its prompt that one of the ranks has in its cache."""
        return max(r.pool.cached(request) for r in self.ranks)

    def fits(self, request: Request) -> bool:
        """Whether the blocks of a rank could hold it, prompt and answer, with nothing else."""
        pool = self.ranks[0].pool
        return pool.blocks_of(request.input + request.output) <= pool.blocks

    def enqueue(self, request: Request, now: float) -> None:
        """A request for the rank with the fewest; of decode steps under way, the last is the one after which
        the engine looks for requests.
        """
        rank = self.ranks[0] if len(self.ranks) == 1 else min(self.ranks, key=lambda r: r.outstanding)
        rank.enqueue(request)
        request.seen = self.number
        if not self.steps:
            return
        running = self._running(now)
        later = self.number + max(running, 1) + (self.rules.ahead and running > 0)
        request.seen = -(-later // self.rules.looks) * self.rules.looks
        if request.seen - self.number < self.steps:
            self.steps = request.seen - self.number
            self.until = self.started + self.table.decode_steps(*self._fullest(), self.steps)[0]
            self.version += 1

    def _running(self, now: float) -> int:
        """Which of the steps under way runs now; 0 where the first begins only now."""
        passed, price = now - self.started, self.table.decode_steps
        if self.steps == 1 or passed <= 0.0:
            return int(passed > 0.0)
        n, context = self._fullest()
        steps = min(max(int(passed / (self.until - self.started) * self.steps), 1), self.steps)
        while steps > 1 and price(n, context, steps - 1)[0] >= passed:
            steps -= 1
        while steps < self.steps and price(n, context, steps)[0] < passed:
            steps += 1
        return steps

    def _fullest(self) -> tuple[int, float]:
        if len(self.ranks) == 1:
            return self.ranks[0].generating, self.ranks[0].context
        return max([r.generating for r in self.ranks]), max([r.context for r in self.ranks])

    def start(self, now: float) -> bool:
        """Begin the next step, or the decode steps until something changes; whether there is any."""
        while True:
            tokens, attended = self._choose(now)
            n, context = self._fullest()
            told = min([r.catch_up(self.number) for r in self.ranks])
            told = min(told, self.held + self.rules.wait_steps)
            if tokens or n or told == NEVER:
                break
            self.number = told  # an engine that has nothing to do does not wait for a step to end
        self.started = now
        self.version += 1
        if tokens:
            self.steps = 1
            self.until = now + self.table.step(n, context, tokens, attended, alone=not self.rules.mixed)[0]
        elif n:
            self.steps = min([told - self.number, *[r.steps_ahead() for r in self.ranks if r.generating]])
            self.until = now + self.table.decode_steps(n, context, self.steps)[0]
        else:
            self.steps = 0
        return self.steps > 0

    def _choose(self, now: float) -> tuple[int, float]:
        """What the next step has of prompts: their tokens, and what these attend to together."""
        tokens, attended = 0, 0.0
        admits = not self.rules.wait_steps or not self._holds()
        for rank in self.ranks:
            if self.rules.mixed:
                rank.take_decode_blocks()
            read, reach = rank.read_prompts(now, self.number, admits)
            if reach > attended:
                tokens, attended = read, reach
        if not tokens and not self.rules.mixed:
            for rank in self.ranks:
                rank.take_decode_blocks()
        return tokens, attended

    def _holds(self) -> bool:
        """Whether prompts wait for others to be read together with."""
        rules, before = self.rules, self.held
        self.held = NEVER
        if not any([r.generating for r in self.ranks]):
            return False
        if len(self.ranks) > 1:
            there = [r.tokens_waiting(self.number, 1) > 0 for r in self.ranks]
            some, enough = any(there), all(there)
        else:
            tokens = self.ranks[0].tokens_waiting(self.number, max(rules.wait_tokens, 1))
            some, enough = tokens > 0, tokens >= rules.wait_tokens
        since = min(before, self.number)
        if not some or enough or self.number - since >= rules.wait_steps:
            return False
        self.held = since
        return True

    def end(self, done: Callable[[Request], None]) -> None:
        """The event under way is over."""
        steps = 0 if not self.rules.mixed and any(r.reading for r in self.ranks) else self.steps
        for rank in self.ranks:
            rank.advance(steps, self.until, done)
        self.busy += self.until - self.started
        self.total_steps += self.steps
        self.number += self.steps
        self.steps = 0
