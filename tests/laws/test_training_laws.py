"""Laws of training steps: plans of any kind in a batch are what they are alone, in time and in memory; more
of anything is never slower; choices that a plan has no use for change nothing; no software beats the ideal.
"""

from dataclasses import replace

import numpy as np
import pytest
from cases import count, legal_plans, model, pick, roomy, same, uncapped
from hypothesis import given, settings
from hypothesis import strategies as some
from test_monotone import FACTORS, improved

import strata as st

ENGINES = ["megatron", "nanotron", "pytorch", "torch-compile", "vllm"]
MODELS = ["llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "gemma-3-1b"]
TABLES = ("resources", "time_by_kind", "memory", "energy")
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


@settings(max_examples=40)
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
