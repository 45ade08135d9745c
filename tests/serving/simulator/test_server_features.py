"""What engines do where memory is short or tokens are guessed: hand sums on prices that can be added up."""

import tracemalloc
from dataclasses import replace

import pytest
from stub_engine import LinearPrices, served

from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.kv_pool import TierStore, host_tier, kv_tier
from strata.serving.simulator.load import OpenLoad
from strata.serving.simulator.scheduling import Request, Scheduling

FLAT = LinearPrices(base=1.0, sequence=0.0, context=0.0, token=0.0, attended=0.0)
WORK = LinearPrices(base=0.0, sequence=1e-3, context=0.0, token=1e-2, attended=0.0)


def test_two_requests_by_hand():
    """The second comes in the first's second step, is read in the third, beside it."""
    found = served([Request(0, 0.0, 10, 4), Request(1, 1.5, 10, 2)], prices=FLAT)
    assert [(r.scheduled, r.first, r.last) for r in found.done] == [(0.0, 1.0, 4.0), (2.0, 3.0, 4.0)]


def full_pool(eviction, **told):
    """Two requests of 16 tokens that each want 40 more, where there is room for 80 tokens."""
    rules = Scheduling(tokens=64, sequences=8, eviction=eviction)
    sent = [Request(0, 0.0, 16, 40), Request(1, 0.0, 16, 40)]
    return served(sent, prices=FLAT, rules=rules, blocks=10, page=8, **told)


def test_recompute():
    """The one that came last gives its blocks up when the tenth block is begun and reads all again."""
    found = full_pool("recompute", reuses=False)
    first, second = sorted(found.done, key=lambda r: r.key)
    assert (first.preempted, second.preempted) == (0, 1)
    # of 80 tokens each has 40, 24 of them generated, when the next block is wanted; the second waits for the
    # first to end, reads its 40 again, which brings a token, and makes the other 15
    assert first.last == 40.0 and found.replicas[0].read == 32 + 40
    assert second.last == 40.0 + 1.0 + 15.0


def test_what_nobody_took_is_not_read_again_where_prompts_are_kept():
    found = full_pool("recompute")
    first, second = sorted(found.done, key=lambda r: r.key)
    # its cache of 39 tokens had four whole blocks; the first took two blocks until it ended, its last ones:
    # the one that was not whole, and one of these
    assert second.preempted == 1 and found.replicas[0].read == 32 + 16
    assert (first.last, second.last) == (40.0, 40.0 + 1.0 + 15.0)


def test_swap_moves_blocks_and_reads_nothing_again():
    tier = kv_tier("host", capacity="1 GB", read="1 MB/s", write="0.5 MB/s", latency="0 s")
    found = full_pool("swap", tiers=lambda: TierStore([tier], 1e6))
    first, second = sorted(found.done, key=lambda r: r.key)
    assert second.preempted == 1 and found.replicas[0].read == 32
    # five blocks out at half a block a second, and in again at one
    moved = found.replicas[0].busy - found.replicas[0].total_steps
    assert moved == pytest.approx(5 * 2.0 + 5 * 1.0)
    assert second.last > first.last


def test_swap_without_room_recomputes():
    tiny = kv_tier("host", capacity="2 MB")
    found = full_pool("swap", tiers=lambda: TierStore([tiny], 1e6))
    assert found.replicas[0].read > 32 and not found.refused


def test_no_eviction_holds_blocks_for_the_whole_answer():
    """The second waits until the first is done: guaranteed to end what has begun."""
    found = full_pool("none")
    first, second = sorted(found.done, key=lambda r: r.key)
    assert not first.preempted and not second.preempted
    assert second.scheduled == first.last == 40.0


def test_shared_prefix_is_read_once():
    prefix = (("system", 64),)
    sent = [Request(i, 10.0 * i, 80, 2, prefix=prefix) for i in range(3)]
    found = served(sent, prices=WORK, page=16)
    assert [r.cached for r in found.done] == [0, 64, 64]
    assert [round(r.ttft, 9) for r in found.done] == [0.8, 0.16, 0.16]


def test_least_recently_used_goes_first():
    """Room for two prefixes of three: the one that was not used lately is read again."""

    def ask(key, time, name):
        return Request(key, time, 40, 1, prefix=((name, 32),))

    names = ["a", "b", "a", "c", "a", "b"]
    found = served([ask(i, 10.0 * i, n) for i, n in enumerate(names)], prices=WORK, blocks=9, page=8)
    assert [r.cached for r in found.done] == [0, 0, 32, 0, 32, 0]


@pytest.mark.parametrize(
    ("read", "cached", "ttft"),
    [
        ("1 GB/s", 32, 0.08),  # loaded in 4 ms beside the step that reads the other 8 tokens
        ("8 MB/s", 32, 0.5),  # loaded in 0.5 s, longer than that step, and still less than two reads
        ("4 MB/s", 0, 0.4),  # not in 1 s: read again
    ],
)
def test_a_prefix_in_a_tier_is_loaded_where_that_is_quicker(read, cached, ttft):
    tier = kv_tier("host", capacity="1 GB", read=read, latency="0 s")

    def tiers():
        return TierStore([tier], 1e6, recompute=lambda tokens, attended: 0.02 * tokens)

    names = ["a", "b", "a"]
    sent = [Request(i, 10.0 * i, 40, 1, prefix=((n, 32),)) for i, n in enumerate(names)]
    found = served(sent, prices=WORK, blocks=6, page=8, tiers=tiers)
    assert (found.done[2].cached, found.done[2].ttft) == (cached, pytest.approx(ttft))


def test_tiers_fill_one_after_the_other():
    host, disk = kv_tier("host", capacity="4 MB"), kv_tier("disk", capacity="8 MB")
    store = TierStore([host, disk], 1e6)
    for i in range(4):
        store.put(("p", i), 3, 24)
    assert store.used == [3, 6]  # the last in the host's memory, two before it on disk, the first gone
    assert [store.find([(("p", i), 24)], 0, 100)[0] for i in range(4)] == [0, 24, 24, 24]
    assert store.swap_out("r", 2) > 0.0 and store.used[0] <= 4
    assert store.swap_out("s", 3) == -1.0
    assert store.swap_in("r") > 0.0


def test_host_link_of_a_fabric():
    from strata.hardware.system import as_system

    assert float(host_tier(as_system("8xh100")).read) == 55e9


def test_priorities():
    """The lowest number first."""
    rules = Scheduling(tokens=64, sequences=1, priorities=True)
    sent = [(0, 0.0, 5), (1, 0.5, 2), (2, 0.6, 1)]

    def ask(rules):
        made = [Request(k, t, 8, 10, priority=p) for k, t, p in sent]
        return {r.key: r for r in served(made, prices=FLAT, rules=rules).done}

    waits = ask(rules)
    assert waits[0].last == 10.0 and waits[2].first == 11.0 and waits[1].first == 21.0


def test_guesses_in_expectation():
    """Two tokens a step on average: half the steps."""
    plain = Scheduling(tokens=64, sequences=4)
    guessing = replace(plain, tokens_per_step=2.0, drafted=2)

    def steps(rules, count):
        return [
            r.last - r.first
            for r in served(
                [Request(i, 1000.0 * i, 8, 101) for i in range(count)], prices=FLAT, rules=rules
            ).done
        ]

    assert set(steps(plain, 3)) == {100.0} and set(steps(guessing, 3)) == {50.0}


def test_energy_and_blocks_over_time():
    """One request of 16 tokens and 17 more, on steps of 1 s at 100 W, then 10 W."""
    found = served([Request(0, 0.0, 16, 17)], prices=FLAT, page=16, blocks=10)
    one = found.replicas[0]
    assert one.busy == 17.0 and one.total_energy(27.0) == pytest.approx(1700.0 + 100.0)
    # one block while it is read, two from the first token on
    mean, most = one.kv_use(17.0)
    assert most == 0.2 and mean == pytest.approx((1 + 16 * 2) / 17 / 10, rel=0.05)


def test_memory_is_bounded_by_active_requests():
    """Four times as many requests from a generator, no more memory."""

    def peak(count):
        load = OpenLoad(rate=50.0, input=Lengths(mean=64), output=Lengths(mean=16), count=count)
        prices = LinearPrices(base=1e-3)
        tracemalloc.start()
        found = served(load, prices=prices, record=lambda r: None)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert not found.done and found.replicas[0].outstanding == 0
        return most

    peak(100)  # what is imported only then
    assert peak(20_000) < 1.3 * peak(4_500)
