"""Tokens between experts inside whole models: uneven routing, kernels made for it, and links that collectives
share.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.arrays import enable_jax
from strata.hardware.fabric import with_library
from strata.hardware.transport import transport
from strata.mapping.place import place, spread
from strata.mapping.shard import shard
from strata.pricing.block import price_block
from strata.pricing.kernels.device import device
from strata.pricing.kernels.expert_load import most_on_a_rank, shared_load
from strata.pricing.network.collectives import price_collective
from strata.pricing.network.expert_exchange import (
    expert_levels,
    forwarded_exchange,
    low_latency_exchange,
    message_bytes,
    price_exchange,
    received,
    uneven_routing,
)
from strata.pricing.price import beside, share_links
from strata.pricing.pricers import Rank
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Collective, Exchange, Extent, is_collective

SKEWS = (0.0, 0.3, 0.7, 1.0, 1.5)
PLACES = (
    ("hgx-h200", (8.0, 1.0), "any"),
    ("hgx-h200", (8.0, 2.0), "any"),
    ("hgx-b200", (8.0, 1.0), "library"),
    ("torus-256", (4.0, 4.0), "ideal"),
)


def exchange(
    tokens=64.0, top_k=8.0, experts=256.0, ranks=8.0, share=1.0, way="dispatch", element=2.0, width=7168.0
):
    copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** top_k)
    made = Exchange(
        direction=way,
        tokens=tokens,
        top_k=top_k,
        experts=experts,
        width=width,
        element=element,
        busiest=share,
        received=received(share, ranks, top_k),
    )
    sent = tokens * copies * width * element
    return Collective(pattern="all_to_all", group="ep", payload=sent, exchange=made)


def node(name="hgx-h200", sizes=(8.0, 1.0), speaks="any"):
    return with_library(st.hardware.sized(st.fabric(name), sizes), speaks)


def blocks(system, model, work, plan, engine="sglang"):
    """Priced blocks of a step by name."""
    step = st.evaluate(st.system(system), st.model(model), work, st.plan(plan), st.engine(engine)).steps[0]
    return {b.block.name: b for b in step.blocks}


def exchanges(found):
    return {
        op.name: price for b in found.values() for op, price in b.ops if is_collective(op) and op.exchange
    }


@pytest.mark.parametrize("where", PLACES, ids=str)
def test_uneven_routing_is_never_faster_and_a_balanced_one_costs_what_an_all_to_all_does(where):
    fabric = node(*where)
    ranks = 16.0 if where[1] != (8.0, 1.0) else 8.0
    groups = spread(1.0, ranks, fabric)
    shares = np.linspace(1.0, ranks, 40)
    for way in ("", "dispatch", "combine"):
        op = exchange(tokens=2048.0, ranks=ranks, share=shares, way=way)
        price = price_exchange(op, groups, fabric)
        assert np.all(np.diff(price.time) >= -1e-18)
        assert np.all(price.time >= price.lower)
        if way == "":
            plain = price_collective(replace(op, exchange=None), groups, fabric)
            assert price.time[0] == pytest.approx(plain.time, rel=1e-12) and np.all(
                price.time >= plain.time * (1 - 1e-12)
            )
            # whoever receives them, as many bytes are sent
            np.testing.assert_allclose(price.energy, plain.energy, rtol=1e-12)


@given(hy.floats(1.0, 64.0), hy.integers(2, 64), hy.integers(1, 16))
@settings(max_examples=200)
def test_no_rank_receives_more_than_every_token_nor_fewer_than_the_mean(share, ranks, top_k):
    mean = 1.0 - (1.0 - 1.0 / ranks) ** top_k  # part of all tokens that a mean rank gets
    more = float(received(share, float(ranks), float(top_k)))
    assert more >= 1.0 - 1e-9 and more * mean <= 1.0 + 1e-9
    assert more <= max(share, 1.0) + 1e-9  # copies that serve several picks even it out


@pytest.mark.parametrize("skew", [0.0, 0.5])
def test_the_busiest_rank_is_the_one_of_drawn_routings(skew):
    """Experts dealt at random to ranks, picks drawn without repetition: mean of the busiest rank's picks and
    of its tokens.
    """
    ranks, experts, top_k, tokens = 8, 64, 4, 2048
    rng = np.random.default_rng(0)
    weight = np.arange(1.0, experts + 1.0) ** -skew
    picks_of, tokens_of = [], []
    for _ in range(60):
        home = rng.permutation(experts) % ranks
        # the smallest keys are a draw in proportion to weight
        keys = rng.exponential(size=(tokens, experts)) / weight
        on = home[np.argpartition(keys, top_k, axis=1)[:, :top_k]]
        counts = np.stack([(on == r).sum(1) for r in range(ranks)])
        picks_of.append(counts.sum(1).max() / (tokens * top_k / ranks))
        tokens_of.append((counts > 0).sum(1).max() / (counts > 0).sum(1).mean())
    product = ExpertMatMul(
        name="up",
        module="moe",
        inputs=(),
        output="",
        tokens=Extent(tokens * 1.0),
        top_k=top_k * 1.0,
        experts=Extent(experts / ranks),
        all_experts=experts * 1.0,
        n=(Extent(64.0),),
        k=Extent(64.0),
        skew=skew,
        weight="bf16",
        activation="bf16",
    )
    load = shared_load(product, device(st.chip("h200")), float(ranks))
    share = float(most_on_a_rank(load, float(ranks), experts / ranks))
    assert share == pytest.approx(np.mean(picks_of), rel=0.06)
    assert float(received(share, float(ranks), float(top_k))) == pytest.approx(np.mean(tokens_of), rel=0.06)


@pytest.mark.parametrize("system", ["8xh200", "16xh200", "256xstack-ref"])
def test_a_step_is_never_faster_for_skewed_experts(system):
    devices = int(system.split("x")[0])
    times = []
    for skew in SKEWS:
        found = exchanges(
            blocks(system, "deepseek-v3", st.decode(4096.0, 2048.0, skew=skew), f"dp={devices},ep={devices}")
        )
        times.append([float(p.time) for p in found.values()])
    assert len(times[0]) == 2 and np.all(np.diff(times, axis=0) >= 0) and times[-1][0] > times[0][0]


def test_kernels_of_their_own_serve_decode_where_the_engine_has_them():
    work = st.decode(512.0, 2048.0)
    by = transport("nvlink4").experts
    for engine, quick in (("sglang", True), ("megatron", False)):
        found = blocks("8xh200", "deepseek-v3", work, "dp=8,ep=8", engine)
        block = next(b for b in found.values() if any(is_collective(op) and op.exchange for op, _ in b.ops))
        price = exchanges(found)["dispatch_exchange"]
        op = next(op for op, _ in block.ops if op.name == "dispatch_exchange")
        # fp8 out, as the products take them
        assert (op.exchange.tokens, op.exchange.element) == (64.0, 1.0 + 4 / 128**2)
        sent = 64.0 * 8.0 * message_bytes("dispatch", 7168.0, op.exchange.element, by) * 7 / 8
        link = st.fabric("hgx-h200").dimension[0]
        assert (float(price.energy) == pytest.approx(sent * link.energy)) is quick
        library = price_collective(
            replace(op, exchange=None), spread(1.0, 8.0, node(speaks="library")), node(speaks="library")
        )
        assert (float(price.time) < float(library.time)) is quick


def test_kernels_for_few_tokens_are_for_short_calls_and_those_for_many_take_over():
    for sizes, tokens, quickest in (
        ((8.0, 1.0), 512.0, low_latency_exchange),
        ((8.0, 1.0), 8192.0, forwarded_exchange),
        ((8.0, 2.0), 64.0, low_latency_exchange),
        ((8.0, 2.0), 4096.0, forwarded_exchange),
    ):
        fabric, ranks = node(sizes=sizes), float(np.prod(sizes))
        op = exchange(tokens=tokens, ranks=ranks)
        op = replace(op, exchange=replace(op.exchange, element=1.0))  # a library sends bf16, the kernels fp8
        alone = replace(op, exchange=replace(op.exchange, direction=""))
        groups = spread(1.0, ranks, fabric)
        levels = expert_levels("dispatch", groups, fabric)
        price = price_exchange(op, groups, fabric)
        assert float(price.time) == pytest.approx(float(quickest(op.exchange, levels)[0]), rel=1e-12)
        assert float(price.time) < float(price_exchange(alone, groups, fabric).time)
        assert float(price.lower) <= float(price.time)
    assert low_latency_exchange(exchange(tokens=1025.0).exchange, levels)[0] == float("inf")
    trained = blocks("8xh200", "qwen3-30b-a3b", st.train(64.0, 512.0), "dp=8,ep=8", "ideal")
    assert all(
        op.exchange.direction == ""
        for b in trained.values()
        for op, _ in b.ops
        if is_collective(op) and op.exchange
    )


def test_a_batch_of_exchanges_equals_singles_and_runs_on_jax():
    fabric = node()
    tokens, share = np.array([1.0, 64.0, 1024.0, 5000.0]), np.array([1.0, 1.3, 2.0, 8.0])
    many = price_exchange(exchange(tokens=tokens, share=share), spread(1.0, 8.0, fabric), fabric)
    for i in range(tokens.size):
        one = price_exchange(
            exchange(tokens=float(tokens[i]), share=float(share[i])), spread(1.0, 8.0, fabric), fabric
        )
        for name in ("time", "lower", "energy"):
            assert float(getattr(one, name)) == pytest.approx(getattr(many, name)[i], rel=1e-12)
    jax = enable_jax()
    made = jax.jit(
        lambda t: (
            price_exchange(
                exchange(tokens=t, share=jax.numpy.asarray(share)), spread(1.0, 8.0, fabric), fabric
            ).time
        )
    )(tokens)
    np.testing.assert_allclose(made, many.time, rtol=1e-12)


@given(*(hy.floats(0.0, 1e3) for _ in range(3)))
@settings(max_examples=100)
def test_links_that_are_shared_are_busy_for_both(communication, work, part):
    busy = min(part, work)
    whole = work + float(beside(communication, work, busy))
    assert whole >= work and whole >= (busy + communication) * (1 - 1e-12)
    assert whole <= work + communication + 1e-9


@pytest.mark.parametrize(("plan", "shared"), [("tp=8,dp=2,fsdp=1", 0.0), ("tp=4,dp=4,fsdp=1", 1.0)])
def test_weights_are_gathered_beside_sums_on_other_links_and_after_those_on_the_same(plan, shared):
    """Eight of a node hold a tensor group: data parallel ranks meet between nodes. Four: they meet inside the
    node as well.
    """
    where, model, work, how = (
        st.system("16xh100"),
        st.model("llama-3-8b"),
        st.train(16.0, 1024.0),
        st.plan(plan),
    )
    fabric = with_library(where.fabric, "library")
    where = replace(where, fabric=fabric)
    graph, active = model.trace(work), how.active()
    placement, sharding = place(how, fabric, active), how.sharding(graph, work, active)
    rank = Rank(device=device(where.chip), placement=placement, fabric=fabric)
    assert float(share_links(placement.groups["dp"], placement.groups["tp"], fabric)) == shared
    for block in shard(graph, sharding).blocks:
        made = price_block(block, rank, sharding, training=True)
        gather = float(next(p for op, p in made.ops if op.name == "gather_weights").upper)
        sums = sum(
            float(p.time) for op, p in made.ops if op.kind == "collective" and op.name != "gather_weights"
        )
        own = sum(float(p.time) for op, p in made.ops if op.kind != "collective")
        expected = max(own + sums, gather) if shared == 0.0 else max(own + sums, gather + sums)
        assert float(made.price.time) == pytest.approx(expected, rel=1e-9)
        assert float(made.busy) == pytest.approx(gather + shared * sums, rel=1e-9)


def test_gradients_wait_for_links_that_the_backward_pass_uses():
    """The same bytes on the same links: hidden gathers leave less of the backward pass to gradients."""
    base = st.system(
        st.chip("h100"),
        st.hardware.sized(st.fabric("hgx-h100", **{"infiniband.bandwidth": "2 GB/s"}), (8, 2)),
    )
    work, model = st.train(16.0, 1024.0), st.model("llama-3-8b")
    times = {}
    for plan in ("tp=8,dp=2,zero=2", "tp=8,dp=2,fsdp=1"):
        (step,) = st.evaluate(base, model, work, st.plan(plan), st.engine("ideal")).steps
        times[plan] = (
            float(step.time),
            sum(float(b.block.count * b.busy) for b in step.blocks if b.block.direction == "backward"),
        )
    assert times["tp=8,dp=2,zero=2"][1] == 0.0 < times["tp=8,dp=2,fsdp=1"][1]
    # Gathers twice and the sum of gradients once: no less than the links take for all of them.
    assert times["tp=8,dp=2,fsdp=1"][0] - times["tp=8,dp=2,zero=2"][0] >= times["tp=8,dp=2,fsdp=1"][1]


def test_uneven_routing_leaves_blocks_without_exchanges_alone():
    work, plan = st.decode(8.0, 128.0), st.plan("")
    graph = st.model("llama-3-8b").trace(work)
    for block in graph.blocks:
        sharding = plan.sharding(graph, work, frozenset())
        assert uneven_routing(block.ops, device(st.chip("h200")), sharding) is block.ops


@pytest.mark.parametrize(("ranks", "measured"), [(8.0, 312.912e9), (2.0, 47.671e9)])
def test_infinity_fabric_comes_near_what_is_published(ranks, measured):
    fabric = with_library(st.hardware.sized(st.fabric("mi325x-node"), (8.0, 1.0)), "library")
    size = 4.0 * 2**30
    time = float(
        price_collective(
            Collective(pattern="all_reduce", group="tp", payload=size), spread(1.0, ranks, fabric), fabric
        ).time
    )
    assert 2.0 * (ranks - 1.0) / ranks * size / time == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("name", "low"), [("hgx-h100", 46e9), ("mi325x-node", 34e9)])
def test_adapters_between_nodes_reach_what_is_expected_of_them(name, low):
    fabric = with_library(st.hardware.sized(st.fabric(name), (8.0, 8.0)), "library")
    size = 8.0 * 2**30
    time = float(
        price_collective(
            Collective(pattern="all_reduce", group="dp", payload=size), spread(8.0, 8.0, fabric), fabric
        ).time
    )
    assert low <= 2.0 * 7.0 / 8.0 * size / time <= 48e9


@pytest.mark.parametrize(
    ("rows", "published"), [(1, 22.64), (16, 22.56), (32, 24.28), (64, 28.44), (128, 36.52), (256, 53.52)]
)
def test_all_reduces_of_frameworks_on_infinity_fabric_come_near_what_is_published(rows, published):
    """Four ranks, rows of 7168 in bf16, replayed from graphs with a norm of about 5 us after them (vLLM pull
    request 54787).
    """
    found = st.network.collective("4xmi355x", "all_reduce", bytes=rows * 7168 * 2.0, ranks=4, engine="vllm")
    assert float(found.time) * 1e6 + 5.0 == pytest.approx(published, rel=0.12)
