"""The search for a plan: nothing is missed by what it leaves out, and every choice of a plan is priced alike
in a batch and alone.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from cases import model, roomy

import strata as st
from strata.base.arrays import map_leaves
from strata.base.errors import BadValue
from strata.mapping.place import in_every_order
from strata.mapping.plan import ORDERS, Plan, order_text, plan_text
from strata.mapping.plan_layout import active_groups
from strata.mapping.plans import candidate_plans, plan_at, taken
from strata.mapping.shard import shard
from strata.search.plans import best_plans


def every_choice(count, seed):
    """Plans of 16 devices with every finer choice drawn: sharded weights, ways of context parallelism, copies
    of experts, orders.
    """
    rng = np.random.default_rng(seed)
    made = model("deepseek-v3")
    options = st.plans(16, made, zero=(0, 3), cp_mode=(0, 1, 2))
    some = taken(options, rng.integers(0, len(options.tp), count))
    return replace(
        some,
        order=rng.integers(0, len(ORDERS), count) * 1.0,
        redundant_experts=some.ep * rng.integers(0, 3, count),
        sp=rng.integers(0, 2, count) * 1.0,
    )


@pytest.mark.parametrize("phase", ["decode", "prefill", "serve"])
@pytest.mark.parametrize("where", ["16xstack-ref", "2x8xh200"])
def test_no_order_that_wins_is_left_out(phase, where):
    """The search prices an order only where it could win; all orders of all plans at all batches find nothing
    better.
    """
    system, made = roomy(where), model("mixtral-8x7b")
    work = {"decode": st.decode, "prefill": st.prefill, "serve": lambda b, n: st.serve(b, n, 64)}[phase]
    batches = np.array([4.0, 64.0])
    found = best_plans(system, made, work(batches, 1024.0), top=3)
    every = candidate_plans(system, made, work(batches, 1024.0))
    rows = map_leaves(lambda v: np.tile(np.broadcast_to(v, every.tp.shape), len(ORDERS)), every)
    rows = replace(rows, order=np.repeat(np.arange(len(ORDERS)) * 1.0, len(every.tp)))
    box = st.evaluate(system, made, work(batches[:, None], 1024.0), rows)
    rates = (
        np.where(box.fits, box.metrics.tokens_per_s, -np.inf)
        .reshape(len(batches), len(ORDERS), -1)
        .max(axis=1)
    )
    assert [c.result.metrics.tokens_per_s for c in found] == pytest.approx(
        np.sort(rates, axis=None)[::-1][:3], rel=1e-12
    )
    assert found[0].considered == rates.size


@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
def test_every_choice_of_a_plan_is_the_same_in_a_batch_and_alone(phase):
    system, made, plans = roomy("2x8xh200"), model("deepseek-v3"), every_choice(40, 3)
    work = {"decode": st.decode, "prefill": st.prefill, "train": st.train}[phase](64.0, 512.0)
    box = st.evaluate(system, made, work, plans)
    for i in range(0, 40, 3):
        one = st.evaluate(system, made, work, plan_at(plans, i))
        for name in ("step_time", "memory_used", "energy_per_token"):
            assert np.broadcast_to(getattr(box.metrics, name), box.shape)[i] == pytest.approx(
                getattr(one.metrics, name), rel=1e-9
            ), plan_text(one.plan)


def test_every_choice_of_a_plan_is_the_same_compiled():
    system, made, plans = roomy("16xstack-ref"), model("mixtral-8x7b"), every_choice(24, 5)
    work = st.decode(64.0, 512.0, routing=st.routing(np.arange(1.0, 9.0)[None]))
    plain, compiled = (
        st.evaluate(system, made, work, plans, backend=b).metrics.step_time for b in ("numpy", "jax")
    )
    assert np.asarray(compiled) == pytest.approx(np.broadcast_to(plain, compiled.shape), rel=1e-9)


def test_orders_that_lie_alike_are_one():
    made = model("llama-3-70b")
    every = st.plans(16, made)
    inside, came = in_every_order(every, roomy("2x8xh200").fabric, active_groups(every))
    assert sorted(set(came)) == list(range(len(every.tp))) and np.all(
        inside.order[np.unique(came, return_index=True)[1]] == 0
    )
    one = taken(inside, came == int(np.flatnonzero((every.tp == 16) & (every.pp == 1))[0]))
    assert len(one.tp) == 1  # a single dimension has a single order
    three = taken(inside, came == int(np.flatnonzero((every.tp == 2) & (every.cp == 2) & (every.dp == 4))[0]))
    assert 1 < len(three.tp) <= 6
    assert len(
        in_every_order(every, st.hardware.sized(st.fabric("hgx-h200"), (16.0, 1.0)), active_groups(every))[1]
    ) == len(every.tp)


@pytest.mark.parametrize(
    "text",
    [
        "tp=2,dp=8,order=dp-tp",
        "tp=2,cp=2,dp=2,pp=2,order=pp-dp-cp-tp",
        "tp=4,cp=4,cp_mode=ulysses",
        "dp=16,ep=16,zero=3,redundant_experts=16",
    ],
)
def test_a_plan_is_typed_as_it_is_shown(text):
    made = st.plan(text)
    assert plan_text(made) == text
    assert order_text(st.plan("tp=16,order=pp-tp")) == ""


def test_a_condition_keeps_plans_and_says_when_it_keeps_none():
    system, made, work = roomy("8xh200"), model("mixtral-8x7b"), st.decode(64.0, 512.0)
    kept = candidate_plans(system, made, work, where="(ep == 8) & (moe_tp == 1) & (zero == 0)")
    assert len(kept.tp) > 1 and np.all(kept.ep == 8) and np.all(kept.moe_tp == 1)
    with pytest.raises(BadValue, match="no legal plan is left"):
        candidate_plans(system, made, work, where="tp > 99")
    assert np.all(candidate_plans(system, made, work, "vllm").zero == 0)


def test_every_single_degree_of_one_is_one_chip():
    """A plan of ones, whatever its finer choices, is the single chip."""
    where, made, work = roomy("1xh200"), model("mixtral-8x7b"), st.prefill(4.0, 512.0)
    alone = st.evaluate(where, made, work).metrics
    for finer in ({"order": 7.0}, {"cp_mode": 1.0}, {"cp_mode": 2.0}, {"zero": 3.0}, {"sp": 1.0}):
        one = st.evaluate(where, made, work, replace(Plan(), **finer)).metrics
        assert all(
            np.array_equal(getattr(one, f.name), getattr(alone, f.name), equal_nan=True)
            for f in fields(alone)
        ), finer


def test_context_ranks_of_a_step_hold_the_same_tokens_for_their_experts():
    """In decode four context ranks that share out experts have a quarter of the work of one, not the work of
    four batches.
    """
    made, work = model("deepseek-v3"), st.decode(64.0, 1024.0)
    for text, tokens in (
        ("cp=4,ep=4", 64.0),
        ("cp=2,dp=2,ep=4", 64.0),
        ("dp=4,ep=4", 64.0),
        ("cp=4,ep=2", 64.0),
        ("cp=2,dp=2,ep=2", 32.0),
    ):
        how = st.plan(text)
        graph = made.trace(work)
        rank_graph = shard(graph, how.sharding(graph, work, how.active()))
        ops = [op for block in rank_graph.blocks for op in block.ops]
        assert float(next(op for op in ops if op.name == "experts_up").tokens.size) == tokens, text


def test_ranks_without_a_sequence_serve_their_experts():
    """Four sequences on sixteen attention ranks: the experts see four tokens, a rank holds one sequence, and
    it is no slower than with copies.
    """
    where, made = roomy("256xstack-ref"), model("deepseek-v3")
    few = st.evaluate(where, made, st.decode(4.0, 1536.0), "tp=16,dp=16,ep=16,moe_tp=16")
    assert few.fits and few.metrics.tokens_per_s == pytest.approx(4.0 / few.metrics.tpot)
    op = next(op for block in few.steps[0].blocks for op, _ in block.ops if op.name == "experts_up")
    assert float(op.tokens.size) == 4.0
    full = st.evaluate(where, made, st.decode(16.0, 1536.0), "tp=16,dp=16,ep=16,moe_tp=16")
    assert (
        few.metrics.tpot < full.metrics.tpot and few.summary.memory["cache"] == full.summary.memory["cache"]
    )
    # eight sets of experts for four sequences
    alone = st.evaluate(where, made, st.decode(4.0, 1536.0), "tp=16,dp=16,ep=2,moe_tp=16")
    assert not alone.fits and "but for ranks that share one set of experts" in str(alone.infeasible[0])


def test_the_search_cuts_experts_freely_and_shares_out_norms_where_software_lets_it():
    where, made = roomy("16xstack-ref"), model("deepseek-v3")
    ideal, served = (
        candidate_plans(where, made, st.decode(64.0, 512.0), by, "(tp == 8) & (dp == 2) & (ep == 2)")
        for by in ("ideal", "vllm")
    )
    assert sorted(set(ideal.moe_tp)) == [1.0, 2.0, 4.0, 8.0] and sorted(set(served.moe_tp)) == [1.0, 4.0]
    long = candidate_plans(where, made, st.prefill(64.0, 512.0))
    assert np.array_equal(long.sp, (long.tp > 1) * 1.0) and not np.any(
        candidate_plans(where, made, st.prefill(64.0, 512.0), "vllm").sp
    )
    split, whole = (
        st.evaluate(where, made, st.prefill(64.0, 512.0), f"tp=8,dp=2,ep=16,sp={sp}").metrics.ttft
        for sp in (1, 0)
    )
    assert split < whole
