"""Rows on simulated requests: a million of them on one core, against a bare queue of as many events; and cost
against size.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from strata.serving.deployment import simulate
from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.load import OpenLoad

MILLION = 1_000_000
BARE = "a bare event queue in Python: a request pushed and popped twice, its time added up; requests/s"


def bare_queue(count: int) -> float:
    """The baseline: seconds of arrivals and departures of so many requests in a heap, nothing served."""
    random, heap, total = Random(0), [(0.0, 0)], 0.0
    start = time.process_time()
    clock = 0.0
    for i in range(count):
        clock += random.expovariate(20.0)
        heappush(heap, (clock, i))
        arrived, key = heappop(heap)
        heappush(heap, (arrived + random.expovariate(1.0), key))
        left, _ = heappop(heap)
        total += left - arrived
    return time.process_time() - start


def simulated(count: int) -> float:
    """Seconds of so many requests on one GPU, 30 a second of them, prices of steps included."""
    lengths = Lengths(mean=512, shape="lognormal"), Lengths(mean=128, shape="lognormal")
    load = OpenLoad(rate=30.0, input=lengths[0], output=lengths[1], count=count)
    start = time.process_time()
    found = simulate("1xh100", "llama-3-8b", load, "tp=1", "vllm")
    assert found.completed == count
    return time.process_time() - start


def add_requests(add: Callable[..., None], most: int = MILLION) -> None:
    """Requests a second on one core, by how many there are; and the whole million against its target."""
    took = 0.0
    for count in (most // 100, most // 10, most):
        bare, took = bare_queue(count), simulated(count)
        add(f"requests_{count}", count / took, "requests/s", BARE, count / bare, points=count)
    target = "the target: 60 s for a million requests on one core"
    add("requests_million", took * MILLION / most, "s", target, 60.0, smaller=True, points=most)
