"""Comparisons: the answers of `plan_for`, reasons that multiply to the ratio, and rows that do not fit."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.search.compare import compare
from strata.search.reasons import TokenTime, log_mean, served_token_time, times_apart, why_different

ASKED = st.serving.Requests(1024, 256)
GOALS = ("throughput", "cheapest", "fastest", "efficient")
MODEL = "llama-3.1-8b"


@cache
def served(goal="throughput"):
    """Two chips, engines and plans, and one system that the model has no room on."""
    quick, systems = goal == "throughput", ["4xh200", "4xb200", "1xstack-ref"]  # other goals are simulated
    engines = ["vllm", "ideal"] if quick else "vllm"
    return compare(systems, MODEL, ASKED, engines, ["best", "tp=4"], tpot=0.02, goal=goal, quick=quick)


@pytest.mark.parametrize("goal", GOALS)
def test_reasons_multiply_to_the_ratio_of_what_the_goal_counts(goal):
    found = served(goal)
    first = found.rows[found.against].answer
    seen = 0
    for row in found.rows:
        if row.answer is None:
            continue
        seen += 1
        ratio = row.answer.value(goal) / first.value(goal)
        assert row.difference.ratio == pytest.approx(ratio, rel=1e-7)
        assert math.fsum(r.share for r in row.difference.reasons) == pytest.approx(math.log(ratio), abs=1e-7)
        assert math.prod(r.factor for r in row.difference.reasons) == pytest.approx(ratio, rel=1e-7)
    assert seen >= 4


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
@pytest.mark.parametrize("goal", GOALS)
def test_reasons_of_steps_multiply_to_the_ratio(phase, goal):
    work = {
        "prefill": st.prefill(np.array([8.0, 32.0]), 2048),
        "decode": st.decode(np.array([8.0, 64.0]), 2048),
        "train": st.train(np.array([32.0, 64.0]), 2048),
    }[phase]
    found = compare(["8xh200", "8xb200"], MODEL, work, "ideal", ["best", "tp=2,dp=4", "tp=2,pp=4"], goal=goal)
    first = found.rows[0].answer
    metric = {"prefill": "ttft", "decode": "tpot", "train": "step_time"}[phase]
    for row in found.rows:
        told = row.answer
        ratio = told.value(goal) / first.value(goal)
        assert row.difference.ratio == pytest.approx(ratio, rel=1e-9)
        assert told.value("throughput") == pytest.approx(float(told.result.metrics.tokens_per_s))
        if goal == "fastest":
            assert ratio == pytest.approx(getattr(told, metric) / getattr(first, metric), rel=1e-9)


def test_the_other_way_round_every_reason_turns_over():
    one, two = (row.answer.measure for row in served().rows[:3:2])
    there, back = (why_different(*pair, "throughput", "tokens/s") for pair in ((one, two), (two, one)))
    assert there.ratio * back.ratio == pytest.approx(1.0)
    shares = {(r.what, r.bound): r.share for r in back.reasons}
    for reason in there.reasons:
        assert reason.share == pytest.approx(-shares[reason.what, reason.bound], abs=1e-9)


def test_a_row_is_the_answer_of_plan_for():
    found = served()
    alone = st.search.plan_for("4xb200", MODEL, ASKED, "vllm", tpot=0.02, quick=True).choices[0].served
    row = next(r for r in found.rows if r.names == (MODEL, "4xb200", "vllm", "best"))
    assert row.answer.batch == alone.clients and row.answer.limited_by == alone.limited_by
    for name in ("tokens_per_s", "ttft", "ttft_p95", "tpot", "cost_per_mtoken", "energy_per_mtoken"):
        assert getattr(row.answer, name) == pytest.approx(float(getattr(alone.load, name)))
    told = next(r for r in found.rows if r.names == (MODEL, "4xb200", "vllm", "tp=4"))
    assert told.answer.plan == "tp=4" and told.answer.tokens_per_s <= row.answer.tokens_per_s


def test_slower_memory_is_told_as_memory():
    """Nothing but DRAM bandwidth differs, so that kernels alone may be the reason, and DRAM most of it."""
    slow = st.system("1xh200", memory__bandwidth="2.4 TB/s")
    found = compare([st.system("1xh200"), slow], MODEL, st.serve(np.array([16.0]), 1024, 256))
    why = found.rows[1].difference
    by = {}
    for r in why.reasons:
        by[r.bound or r.what] = by.get(r.bound or r.what, 0.0) + r.share
    total = math.log(why.ratio)
    assert 0.5 < why.ratio < 0.68
    assert by["memory"] < 0.97 * total < 0.0  # at a slower memory the clock is held down less
    assert by["memory"] == pytest.approx(total, rel=0.06)
    assert by["batch"] == 0.0
    assert "DRAM" in why.text.partition(";")[0]


def test_another_batch_alone_is_told_as_the_batch():
    own = served().rows[0].answer.measure
    half = replace(own, own=own.at(own.own.batch / 2))
    found = why_different(half, own, "throughput", "tokens/s")
    assert [r.what for r in found.reasons if abs(r.share) > 1e-9] == ["batch"]
    assert f"batch {own.own.batch:g} instead of {own.own.batch / 2:g}" in found.text


def test_a_token_s_time_is_what_clients_see():
    """Little's law: time of a request over its tokens, by hand from TTFT and TPOT."""
    curve = st.serving.curve("4xh200", MODEL, ASKED, "tp=2,dp=2", "vllm")
    for clients in (1.0, 7.0, 100.0):
        seen = st.serving.closed_load(curve, clients).at(0, 0)
        found = served_token_time(curve, clients)
        by_hand = float(seen.ttft + 255 * seen.tpot) / 256
        assert found.time == pytest.approx(by_hand, rel=1e-6)
        assert math.fsum(found.parts.values()) == pytest.approx(found.time)
        assert min(found.parts.values()) >= 0.0
        assert {bound for _, bound in found.parts} >= {"memory", "compute", "network", "host", "request"}


TIMES = some.floats(1e-6, 10.0)


@given(some.lists(some.tuples(TIMES, TIMES), min_size=1, max_size=6))
@settings(max_examples=80, deadline=None)
def test_shares_of_times_add_up_to_the_logarithm(pairs):
    def of(which):
        parts = {("step", str(i)): pair[which] for i, pair in enumerate(pairs)}
        return TokenTime(batch=1.0, tokens_per_s=1.0 / math.fsum(parts.values()), parts=parts)

    one, two = of(0), of(1)
    assert math.fsum(times_apart(one, two).values()) == pytest.approx(math.log(one.time / two.time), abs=1e-9)
    assert min(one.time, two.time) <= log_mean(one.time, two.time) * (1 + 1e-9)
    assert log_mean(one.time, two.time) <= max(one.time, two.time) * (1 + 1e-9)


def test_what_does_not_fit_is_a_row_with_levers():
    found = served()
    small = [r for r in found.rows if r.system.name == "1xstack-ref"]
    assert len(small) == 4 and all(r.answer is None and r.difference is None for r in small)
    assert all("levers:" in r.why_none for r in small)
    assert "a device needs" in small[0].why_none and "not legal" in small[1].why_none
    assert found.against == 0 and len(found.ranking) == 8
    rates = [found.rows[i].answer.tokens_per_s for i in found.ranking]
    assert rates == sorted(rates, reverse=True)


def test_limits_that_nothing_keeps_are_a_row():
    found = compare("1xh200", MODEL, ASKED, "ideal", ["best", "tp=1"], tpot=1e-6)
    assert found.against is None and found.ranking == []
    assert all("TPOT at most 1 us" in row.why_none for row in found.rows)


def test_rows_are_compared_with_the_first_that_fits_or_the_one_named():
    asked = (["1xstack-ref", "1xh200", "1xb200"], MODEL, ASKED)
    found = compare(*asked)
    assert found.against == 1 and found.label(1) == "1xh200"
    assert compare(*asked, against="b200").against == 2
    with pytest.raises(UnknownName, match="row of this comparison called 'b100'"):
        compare(*asked, against="b100")
    with pytest.raises(BadValue, match="nothing can be compared with 1xstack-ref"):
        compare(*asked, against="1xstack-ref")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"systems": ["1xh20o"]}, "no chip called"),
        ({"models": ["llama-9"]}, "no model called"),
        ({"engines": ["vlm"]}, "no engine called"),
        ({"plans": ["tq=8"]}, "no degree of a plan"),
        ({"goal": "best"}, "no goal called"),
        ({"systems": []}, "1 to 256 rows"),
        ({"plans": [f"tp={n}" for n in range(1, 300)]}, "1 to 256 rows"),
        ({"work": st.decode(1, 1024), "ttft": 1.0}, "no limit on ttft"),
        ({"work": st.train(8, 1024), "tpot": 1.0}, "no limit on tpot"),
        ({"models": ["fft-1024"], "inputs": lambda s, m, e: (s, st.program(m), e)}, "fft-1024 is none"),
    ],
)
def test_a_wrong_call_is_one_line_before_any_work(change, said):
    asked = {"systems": ["1xh200"], "models": [MODEL], "work": ASKED} | change
    with pytest.raises(st.StrataError, match=said):
        compare(**asked)


def test_the_same_row_differs_by_nothing():
    found = compare(["1xh200"], MODEL, ASKED, "ideal", ["best", "tp=1"])
    assert found.rows[1].difference.text == "the same tokens/s"


def test_a_chip_without_a_price_has_no_ratio_of_cost():
    priced = st.system("1xh200")
    package = replace(priced.chip.package, price=None)
    bare = replace(priced, chip=replace(priced.chip, silicon=None, package=package))
    found = compare([bare, priced], MODEL, ASKED, goal="cheapest", against="tp=1")
    assert math.isnan(found.rows[0].answer.cost_per_mtoken)
    assert found.rows[1].difference.text.startswith("no USD/Mtoken") and found.ranking == [1, 0]


def test_a_step_that_keeps_no_limit_is_a_row():
    """plan_for named a metric that prefill does not have."""
    found = compare("1xh200", MODEL, st.prefill(8, 2048), "ideal", ["best", "tp=1"], ttft=1e-6)
    assert all("TTFT at most 1 us" in row.why_none and "levers" in row.why_none for row in found.rows)
