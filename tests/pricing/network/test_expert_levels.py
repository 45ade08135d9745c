"""Kernels for tokens between experts over several nodes: what they send, and laws of their times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.arrays import enable_jax
from strata.hardware.fabric import with_library
from strata.mapping.place import spread
from strata.pricing.network.expert_exchange import (
    expert_levels,
    forwarded_exchange,
    low_latency_exchange,
    message_bytes,
    price_exchange,
    received,
)
from strata.pricing.network.transport_times import expert_exchange
from strata.workload.graph import Collective, Exchange, is_collective

MODES = (low_latency_exchange, forwarded_exchange)
FABRICS = ("hgx-h100", "hgx-h800", "hgx-b200", "mi300x-node", "nvl72")


def fabric_of(name="hgx-h200", node=8.0, nodes=1.0, **changes):
    return with_library(st.hardware.sized(st.fabric(name, **changes), (node, nodes)), "any")


def levels_of(way="dispatch", name="hgx-h200", node=8.0, nodes=1.0, **changes):
    joined = fabric_of(name, node, nodes, **changes)
    return expert_levels(way, spread(1.0, node * nodes, joined), joined)


def made_of(way="dispatch", tokens=128.0, **changes):
    sizes = {"top_k": 8.0, "experts": 256.0, "width": 7168.0, "element": 1.0 if way == "dispatch" else 2.0}
    return Exchange(**({"direction": way, "tokens": tokens} | sizes | changes))


@pytest.mark.parametrize("way", ["dispatch", "combine"])
@pytest.mark.parametrize("name", FABRICS)
def test_one_node_is_what_it_was_inside_a_node(name, way):
    levels, made = levels_of(way, name), made_of(way, np.array([1.0, 64.0, 1024.0]))
    time, crossed = low_latency_exchange(made, levels)
    sent = made.tokens * 8.0 * message_bytes(way, made.width, made.element, levels.kernels)
    inside = expert_exchange(sent, 8.0, 256.0, levels.link, way, levels.kernels)
    np.testing.assert_allclose(time, inside, rtol=1e-14)
    np.testing.assert_allclose(crossed[0], 7.0 / 8.0 * sent, rtol=1e-14)
    assert np.all(np.asarray(crossed[1]) == 0.0)


@given(
    hy.sampled_from(FABRICS),
    hy.sampled_from(MODES),
    hy.sampled_from(["dispatch", "combine"]),
    hy.floats(1.0, 1000.0),
    hy.floats(1.0, 16.0),
    hy.sampled_from([1.0, 2.0, 4.0, 8.0]),
)
@settings(max_examples=80, deadline=None)
def test_it_grows_with_tokens_and_nodes_and_never_beats_its_adapters(name, mode, way, tokens, more, node):
    groups = {"groups": 8.0, "top_groups": 4.0}
    times = []
    for nodes in (1.0, 2.0, 3.0, 8.0, 32.0):
        if node * nodes == 1.0:
            continue
        levels = levels_of(way, name, node, nodes)
        time, (inside, around) = mode(made_of(way, tokens, **groups), levels)
        assert mode(made_of(way, min(tokens * more, 1024.0), **groups), levels)[0] >= time * (1 - 1e-12)
        assert time >= around / levels.dimensions[1].bandwidth
        assert time >= inside / levels.dimensions[0].bandwidth
        uneven = made_of(way, tokens, busiest=more, received=received(more, node * nodes, 8.0), **groups)
        assert more > node * nodes or mode(uneven, levels)[0] >= time * (1 - 1e-12)
        times.append(float(time))
    # A full mesh gives a group of a few only its own links: there, nodes beside it may be a gain.
    assert levels.dimensions[0].kind == "full" or np.all(np.diff(times) >= -1e-12)


def test_copies_over_wires_and_links_are_those_of_drawn_routings():
    """Top 8 of 256 experts from the best 4 of 8 groups, a group a node: distinct nodes and ranks."""
    rng = np.random.default_rng(1)
    scores = rng.random((4000, 8, 32))
    best = np.argsort(scores.max(2), axis=1)[:, -4:]
    kept = np.full_like(scores, -1.0)
    np.put_along_axis(kept, best[:, :, None], np.take_along_axis(scores, best[:, :, None], 1), 1)
    picks = np.argsort(kept.reshape(4000, 256), axis=1)[:, -8:]
    nodes, ranks = ([len(set(row)) for row in picks // width] for width in (32, 4))
    levels, made = levels_of("combine", nodes=8.0), made_of("combine", 1.0, groups=8.0, top_groups=4.0)
    inside, around = forwarded_exchange(made, levels)[1]
    assert float(around) / 14336.0 == pytest.approx(7.0 / 8.0 * np.mean(nodes), rel=0.03)
    assert float(inside) / 14336.0 == pytest.approx(7.0 / 8.0 * np.mean(ranks), rel=0.03)
    free = forwarded_exchange(made_of("combine", 1.0), levels)[1][1]
    assert float(free) / float(around) == pytest.approx(8 * (1 - (7 / 8) ** 8) / 4, rel=1e-9)


@pytest.mark.parametrize(
    ("way", "nodes", "measured"),
    [
        ("dispatch", 2.0, 118e-6),
        ("dispatch", 8.0, 173e-6),
        ("dispatch", 32.0, 194e-6),
        ("combine", 4.0, 273e-6),
    ],
)
def test_low_latency_between_nodes_is_as_published(way, nodes, measured):
    """DeepEP, docs/legacy.md: 128 tokens a rank on H800 with 400 Gb/s adapters; nothing was fitted to it."""
    time, _ = low_latency_exchange(made_of(way), levels_of(way, "hgx-h800", nodes=nodes))
    assert float(time) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(
    ("name", "nodes", "held_by"), [("hgx-h800", 2.0, 0), ("hgx-h800", 8.0, 1), ("hgx-h100", 2.0, 1)]
)
def test_the_slower_of_links_and_adapters_holds_forwarded_tokens(name, nodes, held_by):
    """Two nodes of H800 wait for NVLink (DeepEP's 43 GB/s), eight for the network; H100's links never."""
    made = made_of("dispatch", 4096.0)
    before = float(forwarded_exchange(made, levels_of(name=name, nodes=nodes))[0])
    for level, path in enumerate(("nvlink.bandwidth", "infiniband.bandwidth")):
        stated = float(st.fabric(name).dimension[level].bandwidth)
        after = float(forwarded_exchange(made, levels_of(name=name, nodes=nodes, **{path: 0.9 * stated}))[0])
        assert (after > before * 1.05) is (level == held_by)


def test_few_cores_copy_slowly():
    levels = levels_of(name="hgx-b200")
    few = replace(levels, kernels=replace(levels.kernels, cores=6.0))
    made = made_of("dispatch", 8192.0)
    ratio = float(forwarded_exchange(made, few)[0]) / float(forwarded_exchange(made, levels)[0])
    assert 3.0 < ratio <= 4.0  # a quarter of the cores, but for the start


def test_a_batch_of_levels_equals_singles_and_runs_on_jax():
    jax = enable_jax()
    tokens, nodes = np.array([1.0, 64.0, 1024.0, 5000.0]), np.array([[1.0], [2.0], [8.0]])

    def price(t, n):
        joined = fabric_of(nodes=n)
        made = made_of("dispatch", t, groups=8.0, top_groups=4.0)
        op = Collective(pattern="all_to_all", group="ep", payload=t * 7168.0 * 2.0, exchange=made)
        return price_exchange(op, spread(1.0, 8.0 * n, joined), joined)

    many = price(tokens, nodes)
    for i, n in enumerate(nodes[:, 0]):
        for j, t in enumerate(tokens):
            one = price(float(t), float(n))
            for name in ("time", "lower", "energy"):
                assert float(getattr(one, name)) == pytest.approx(getattr(many, name)[i, j], rel=1e-12)
    for i, n in enumerate(nodes[:, 0]):
        made = jax.jit(lambda t, n=float(n): price(t, n).time)(tokens)
        np.testing.assert_allclose(made, many.time[i], rtol=1e-12)


def found_exchanges(system, work, plan, engine="sglang"):
    step = st.evaluate(
        st.system(system), st.model("deepseek-v3"), work, st.plan(plan), st.engine(engine)
    ).steps[0]
    return {
        op.name: (op, price) for b in step.blocks for op, price in b.ops if is_collective(op) and op.exchange
    }


def test_whole_models_take_the_kernels_that_their_tokens_ask_for():
    """Decode of 64 sequences a rank goes by messages, a long prompt is forwarded, both over four nodes."""
    for work, mode in ((st.decode(2048.0, 2048.0), 0), (st.prefill(32.0, 4096.0), 1)):
        found = found_exchanges("32xh200", work, "dp=32,ep=32")
        for op, price in found.values():
            made = op.exchange
            assert (float(made.groups), float(made.top_groups)) == (8.0, 4.0)
            levels = levels_of(made.direction, nodes=4.0)
            by_kernels = float(MODES[mode](made, levels)[0])  # the library may be a little quicker
            assert 0.85 * by_kernels < float(price.time) <= by_kernels * (1 + 1e-9)
            if mode == 0:  # the host waits for none of them
                assert made.generates and float(forwarded_exchange(made, levels)[0]) == float("inf")
    library = found_exchanges("32xh200", st.decode(2048.0, 2048.0), "dp=32,ep=32", "megatron")
    assert all(float(found[1].time) > 0 for found in library.values())


def test_fabrics_without_such_kernels_have_no_levels():
    joined = st.hardware.sized(st.fabric("torus-256"), (4.0, 4.0))
    assert expert_levels("dispatch", spread(1.0, 16.0, joined), joined) is None
    assert expert_levels("", spread(1.0, 8.0, fabric_of()), fabric_of()) is None  # training
