"""The law of the best, for every metric: no feasible point of a box beats what is called its best."""

from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.base.errors import UnknownName
from strata.mapping.plans import candidate_plans
from strata.pricing.metrics import METRICS
from strata.search.goal import DERIVED_METRICS, GOAL_METRICS, goal, metric_column
from strata.search.points import evaluate_points

SYSTEM, MODEL, WORK = "8xstack-ref", "llama-3-8b", st.serve(np.array([[1.0], [16.0]]), 512.0, 64.0)


@pytest.fixture(scope="module")
def box():
    """Batches x plans, some of which do not fit or are at their limits."""
    system, model = st.system(SYSTEM), st.model(MODEL)
    return st.evaluate(system, model, WORK, candidate_plans(system, model, WORK))


@pytest.fixture(scope="module")
def points():
    small = st.search.space(str(Path(__file__).parent / "small.toml"), links=[1], layers=[2, 6], batch=[16])
    return evaluate_points(small, small.random(np.random.default_rng(2), 400))


def beaten_by(values, best, metric):
    """How many of these values are better than the one called best."""
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    return int(np.sum(values > best if GOAL_METRICS[metric].higher_is_better else values < best))


def feasible(box, metric):
    values = np.broadcast_to(np.asarray(getattr(box.metrics, metric), float), box.shape)
    return values[np.broadcast_to(box.fits, box.shape)]


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_of_a_box(box, metric):
    values = feasible(box, metric)
    assert len(values) > 10
    best = box.best(metric)
    assert best.fits and beaten_by(values, float(getattr(best.metrics, metric)), metric) == 0


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_plans(box, metric):
    system, model = st.system(SYSTEM), st.model(MODEL)
    work = st.serve(np.array([1.0, 16.0]), 512.0, 64.0)
    ranked = [c.result for c in st.search.best_plans(system, model, work, metric=metric, top=4)]
    found = [float(getattr(r.metrics, metric)) for r in ranked]
    assert all(r.fits for r in ranked)
    # the best is beaten by none, each of the next by at most those before it (and their other orders)
    for rank, value in enumerate(found):
        slack = 1.0 + (1e-9 if METRICS[metric].higher_is_better else -1e-9)
        assert beaten_by(feasible(box, metric), value * slack, metric) <= rank
        assert beaten_by(found[rank:], value * slack, metric) == 0


def test_a_metric_that_a_phase_does_not_have_is_refused():
    with pytest.raises(UnknownName, match="no metric of prefill called 'tpot'"):
        st.search.best_plans(st.system(SYSTEM), st.model(MODEL), st.prefill(1.0, 512.0), metric="tpot")
    with pytest.raises(st.StrataError, match="a step of decode has no time to first token"):
        st.search.Search("next-node", "ttft")


@pytest.mark.parametrize("metric", GOAL_METRICS)
def test_the_best_of_a_goal(points, metric):
    wanted = goal(metric)
    at = wanted.best(points)
    values = metric_column(points.columns, metric)
    if not np.isfinite(values[points.reason == 0]).any():  # this phase has no such metric
        return
    assert points.reason[at] == 0
    assert beaten_by(values[points.reason == 0], values[at], metric) == 0


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_plan_of_every_point_of_a_sweep(box, metric):
    swept = st.sweep(SYSTEM, MODEL, ["batch=1,16"], input=512, output=64, plan="best", metric=metric)
    values = np.broadcast_to(np.asarray(getattr(swept.result.metrics, metric), float), swept.result.shape)
    fits = np.broadcast_to(swept.result.fits, swept.result.shape)
    assert np.isfinite(swept.values).all()
    for point in range(2):
        assert beaten_by(values[point][fits[point]], swept.values[point], metric) == 0
    assert beaten_by(swept.values, float(getattr(swept.best().metrics, metric)), metric) == 0


def test_every_metric_says_how_it_is_read():
    for name, metric in GOAL_METRICS.items():
        assert metric.name == name and metric.better in ("higher", "lower") and metric.label and metric.phases
    for metric in DERIVED_METRICS.values():
        assert all(name in GOAL_METRICS for name in metric.inputs)


@pytest.mark.parametrize("metric", DERIVED_METRICS)
def test_a_derived_metric_is_better_where_its_inputs_are(metric):
    """What bounds of it rely on."""
    derived = DERIVED_METRICS[metric]
    plain = {name: np.array([2.0]) for name in derived.inputs}
    for name in derived.inputs:
        more = 1.1 if GOAL_METRICS[name].higher_is_better else 1.0 / 1.1
        better = plain | {name: plain[name] * more}
        gain = derived.compute(better)[0] - derived.compute(plain)[0]
        assert gain > 0 if derived.higher_is_better else gain < 0
