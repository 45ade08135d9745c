"""What is watched while a service runs: the gaps between tokens, and its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request
from strata.simulate.server.scheduling import Scheduling
from strata.simulate.server.statistics import LatencyStatistics
from strata.simulate.server.step_table import StepTable


class StepsRecord(NamedTuple):
    """Steps of a replica after one another with nothing changed between: what was in each."""

    replica: int
    start: float
    end: float
    steps: int
    generating: int  # sequences
    reading: int  # tokens of prompts
    waiting: int  # requests
    kv: float  # share of the blocks that are held


class ObservedReplica(Replica):
    """A replica that is watched: the gaps between its tokens, and each of its steps where asked for.

    The gap of a token is the step that brings it, with the steps before it in which prompts were read alone;
    the time in which a preempted request waits is in its own TPOT, not in a gap.
    """

    def __init__(
        self,
        index: int,
        table: StepTable,
        pools: list[KvPool],
        rules: Scheduling,
        *,
        gaps: LatencyStatistics,
        tell: Callable[[StepsRecord], None] | None = None,
    ) -> None:
        super().__init__(index, table, pools, rules)
        self.gaps, self.tell = gaps, tell
        self._plain = tell is None and len(pools) == 1 and rules.mixed and rules.tokens_per_step == 1.0
        # of each rank: how many wait for their next token while prompts are read alone, and how long so far
        self._stalled: list[list[list[float]]] = [[] for _ in pools]

    def end(self, done: Callable[[Request], None]) -> None:
        """The event under way is over: what it was is noted before it is forgotten."""
        if self._plain:  # what is most often asked for, without the rest
            count, steps = self.ranks[0].generating, self.steps
            if count:
                self.gaps.add_many((self.until - self.started) / steps, count * steps)
            super().end(done)
            return
        time, steps, mixed = self.until - self.started, self.steps, self.rules.mixed
        each, generating, tokens = time / steps, 0, 0
        waited = 0.0
        for rank, stalled in zip(self.ranks, self._stalled, strict=True):
            read = sum([chunk for _, chunk in rank.reading]) if rank.reading else 0
            tokens += read
            count = rank.generating
            if count and read and not mixed:
                _stall(stalled, count, time)
            elif count:
                generating += count
                for size, wait in stalled:
                    self._gap(each + wait, size)
                    waited += size
                stalled.clear()
        self._gap(each, generating * steps - waited)
        if self.tell is not None:
            waits = sum([len(r.waiting) for r in self.ranks])
            used = max([r.pool.used / r.pool.blocks for r in self.ranks])
            self.tell(
                StepsRecord(self.index, self.started, self.until, steps, generating, tokens, waits, used)
            )
        super().end(done)

    def _gap(self, time: float, count: float) -> None:
        """So many sequences had their next step after so long; guesses that hold bring several tokens."""
        brought = self.rules.tokens_per_step
        if count > 0:
            self.gaps.add_many(time / brought, round(count * brought))


def _stall(stalled: list[list[float]], count: int, time: float) -> None:
    """All that generate wait; those that had their first token since are a group of their own."""
    known = sum([size for size, _ in stalled])
    while stalled and known > count:  # preempted ones came last
        known -= stalled.pop()[0]
    if count > known:
        stalled.append([count - known, 0.0])
    for group in stalled:
        group[1] += time
