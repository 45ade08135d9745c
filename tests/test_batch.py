"""The law that keeps one model for one design and a billion: a batch equals single evaluations, and JAX
equals NumPy.
"""

import zlib
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from cases import FAMILIES, METRICS, MODELS, PHASES, count, legal_plans, model, pick, same, system, workload
from hypothesis import given
from hypothesis import strategies as hy

import strata as st
from strata.base.arrays import leaves
from strata.base.batch import as_float64_box, box_shape, pieces, run_box, take
from strata.case import Case
from strata.evaluate import summarised
from strata.mapping.plan import Plan
from strata.params import names, value_at
from strata.pricing.pricers import Structure

CHANGED = [
    "memory.bandwidth",
    "memory.capacity",
    "compute.attention_efficiency",
    "cache.core_bandwidth",
    "overhead.tile",
    "overhead.split.bf16",
    "overhead.step.bf16",
    "memory.exposed",
    "energy.power_limit",
    "compute.vector_rate",
    "cache.bandwidth",
    "cache.capacity",
    "overhead.kernel",
    "energy.memory",
]


def random_chip(rng, shape, name="h200", room=1.0):
    """A chip with many quantities at random around those of a shipped one; whole cores."""
    base = st.chip(name)
    changes = {path: value_at(base, path) * rng.uniform(0.4, 1.3, shape) for path in CHANGED}
    changes["memory.capacity"] = changes["memory.capacity"] * room
    changes["compute.cores"] = np.floor(base.compute.cores * rng.uniform(0.4, 2.0, shape))
    changes["compute.matrix_rate.bf16"] = base.compute.matrix_rate["bf16"] * rng.uniform(0.3, 3.0, shape)
    return st.chip(name, **changes)


def random_links(rng, shape, sizes=(8.0, 2.0)):
    made = st.fabric(
        "hgx-h200", bandwidth=rng.uniform(1e11, 1e12, shape), latency=rng.uniform(5e-7, 5e-6, shape)
    )
    return st.hardware.sized(made, sizes)


def random_plans(rng, name, size, phase):
    """Legal plans at random, a few of them pushed out of legality, with their finer choices."""
    options = legal_plans(16, name)
    plans = pick(options, rng.integers(0, count(options), size))
    finer = {
        "sp": rng.integers(0, 2, size) * 1.0,
        "zero": rng.integers(0, 4, size) * 1.0,
        "microbatches": rng.choice([0.0, 0.0, 1.0, 2.0], size),
    }
    if phase == "train":
        finer["recompute"] = rng.integers(0, 3, size) * 1.0
    finer["dp"] = plans.dp * rng.choice([1.0, 1.0, 1.0, 2.0], size)
    return replace(plans, **finer)


def assert_equal_points(r, where):
    """One point of a box against its single evaluation, every metric and every breakdown."""
    one = r.at(*where)
    assert int(np.asarray(r.reason)[where]) == one.reason
    for name in METRICS:
        assert same(np.asarray(getattr(r.metrics, name))[where], getattr(one.metrics, name), 1e-12), (
            name,
            where,
        )
    for table in ("resources", "time_by_kind", "memory", "energy"):
        many, single = getattr(r.summary, table), getattr(one.summary, table)
        assert set(single) == set(many)
        whole = sum(single.values())  # waiting is a difference of sums: it is as exact as they are
        assert all(abs(float(np.asarray(many[k])[where]) - single[k]) <= 1e-12 * whole for k in single), (
            table,
            where,
        )


@pytest.mark.parametrize("name", MODELS)
def test_a_list_of_random_points_equals_single_evaluations(name):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    size = 6
    for phase in PHASES:
        where = st.system(random_chip(rng, size), random_links(rng, size))
        work = workload(phase, 2.0 ** rng.integers(3, 9, size), rng.integers(16, 3000, size) * 1.0)
        r = st.evaluate(where, model(name), work, random_plans(rng, name, size, phase), "vllm")
        assert r.shape == (size,)
        for i in range(size):
            assert_equal_points(r, (i,))


@pytest.mark.parametrize("engine", names("engine"))
def test_a_list_equals_single_evaluations_under_every_engine(engine):
    """Of a system with several numbers, and of plans in several places, in each phase that it takes."""
    rng, size = np.random.default_rng(zlib.crc32(engine.encode())), 4
    where = st.system(random_chip(rng, size), random_links(rng, size))
    phases = PHASES if st.engine(engine).training is not None else PHASES[:-1]
    for phase, name in product(phases, ("deepseek-v3", "llama-3-8b")):
        work = workload(phase, 2.0 ** rng.integers(3, 9, size), rng.integers(16, 3000, size) * 1.0)
        r = st.evaluate(where, model(name), work, random_plans(rng, name, size, phase), engine)
        for i in range(size):
            assert_equal_points(r, (i,))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_box_equals_single_evaluations(name):
    """Chips, fabrics, batches and plans each on their own axis."""
    rng = np.random.default_rng(7)
    options = legal_plans(16, name)
    plans = pick(options, rng.integers(0, count(options), 4))
    where = st.system(random_chip(rng, (3, 1, 1, 1)), random_links(rng, (2, 1, 1)))
    for phase in PHASES:
        r = st.evaluate(where, model(name), workload(phase, np.array([[16.0], [64.0]]), 512.0), plans)
        assert r.shape == (3, 2, 2, 4)
        assert all(np.shape(getattr(r.metrics, m)) == r.shape for m in METRICS)
        for index in [(0, 0, 0, 0), (2, 1, 1, 3), *(tuple(rng.integers(0, r.shape)) for _ in range(3))]:
            assert_equal_points(r, tuple(int(i) for i in index))


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b"])
@pytest.mark.parametrize("limit", [1, 7, 20])
def test_a_box_cut_into_chunks_is_the_same_box(name, limit):
    rng = np.random.default_rng(3)
    options = legal_plans(16, name)
    plans = pick(options, rng.integers(0, count(options), 5))
    case = Case(
        system=st.system(random_chip(rng, (3, 1, 1)), random_links(rng, (2, 1))),
        program=model(name),
        workload=st.decode(64.0, 777.0),
        plan=plans,
        engine=st.engine("ideal"),
        economics=st.hardware.economics(),
    )
    box, shape = as_float64_box(case)
    structure = Structure(box.plan.active(), len(shape))
    whole, cut = (run_box(lambda c: summarised(c, structure)[0], box, shape, limit=n) for n in (10**9, limit))
    for a, b in zip(leaves(whole), leaves(cut), strict=True):
        assert np.shape(a) == np.shape(b) == (3, 2, 5) and same(a, b, 1e-12)


def test_a_large_box_is_priced_in_chunks():
    """More points than a chunk holds, with an op that would not fit memory at once."""
    batch = np.arange(1.0, 40001.0)
    r = st.evaluate("8xh200", "llama-3-8b", st.decode(batch, 1000.0), "tp=8")
    assert r.shape == (40000,)
    for i in (0, 16383, 16384, 39999):
        assert_equal_points(r, (i,))


@given(hy.lists(hy.integers(1, 9), min_size=1, max_size=4), hy.integers(1, 50))
def test_chunks_cover_a_box_once_and_stay_small(shape, limit):
    seen = np.zeros(shape, int)
    for where in pieces(tuple(shape), limit):
        assert 1 <= seen[where].size <= limit
        seen[where] += 1
    assert np.all(seen == 1)


@given(hy.integers(1, 4), hy.integers(1, 4), hy.integers(1, 4))
def test_taking_a_point_of_a_box_keeps_axes_of_one_whole(a, b, c):
    tree = {
        "x": np.arange(a * b * c * 1.0).reshape(a, b, c),
        "y": np.arange(c * 1.0),
        "z": np.arange(b * 1.0)[:, None],
        "s": 3.0,
    }
    assert box_shape([v.shape for v in leaves(tree) if getattr(v, "ndim", 0)]) == (a, b, c)
    full = {k: np.broadcast_to(v, (a, b, c)) for k, v in tree.items()}
    index = (a - 1, b - 1, c - 1)
    assert {k: float(v) for k, v in take(tree, index, 3).items()} == {
        k: float(v[index]) for k, v in full.items()
    }


# What is no degree of the mesh, with two values of each.
NAMED = "sp zero recompute recompute_layers recompute_modules schedule split_ends dp_shard offload cp_mode"
SWITCHES = dict.fromkeys(NAMED.split(), (0.0, 1.0))
SWITCHES |= {"order": (0.0, 3.0), "cp_a2a": (1.0, 2.0), "microbatches": (0.0, 4.0), "moe_tp": (1.0, 2.0)}
SWITCHES |= {"virtual_stages": (1.0, 2.0), "redundant_experts": (0.0, 8.0), "ep": (1.0, 4.0)}


def test_every_field_of_a_plan_is_a_degree_or_switched():
    assert {f.name for f in fields(Plan)} - set(SWITCHES) == {"tp", "cp", "dp", "pp"}


@pytest.mark.parametrize("phase", ["prefill", "train"])
@pytest.mark.parametrize("axis", SWITCHES)
def test_an_axis_that_is_off_and_on_in_one_batch_equals_its_points(axis, phase):
    work = getattr(st, phase)(64, 2048)
    plan = st.plan("tp=2,cp=2,dp=2,pp=2")
    low, high = SWITCHES[axis]
    for engine in ("megatron", "nanotron") if phase == "train" else ("vllm", "ideal"):

        def times(values, engine=engine):
            whole = st.evaluate("16xh200", "mixtral-8x7b", work, replace(plan, **{axis: values}), engine)
            return np.broadcast_to(np.asarray(whole.metrics.step_time, float), np.shape(values))

        both = times(np.array([low, high, low]))
        assert both == pytest.approx([float(times(v)) for v in (low, high, low)], rel=1e-12)


def test_the_best_of_a_box_is_its_best_feasible_point():
    r = st.evaluate("16xh200", "deepseek-v3", st.decode(256, 2048), legal_plans(16, "deepseek-v3"))
    for metric, best in (("tokens_per_s", np.max), ("tpot", np.min), ("energy_per_token", np.min)):
        values = getattr(r.metrics, metric)[r.fits]
        assert getattr(r.best(metric).metrics, metric) == pytest.approx(best(values), rel=1e-12)
        assert r.best(metric).fits


def test_inputs_may_be_integers():
    """Products of sizes in integers would wrap."""
    big = st.evaluate(
        "8xh200",
        "gpt3-1t",
        st.train(np.array([1024, 4096], np.int32), np.int32(2048)),
        st.plan(tp=np.array([8, 8], np.int64)),
    )
    same_in_floats = st.evaluate(
        "8xh200", "gpt3-1t", st.train(np.array([1024.0, 4096.0]), 2048.0), st.plan(tp=8)
    )
    for name in METRICS:
        assert same(getattr(big.metrics, name), getattr(same_in_floats.metrics, name), 1e-12)


# ------------------------------------------------------------------------------------------------------- JAX

JAX = [
    ("deepseek-v3", "decode", ""),
    ("gpt-oss-20b", "prefill", "tp=4,pp=2,cp=2"),
    ("gpt3-175b", "train", "tp=8,pp=2,zero=1,sp=1"),
    ("llama-4-maverick", "prefill", "tp=8,dp=2,ep=16"),
    ("llama-3-8b", "serve", "tp=8,dp=2"),
]


@pytest.mark.parametrize(("name", "phase", "plan"), JAX)
def test_jax_equals_numpy(name, phase, plan):
    """The batched core runs unchanged under jax.jit in float64, for random plans or (to compile less) for
    one.
    """
    pytest.importorskip("jax")
    rng = np.random.default_rng(11)
    size = 24
    where = st.system(random_chip(rng, size, room=8.0), random_links(rng, size))
    work = workload(phase, 2.0 ** rng.integers(4, 9, size), rng.integers(16, 3000, size) * 1.0)
    plans = st.plan(plan) if plan else random_plans(rng, name, size, phase)
    by_numpy, by_jax = (st.evaluate(where, model(name), work, plans, backend=b) for b in ("numpy", "jax"))
    assert np.array_equal(by_numpy.reason, by_jax.reason)
    assert np.any(by_numpy.fits)
    for metric in METRICS:
        a, b = getattr(by_numpy.metrics, metric), getattr(by_jax.metrics, metric)
        assert np.asarray(b).dtype == np.float64 and same(a, b, 1e-9), metric
    for table in ("resources", "time_by_kind", "memory", "energy"):
        one, other = getattr(by_numpy.summary, table), getattr(by_jax.summary, table)
        assert all(np.all(np.abs(one[k] - other[k]) <= 1e-9 * sum(one.values())) for k in one), table


def test_jax_prices_a_box_of_a_dense_model():
    pytest.importorskip("jax")
    question = (
        system("h200"),
        model("llama-3-8b"),
        st.decode(np.array([[8.0], [64.0]]), np.array([128.0, 1024.0, 4096.0])),
    )
    a, b = (st.evaluate(*question, backend=k) for k in ("numpy", "jax"))
    assert a.shape == b.shape == (2, 3)
    assert all(same(getattr(a.metrics, f.name), getattr(b.metrics, f.name), 1e-9) for f in fields(a.metrics))
