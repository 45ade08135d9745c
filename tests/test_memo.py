"""What is remembered changes no answer: evaluations in any order, and anew, agree to the last bit."""

import random
from dataclasses import replace

import numpy as np
import pytest

import strata as st
from strata.base.arrays import leaves
from strata.base.memo import Memo, forget, is_settled, value_key
from strata.mapping.divide import as_divided
from strata.mapping.shard import shard
from strata.pricing.kernels import matmul
from strata.software.engine import trainer_of
from strata.workload.tasks import Workload

TRAIN = st.train(256, 2048)
PLANS = [
    "tp=8,dp=8,zero=1,sp=1,recompute=full",
    "tp=8,dp=8,zero=1,sp=1",
    "tp=8,dp=8,zero=3",
    "tp=8,pp=4,dp=2,zero=1,sp=1,recompute=full,microbatches=16",
    "tp=8,pp=4,dp=2,zero=1,sp=1,recompute=selective,microbatches=16,schedule=zero-bubble",
    "tp=4,cp=2,dp=8",
    "tp=4,pp=2,dp=8,offload=optimizer",
    "dp=64,zero=2",
]
SERVED = [
    ("64xh200", "deepseek-v3", st.decode(512, 2048), plan) for plan in ("dp=64,ep=64", "tp=8,dp=8,ep=8")
]
NAMED: list[tuple[str, str, Workload, str, str]] = [
    *[("64xh100", "llama-3-8b", TRAIN, plan, name) for plan in PLANS for name in ("megatron", "nanotron")],
    *[("64xh200", "mixtral-8x7b", TRAIN, "tp=2,dp=32,ep=8,moe_tp=1", name) for name in ("megatron", "ideal")],
    *[(*case, name) for case in SERVED for name in ("vllm", "sglang", "ideal")],
    ("8xh200", "llama-3-8b", st.serve(16, 512, 128), "tp=8", "vllm"),
    ("4xsn40l", "llama-3-8b", st.decode(16, 512), "tp=4", "ideal"),
]

SYSTEMS = {name: st.system(name) for name, *_ in NAMED}
MODELS = {name: st.model(name) for _, name, *_ in NAMED}
CASES = [(SYSTEMS[s], MODELS[m], work, plan, engine) for s, m, work, plan, engine in NAMED]


def found(case):
    """Every number of an answer."""
    result = st.evaluate(*case)
    steps = [(s.time, s.price, s.memory, s.time_by_bound, s.exposed) for s in result.steps]
    return [float(x) for x in leaves((result.metrics, tuple(steps)))]


def test_answers_do_not_depend_on_what_was_asked_before():
    alone = []
    for case in CASES:
        forget()
        alone.append(found(case))
    assert all(is_settled(system, model) for system, model, *_ in CASES[:2])
    forget()
    order = list(range(len(CASES))) * 2
    random.Random(3).shuffle(order)
    for i in order:
        np.testing.assert_array_equal(found(CASES[i]), alone[i], err_msg=str(NAMED[i]))


def test_kernels_of_plans_that_only_schedule_otherwise_are_priced_once(monkeypatch):
    counted = []
    tiled = matmul.PRODUCT_MODELS["gpu"]
    monkeypatch.setitem(matmul.PRODUCT_MODELS, "gpu", lambda *a: (counted.append(a), tiled(*a))[1])
    forget()
    on = SYSTEMS["64xh100"], MODELS["llama-3-8b"], TRAIN
    for _ in range(2):  # records are remembered from their second use on
        first = st.evaluate(*on, "tp=8,dp=8,recompute=full", "megatron")
    once = len(counted)
    other = st.evaluate(*on, "tp=8,dp=8,zero=1", "megatron")
    assert 0 < once == len(counted) and first.steps[0].time > other.steps[0].time


def test_other_numbers_under_the_same_name_are_other_records():
    forget()
    slow, fast = st.system("8xh200", **{"memory.bandwidth": "2 TB/s"}), st.system("8xh200")
    work = st.decode(8, 1024)
    one, two = (st.evaluate(s, "llama-3-8b", work, "tp=8").metrics.tpot for s in (slow, fast))
    assert one > 1.2 * two
    narrow = st.evaluate(fast, st.model("llama-3-8b", weights="fp8"), work, "tp=8").metrics.tpot
    assert narrow < two == st.evaluate(fast, "llama-3-8b", work, "tp=8").metrics.tpot


@pytest.mark.parametrize("text", PLANS)
def test_a_ranks_graph_needs_no_more_of_a_layout(text):
    plan, graph = st.plan(text), st.model("llama-3-8b").trace(TRAIN)
    whole = plan.sharding(graph, TRAIN, plan.active())
    whole = replace(whole, trainer=trainer_of(st.engine("megatron")))
    assert value_key(shard(graph, whole)) == value_key(shard(graph, as_divided(whole)))
    assert value_key(shard(graph, whole)) is not None


def test_keys_are_of_single_numbers():
    plan = st.plan("tp=8")
    assert value_key(plan) == value_key(st.plan("tp=8")) != value_key(st.plan("tp=4"))
    assert value_key(st.plan(tp=np.array([4.0, 8.0]))) is None
    assert value_key(np.float64(2.0)) not in (None, value_key(2.0))
    assert value_key({"a": 1.0}) == value_key({"a": 1.0}) != value_key({"a": 2.0})


def test_records_are_remembered_from_their_second_use_on():
    one, box = (st.system("8xh200", **{"memory.bandwidth": b}) for b in (3e12, [3e12, 4e12]))
    for _ in range(2):
        assert not is_settled(one.chip)
        st.evaluate(one, "llama-3-8b", st.decode(8, 512), "tp=8")
        st.evaluate(box, "llama-3-8b", st.decode(8, 512), "tp=8")
    assert is_settled(one.chip, one.fabric) and not is_settled(box.chip)


def test_a_table_is_bounded_and_without_a_key_remembers_nothing():
    few = Memo(3)
    for i in range(10):
        assert few.of(i, lambda i=i: f"{i}") == f"{i}"
        assert len(few.known) <= 3
    assert [few.of(None, lambda i=i: i) for i in range(3)] == [0, 1, 2]
