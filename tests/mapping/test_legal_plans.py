"""Which plans are legal: none is left out, each illegal one says its rule, and infeasible is an answer."""

from dataclasses import replace

import numpy as np
import pytest
from cases import FAMILIES, MODELS, PHASES, count, model, pick, points, roomy, system, workload
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.mapping.rules import (
    BATCH,
    DEVICES,
    EXPERTS,
    HEADS,
    KV_HEADS,
    LAYERS,
    MEMORY,
    MICRO,
    MOE_GRID,
)


@given(hy.sampled_from(MODELS), hy.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 64]))
@settings(max_examples=60)
def test_all_plans_are_legal_whole_and_different(name, devices):
    made = st.plans(devices, model(name))
    assert count(made) >= 1
    assert np.all(made.devices == devices)
    assert np.all(made.moe_groups == np.floor(made.moe_groups))
    for rule, broken, *_ in made.violations(model(name).units, st.decode(1e9, 1), float(devices)):
        assert not np.any(broken), rule.relation
    rows = {
        tuple(float(getattr(pick(made, i), f)) for f in ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero"))
        for i in range(count(made))
    }
    assert len(rows) == count(made)


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen2.5-7b", "qwen2.5-14b", "gpt3-175b"])
def test_no_legal_plan_of_a_dense_model_is_left_out(name):
    made = model(name)
    for devices in (1, 6, 8, 16, 28):
        degrees = [d for d in range(1, devices + 1) if devices % d == 0]

        def shares(units, tp):
            return units % tp == 0 or tp % units == 0

        by_hand = {
            (tp, cp, dp, devices // (tp * cp * dp))
            for tp in degrees
            for cp in degrees
            for dp in degrees
            if devices % (tp * cp * dp) == 0
            and shares(made.heads, tp)
            and shares(made.kv_heads, tp)
            and devices // (tp * cp * dp) <= made.layers
        }
        found = st.plans(devices, made)
        assert {
            tuple(int(v[i]) for v in (found.tp, found.cp, found.dp, found.pp)) for i in range(count(found))
        } == by_hand


ILLEGAL = [
    ("llama-3-8b", "tp=4", DEVICES),
    ("llama-3-8b", "tp=8,dp=8", DEVICES),
    ("qwen2.5-14b", "tp=3", HEADS),  # 40 heads, 8 kv heads
    ("qwen2.5-7b", "tp=7", KV_HEADS),  # 28 heads, 4 kv heads
    ("mixtral-8x7b", "dp=8,ep=16,moe_tp=1", EXPERTS),
    ("llama-3-8b", "dp=8,ep=8,moe_tp=1", EXPERTS),
    ("deepseek-v3", "tp=8,ep=8,moe_tp=8", MOE_GRID),
    ("deepseek-v3", "dp=4,ep=8,moe_tp=1", MOE_GRID),
    ("llama-3-8b", "pp=33", LAYERS),
    ("llama-3-8b", "pp=8,virtual_stages=5", LAYERS),
    ("llama-3-8b", "dp=64", BATCH),
    # ranks that share experts may lack sequences: 32 pairs of them for 16 sequences
    ("deepseek-v3", "dp=64,ep=2", BATCH),
    ("llama-3-8b", "dp=8,microbatches=3", MICRO),
]


@pytest.mark.parametrize(("name", "plan", "rule"), ILLEGAL, ids=[f"{n}: {p}" for n, p, _ in ILLEGAL])
@pytest.mark.parametrize("phase", PHASES)
def test_every_illegal_plan_gets_the_bit_of_its_rule(name, plan, rule, phase):
    r = st.evaluate(roomy("8xh200"), model(name), workload(phase, 16.0, 128.0), plan)
    assert r.reason & rule.bit
    assert rule.relation in st.reasons(r.reason) and rule.relation in {w.what for w in r.infeasible}


@given(
    points(sizes=(8, 16)),
    hy.sampled_from(["tp", "cp", "dp", "pp", "ep", "moe_tp", "virtual_stages", "microbatches"]),
    hy.sampled_from([3.0, 11.0, 1000.0]),
)
@settings(max_examples=60)
def test_a_legal_plan_pushed_out_is_infeasible_never_nan(point, degree, factor):
    where, made, work, plan = point
    # A thousand of anything is too much for these systems and models.
    moved = replace(
        plan,
        **{
            degree: (getattr(plan, degree) or 1.0)
            * (1000.0 if degree in ("virtual_stages", "microbatches") else factor)
        },
    )
    r = st.evaluate(where, made, work, moved)
    illegal = degree not in ("ep", "moe_tp") or factor == 1000.0
    assert r.reason > 0 or not illegal
    if r.reason:
        assert_infeasible(r)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FAMILIES)
def test_what_does_not_fit_is_infinitely_slow_never_nan(name, phase):
    tiny = replace(system("8xh200"), chip=st.chip("h200", **{"memory.capacity": 1e9}))
    r = st.evaluate(tiny, model(name), workload(phase, 64.0, 1024.0), "tp=8")
    assert r.reason & MEMORY.bit
    assert_infeasible(r)


def assert_infeasible(r):
    m = r.metrics
    assert all(
        np.isinf(getattr(m, f))
        for f in ("step_time", "ttft", "tpot", "energy_per_token", "cost_per_mtoken", "lower", "upper")
    )
    assert all(
        getattr(m, f) == 0
        for f in (
            "tokens_per_s",
            "tokens_per_s_per_user",
            "tokens_per_s_per_device",
            "mfu",
            "mbu",
            "power",
            "device_power",
        )
    )
    assert np.isfinite(m.memory_used) and np.isfinite(m.memory_limit)
    assert all(w.levers and w.demand >= 0 for w in r.infeasible) and r.infeasible
