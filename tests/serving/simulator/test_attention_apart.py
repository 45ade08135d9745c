"""Attention and feed-forwards on devices apart: the sides of the graph, their turns, and a service of both."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.base.errors import StrataError
from strata.evaluate import evaluate
from strata.hardware.system import as_system
from strata.mapping.plan import plan
from strata.serving.deployment import attention_ffn_service
from strata.serving.pools import cache_bytes, pool
from strata.serving.simulated import simulate_services
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.step_pricer import ApartPricer, model_side, taken_in_turn
from strata.software.engine import as_engine
from strata.workload.model import model
from strata.workload.tasks import decode

BIG = as_system("16xh200")


@pytest.mark.parametrize("name", ["llama-3-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b"])
def test_both_sides_together_are_the_model(name):
    whole = model(name)
    sides = [model_side(whole, side) for side in ("attention", "ffn")]
    work = decode(32.0, 2048.0)
    graphs = [m.trace(work) for m in (whole, *sides)]
    parameters = [float(g.parameters()) for g in graphs]
    flop = [float(g.flop()) for g in graphs]
    small = 2.0 * float(whole.hidden) * 64  # embedding and head of one word on the second side, norms
    assert sum(parameters[1:]) == pytest.approx(parameters[0], rel=1e-6, abs=small)
    assert sum(flop[1:]) == pytest.approx(flop[0], rel=1e-6, abs=64 * small)
    caches = [float(cache_bytes(m, 2048.0)) for m in (whole, *sides)]
    assert caches == pytest.approx([caches[0], caches[0], 0.0])


def test_kernels_of_both_sides_take_what_they_take_together():
    whole, work = model("deepseek-v3"), decode(64.0, 2048.0)
    found = [
        evaluate("8xh200", m, work, "tp=8", "vllm").summary.time_by_kind
        for m in (whole, model_side(whole, "attention"), model_side(whole, "ffn"))
    ]
    for kind in ("matmul", "experts", "attention"):
        parts = [float(f[kind]) if kind in f else 0.0 for f in found]
        assert parts[1] + parts[2] == pytest.approx(parts[0], rel=0.02)


@given(
    st.floats(0.001, 1.0),
    st.floats(0.001, 1.0),
    st.floats(0.0, 1.0),
    st.integers(1, 8),
    st.integers(1, 100),
)
@settings(max_examples=60, deadline=None)
def test_turns_are_bound_by_the_slowest_and_by_one_micro_batch_alone(here, there, way, pieces, layers):
    found = float(taken_in_turn(here, there, way, float(pieces), np.asarray(float(layers))))
    alone, slowest = here + there + 2 * way, max(here, there, way)
    assert found >= max(alone, pieces * slowest) * (1 - 1e-12)
    assert found <= pieces * alone * (1 + 1e-12)
    if pieces == 1:
        assert found == pytest.approx(max(alone, slowest + (alone - slowest) / layers))


def simulated_turns(here, there, way, pieces, layers):
    """The same as events: each side serves micro-batches in the order they come to it."""
    a, f, x = here / layers, there / layers, way / layers
    ready = [0.0] * pieces
    free = [0.0, 0.0]
    for _ in range(layers):
        for time, side in ((a, 0), (f, 1)):
            for i in sorted(range(pieces), key=lambda i: ready[i]):
                free[side] = max(free[side], ready[i]) + time
                ready[i] = free[side] + x
    return max(ready)


@pytest.mark.parametrize(
    ("here", "there", "way", "pieces"),
    [(1, 1, 0, 2), (1, 1, 0.2, 3), (1, 0.5, 0.1, 2), (0.3, 1, 0.1, 3), (1, 1, 0.1, 1), (1, 0.2, 0.05, 4)],
)
def test_the_closed_form_is_what_events_give(here, there, way, pieces):
    closed = float(taken_in_turn(here, there, way, float(pieces), np.asarray(60.0)))
    assert closed == pytest.approx(simulated_turns(here, there, way, pieces, 60), rel=0.03)


def apart_pricer(here, there, whole, own_plan, ffn_plan, engine):
    attention = {"system": here, "model": model_side(whole, "attention"), "plan": own_plan, "engine": engine}
    ffn = {"whole": whole, "ffn_system": there, "ffn_plan": ffn_plan, "across": BIG}
    return ApartPricer(**attention, **ffn, routed={})


@pytest.fixture(scope="module")
def pricer():
    sides = pool(BIG, 8), pool(BIG, 8)
    whole, vllm = model("deepseek-v3"), as_engine("vllm")
    return apart_pricer(*sides, whole, plan("dp=8"), plan("dp=8,ep=8"), vllm)


def test_the_exchange_is_what_each_lane_hands_on(pricer):
    tokens, layers = 8 * 512.0, 61.0
    grown = float(pricer.exchange(np.asarray(2 * tokens)) - pricer.exchange(np.asarray(tokens)))
    link = BIG.fabric.dimension[1]
    sent = 512 * 7168 * 2 / float(link.bandwidth * link.efficiency)
    assert grown / layers == pytest.approx(sent, rel=0.05)


def test_few_sequences_are_one_micro_batch(pricer):
    work = pricer.generating(np.array([1.0, 2.0, 64.0]), np.array(1024.0))
    assert pricer.micro_batches(work).tolist() == [1.0, 2.0, 2.0]
    times = pricer.priced(work)[0]
    assert np.isfinite(times).all() and (np.diff(times) > 0).all()
    here, there, way, _ = pricer.sides(work)
    assert times[0] == pytest.approx(float(here[0] + there[0] + 2 * way[0]))


def test_a_service_of_both_sides_serves():
    made = attention_ffn_service(
        "16xh200",
        "deepseek-v3",
        "dp=8",
        "dp=8,ep=8",
        context=4096,
        max_num_seqs=32,
        max_num_batched_tokens=512,
    )
    together = model("deepseek-v3")
    load = load_of("poisson:rate=2,input=200,output=20,count=40")
    found = simulate_services([made], load)
    assert found.completed == 40 and made.devices == 16
    assert float(cache_bytes(together, 1.0)) > 0 and made.room.blocks > 0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: attention_ffn_service("8xh200", "llama-3-70b", "tp=8", "tp=8"), "pass those of 8xh200"),
        (lambda: attention_ffn_service("2xh200", "deepseek-v3", "tp=1", "tp=1"), "do not fit"),
        (lambda: model_side(model("gpt-neox-20b"), "ffn"), "do not take turns"),
        (
            lambda: attention_ffn_service("8xh200", "llama-3-70b", "tp=4", "tp=4", micro_batches=0),
            "micro-batch",
        ),
    ],
)
def test_what_can_not_be_apart_is_told(make, said):
    with pytest.raises(StrataError) as told:
        make()
    assert said in str(told.value)


def test_sides_may_be_larger_than_each_other(pricer):
    vllm = as_engine("vllm")
    sides = pool(BIG, 4), pool(BIG, 8)
    wide = apart_pricer(*sides, model("deepseek-v3"), plan("dp=4"), plan("dp=8,ep=8"), vllm)
    work = wide.generating(np.array([16.0]), np.array(1024.0))
    assert np.isfinite(wide.priced(work)[0]).all()
    more = replace(wide, pieces=3)
    assert float(more.priced(work)[0][0]) > 0
