"""What is watched while a service runs: tokens' gaps, caches, energy, and whether its queue ever empties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, log1p
from typing import NamedTuple

from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.replica import Replica
from strata.simulate.server.request import Request
from strata.simulate.server.scheduling import Scheduling
from strata.simulate.server.statistics import LEAST, WIDTH, LatencyStatistics
from strata.simulate.server.step_table import StepTable

STRETCHES = 256  # of arrival times in which waits are summed up, at most
GROWTH = 1.5  # times longer waits of the last third than of the first: a queue that grows
LEAST_STRETCH = 0.1  # of the time in which requests arrive: a shorter queue is a burst
FEW = 64  # requests that tell nothing of a trend
_LOG_WIDTH = log1p(WIDTH)


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


class TokenTimes(LatencyStatistics):
    """Times between tokens, of any number at once."""

    __slots__ = ()

    def add_many(self, value: float, count: int) -> None:
        self.count += count
        self.total += value * count
        self.largest = max(self.largest, value)
        self.least = min(self.least, value)
        at = int(log(value / LEAST) / _LOG_WIDTH) + 1 if value > LEAST else 0
        self._buckets[at] = self._buckets.get(at, 0) + count


class ObservedReplica(Replica):
    """A replica that is watched: the gaps between the tokens it brings, and each of its steps where asked for.

    The gap of a token is the step that brings it, with the steps before it in which prompts were read alone;
    the time in which a preempted request waits is in its own TPOT, not in a gap.
    """

    __slots__ = ("_stalled", "gaps", "tell")

    def __init__(
        self,
        index: int,
        table: StepTable,
        pools: list[KvPool],
        rules: Scheduling,
        *,
        gaps: TokenTimes,
        tell: Callable[[StepsRecord], None] | None = None,
    ) -> None:
        super().__init__(index, table, pools, rules)
        self.gaps, self.tell, self._stalled = gaps, tell, 0.0

    def end(self, done: Callable[[Request], None]) -> None:
        """The event under way is over: what it was is noted before it is forgotten."""
        time, steps, mixed = self.until - self.started, self.steps, self.rules.mixed
        generating = tokens = 0
        for rank in self.ranks:
            read = sum([chunk for _, chunk in rank.reading]) if rank.reading else 0
            tokens += read
            generating += rank.generating if mixed or not read else 0
        if generating:
            each, brought = time / steps, self.rules.tokens_per_step
            if self._stalled:
                self.gaps.add_many((each + self._stalled) / brought, round(generating * brought))
                self._stalled, steps = 0.0, steps - 1
            if steps:
                self.gaps.add_many(each / brought, round(generating * steps * brought))
        elif tokens and any([r.generating for r in self.ranks]):
            self._stalled += time
        else:
            self._stalled = 0.0
        if self.tell is not None:
            waits = sum([len(r.waiting) for r in self.ranks])
            used = max([r.pool.used / r.pool.blocks for r in self.ranks])
            steps = self.steps
            self.tell(
                StepsRecord(self.index, self.started, self.until, steps, generating, tokens, waits, used)
            )
        super().end(done)


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """Requests that come faster than they are served."""

    since: float  # the time after which none was let in at once [s]
    waits: float  # of the last that came, on average [s]
    growth: float  # of the wait for each second that goes by

    @property
    def said(self) -> str:
        from strata.units import show

        return (
            f"saturated from {show(self.since, 's')} on: from then on the queue never empties, and those who "
            f"come last wait {show(self.waits, 's')}"
        )


class QueueHistory:
    """How long requests waited by when they came, in bounded memory."""

    __slots__ = ("_counts", "_least", "_sums", "width")

    def __init__(self, width: float = 1e-3) -> None:
        self.width = width  # of a stretch of time [s]
        self._counts: list[int] = []
        self._sums: list[float] = []
        self._least: list[float] = []

    def add(self, arrival: float, queued: float) -> None:
        at = int(arrival / self.width)
        while at >= STRETCHES:
            self._halve()
            at = int(arrival / self.width)
        while at >= len(self._counts):
            self._counts.append(0)
            self._sums.append(0.0)
            self._least.append(inf)
        self._counts[at] += 1
        self._sums[at] += queued
        if queued < self._least[at]:
            self._least[at] = queued

    def _halve(self) -> None:
        """Neighbours become one."""
        self.width *= 2.0
        pairs = range(0, len(self._counts), 2)
        self._counts = [sum(self._counts[i : i + 2]) for i in pairs]
        self._sums = [sum(self._sums[i : i + 2]) for i in pairs]
        self._least = [min(self._least[i : i + 2]) for i in pairs]

    def saturation(self, soon: float) -> Saturation | None:
        """Whether those who came last were served ever later, from when on; `soon`: a wait that no queue
        explains [s].
        """
        at_once = [i for i, least in enumerate(self._least) if least <= soon]
        first = at_once[-1] + 1 if at_once else 0
        rows = [
            (i, self._counts[i], self._sums[i]) for i in range(first, len(self._counts)) if self._counts[i]
        ]
        long = (len(self._counts) - first) >= LEAST_STRETCH * len(self._counts)
        if len(rows) < 6 or not long or sum(c for _, c, _ in rows) < FEW:
            return None
        third = max(len(rows) // 3, 1)
        early, late = (sum(s for *_, s in p) / sum(c for _, c, _ in p) for p in (rows[:third], rows[-third:]))
        if late <= GROWTH * early:
            return None
        apart = self.width * (rows[-third][0] - rows[0][0])
        return Saturation(since=self.width * first, waits=late, growth=(late - early) / apart)
