"""Metrics: the best of a box is beaten by no feasible point, whichever metric is asked for."""

from dataclasses import fields

import numpy as np
import pytest
from cases import legal_plans, model, roomy, system
from hypothesis import given, settings
from hypothesis import strategies as hy
from programs import GraphProgram, extent, one_block, product

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.pricing.metrics import METRICS, ItemMetrics, TokenMetrics
from strata.pricing.price import BOUNDS

BOXES = {
    "serve": ("16xh200", st.serve(np.array([[16.0], [256.0]]), 1024.0, 64.0)),
    "decode": ("16xstack-ref", st.decode(np.array([[16.0], [256.0]]), 1024.0)),
    "prefill": ("16xh200", st.prefill(np.array([[16.0], [64.0]]), 512.0)),
    "train": ("16xh200", st.train(np.array([[16.0], [64.0]]), 512.0)),
}


@pytest.fixture(scope="module", params=BOXES)
def box(request):
    where, work = BOXES[request.param]
    made = model("mixtral-8x7b")
    return st.evaluate(system(where), made, work, legal_plans(16, "mixtral-8x7b"))


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_of_a_box_is_beaten_by_no_feasible_point(box, metric):
    one = METRICS[metric]
    values = np.broadcast_to(np.asarray(getattr(box.metrics, metric), float), box.shape)[box.fits]
    known = values[~np.isnan(values)]
    better = np.max if one.higher_is_better else np.min
    if not known.size or not np.isfinite(better(known)):
        # a phase without it, or a chip that nothing describes the cooling of
        assert box.workload.phase not in one.phases or metric == "temperature"
        with pytest.raises(BadValue, match=f"has a known {metric}"):
            box.best(metric)
        return
    best = box.best(metric)
    assert best.fits and not best.shape
    assert float(getattr(best.metrics, metric)) == pytest.approx(better(known), rel=1e-12)


@given(hy.integers(0, 10**6))
@settings(max_examples=10)
def test_the_only_point_that_fits_is_best_at_everything(seed):
    rng = np.random.default_rng(seed)
    place = int(rng.integers(0, 5))
    capacity = np.where(np.arange(5) == place, 1e13, 1e9)
    chips = st.system("8xh200", **{"memory.capacity": capacity})
    r = st.evaluate(chips, model("llama-3-70b"), st.serve(8.0, 512.0, 64.0), "tp=8")
    assert r.fits.tolist() == [i == place for i in range(5)]
    for metric in METRICS:
        if metric != "temperature":
            assert float(r.best(metric).system.chip.memory.capacity) == 1e13, metric


def test_a_box_of_which_nothing_fits_says_so():
    r = st.evaluate("8xh200", "llama-3-70b", st.decode(np.array([1e7, 2e7]), 1024.0), "tp=8")
    with pytest.raises(BadValue, match="no point of this box fits"):
        r.best()


def test_metrics_are_declared_once():
    """Each field of a record of metrics is a metric with a unit, a direction, a label and phases."""
    for record in (TokenMetrics, ItemMetrics):
        assert {f.name for f in fields(record)} <= set(METRICS)
    for name, one in METRICS.items():
        assert one.name == name and one.better in ("higher", "lower") and one.label and one.phases
    labels = [one.label for one in METRICS.values()]
    assert len(set(labels)) == len(labels)


def test_any_program_has_metrics_of_steps_and_its_best():
    rows = np.array([64.0, 512.0, 4096.0])
    graph = one_block(product("p", "x", "y", m=extent(rows), n=extent(4096), k=extent(4096)))
    r = st.evaluate(roomy("1xh200"), GraphProgram(graph), st.forward(1.0))
    assert r.shape == (3,) and type(r.metrics) is ItemMetrics
    best = r.best("step_time")
    assert float(best.metrics.step_time) == pytest.approx(r.metrics.step_time.min(), rel=1e-12)
    assert float(r.best("mfu").metrics.mfu) == pytest.approx(r.metrics.mfu.max(), rel=1e-12)
    assert r.best().metrics.items_per_s == pytest.approx(r.metrics.items_per_s.max(), rel=1e-12)
    with pytest.raises(UnknownName, match="no metric called 'tpot'"):
        r.best("tpot")


def test_items_of_a_language_model_are_its_tokens():
    r = st.evaluate("8xh200", "llama-3-70b", st.decode(np.array([8.0, 64.0]), 1024.0), "tp=8")
    assert np.array_equal(r.metrics.items_per_s, r.metrics.tokens_per_s)
    assert r.best().metrics.tokens_per_s == r.best("tokens_per_s").metrics.tokens_per_s


@pytest.mark.parametrize("plan", ["tp=8", "tp=2,pp=4", "dp=8,ep=8"])
def test_resources_and_waiting_add_up_to_the_step(plan):
    r = st.evaluate(roomy("8xh200"), "mixtral-8x7b", st.decode(64.0, 512.0), plan, "vllm")
    assert tuple(r.summary.resources) == BOUNDS
    assert sum(r.summary.resources.values()) == pytest.approx(r.metrics.step_time, rel=1e-9)
    waited = r.summary.resources["bubble"] + r.summary.resources["host"]
    assert r.summary.resources["host"] > 0
    assert sum(r.summary.time_by_kind.values()) == pytest.approx(r.metrics.step_time - waited, rel=1e-9)
