"""First tokens of a closed loop whose prompts are read by workers of their own: queues, simulated."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from strata.arrays import Array

REQUESTS = 200  # simulated in a loop, in two rounds at least: later ones are like those before
LEAST_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class PrefillLoop:
    """Clients that ask again when they have their answer, and the workers that read their prompts.

    Lengths of prompts and answers lie between `shortest` and 2 - `shortest` of their means, all alike.
    """

    clients: int
    workers: int
    ranks: int  # of a worker, each of which reads prompts of its own
    deep: int  # prompts that a rank reads in one step at most
    one: float  # time of a step with a mean prompt on each rank [s]
    full: float  # and with as many as it reads at most [s]
    before: float  # of a request before it is in a queue [s]
    after: float  # and from the end of its step until its first token is seen [s]
    answer: float  # mean time to generate an answer [s]
    shortest: float = 1.0

    def step(self, prompts: list[float]) -> float:
        """Time to read prompts of such lengths over the mean, dealt out over ranks that wait for the fullest
        [s].
        """
        fullest = max(sum(prompts[rank :: self.ranks]) for rank in range(self.ranks))
        return self.one + (self.full - self.one) * (fullest - 1.0) / max(self.deep - 1, 1)


@dataclass(eq=False)
class _Worker:
    """Requests that wait, with their lengths and when they were asked, and those that are read."""

    waiting: deque[tuple[int, float]] = field(default_factory=deque)
    reading: list[tuple[int, float]] = field(default_factory=list)


def loop_first_tokens(loop: PrefillLoop, rounds: float) -> tuple[Array, Array]:
    """Times to first tokens of the first round, in which all ask at once, and of later ones [s]; prompts go
    to the workers in turn.
    """
    count = round(min(rounds, max(-(-REQUESTS // loop.clients), LEAST_ROUNDS)) * loop.clients)
    draw = np.random.default_rng(0)
    lengths, answers = (draw.uniform(loop.shortest, 2.0 - loop.shortest, count).tolist() for _ in range(2))
    workers = [_Worker() for _ in range(loop.workers)]
    for i in range(loop.clients):
        workers[i % loop.workers].waiting.append((i, 0.0))
    seen, asked = [0.0] * count, loop.clients
    # when, and a request that comes to a queue, or a worker that is done with a step (as -1 less its place)
    events: list[tuple[float, int]] = []

    def begin(place: int, now: float) -> None:
        worker = workers[place]
        most = min(len(worker.waiting), loop.ranks * loop.deep)
        worker.reading = [worker.waiting.popleft() for _ in range(most)]
        if most:
            time = loop.step([lengths[request] for request, _ in worker.reading])
            heappush(events, (now + time, -1 - place))

    for place in range(loop.workers):
        begin(place, loop.before)
    while events:
        now, which = heappop(events)
        if which >= 0:
            place = which % loop.workers
            workers[place].waiting.append((which, now - loop.before))
            if not workers[place].reading:
                begin(place, now)
            continue
        place = -1 - which
        for request, began in workers[place].reading:
            seen[request] = now + loop.after - began
            if asked < count:
                again = now + loop.after + loop.answer * answers[request] + loop.before
                heappush(events, (again, asked))
                asked += 1
        begin(place, now)
    return np.array(seen[: loop.clients]), np.array(seen[loop.clients :])


def mean_first_token(loop: PrefillLoop, rounds: float) -> float:
    """Mean time to a first token [s], the first round counted as one of so many."""
    began, later = loop_first_tokens(loop, rounds)
    if not later.size:
        return float(began.mean())
    return float(began.mean() / rounds + (1.0 - 1.0 / rounds) * later.mean())


def median_first_token(loop: PrefillLoop, rounds: float) -> float:
    """The median of the same [s]."""
    began, later = loop_first_tokens(loop, rounds)
    both = np.concatenate([began, later])
    each = (rounds - 1.0) * began.size / max(later.size, 1)  # requests that one of the later ones stands for
    weights = np.concatenate([np.ones(began.size), np.full(later.size, each)])
    order = np.argsort(both)
    passed = np.cumsum(weights[order])
    return float(both[order][np.searchsorted(passed, 0.5 * passed[-1])])
