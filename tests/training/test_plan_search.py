"""The best plan of training: one box holds every legal plan, prices them as singles, and its best is the best."""

from dataclasses import replace

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadValue
from strata.mapping.plans import plan_at, plans_of_training
from strata.mapping.training_plan import RECOMPUTE
from strata.software.engine import engine
from strata.training.checks import check_training_plan
from strata.training.plan_search import search_training

SYSTEM, MODEL, WORK = "64xh100", "llama-3-70b", st.train(128, 4096)


@pytest.fixture(scope="module")
def found():
    return search_training(st.system(SYSTEM), st.model(MODEL), WORK, "megatron", top=4)


@pytest.mark.parametrize("model", ["llama-3-70b", "mixtral-8x7b", "deepseek-v2-lite"])
@pytest.mark.parametrize("batch", [96.0, 100.0])
def test_every_plan_of_the_box_is_legal_and_there_once(model, batch):
    made = st.model(model)
    box = plans_of_training(64, made, batch)
    flat = box.at(np.flatnonzero(box.legal))
    rows = np.stack([np.asarray(v, float) for v in vars(flat).values()], axis=1)
    assert len(np.unique(rows, axis=0)) == box.size == len(rows)
    work = st.train(batch, 4096)
    for rule in flat.violations(made.units, work, 64.0):
        assert not np.any(rule.broken), rule.rule.relation
    for i in np.random.default_rng(0).choice(box.size, 60, replace=False):
        check_training_plan(plan_at(flat, int(i)), made, work, 64.0)


def test_the_box_prices_as_singles_do(found):
    box = plans_of_training(64, st.model(MODEL), 128.0)
    priced = st.evaluate(SYSTEM, MODEL, WORK, box.plan, "megatron")
    places = np.random.default_rng(1).choice(np.flatnonzero(box.legal), 12, replace=False)
    flat = box.at(places)
    for i, place in enumerate(places):
        one = st.evaluate(SYSTEM, MODEL, WORK, plan_at(flat, i), "megatron")
        at = np.unravel_index(place, box.legal.shape)
        assert float(np.broadcast_to(priced.metrics.step_time, box.legal.shape)[at]) == pytest.approx(
            float(one.metrics.step_time), rel=1e-9
        )
        assert bool(np.broadcast_to(priced.fits, box.legal.shape)[at]) == one.fits


def test_what_is_left_out_of_the_box_changes_nothing():
    """Plans that do not fit are not priced: levers and the best plan are those of the whole box with them."""
    software = engine("megatron")
    asked = (st.system("16xh100"), st.model("mixtral-8x7b"), st.train(32, 2048))
    found = search_training(*asked, software, top=3)
    box = plans_of_training(16, asked[1], 32.0)
    priced = st.evaluate(*asked, box.plan, software)
    good = box.legal & np.broadcast_to(priced.fits, box.legal.shape)
    rates = np.where(good, np.broadcast_to(priced.metrics.tokens_per_s, good.shape), 0.0)
    assert found.feasible == good.sum() and found.considered == box.size
    assert float(found.choices[0].result.metrics.tokens_per_s) >= rates.max() * (1 - 1e-9)
    for lever in found.levers:
        if lever.name in ("tp", "pp", "dp", "ep", "zero", "recompute"):
            words = RECOMPUTE.index(lever.value) if lever.name == "recompute" else float(lever.value)
            at = np.broadcast_to(getattr(box.plan, lever.name) == words, good.shape)
            assert lever.fitting == (good & at).sum() and lever.plans == (box.legal & at).sum()
            if lever.fitting:  # other orders on the fabric and fewer recomputed layers may be better still
                assert lever.best >= rates[at].max() * (1 - 1e-9)
    assert found.levers[0].best <= rates.max() * 1.2  # of what those can add


def test_no_plan_drawn_at_random_is_better(found):
    box = plans_of_training(64, st.model(MODEL), 128.0)
    places = np.random.default_rng(2).choice(np.flatnonzero(box.legal), 3000, replace=False)
    priced = st.evaluate(SYSTEM, MODEL, WORK, box.at(places), "megatron")
    assert found.choices[0].result.metrics.tokens_per_s >= priced.metrics.tokens_per_s.max() * (1 - 1e-9)


def test_plans_come_best_first_one_for_each_mesh(found):
    rates = [float(c.result.metrics.tokens_per_s) for c in found.choices]
    assert rates == sorted(rates, reverse=True) and all(c.result.fits for c in found.choices)
    meshes = {
        tuple(float(getattr(c.result.plan, d)) for d in ("tp", "cp", "dp", "pp")) for c in found.choices
    }
    assert len(meshes) == len(found.choices) == 4
    assert found.feasible + sum(found.out.values()) == found.considered


def test_levers_are_tried_by_themselves(found):
    tried = {}
    for one in found.levers:
        tried.setdefault(one.name, []).append(one)
    assert {"tp", "pp", "recompute", "micro_batch", "zero", "virtual_stages", "sp"} <= set(tried)
    for values in tried.values():
        assert sum(one.plans for one in values) == found.considered
        assert min(one.loss for one in values if one.loss == one.loss) == 0.0


def test_recomputation_is_found_where_nothing_else_fits():
    small = search_training(
        st.system("8xa100-80"), st.model("llama-2-13b"), st.train(32, 32768), "megatron", top=1
    )
    assert small.choices[0].result.fits
    levers = {one.value: one for one in small.levers if one.name == "recompute"}
    assert levers["full"].fitting > levers["none"].fitting


def test_conditions_and_batches_of_a_list():
    some = search_training(
        st.system(SYSTEM), st.model(MODEL), WORK, "megatron", where="(tp == 8) & (zero == 1)"
    )
    assert all(c.result.plan.tp == 8 and c.result.plan.zero == 1 for c in some.choices)
    with pytest.raises(BadValue, match="no legal plan is left"):
        search_training(st.system(SYSTEM), st.model(MODEL), WORK, "megatron", where="tp == 7")
    ranked = st.plan_for(SYSTEM, MODEL, st.train(np.array([64.0, 128.0]), 4096), "megatron", top=4)
    assert {float(c.result.workload.batch) for c in ranked.choices} <= {64.0, 128.0}
    assert ranked.feasible < ranked.considered


def test_frameworks_run_fewer_schedules_than_nothing_at_all():
    framework, free = (
        search_training(st.system("8xh100"), st.model("llama-3-8b"), st.train(32, 4096), e)
        for e in ("megatron", "ideal")
    )
    assert framework.considered < free.considered
    assert {one.value for one in free.levers if one.name == "schedule"} == {"1f1b", "zero-bubble", "dualpipe"}


def test_only_as_many_layers_are_recomputed_as_memory_asks_for():
    """One layer fewer does not fit, and the plan is better than recomputing all layers or none."""
    found = search_training(
        st.system("8xa100-80"), st.model("llama-2-13b"), st.train(32, 32768), "megatron",
        where="(cp == 4) & (dp == 2)", top=1,
    )  # fmt: skip
    best = found.choices[0].result
    layers = float(best.plan.recompute_layers)
    assert best.fits and best.plan.recompute == 2.0 and 0 < layers < 40 and found.refined > 0
    for other, fits in ((layers - 1, False), (layers, True), (0.0, True)):
        one = st.evaluate(
            best.system, best.model, best.workload, replace(best.plan, recompute_layers=other), "megatron"
        )
        assert one.fits == fits
        assert not fits or one.metrics.step_time >= best.metrics.step_time
    levers = [one for one in found.levers if one.name == "recompute"]
    assert next(one.loss for one in levers if one.value == "full") == 0.0


def test_state_moves_to_the_host_only_where_nothing_fits_without():
    tight, roomy = (
        search_training(st.system(s), st.model("llama-3-70b"), st.train(16, 4096), "megatron", top=1)
        for s in ("8xh100", "32xh100")
    )
    assert tight.choices[0].result.plan.offload == 1.0 and roomy.choices[0].result.plan.offload == 0.0
    assert tight.out and tight.considered > tight.feasible


def test_shards_over_fewer_ranks_are_tried_and_kept_where_they_win():
    """Of two groups of nodes the best plans of ZeRO-3 gather within one (HSDP), never at a loss."""
    asked = (st.system("256xh100"), st.model("llama-3-8b"), st.train(256, 4096), "megatron")
    kept = search_training(*asked, where="(zero == 3) & (recompute == 0)", top=20)
    whole = search_training(*asked, where="(zero == 3) & (recompute == 0) & (dp_shard == 0)", top=20)
    rates = [float(f.choices[0].result.metrics.tokens_per_s) for f in (kept, whole)]
    assert rates[0] >= rates[1]
    assert any(c.result.plan.dp_shard for c in kept.choices)
    assert not any(c.result.plan.dp_shard for c in whole.choices)
