"""Methods find what is known to be best, keep budgets, count what they spend, and are ranked as expected."""

import numpy as np
import pytest
from toy import CONVEX_BEST, SPLIT_ONLY, VARIABLES, convex, times

from deepflow.design.descent import DEEPFLOW_RULE, DescentRule, projected_gradient
from deepflow.design.ledger import Ledger, merit
from deepflow.design.line_search import shortest_combination
from deepflow.design.methods import (
    LEVELS,
    METHODS,
    design_space,
    designs_of_points,
    exhaust,
    optimise,
)
from deepflow.design.variables import ChoiceVariable, DesignVariables
from strata.base.errors import BadValue, StrataError, UnknownName

FAST = [m for m in METHODS if m not in ("jax", "search-tpe", "search-cmaes")]


@pytest.mark.parametrize("method", ["gradient", "projected", "l-bfgs-b", "slsqp"])
def test_slopes_lead_to_the_split_that_is_known_by_hand(method):
    found = optimise(convex, SPLIT_ONLY, method=method, evaluations=3000)
    assert found.value == pytest.approx(49.0, rel=2e-3)
    assert found.design == pytest.approx(CONVEX_BEST, abs=0.03)


@pytest.mark.parametrize("method", FAST)
def test_every_method_keeps_budgets_and_evaluations(method):
    found = optimise(times, VARIABLES, method=method, evaluations=700, seed=1)
    assert found.evaluations <= 700 and np.isfinite(found.value)
    assert VARIABLES.within_budgets(found.design[None])[0]
    assert found.value == times(found.design[None])[0][0]
    assert np.all(np.diff(found.values) < 0) and np.all(np.diff(found.counts) > 0)
    assert found.best_after(700) == found.value and found.best_after(0) == np.inf


@pytest.mark.parametrize("method", ["gradient", "search-nsga2"])
def test_the_same_seed_gives_the_same_design(method):
    once, again = (optimise(times, VARIABLES, method=method, evaluations=400, seed=5) for _ in range(2))
    assert np.array_equal(once.design, again.design)


def test_the_line_search_beats_the_others_at_equal_evaluations():
    names = ("gradient", "projected", "deepflow", "random", "search-random", "search-gradient")
    runs = [
        {n: optimise(times, VARIABLES, method=n, evaluations=2000, seed=s) for n in names} for s in range(3)
    ]
    mean = {n: np.mean([run[n].value for run in runs]) for n in names}
    assert min(mean, key=mean.get) == "gradient"
    assert mean["random"] > 1.1 * mean["gradient"]


def test_memory_that_overflows_is_no_answer():
    one = DesignVariables(
        shares=VARIABLES.shares,
        reals=VARIABLES.reals,
        choices=(ChoiceVariable(name="devices", labels=("1",)),),
    )
    found = optimise(times, one, evaluations=300)
    assert found.value == np.inf and len(found.values) == 0


def test_probes_beyond_the_budget_are_no_designs():
    ledger = Ledger(convex, SPLIT_ONLY, 200)
    projected_gradient(ledger, np.random.default_rng(0), DEEPFLOW_RULE)
    assert ledger.best.sum() == pytest.approx(1.0) and ledger.used <= 200


def test_a_start_that_gains_nothing_converges():
    ledger = Ledger(lambda x: (np.ones(len(x)), np.zeros(len(x))), SPLIT_ONLY, 10_000)
    projected_gradient(ledger, np.random.default_rng(0), DescentRule(starts=2, draws=2, patience=5))
    assert ledger.used == 2 + 5 * 2 * (4 + 1)  # the starts, then five steps of probes and moves


def test_choices_alone_are_gone_through_and_proven():
    only = DesignVariables(choices=(ChoiceVariable(name="a", labels=("0", "1", "2")),))
    found = exhaust(lambda x: (np.abs(x[:, 0] - 1.0) + 1.0, np.zeros(len(x))), only)
    assert found.value == 1.0 and found.evaluations == 3
    with pytest.raises(BadValue, match="only choices can be gone through"):
        exhaust(times, VARIABLES)


def test_points_of_the_grid_are_designs_within_budget():
    space = design_space(VARIABLES)
    assert space.size == LEVELS**9 * 4
    designs = designs_of_points(VARIABLES, space, space.random(np.random.default_rng(0), 500))
    assert VARIABLES.within_budgets(designs).all()


def test_free_coordinates_there_and_back():
    designs = VARIABLES.random(np.random.default_rng(2), 50)
    free = VARIABLES.to_free(designs)
    assert VARIABLES.from_free(free, designs[:, 9:]) == pytest.approx(designs, rel=1e-4)


def test_slopes_along_free_coordinates_follow_the_chain_rule():
    shares = SPLIT_ONLY.random(np.random.default_rng(0), 3)
    free = SPLIT_ONLY.to_free(shares)
    exact = SPLIT_ONLY.free_slope(
        free, -np.array([9.0, 4.0, 1.0, 1.0]) / SPLIT_ONLY.from_free(free, free[:, :0]) ** 2
    )
    for k in range(4):
        step = 1e-6 * np.eye(4)[k]
        ends = [convex(SPLIT_ONLY.from_free(free + s * step, free[:, :0]))[0] for s in (1, -1)]
        assert exact[:, k] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-4)


def test_the_shortest_combination_leaves_what_two_roofs_share():
    slopes = np.array([[[3.0, 1.0], [-1.0, 1.0], [np.nan, np.nan]]])
    assert shortest_combination(slopes)[0] == pytest.approx([0.0, 1.0], abs=1e-6)


def test_slopes_of_the_objective_itself_lead_to_the_same_split():
    class Smooth:
        def __call__(self, designs):
            return convex(designs)

        def slope(self, designs):
            return -np.array([9.0, 4.0, 1.0, 1.0]) / designs**2 / convex(designs)[0][:, None]

    found = optimise(Smooth(), SPLIT_ONLY, method="jax", evaluations=2000)
    assert found.value == pytest.approx(49.0, rel=1e-3) and found.evaluations <= 2000


def test_whole_counts_have_the_slope_of_their_quotient_under_jax():
    jax = pytest.importorskip("jax")
    from strata.base.arrays import ceil_div, enable_jax, floor_div

    enable_jax()
    x = jax.numpy.asarray(7.0)
    for whole, value in ((floor_div, 3.0), (ceil_div, 4.0)):
        assert float(whole(x, 2.0)) == value
        assert float(jax.grad(lambda a, whole=whole: whole(a, 2.0))(x)) == pytest.approx(0.5)


def test_merit_orders_what_fits_before_what_does_not():
    ranked = merit(np.array([1e9, 1.0, 1.0, np.inf]), np.array([0.0, 0.1, 2.0, 0.0]))
    assert ranked[0] < ranked[1] < ranked[2] and np.isfinite(ranked).all()


def test_bad_input_gets_one_line():
    with pytest.raises(UnknownName, match="nearest: gradient"):
        optimise(times, VARIABLES, method="gradeint")
    with pytest.raises(BadValue, match="at least one evaluation"):
        optimise(times, VARIABLES, evaluations=0)
    with pytest.raises(StrataError, match="has no slope by JAX"):
        optimise(times, VARIABLES, method="jax")
