"""Loads of the request simulator: arrivals, lengths, sessions, and their one-line text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.base.errors import StrataError
from strata.serving.simulator.arrivals import BurstyArrivals, DailyArrivals, GammaArrivals, Lengths
from strata.serving.simulator.load import ClosedLoad, LabelledLoad, MergedLoad, OpenLoad, SessionLoad
from strata.serving.simulator.load_text import lengths_of, load_of

FIXED = {"input": Lengths(mean=100), "output": Lengths(mean=10)}


def times_of(process, count=40000, seed=3):
    return np.concatenate([np.array(t) for t in process.times(np.random.default_rng(seed), count)])


def told(load):
    return [
        (r.key, r.arrival, r.input, r.output, r.prefix, r.session, r.turn, r.model, r.priority, r.keep)
        for r in load.arrivals()
    ]


@pytest.mark.parametrize("burstiness", [0.0, 0.25, 1.0, 4.0])
def test_gaps_have_their_mean_and_variation(burstiness):
    gaps = np.diff(times_of(GammaArrivals(rate=5.0, burstiness=burstiness)))
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1, abs=1e-9)


def test_bursts_keep_the_mean_rate_and_pack_arrivals_together():
    times = times_of(BurstyArrivals(rate=20.0, peak=4.0, on=2.0, off=6.0), 200000)
    assert len(times) / times[-1] == pytest.approx(20.0, rel=0.05)
    counts = np.histogram(times, bins=np.arange(0.0, times[-1], 1.0))[0]
    assert counts.var() / counts.mean() > 5.0  # 1 where they come at random
    assert (counts == 0).mean() > 0.3  # at peak 4 nothing comes between bursts


def test_bursts_of_peak_one_come_at_random():
    times = times_of(BurstyArrivals(rate=20.0, peak=1.0, on=2.0, off=6.0))
    gaps = np.diff(times)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(1.0, rel=0.05)


def test_the_rate_of_the_day_holds_in_each_piece():
    daily = DailyArrivals(rates=((0.0, 2.0), (50.0, 20.0), (80.0, 0.0)), period=100.0)
    times = times_of(daily, 60000)
    share = (times % 100.0)[times < 100.0 * (times[-1] // 100)]
    days = times[-1] // 100
    found = np.histogram(share, bins=[0.0, 50.0, 80.0, 100.0])[0] / days
    assert found[:2] == pytest.approx([100.0, 600.0], rel=0.05)
    assert found[2] == 0
    assert daily.rate == pytest.approx(7.0)


def test_even_arrivals_follow_the_day_exactly():
    daily = DailyArrivals(rates=((0.0, 1.0), (2.0, 4.0)), period=4.0, burstiness=0.0)
    assert times_of(daily, 6).tolist() == pytest.approx([1.0, 2.0, 2.25, 2.5, 2.75, 3.0])


TEXTS = [
    "poisson:rate=8,input=lognormal:1024:0.5,output=256,count=300,seed=1",
    "even:rate=8,input=100,output=uniform:20,count=30",
    "gamma:rate=8,burstiness=3,input=exponential:100,output=empirical:5/7/9,duration=20",
    "bursty:rate=8,peak=3,on=2s,off=8s,input=100,output=10,count=200,models=a:0.5/b:0.5",
    "daily:rates=0h:1/8h:5/20h:2,input=100,output=10,count=200,priorities=0:0.9/1:0.1",
    "closed:clients=4,input=100,output=10,count=20,think=500ms",
    "sessions:rate=2,turns=3,input=50,output=20,count=30,system=200,groups=2,think=3",
    "agents:clients=3,turns=2,input=50,output=20,count=9,tools=2,tool_time=1,tool_tokens=lognormal:100:1",
    "poisson:rate=8,input=100,output=5,count=20 + sessions:rate=1,input=10,output=5,count=5",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_load_twice_is_the_same(text):
    load = load_of(text)
    first = told(load)
    assert first and first == told(load) == told(load_of(text))
    arrivals = [row[1] for row in first]
    assert arrivals == sorted(arrivals)
    if "rate" in text and not text.startswith("even"):
        assert told(load_of(text, seed=77)) != first


def test_a_duration_ends_arrivals():
    rows = told(load_of("poisson:rate=10,input=1,output=1,duration=30"))
    assert rows[-1][1] <= 30.0
    assert len(rows) == pytest.approx(300, rel=0.25)


@given(
    st.sampled_from(["fixed", "uniform", "lognormal", "exponential"]),
    st.floats(20, 5000),
    st.integers(0, 10**6),
)
@settings(max_examples=30, deadline=None)
def test_lengths_are_whole_positive_and_have_their_mean(shape, mean, seed):
    lengths = Lengths(mean=mean, shape=shape, low=0.8, high=1.2)
    drawn = lengths.draw(np.random.default_rng(seed), 4000)
    assert min(drawn) >= 1 and all(isinstance(n, int) for n in drawn[:10])
    assert np.mean(drawn) == pytest.approx(mean, rel=0.1)


def test_paired_lengths_come_from_the_same_row():
    pair = ((10, 1), (200, 20), (3000, 300))
    load = OpenLoad(
        rate=1.0,
        input=Lengths(shape="empirical", values=tuple(a for a, _ in pair), paired=True),
        output=Lengths(shape="empirical", values=tuple(b for _, b in pair), paired=True),
        count=500,
    )
    assert {(r.input, r.output) for r in load.arrivals()} == set(pair)


def served(load, time=1.0):
    """Every request served in a fixed time, in order of the clock."""
    from heapq import heappop, heappush

    heap, done, serial = [], [], 0
    for r in load.arrivals():
        heappush(heap, (r.arrival + time, serial, r))
        serial += 1
    while heap:
        now, _, r = heappop(heap)
        r.last = now
        done.append(r)
        for later in load.after(r, now):
            assert later.arrival >= now
            serial += 1
            heappush(heap, (later.arrival + time, serial, later))
    return done


def test_a_session_grows_on_what_was_said():
    load = SessionLoad(
        **FIXED, rate=1.0, count=20, turns=Lengths(mean=4), think=2.0, system=500, groups=3, seed=5
    )
    done = served(load)
    assert len(done) == 80
    by_session = {}
    for r in done:
        by_session.setdefault(r.session, []).append(r)
    for turns in by_session.values():
        assert [r.turn for r in turns] == [0, 1, 2, 3]
        assert [r.input for r in turns] == [600, 710, 820, 930]
        for before, r in pairwise(turns):
            assert r.prefix[:-1] == before.prefix
            assert r.prefix[-1] == (before.keep, before.input + before.output - 1)
            assert r.arrival > before.last
        assert turns[-1].keep is None
    assert len({r.prefix[0] for r in done}) == 3
    assert not load.__dict__["_live"]


def test_agents_call_tools_within_a_turn():
    load = SessionLoad(
        **FIXED, clients=4, count=400, turns=Lengths(mean=2), tools=3.0, tool_tokens=Lengths(mean=30), seed=2
    )
    done = served(load)
    calls = len(done) / 400
    assert calls == pytest.approx(2 * 4, rel=0.1)
    assert {r.input for r in done if r.turn == 1} == {100 + 10 + 30, 100 + 10 + 100}


def test_a_session_ends_where_its_context_would_pass():
    load = SessionLoad(**FIXED, clients=1, count=2, turns=Lengths(mean=50), context=400)
    assert max(r.input + r.output for r in served(load)) <= 400


def test_clients_wait_for_answers():
    load = ClosedLoad(clients=3, **FIXED, count=30)
    done = served(load, 2.0)
    assert len(done) == 30
    assert max(r.last for r in done) == pytest.approx(20.0)


def test_labels_have_their_shares_and_stay_with_a_session():
    load = LabelledLoad(
        load=OpenLoad(rate=1.0, **FIXED, count=4000),
        models=(("a", 3.0), ("b", 1.0)),
        priorities=(("2", 1.0),),
    )
    rows = list(load.arrivals())
    assert sum(r.model == "a" for r in rows) / 4000 == pytest.approx(0.75, abs=0.03)
    assert {r.priority for r in rows} == {2.0}
    sessions = LabelledLoad(load=SessionLoad(**FIXED, rate=1.0, count=50), models=(("a", 1.0), ("b", 1.0)))
    by_session = {}
    for r in served(sessions):
        by_session.setdefault(r.session, set()).add(r.model)
    assert all(len(models) == 1 for models in by_session.values())


def test_merged_loads_are_each_whole():
    parts = OpenLoad(rate=1.0, **FIXED, count=40), ClosedLoad(clients=2, **FIXED, count=10)
    done = served(MergedLoad(loads=parts))
    assert sum(r.key[0] == 0 for r in done) == 40 and sum(r.key[0] == 1 for r in done) == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("poison:rate=8", "nearest: poisson"),
        ("poisson:rate=8,output=5", "needs input="),
        ("poisson:input=8,output=5", "needs rate="),
        ("poisson:rate=-8,input=8,output=5", "positive rate"),
        ("poisson:rate=nan,input=8,output=5", "rate of a load"),
        ("poisson:rate=8,input=0,output=5", "at least 1 token"),
        ("poisson:rate=8,input=-3,output=5", "no distribution of lengths called '-3'"),
        ("poisson:rate=8,input=lognorm:3,output=5", "nearest: lognormal"),
        ("poisson:rate=8,input=lognormal:3:1:4,output=5", "lognormal:MEAN:SPREAD"),
        ("poisson:rate=8,input=empirical:3/x,output=5", "input"),
        ("poisson:rate=8,input=3,output=5,count=0", "at least one request"),
        ("poisson:rate=8,input=3,output=5,count=2.5", "whole number"),
        ("poisson:rate=8,input=3,output=5,cuont=2", "nearest: count"),
        ("poisson:rate=8,rate=9,input=3,output=5", "told twice"),
        ("poisson:rate", "name=value"),
        ("poisson:rate=8,input=3000,output=5,context=2000", "within the context"),
        ("bursty:rate=8,peak=9,input=3,output=5", "(on + off) / on = 4"),
        ("bursty:rate=1e-9,input=3,output=5", "requests at least"),
        ("poisson:rate=8,input=3,output=5,seed=-1", "not negative"),
        ("daily:rates=1h:2,input=3,output=5", "holds from 0"),
        ("daily:rates=0:0,input=3,output=5", "positive"),
        ("daily:rates=0,input=3,output=5", "a:x/b:y"),
        ("closed:clients=0,input=3,output=5", "at least one client"),
        ("closed:clients=5,input=3,output=5,think=3m/s", "think"),
        ("closed:clients=5,input=3,output=5,duration=3", "not after a duration"),
        ("sessions:input=3,output=5", "at a rate, or a number of clients"),
        ("sessions:rate=1,clients=3,input=3,output=5", "at a rate, or a number of clients"),
        ("poisson:rate=8,input=3,output=5,priorities=high", "a priority is a number"),
        ("trace:nothing.csv", "No such file"),
        ("nothing.jsonl", "No such file"),
        ("trace:a\0b.csv", "null"),
    ],
)
def test_bad_text_is_told_in_one_line(text, said):
    with pytest.raises(StrataError) as told_:
        load_of(text)
    assert said in str(told_.value) and "\n" not in str(told_.value)


KNOWN = [
    "poisson",
    "daily",
    "closed",
    "sessions",
    "trace",
    "rate",
    "input",
    "count",
    "turns",
    "rates",
    "empirical",
]
ODD = [":", "=", ",", "/", " + ", "8", "-1", "0", "1e999", "nan", "3h", "x.csv", "\0"]
WORDS = st.sampled_from([*KNOWN, *ODD])


@given(st.lists(WORDS, max_size=14).map("".join))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_load_or_a_line(text):
    try:
        load_of(text)
    except StrataError as error:
        assert "\n" not in str(error)


def test_a_slow_day_is_drawn_at_once():
    load = load_of("daily:rates=0:1e-12,input=3,output=5,count=5")
    assert [r.arrival for r in load.arrivals()][-1] > 1e11


def test_options_replace_what_the_line_says():
    load = load_of("poisson:rate=8,input=3,output=5", count=7, input=9, seed=4)
    assert [r.input for r in load.arrivals()] == [9] * 7
    with pytest.raises(StrataError):
        load_of("poisson:rate=8,input=3,output=5", nothing=7)


def test_words_of_lengths():
    assert lengths_of("uniform:100:0.5:1").low == 0.5
    assert lengths_of("lognormal:100").spread == 0.5
    assert lengths_of("1e3").mean == 1000.0
