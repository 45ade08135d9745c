"""A model under load: the parts of the answer agree with the functions they come from."""

import numpy as np
import pytest

import strata as st
from strata.errors import StrataError
from strata.serving.goals import limits_text

ASKED = st.serving.Requests(2048.0, 512.0)


def test_rates_are_goodputs_and_the_order_is_that_of_the_goal():
    answer = st.serve_under_load("8xh200", "llama-3-70b", ASKED, None, "vllm", ttft=1.0, tpot=0.03)
    assert answer.rates == pytest.approx(st.serving.goodput(answer.curve, 1.0, 0.03))
    rates = [float(one.load.tokens_per_s) for one in answer.served.choices]
    assert rates == sorted(rates, reverse=True) and rates[0] > 0
    assert all(vars(one.plan) == vars(answer.curve.plan_at(i)) for i, one in enumerate(answer.served.choices))
    assert answer.why_none == "" and answer.load is None and answer.splits is None and answer.frontier is None
    assert "TTFT at most 1 s, TPOT at most 30 ms" in answer.question


def test_a_load_is_that_of_its_rate_or_its_clients():
    answer = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", "vllm", rate=2.0)
    assert float(answer.load.ttft) == float(st.serving.open_load(answer.curve.at(0), 2.0).at(0).ttft)
    waiting = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", "vllm", clients=4.0)
    assert (
        waiting.clients == 4.0
        and waiting.load.rate == st.serving.closed_load(waiting.curve, 4.0).at(0, 0).rate
    )
    with pytest.raises(StrataError, match="two kinds of load"):
        st.serve_under_load("8xh200", "llama-3-70b", ASKED, rate=1.0, clients=1.0)


def test_a_draft_with_a_free_window_finds_the_best_one():
    draft = st.serving.Drafting(st.model("llama-3.2-1b"), acceptance=0.7)
    asked = ("8xh200", "llama-3-70b", ASKED, "tp=8", "vllm")
    answer = st.serve_under_load(*asked, clients=4.0, draft=draft, free_window=True, with_frontier=True)
    told = st.serve_under_load(*asked, clients=4.0, draft=draft)
    assert answer.speculation.tpot <= told.speculation.tpot and told.speculation.window == draft.window
    assert len(answer.frontier.best) > 1


def test_why_there_is_no_answer():
    small = st.serve_under_load("1xh100", "llama-3-70b", ASKED)
    assert "has no room for a request" in small.why_none
    busy = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", rate=1e6)
    assert "completes at most" in busy.why_none
    quick = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", tpot=1e-6)
    assert f"no plan keeps the limits{limits_text(np.inf, 1e-6)}" in quick.why_none


def test_the_frontier_holds_the_answers():
    """It ended at 390 clients and 1,369 tokens/s a device where the best plan takes 448 and gives 1,399."""
    asked = st.serving.Requests(1024, 1024)
    found = st.serving.serve_under_load(
        "8xh200", "llama-3-70b", asked, ttft=2.0, tpot=0.04, with_frontier=True
    )
    best = found.served.choices[0]
    most = max(found.frontier.points, key=lambda p: p.per_device)
    assert most.clients == best.clients and most.best
    assert most.per_device == pytest.approx(float(best.load.tokens_per_s) / 8, rel=1e-9)
    strict = st.serving.serve_under_load(
        "8xh200", "llama-3-70b", asked, "tp=8", ttft=0.1, tpot=0.04, share=0.95, with_frontier=True
    )
    assert max(p.clients for p in strict.frontier.points) == strict.served.choices[0].clients
