"""Rules by which engines let requests in: blocks left by those that made room, whole prompts, steps chosen
ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strata.serving.simulator.fleet import Fleet
from strata.serving.simulator.kv_pool import KvPool
from strata.serving.simulator.load import RecordedLoad
from strata.serving.simulator.pool import Pool, Router
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.scheduling import Request, Scheduling


@dataclass
class FlatTable:
    """Steps of 10 ms, and 1 ms for every 100 tokens of prompts."""

    stages = lanes = 1
    shares = False
    idle = 0.0

    def decode_steps(self, sequences, context, steps, growth=1.0) -> tuple[float, float]:
        return 0.01 * steps, 0.0

    def step(self, sequences, context, tokens, attended, alone=False) -> tuple[float, float]:
        return 0.01 + 1e-5 * tokens, 0.0


def serve(rows, *, blocks=10**6, reuses=True, ranks=1, **rules) -> tuple[dict[int, Request], Replica]:
    """What became of requests on one engine."""
    scheduling = Scheduling(**({"tokens": 1000, "sequences": 64} | rules))
    pools = [KvPool(blocks, 10, reuses=reuses) for _ in range(ranks)]
    replica = Replica(0, FlatTable(), pools, scheduling)
    done: dict[int, Request] = {}
    fleet = Fleet(
        pools=(Pool(replicas=[replica], router=Router([replica])),),
        load=RecordedLoad(rows=rows),
        record=lambda r: done.update({r.key: r}),
        refuse=lambda r: pytest.fail("refused"),
    )
    fleet.run()
    return done, replica


def test_a_request_that_came_back_reads_only_what_others_took_of_its_blocks():
    pool = KvPool(10, 10)
    request = Request(0, 0.0, 65, 50)
    assert pool.match(request, 65) == 0
    assert (request.own, pool.free) == (7, 3)
    pool.leave(request, 7, 65)
    assert (pool.free, pool.evictable, pool.cached(request)) == (4, 6, 60)
    assert pool.take(6)  # four that were free, and its last two
    assert pool.cached(request) == 40
    pool.free += 6
    assert pool.match(request, 65) == 40
    assert (request.own, pool.free, pool.evictable, pool.used) == (7, 3, 0, 7)


def test_blocks_are_taken_in_the_order_they_were_left():
    pool = KvPool(12, 10)
    first, second = Request(0, 0.0, 60, 9), Request(1, 0.0, 60, 9)
    pool.match(first, 60)
    pool.match(second, 60)
    pool.leave(first, 6, 60)
    pool.release(second, 6, 60)  # later: its blocks go after those of the first
    assert pool.take(4)
    assert pool.cached(first) == 20
    assert pool.take(4)
    assert (pool.cached(first), pool.free + pool.evictable) == (0, 4)


def test_nothing_is_left_without_a_prefix_cache():
    pool = KvPool(10, 10, reuses=False)
    request = Request(0, 0.0, 65, 50)
    pool.match(request, 65)
    pool.leave(request, 7, 65)
    assert (pool.free, pool.cached(request)) == (10, 0)


def test_less_is_read_again_where_blocks_stay():
    rows = [(0.0, 300, 400)] * 4
    times = {}
    for reuses in (True, False):
        done, replica = serve(rows, blocks=200, reuses=reuses)
        assert replica.ranks[0].preemptions > 0
        times[reuses] = max(r.last for r in done.values())
    assert times[True] < times[False]


def test_a_whole_prompt_fits_or_waits():
    rows = [(0.0, 900, 300), (0.001, 2500, 10)]
    done, replica = serve(rows, blocks=300)
    assert replica.ranks[0].preemptions == 0
    assert done[1].scheduled >= done[0].last


def test_one_request_alone_is_not_slower_where_steps_are_chosen_ahead():
    plain, _ = serve([(0.5, 700, 30)])
    ahead, _ = serve([(0.5, 700, 30)], ahead=True)
    assert (ahead[0].first, ahead[0].last) == (plain[0].first, plain[0].last)


def test_a_request_waits_for_the_step_that_was_chosen_before_it_came():
    rows = [(0.0, 100, 200), (0.5051, 100, 20)]
    plain, _ = serve(rows)
    ahead, _ = serve(rows, ahead=True)
    # 11 ms, then steps of 10 ms: it comes in the one that ends at 0.511 s
    assert plain[1].first == pytest.approx(0.511 + 0.011)
    assert ahead[1].first == pytest.approx(0.521 + 0.011)


def test_a_place_is_known_to_be_free_one_step_later():
    rows = [(0.0, 100, 10), (0.0, 100, 30), (0.0, 100, 5)]
    plain, _ = serve(rows, sequences=2)
    ahead, _ = serve(rows, sequences=2, ahead=True)
    assert ahead[2].first - plain[2].first == pytest.approx(0.01)


@settings(deadline=None, max_examples=40)
@given(
    rows=some.lists(
        some.tuples(some.floats(0, 3), some.integers(1, 600), some.integers(1, 200)), min_size=1, max_size=25
    ),
    blocks=some.integers(85, 300),
    ahead=some.booleans(),
    looks=some.integers(1, 7),
    wait=some.integers(0, 9),
    tokens=some.integers(20, 700),
)
def test_nothing_is_lost_whatever_the_rules(rows, blocks, ahead, looks, wait, tokens):
    done, replica = serve(
        rows,
        blocks=blocks,
        tokens=tokens,
        ahead=ahead,
        looks=looks,
        wait_steps=wait,
        sequences=8,
    )
    assert len(done) == len(rows)
    pool = replica.ranks[0].pool
    assert pool.used == 0 and pool.free + pool.evictable == blocks
    for r in done.values():
        assert r.arrival <= r.scheduled < r.first <= r.last
        assert (r.last > r.first) == (r.output > 1)


def test_an_engine_that_looks_now_and_then_lets_requests_in_then():
    rows = [(0.0, 100, 200), (0.5051, 100, 20)]
    found, _ = serve(rows, looks=10)
    # the first step ends at 0.011 s; steps of 10 ms; it looks before steps 60, 70, ...
    assert found[1].first == pytest.approx(0.011 + 59 * 0.01 + 0.011)
    alone, _ = serve([(0.5, 100, 20)], looks=10)
    assert alone[0].first == pytest.approx(0.511)


def test_prompts_wait_for_others_beside_those_that_generate():
    rows = [(0.0, 100, 200), (0.5051, 100, 20), (0.6051, 300, 20)]
    found, _ = serve(rows, wait_steps=40, ranks=2)
    # steps of 10 ms end at 0.011, 0.021, ...: the two are read together in the step after the second came
    assert found[1].first == found[2].first == pytest.approx(0.611 + 0.013)
    rushed, _ = serve(rows[:2], wait_steps=40, ranks=2)
    assert rushed[1].first == pytest.approx(0.511 + 0.4 + 0.011)
    idle, _ = serve([(0.5, 100, 20)], wait_steps=40, ranks=2)
    assert idle[0].first == pytest.approx(0.511)
