"""First tokens of a closed loop whose prompts are read by workers of their own: queues before them, simulated."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from strata.arrays import Array

REQUESTS = 200  # simulated in a loop, in three rounds at least: later ones are like those before
LEAST_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class PrefillLoop:
    """Clients that ask again when they have their answer, and the workers that read their prompts."""

    clients: int
    workers: int
    ranks: int  # of a worker, each of which reads prompts of its own
    deep: int  # prompts that a rank reads in one step at most
    one: float  # time of a step with a prompt on each rank [s]
    full: float  # and with as many as it reads at most [s]
    before: float  # of a request before it is in a queue [s]
    after: float  # and from the end of its step until its first token is seen [s]
    answer: tuple[float, float]  # time to generate an answer: least and most, all alike [s]

    def step(self, prompts: int) -> float:
        """Time to read so many, dealt out evenly over the ranks [s]."""
        each = -(-prompts // self.ranks)
        return self.one + (self.full - self.one) * (each - 1) / max(self.deep - 1, 1)


def loop_first_tokens(loop: PrefillLoop, rounds: float) -> tuple[Array, Array]:
    """Times to first tokens of the first round, in which all ask at once, and of later ones [s]."""
    count = round(min(rounds, max(-(-REQUESTS // loop.clients), LEAST_ROUNDS)) * loop.clients)
    answers = np.random.default_rng(0).uniform(*loop.answer, count).tolist()
    most = loop.ranks * loop.deep
    queues: list[deque[tuple[int, float]]] = [deque() for _ in range(loop.workers)]
    load, busy = [0] * loop.workers, [False] * loop.workers  # prompts that wait or are read
    seen = np.zeros(count)
    asked = loop.clients
    # events: when, 0 a request asks, 1 a worker is done or 2 may begin, which, and what it read
    events: list[tuple[float, int, int, list[tuple[int, float]]]] = [
        (loop.before, 0, i, []) for i in range(loop.clients)
    ]
    while events:
        now, kind, which, read = heappop(events)
        if kind == 0:
            worker = min(range(loop.workers), key=load.__getitem__)
            queues[worker].append((which, now - loop.before))
            load[worker] += 1
        elif kind == 2:
            worker = which
        else:
            worker, busy[which] = which, False
            load[worker] -= len(read)
            for request, began in read:
                first = now + loop.after
                seen[request] = first - began
                if asked < count:
                    heappush(events, (first + answers[request] + loop.before, 0, asked, []))
                    asked += 1
        if busy[worker] or not queues[worker]:
            continue
        if events and events[0][:2] == (now, 0):  # others ask at the same time
            heappush(events, (now, 2, worker, []))
            continue
        taken = [queues[worker].popleft() for _ in range(min(len(queues[worker]), most))]
        busy[worker] = True
        heappush(events, (now + loop.step(len(taken)), 1, worker, taken))
    return seen[: loop.clients], seen[loop.clients :]


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
    weights = np.concatenate([np.full(began.size, 1.0 / began.size), np.zeros(later.size)])
    if later.size:
        weights[began.size :] = (rounds - 1.0) / later.size
    order = np.argsort(both)
    passed = np.cumsum(weights[order])
    return float(both[order][np.searchsorted(passed, 0.5 * passed[-1])])
