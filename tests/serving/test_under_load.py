"""A model under load: the parts of the answer agree with the functions they come from."""

import numpy as np
import pytest

import strata as st
from strata.base.errors import StrataError
from strata.serving.load_metrics import limits_text
from strata.serving.pools import pool
from strata.serving.served_plans import plans_that_serve

ASKED = st.serving.Requests(2048.0, 512.0)


def test_rates_are_goodputs_and_the_order_is_that_of_the_goal():
    answer = st.serve_under_load(
        "8xh200", "llama-3-70b", ASKED, None, "vllm", ttft=1.0, tpot=0.03, quick=True
    )
    assert answer.rates == pytest.approx(st.serving.goodput(answer.curve, 1.0, 0.03))
    rates = [float(one.load.tokens_per_s) for one in answer.served.choices]
    assert rates == sorted(rates, reverse=True) and rates[0] > 0
    assert all(vars(one.plan) == vars(answer.curve.plan_at(i)) for i, one in enumerate(answer.served.choices))
    assert answer.why_none == "" and answer.load is None and answer.splits is None and answer.frontier is None
    assert "TTFT at most 1 s, TPOT at most 30 ms" in answer.question


def test_a_load_is_that_of_its_rate_or_its_clients():
    answer = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", "vllm", rate=2.0, quick=True)
    assert float(answer.load.ttft) == float(st.serving.open_load(answer.curve.at(0), 2.0).at(0).ttft)
    waiting = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", "vllm", clients=4.0, quick=True)
    assert (
        waiting.clients == 4.0
        and waiting.load.rate == st.serving.closed_load(waiting.curve, 4.0).at(0, 0).rate
    )
    with pytest.raises(StrataError, match="two kinds of load"):
        st.serve_under_load("8xh200", "llama-3-70b", ASKED, rate=1.0, clients=1.0)


def test_best_plans_are_simulated_and_so_is_the_load_that_is_asked_for():
    """What `strata simulate` would say of the same clients, and the limits kept there."""
    asked = ("8xh200", "llama-3-70b", ASKED, None, "vllm")
    answer = st.serve_under_load(*asked, ttft=1.0, tpot=0.03, rate=2.0)
    shown = [one for one in answer.served.choices if one.simulated]
    assert len(shown) >= 3 and shown == answer.served.choices[: len(shown)]
    values = [float(one.load.tokens_per_s) for one in shown]
    assert values == sorted(values, reverse=True)
    for one in shown:
        assert one.load.ttft <= 1.0 and one.load.tpot <= 0.03 and one.limited_by in ("TTFT", "TPOT")
        assert vars(answer.curve.plan_at(one.row)) == vars(one.plan)
    best = shown[0]
    lengths = {"input": st.serving.Lengths(mean=2048), "output": st.serving.Lengths(mean=512)}
    load = st.serving.ClosedLoad(clients=int(best.clients), count=int(6 * best.clients), seed=1, **lengths)
    run = st.serving.served(st.serving.Deployment("8xh200", "llama-3-70b", best.plan), load)
    assert float(best.load.tpot) == pytest.approx(run.times["tpot"].mean, rel=0.05)
    assert float(answer.load.rate) == 2.0 and answer.at_rate.ttft <= 1.0 and answer.at_rate.tpot <= 0.03


def test_where_the_closed_form_is_far_off_the_answer_says_so():
    from strata.app.render.ranking import simulated_text
    from strata.serving.simulated_plans import answered_plans, closed_form_errors

    asked = ("8xh200", st.model("llama-3-70b"), ASKED, st.plan("tp=8"))
    found = answered_plans(*asked, limits=st.serving.ServingLimits(ttft=2.0))
    one = found.choices[0]
    assert abs(
        closed_form_errors(one)["ttft"]
    ) > 0.1 and "tp=8: the closed form differs, TTFT" in simulated_text(found)
    quick = answered_plans(*asked, limits=st.serving.ServingLimits(ttft=2.0), quick=True)
    assert not quick.choices[0].simulated and "--quick" in simulated_text(quick)
    full = answered_plans(*asked[:3], st.plan("tp=2,dp=4"), clients=[650.0])
    assert "more than 90 % of the slots" in simulated_text(full)


@pytest.mark.parametrize("most, start", [(37, 30), (37, 64), (1, 50), (64, 3)])
def test_the_most_that_is_kept_is_found_in_few_tries(most, start):
    from math import log

    from strata.serving.load_metrics import largest_kept

    tries = []
    asked = (start, 1.0, 64.0)
    low, high = largest_kept(lambda n: tries.append(n) or log(n / most), *asked, width=0.02, whole=True)
    assert low == most and (low == 64 or high - low <= 1) and len(tries) <= 7
    assert largest_kept(lambda n: 2.0, *asked, whole=True)[0] == 0.0
    denied = largest_kept(lambda n: log(n / most), *asked, whole=True, confirmed=lambda n: n < 0.9 * most)
    assert denied[0] < 0.9 * most


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
        "8xh200", "llama-3-70b", asked, ttft=2.0, tpot=0.04, with_frontier=True, quick=True
    )
    best = found.served.choices[0]
    most = max(found.frontier.points, key=lambda p: p.per_device)
    assert most.clients == best.clients and most.best
    assert most.per_device == pytest.approx(float(best.load.tokens_per_s) / 8, rel=1e-9)
    strict = st.serving.serve_under_load(
        "8xh200", "llama-3-70b", asked, "tp=8", ttft=0.1, tpot=0.04, share=0.95, with_frontier=True
    )
    assert max(p.clients for p in strict.frontier.points) == strict.served.choices[0].clients


def test_a_rack_uses_copies_of_experts_or_leaves_devices_idle():
    """72 devices do not divide 256 experts: copies of some fill them, or 64 work and all are paid for."""
    system, model = st.system("gb200-nvl72"), st.model("deepseek-v3")
    limits = st.serving.ServingLimits(ttft=2.0, tpot=0.05)
    found = st.serving.served_plans(system, model, ASKED, None, "vllm", goal="cheapest", limits=limits, top=1)
    best = found.choices[0]
    part = pool(system, 64)
    plan = st.plan("dp=64,ep=64")
    idle = plans_that_serve(part, model, ASKED, plan, "vllm", limits=limits, within=system)
    alone = plans_that_serve(part, model, ASKED, plan, "vllm", limits=limits)
    assert idle.choices[0].used == "64 of 72 used" and alone.choices[0].used == ""
    assert idle.choices[0].load.cost_per_mtoken > 1.1 * alone.choices[0].load.cost_per_mtoken
    assert best.load.cost_per_mtoken <= idle.choices[0].load.cost_per_mtoken
    assert best.used or best.plan.redundant_experts > 0


def test_seven_devices_serve_with_six_or_as_many_as_the_plan_takes(answer):
    """Idle devices are paid for and draw idle power, in the closed form and request by request alike."""
    asked = st.serving.Requests(1024.0, 1024.0)
    best = st.plan_for("7xh200", "llama-3-70b", asked, "vllm", top=1, quick=True).choices[0].served
    assert best.used == "6 of 7 used" and best.load.devices == 7
    words = ("-m", "llama-3-70b", "-s", "7xh200")
    assert "6 of 7 used, the others idle and paid for" in answer("plan", *words, "--quick")
    (told,) = answer("serving", *words, "--plan", "tp=4", "--json")["plans"]
    assert (told["devices_used"], told["devices"]) == (4.0, 7.0)
    (found,) = answer("compare", *words, "--plan", "tp=4", "--json")["rows"]
    assert found["metrics"]["cost_per_mtoken"] == pytest.approx(told["cost_per_mtoken"])
    assert found["devices_used"] == 4.0 and "4 of 7 used" in answer("compare", *words, "--plan", "tp=4")
    load = st.serving.load_of("closed:clients=8,input=512,output=64,count=80")
    part, whole = (st.simulate(f"{n}xh200", "llama-3-70b", load, "tp=4") for n in (4, 7))
    closed = [
        st.serve_under_load(f"{n}xh200", "llama-3-70b", st.serving.Requests(512, 64), "tp=4", clients=8).load
        for n in (4, 7)
    ]
    assert whole.devices == 7.0 and whole.tokens_per_s == part.tokens_per_s
    assert whole.power - part.power == pytest.approx(closed[1].power - closed[0].power)
    assert 1.5 < whole.cost_per_mtoken / part.cost_per_mtoken < 1.75


def test_a_rate_that_keeps_means_keeps_them_ten_times_as_long():
    answer = st.serve_under_load("8xh200", "llama-3-70b", ASKED, "tp=8", tpot=0.03)
    rate, lengths = float(answer.rates[0]), {"input": st.serving.Lengths(mean=2048)}
    load = st.serving.OpenLoad(
        rate=rate, count=40_000, seed=9, output=st.serving.Lengths(mean=512), **lengths
    )
    run = st.serving.served(st.serving.Deployment("8xh200", "llama-3-70b", "tp=8"), load)
    assert run.times["tpot"].mean <= 0.03 and not run.saturated
    assert float(answer.at_rate.tpot) == pytest.approx(run.times["tpot"].mean, rel=0.03)
