"""Goals: what is better, what is out and why, frontiers, and the mistakes people make in limits."""

import numpy as np
import pytest

from strata.base.errors import StrataError
from strata.base.pareto import non_dominated
from strata.mapping.rules import MEMORY
from strata.search.goal import goal, metric_column
from strata.search.points import Evaluated


def points(reason=0, **columns):
    count = max(len(np.atleast_1d(v)) for v in columns.values())
    made = {k: np.broadcast_to(np.asarray(v, float), count).copy() for k, v in columns.items()}
    return Evaluated(np.zeros((count, 1), int), made, np.broadcast_to(np.asarray(reason), count).copy())


def test_scores_are_larger_where_better_whatever_the_metric():
    seen = points(tokens_per_s=[1.0, 2.0], tpot=[0.1, 0.2])
    assert goal("tokens_per_s").scores(seen)[:, 0].tolist() == [1.0, 2.0]
    assert goal("tpot").scores(seen)[:, 0].tolist() == [-0.1, -0.2]
    assert goal("tokens_per_s").best(seen) == 1
    assert goal("tpot").best(seen) == 0
    assert goal("tpot").value(-0.1) == 0.1


def test_points_that_do_not_fit_or_break_a_limit_are_out_with_the_reason_in_words():
    seen = points(
        tokens_per_s=[5.0, 4.0, 3.0, 2.0], tpot=[0.05, 0.01, 0.04, 0.001], reason=[0, int(MEMORY.bit), 0, 0]
    )
    wanted = goal("tokens_per_s", limits=["tpot <= 40 ms", "tpot >= 2 ms"])
    assert wanted.scores(seen)[:, 0].tolist() == [-np.inf, -np.inf, 3.0, -np.inf]
    assert wanted.best(seen) == 2
    assert wanted.reasons(seen).tolist() == ["tpot above 40 ms", MEMORY.relation, "", "tpot below 2 ms"]
    violation = wanted.violation(seen)
    assert violation[2] == 0 and (violation[[0, 1, 3]] > 0).all()
    assert violation[0] == pytest.approx(0.25)


def test_what_is_not_known_is_out_and_not_an_error():
    seen = points(tokens_per_s=[5.0, 4.0], temperature=[np.nan, 350.0], cost_per_mtoken=[np.nan, 2.0])
    limited = goal("tokens_per_s", limits=["temperature <= 85 degC"])
    assert limited.best(seen) == 1
    assert limited.reasons(seen).tolist() == ["temperature is not known", ""]
    cheapest = goal("cost_per_mtoken")
    assert cheapest.best(seen) == 1
    assert cheapest.violation(seen).tolist() == [1.0, 0.0]
    assert goal("tokens_per_s", limits=["tokens_per_s >= 9"]).best(seen) is None


def test_a_limit_on_a_point_that_is_out_does_not_speak_of_numbers_that_mean_nothing():
    seen = points(tokens_per_s=[0.0], tpot=[np.inf], reason=[int(MEMORY.bit)])
    wanted = goal("tokens_per_s", limits=["tpot <= 40 ms"])
    assert wanted.reasons(seen).tolist() == [MEMORY.relation]
    assert np.isfinite(wanted.violation(seen)).all()


def test_metrics_of_goals_only_follow_from_those_of_points():
    seen = {
        "energy_per_token": np.array([0.5]),
        "tokens_per_s_per_device": np.array([300.0]),
        "die_area": np.array([100e-6]),
    }
    assert metric_column(seen, "tokens_per_joule").tolist() == [2.0]
    assert metric_column(seen, "tokens_per_s_per_mm2") == pytest.approx(3.0)


@pytest.mark.parametrize("metrics", [1, 2, 3, 4])
def test_the_frontier_is_what_comparing_every_pair_gives(metrics):
    rng = np.random.default_rng(metrics)
    scores = rng.integers(0, 6, (200, metrics)).astype(float)
    scores[rng.random(200) < 0.2] = -np.inf
    better = (scores[None] >= scores[:, None]).all(2) & (scores[None] > scores[:, None]).any(2)
    equal = (scores[None] == scores[:, None]).all(2) & (np.arange(200)[None] < np.arange(200)[:, None])
    assert (
        non_dominated(scores).tolist() == ((scores[:, 0] > -np.inf) & ~better.any(1) & ~equal.any(1)).tolist()
    )


def test_a_goal_survives_being_written_down():
    made = goal(
        "tokens_per_s, energy_per_token",
        limits={"tpot": "<= 40ms", "temperature": "<= 85 degC", "die_area": "<= 100 mm2", "mfu": ">= 0.1"},
    )
    assert goal(**made.spec()) == made
    assert (
        made.words()
        == "most tokens_per_s and least energy_per_token with tpot <= 40 ms, temperature <= 85 degC,"
        " die_area <= 100 mm2, mfu >= 0.1"
    )


@pytest.mark.parametrize(
    ("metrics", "limits", "said"),
    [
        ("tokens_per_sec", [], "no metric to search for called 'tokens_per_sec'; nearest: tokens_per_s"),
        ("", [], "a goal needs a metric"),
        ("tpot, tpot", [], "names each metric once"),
        ("tpot", ["tpot <= 40"], "measured in s, but got '40' without a unit"),
        ("tpot", ["tpot <= 40 W"], "measured in s, but got '40 W'"),
        ("tpot", ["tpott <= 40 ms"], "no metric to limit called 'tpott'; nearest: tpot"),
        ("tpot", ["tpot < 40 ms"], "METRIC <= VALUE or METRIC >= VALUE"),
        ("tpot", [""], "METRIC <= VALUE or METRIC >= VALUE"),
        ("tpot", ["tpot <= 40 ms", "tpot <= 50 ms"], "limited twice: 40 ms and 'tpot <= 50 ms'"),
        (
            "tpot",
            ["tpot <= 40 ms", "tpot >= 50 ms"],
            "no point can keep both tpot >= 50 ms and tpot <= 40 ms",
        ),
        ("tpot", ["tpot <= inf s"], "number with a unit"),
    ],
)
def test_bad_goals_get_one_line(metrics, limits, said):
    with pytest.raises(StrataError) as error:
        goal(metrics, limits=limits)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_best_of_several_metrics_is_refused():
    with pytest.raises(StrataError, match="several give a frontier"):
        goal("tokens_per_s, tpot").best(points(tokens_per_s=[1.0], tpot=[1.0]))
