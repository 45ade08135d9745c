"""The best plans under limits: what they keep, and what is said where there is none."""

import numpy as np
import pytest

import strata as st
from strata.search.plan_for import time_by_op, why_behind, why_infeasible


def test_plans_keep_the_limits_and_come_best_first():
    work = st.serve(np.array([4.0, 64.0]), 1024.0, 256.0)
    ranking = st.plan_for("8xh200", "llama-3-70b", work, "vllm", ttft=2.0, tpot=0.04, top=4)
    rates = [float(c.result.metrics.tokens_per_s) for c in ranking.choices]
    assert rates == sorted(rates, reverse=True) and ranking.nearest is ranking.choices[0].result
    assert all(c.result.metrics.ttft <= 2.0 and c.result.metrics.tpot <= 0.04 for c in ranking.choices)
    assert len(rates) <= 4 <= ranking.feasible <= ranking.considered and ranking.why_none == ""
    best = ranking.choices[0].result
    assert why_behind(best, best) == "the best" and why_behind(ranking.choices[1].result, best).startswith(
        "-"
    )


def test_limits_nobody_keeps_name_the_quickest():
    ranking = st.plan_for("8xh200", "llama-3-70b", st.serve(8.0, 1024.0, 256.0), tpot=1e-6)
    assert ranking.choices == [] and ranking.considered is None and ranking.feasible == 0
    assert "no plan keeps the limits, TPOT at most 1 us; the quickest has" in ranking.why_none
    assert ranking.nearest.fits


def test_a_model_too_large_names_the_plan_that_needs_least():
    ranking = st.plan_for("1xh100", "llama-3-70b", st.decode(np.array([1.0, 8.0]), 1024.0))
    assert "does not fit on 1xh100" in ranking.why_none and not ranking.nearest.fits
    assert ranking.why_none == why_infeasible(ranking.nearest) and ranking.nearest.workload.batch == 1.0


def test_times_of_ops_add_up_to_the_step():
    result = st.evaluate("8xh200", "llama-3-70b", st.decode(16.0, 2048.0), "tp=8")
    each = float(result.metrics.step_time) / 16.0
    assert sum(time_by_op(result).values()) == pytest.approx(each, rel=1e-9)
