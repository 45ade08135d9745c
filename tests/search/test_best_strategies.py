"""Strategies of kernel parallelism in searches: the best is the best of all, each by itself."""

import numpy as np
import pytest

import strata as st
from strata.mapping.kernel_parallel import layout_of, strategies, strategy_text
from strata.mapping.plan import division_text
from strata.search.plans import best_strategies, candidate_strategies, price_strategies

SPACE = """
name = "strategies"
title = "Strategies of a recurrent language model"

[question]
model = "lstm-lm-v100"
system = "8xh200"
phase = "train"
batch = 512
"""
AXIS = """
[[axis]]
name = "{0}"
field = "plan.{0}"
values = [1, 2, 4, 8]
source = "assumed: divisors of eight devices"
"""
TRAIN = st.train(512.0, 1.0)


def test_the_best_of_all_strategies():
    lstm = st.program("lstm-lm-v100")
    first, *rest = best_strategies("8xh200", lstm, TRAIN, top=100)
    every = strategies(8, lstm)
    alone = {
        text: float(st.evaluate("8xh200", lstm, TRAIN, text).metrics.items_per_s)
        for text in (strategy_text(every.at(i)) for i in range(every.dp.size))
    }
    assert first.considered == len(alone) == 1 + len(rest)
    assert division_text(first.result.plan) == max(alone, key=lambda text: alone[text])
    found = [float(r.result.metrics.items_per_s) for r in (first, *rest)]
    assert found == sorted(found, reverse=True)


def test_modules_by_themselves_are_never_worse():
    """Every strategy for all modules is one of those by module."""
    lstm = st.program("lstm-lm-v100")
    alike, apart = (best_strategies("4xh200", lstm, TRAIN, top=1, per_module=p)[0] for p in (False, True))
    assert apart.considered > alike.considered
    rates = [float(r.result.metrics.items_per_s) for r in (alike, apart)]
    assert rates[1] >= rates[0] * (1 - 1e-12)


def test_sums_of_gradients_beat_gathers():
    """Weights' gradients are added up once; gathers of activations' gradients stand in every time step."""
    lstm = st.program("lstm-lm-512", vocab=100000)
    many = candidate_strategies(st.system("8xh200"), lstm, "(kp1 > 1) & (kp2 > 1) & (pp == 1)")
    work = st.train(16384.0, 1.0)
    gathers, sums = (
        price_strategies("8xh200", lstm, work, many, metric="step_time", backward=b).values
        for b in ("gather", "sum")
    )
    ok = np.isfinite(gathers)
    assert ok.any() and (sums[ok] < gathers[ok]).all()


def test_a_space_over_the_degrees_of_a_strategy(tmp_path):
    path = tmp_path / "strategies.toml"
    path.write_text(SPACE + "".join(AXIS.format(name) for name in ("kp1", "kp2", "depth", "dp")))
    found = st.search.search(st.search.space(str(path)), goal="step_time", sampler="exact")
    lstm = st.program("lstm-lm-v100")
    best = best_strategies("8xh200", lstm, TRAIN, metric="step_time", top=1)[0].result
    assert float(found.result().metrics.step_time) <= float(best.metrics.step_time) * (1 + 1e-9)


def test_plans_for_a_program_are_strategies():
    ranking = st.plan_for("8xh200", "lstm-lm-v100", st.train(np.array([64.0, 128.0]), 1.0), top=3)
    assert len(ranking.choices) == 3 and ranking.considered == 26
    assert ranking.nearest.fits and division_text(ranking.nearest.plan).startswith("RC-")
    none = st.plan_for("1xh200", "lstm-lm-512", st.train(16384.0, 1.0))
    assert "does not fit" in none.why_none and "plan d1" in none.why_none
    one = layout_of(strategies(1, st.program("gemm-8192")).at(0), st.program("gemm-8192"))
    assert division_text(one) == "d1"


@pytest.mark.parametrize("kinds", [("RC",), ("CR",)])
def test_kinds_that_are_asked_for(kinds):
    found = best_strategies("8xh200", "gemm-8192", st.forward(1.0), top=50, kinds=kinds)
    assert {division_text(r.result.plan)[:2] for r in found} <= {kinds[0], "d8", "d4", "d2"}
