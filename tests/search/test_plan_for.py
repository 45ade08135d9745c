"""The best plans under limits: what they keep, and what is said where there is none."""

import pickle
from importlib import import_module

import numpy as np
import pytest

import strata as st
from strata.base.errors import StrataError
from strata.result import why_infeasible
from strata.search.plan_for import time_by_op, why_behind


@pytest.fixture(autouse=True, scope="module")
def curves_once():
    """A curve that several questions here ask for is priced once."""
    searched = import_module("strata.serving.served_plans")
    priced, known = searched.curve, {}

    def once(*asked, **how):
        key = pickle.dumps((asked, how))
        if key not in known:
            known[key] = priced(*asked, **how)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searched, "curve", once)
        yield


def test_plans_keep_the_limits_and_come_best_first():
    work = st.serve(np.array([4.0, 64.0]), 1024.0, 256.0)
    ranking = st.plan_for("8xh200", "llama-3-70b", work, "vllm", ttft=2.0, tpot=0.04, top=4)
    loads = [c.served.load for c in ranking.choices]
    rates = [float(load.tokens_per_s) for load in loads]
    assert rates == sorted(rates, reverse=True) and ranking.nearest is ranking.choices[0].result
    assert all(load.ttft <= 2.0 and load.tpot <= 0.04 for load in loads)
    assert {c.served.clients for c in ranking.choices} <= {4.0, 64.0}
    assert len(rates) <= 4 <= ranking.feasible <= ranking.considered and ranking.why_none == ""
    best = ranking.choices[0].result
    assert why_behind(best, best) == "the best" and why_behind(ranking.choices[1].result, best).startswith(
        "-"
    )


def test_a_batch_at_once_is_what_predict_says():
    ranking = st.plan_for("8xh200", "llama-3-70b", st.serve(8.0, 1024.0, 256.0), top=1, at_once=True)
    best = ranking.choices[0]
    again = st.evaluate("8xh200", "llama-3-70b", st.serve(8.0, 1024.0, 256.0), best.result.plan)
    assert best.served is None and float(best.result.metrics.ttft) == float(again.metrics.ttft)


ASKED = st.serving.Requests(2048.0, 512.0)
BETTER = {"throughput": "tokens_per_s", "cheapest": "cost_per_mtoken", "efficient": "energy_per_mtoken"}
SAME = (
    "ttft",
    "ttft_p95",
    "tpot",
    "tokens_per_s",
    "cost_per_mtoken",
    "energy_per_mtoken",
    "cost_per_device_hour",
)
QUESTIONS = [
    ("8xh200", "llama-3-70b", "vllm"),
    ("8xh200", "llama-3-8b", "ideal"),
    ("8xh200", "mixtral-8x7b", "sglang"),
    ("2x8xh200", "mixtral-8x7b", "vllm"),
]


@pytest.mark.parametrize("goal", ["throughput", "cheapest", "fastest", "efficient"])
@pytest.mark.parametrize("question", QUESTIONS, ids="-".join)
def test_serving_says_of_the_best_plan_what_plan_says(question, goal):
    """One question, one answer: the best line, asked of the other command at its batch, is the same."""
    system, model, engine = question
    limits = {"ttft": 1.5, "tpot": 0.03, "quick": goal != "cheapest" or model != "llama-3-70b"}
    ranking = st.plan_for(system, model, ASKED, engine, goal=goal, **limits)
    best = ranking.choices[0].served
    quick = {"quick": limits["quick"]}
    told = st.serve_under_load(system, model, ASKED, best.plan, engine, clients=best.clients, **quick).load
    whole = st.serve_under_load(system, model, ASKED, None, engine, goal=goal, **limits).served.choices[0]
    for name in SAME:
        assert float(getattr(told, name)) == pytest.approx(float(getattr(best.load, name)), rel=1e-9), name
        assert float(getattr(whole.load, name)) == pytest.approx(float(getattr(best.load, name)), rel=1e-9)
    assert vars(whole.plan) == vars(best.plan) and whole.clients == best.clients
    for choice in ranking.choices[1:]:
        if goal in BETTER:
            one, other = (float(getattr(s.load, BETTER[goal])) for s in (best, choice.served))
            assert one >= other if goal == "throughput" else one <= other


@pytest.mark.parametrize("limits", [{}, {"tpot": 0.02}, {"ttft": 0.4}, {"ttft": 0.4, "share": 0.95}])
def test_the_batch_is_the_largest_and_says_what_limits_it(limits):
    ranking = st.plan_for("8xh200", "llama-3-70b", ASKED, "vllm", **limits, top=20, quick=True)
    assert len({c.served.clients for c in ranking.choices}) > 3
    asked = st.serving.ServingLimits(**limits)
    for served in (c.served for c in ranking.choices):
        curve = st.serving.curve("8xh200", "llama-3-70b", ASKED, served.plan, "vllm")
        assert st.serving.closed_load(curve, served.clients).within(**asked.told)[0, 0]
        more = st.serving.closed_load(curve, served.clients + 1)
        if served.limited_by in ("memory", "engine"):
            assert served.clients == curve.slots[0] == served.slots
        else:
            assert not more.within(**asked.told)[0, 0]
            assert np.isfinite(limits[served.limited_by.lower()])


def test_steps_have_their_largest_batch_too():
    ranking = st.plan_for(
        "8xh200", "llama-3-70b", st.decode(np.array([1.0, 64.0]), 2048.0), tpot=0.03, largest=True, top=3
    )
    for one in (c.result for c in ranking.choices):
        assert one.fits and one.metrics.tpot <= 0.03
        more = st.evaluate(
            one.system, one.model, st.decode(one.workload.batch + 1, 2048.0), one.plan, one.engine
        )
        assert not more.fits or more.metrics.tpot > 0.03


def test_goals_order_plans_of_steps():
    asked = ("8xh200", "llama-3-70b", st.decode(64.0, 2048.0))
    for goal, metric in {
        "cheapest": "cost_per_mtoken",
        "efficient": "energy_per_token",
        "fastest": "tpot",
    }.items():
        found = [float(getattr(c.result.metrics, metric)) for c in st.plan_for(*asked, goal=goal).choices]
        assert found == sorted(found)
    with pytest.raises(StrataError, match="no goal called 'cheap'"):
        st.plan_for(*asked, goal="cheap")
    for program, work in (("fft-1024", ASKED), ("fft-1024", st.forward(1.0))):
        with pytest.raises(StrataError, match="fft-1024 is none"):
            st.plan_for("8xh200", program, work)
    with pytest.raises(StrataError, match="answers no requests"):
        st.plan_for("8xh200", "lstm-lm-v100", ASKED)


def test_limits_nobody_keeps_name_the_quickest():
    ranking = st.plan_for("8xh200", "llama-3-70b", st.serve(8.0, 1024.0, 256.0), tpot=1e-6)
    assert ranking.choices == [] and ranking.considered is None and ranking.feasible == 0
    assert "no plan keeps the limits, TPOT at most 1 us; the quickest has" in ranking.why_none
    assert ranking.nearest.fits
    many = st.plan_for("8xh200", "llama-3-70b", st.serve(1e5, 1024.0, 256.0), "vllm")
    assert many.choices == [] and "levers" in many.why_none


def test_a_model_too_large_names_the_plan_that_needs_least():
    ranking = st.plan_for("1xh100", "llama-3-70b", st.decode(np.array([1.0, 8.0]), 1024.0))
    assert "does not fit on 1xh100" in ranking.why_none and not ranking.nearest.fits
    assert ranking.why_none == why_infeasible(ranking.nearest) and ranking.nearest.workload.batch == 1.0


def test_times_of_ops_add_up_to_the_step():
    result = st.evaluate("8xh200", "llama-3-70b", st.decode(16.0, 2048.0), "tp=8")
    each = float(result.metrics.step_time) / 16.0
    assert sum(time_by_op(result).values()) == pytest.approx(each, rel=1e-9)


def test_a_ranking_is_read_in_one_line():
    """It was 2,000 lines of arrays at a prompt."""
    found = st.plan_for("8xh200", "llama-3-70b", st.serving.Requests(1024, 256), tpot=0.03)
    for record in (found, found.served, found.served.every, found.choices[0], found.choices[0].served.load):
        assert len(repr(record)) < 500 and "\n" not in repr(record)
