"""Laws of training steps: plans of any kind in a batch are what they are alone, in time and in memory; more
of anything is never slower; choices that a plan has no use for change nothing; no software beats the ideal.
"""

from dataclasses import replace

import numpy as np
import pytest
from cases import count, legal_plans, model, pick, roomy, same, uncapped
from hypothesis import given, settings
from hypothesis import strategies as some
from test_monotone import BETTER, FACTORS, improved

import strata as st
from strata.mapping.training_plan import SCHEDULE
from strata.software.engine import trainer_of

ENGINES = ["megatron", "nanotron", "pytorch", "torch-compile", "vllm"]
MODELS = ["llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "gemma-3-1b"]
TABLES = ("resources", "time_by_kind", "memory", "energy")
ZERO_BUBBLE = float(SCHEDULE.index("zero-bubble"))
CHOSEN = ("main_gradients", "reduced_gradients", "gathered_parameters", "optimizer_bytes", "split")
DEVICES, SIZE = 16, 4


def finer_choices(rng, size):
    """What a plan of training says beside its degrees, at random, whether it is legal or not."""

    def one_of(*values):
        return rng.choice(np.array(values, float), size)

    level = one_of(0, 1, 2)
    return {
        "sp": one_of(0, 1),
        "zero": one_of(0, 1, 2, 3),
        "microbatches": one_of(0, 1, 2, 4),
        "virtual_stages": one_of(1, 1, 2),
        "recompute": level,
        "recompute_layers": np.where(level == 2, one_of(0, 0, 1, 2), 0.0),
        "schedule": one_of(0, 1, 2, 3),
        "split_ends": one_of(0, 0, 1),
        "dp_shard": one_of(0, 0, 2),
        "offload": one_of(0, 0, 2),
        "cp_mode": one_of(0, 1, 2),
    }


def trained(rng, name, engine, size=SIZE, where=None):
    options = legal_plans(DEVICES, name)
    plans = pick(options, rng.integers(0, count(options), size))
    work = st.train(2.0 ** rng.integers(4, 7, size), 256.0 * rng.integers(1, 9, size))
    system = roomy(f"{DEVICES}xh100") if where is None else where
    return st.evaluate(system, model(name), work, replace(plans, **finer_choices(rng, size)), engine)


@settings(max_examples=12)
@given(some.sampled_from(MODELS), some.sampled_from(ENGINES), some.integers(0, 10**6))
def test_a_batch_of_training_plans_equals_single_ones(name, engine, seed):
    """Times, memory and every breakdown; plans differ in all degrees at once."""
    many = trained(np.random.default_rng(seed), name, engine)
    for i in range(SIZE):
        one = many.at(i)
        assert same(np.asarray(many.metrics.step_time)[i], one.metrics.step_time, 1e-11)
        for table in TABLES:
            found, alone = getattr(many.summary, table), getattr(one.summary, table)
            assert set(found) == set(alone)
            whole = sum(alone.values())
            for purpose, value in alone.items():
                assert abs(float(np.asarray(found[purpose])[i]) - value) <= 1e-11 * whole, (table, purpose)


@pytest.mark.parametrize("what", BETTER)
@settings(max_examples=2)
@given(some.sampled_from(MODELS), some.sampled_from(ENGINES), some.integers(0, 10**6))
def test_more_of_anything_is_never_slower_in_training(what, name, engine, seed):
    """Without a power limit, on hosts that keep up: what devices wait for one is shared out over their kernels
    by its time, so that quicker kernels may move it to a slower stage. Of zero-bubble schedules under ZeRO-3 the gathers of weights count with gradients
    to inputs, which fill no bubble: there a kernel that hides less of them may cost up to a percent.
    """
    where, software = uncapped(roomy(f"{DEVICES}xh100")), st.engine(engine)
    if software.training is not None:
        software = replace(software, training=replace(software.training, host_kernel=0.0, host_expert=0.0))
    many = trained(np.random.default_rng(seed), name, software, where=where)
    for i in np.flatnonzero(np.asarray(many.reason) == 0)[:2]:
        case = many.at(int(i)).case
        times = st.evaluate(improved(where, what), case.program, case.workload, case.plan, software).metrics
        found = np.broadcast_to(times.step_time, FACTORS.shape)
        slack = 0.02 if case.plan.schedule == ZERO_BUBBLE and case.plan.zero > 2 else 1e-7
        assert np.all(found[1:] <= found[:-1] * (1 + slack))


@settings(max_examples=10)
@given(some.sampled_from(MODELS), some.sampled_from(ENGINES), some.integers(0, 10**6))
def test_no_trainer_is_quicker_than_the_ideal_one(name, engine, seed):
    """In the same formats, with layers split alike: these are choices, not software's losses."""
    told = trainer_of(st.engine(engine))
    ideal = st.engine("ideal")
    assert ideal.training is not None
    formats = {field: getattr(told, field) for field in CHOSEN}
    same_formats = replace(ideal, training=replace(ideal.training, **formats))
    where = uncapped(roomy(f"{DEVICES}xh100"))
    hosted, best = (
        trained(np.random.default_rng(seed), name, software, where=where)
        for software in (engine, same_formats)
    )
    legal = (np.asarray(hosted.reason) == 0) & (np.asarray(best.reason) == 0)
    times = [np.asarray(found.metrics.step_time)[legal] for found in (best, hosted)]
    assert np.all(times[0] <= times[1] * (1 + 1e-9))


@settings(max_examples=8)
@given(some.sampled_from(MODELS), some.sampled_from(ENGINES), some.integers(0, 3), some.integers(0, 3))
def test_choices_without_an_object_change_nothing(name, engine, schedule, zero):
    """One device: no stages to schedule, no ranks to shard over, no tensor group to divide a sequence."""
    idle = {"schedule": float(schedule), "zero": float(zero), "sp": 1.0, "cp_mode": 1.0, "dp_shard": 1.0}
    plans = st.plan(), replace(st.plan(), **idle)
    work = st.train(4.0, 512.0)
    found = [st.evaluate(roomy("1xh100"), model(name), work, one, engine) for one in plans]
    assert found[0].metrics.step_time == found[1].metrics.step_time
    assert found[0].summary.memory == found[1].summary.memory
