"""An engine that steps by itself: ranks that step together, and the time of what they do.

Between two events nothing but the length of the caches changes, so that many decode steps are one event; a
request that arrives in between cuts them at the end of the step under way.
"""

from __future__ import annotations

from collections.abc import Callable

from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.rank import EngineRank, Scheduling
from strata.simulate.server.request import Request
from strata.simulate.server.step_table import StepTable


class Replica:
    """Ranks that step together, each with its own cache; a step takes as long as the fullest needs."""

    __slots__ = (
        "busy",
        "energy",
        "index",
        "ranks",
        "rules",
        "served",
        "started",
        "steps",
        "table",
        "total_steps",
        "turn",
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
        self.turn = 0  # steps chosen, decode steps after one another as one
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
        """A request for the rank with the fewest; of decode steps under way, the one in which it came is the
        last, or the one after it where that is chosen already.
        """
        rank = self.ranks[0] if len(self.ranks) == 1 else min(self.ranks, key=lambda r: r.outstanding)
        rank.enqueue(request)
        ahead = self.rules.ahead and self.steps > 0
        request.seen = self.turn + 1 + (ahead and self._cut(now) == self.steps)
        if self.steps > 1 and not ahead:
            self._cut(now)

    def _cut(self, now: float) -> int:
        """End the decode steps under way with the one that runs now, or the next where that is chosen: which
        one runs now, 0 where the first begins only now.
        """
        n, context = self._fullest()
        passed, price = now - self.started, self.table.decode_steps
        if self.steps == 1:
            return int(passed > 0.0)
        steps = min(max(int(passed / (self.until - self.started) * self.steps), 1), self.steps)
        while steps > 1 and price(n, context, steps - 1)[0] >= passed:
            steps -= 1
        while steps < self.steps and price(n, context, steps)[0] < passed:
            steps += 1
        last = steps + self.rules.ahead
        if last < self.steps:
            self.steps = last
            self.until = self.started + price(n, context, last)[0]
            self.version += 1
        return steps

    def _fullest(self) -> tuple[int, float]:
        if len(self.ranks) == 1:
            return self.ranks[0].generating, self.ranks[0].context
        return max([r.generating for r in self.ranks]), max([r.context for r in self.ranks])

    def start(self, now: float) -> bool:
        """Begin the next step, or the decode steps until something changes; whether there is any."""
        news = True
        while news:
            self.turn += 1
            tokens, attended = self._choose(now)
            n, context = self._fullest()
            news = self.rules.ahead and any([r.catch_up(self.turn) for r in self.ranks])
            if tokens or n:  # an engine that has nothing to do does not wait for a step to end
                break
        self.started = now
        self.version += 1
        if tokens:
            self.steps = 1
            self.until = now + self.table.step(n, context, tokens, attended, alone=not self.rules.mixed)[0]
        elif n:
            self.steps = 1 if news else min([r.steps_ahead() for r in self.ranks if r.generating])
            self.until = now + self.table.decode_steps(n, context, self.steps)[0]
        else:
            self.steps = 0
        return self.steps > 0

    def _choose(self, now: float) -> tuple[int, float]:
        """What the next step has of prompts: their tokens, and what these attend to together."""
        tokens, attended = 0, 0.0
        for rank in self.ranks:
            if self.rules.mixed:
                rank.take_decode_blocks()
            read, reach = rank.read_prompts(now, self.turn)
            if reach > attended:
                tokens, attended = read, reach
        if not tokens and not self.rules.mixed:
            for rank in self.ranks:
                rank.take_decode_blocks()
        return tokens, attended

    def end(self, done: Callable[[Request], None]) -> None:
        """The event under way is over."""
        steps = 0 if not self.rules.mixed and any(r.reading for r in self.ranks) else self.steps
        for rank in self.ranks:
            rank.advance(steps, self.until, done)
        self.busy += self.until - self.started
        self.total_steps += self.steps
        self.steps = 0
