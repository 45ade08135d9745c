"""What a graph is: every shipped one obeys its laws, each broken law is refused, and counts follow the
sequence.
"""

from dataclasses import replace

import numpy as np
import pytest
from cases import MODELS, model
from hypothesis import given
from hypothesis import strategies as hy
from programs import elementwise, extent, one_block, product, tensor

import strata as st
from strata.base.errors import BadValue
from strata.workload.graph import Block, BlockSequence, Graph
from strata.workload.graph_walks import check_graph

WORKS = {
    "decode": st.decode(8.0, 512.0),
    "guessed tokens": st.decode(8.0, 512.0, tokens=4.0),
    "prefill": st.prefill(4.0, 256.0),
    "after a cache": st.prefill(4.0, 256.0, cached=512.0),
    "mixed": st.mixed(8.0, 512.0, prompts=2.0, chunk=128.0, cached=64.0),
    "skewed": st.decode(64.0, 512.0, skew=0.7),
    "train": st.train(4.0, 256.0),
}
READING, GENERATING = st.serve(8.0, 512.0, 64.0).steps()
WORKS |= {"served prompt": READING} | {f"served step {i}": work for i, (_, work) in enumerate(GENERATING)}


@pytest.mark.parametrize("name", MODELS)
def test_every_shipped_model_obeys_the_laws_of_graphs_in_every_phase(name):
    for phase, work in WORKS.items():
        graph = model(name).trace(work)
        assert check_graph(graph) is graph, phase
        assert graph.parameters() == pytest.approx(model(name).trace(st.decode(1, 1)).parameters(), rel=1e-12)
        assert graph.item == "token" and graph.flop() > 0, phase


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_has_its_structure_whatever_its_sizes(name):
    """Arrays change no op, no edge and no block: structure is static."""
    one, many = (
        model(name).trace(work)
        for work in (st.decode(8.0, 512.0), st.decode(np.array([8.0, 64.0]), np.array([[512.0], [9.0]])))
    )
    for a, b in zip(one.ops(), many.ops(), strict=True):
        assert (a[0].name, a[1].name, a[1].inputs, a[1].output) == (
            b[0].name, b[1].name, b[1].inputs, b[1].output,
        )  # fmt: skip
    # a step of states alone is the same whatever the context
    assert np.shape(many.flop()) == (2, 2) or not set(model(name).pattern.kinds(0)) - {"linear"}
    assert np.broadcast_to(many.flop(), (2, 2))[0, 0] == one.flop()


# ------------------------------------------------------------------------------------------------ broken laws

M, N, K = extent(64, "m"), extent(32, "n"), extent(16, "k")
UP = product("up", "x", "a", m=M, n=N, k=K)
ACT = elementwise("act", "a", "b", m=M, n=N)
SOUND = one_block(UP, ACT, leaves=("b",))


def changed(**block):
    return replace(SOUND, blocks=(replace(SOUND.blocks[0], **block),))


def ordered(**sequence):
    return replace(SOUND, sequence=BlockSequence(**sequence))


BODY = SOUND.blocks[0]
BROKEN = {
    "reads a, which nothing before it makes": changed(ops=(replace(UP, inputs=("a",)), ACT)),
    "reads b, which nothing before it makes": changed(ops=(replace(UP, inputs=("b",)), ACT)),
    "reads other:b, which nothing before it makes": changed(ops=(UP, replace(ACT, inputs=("other:b",)))),
    "reads x, which nothing before it makes": replace(SOUND, inputs=()),
    "has two ops called up": changed(ops=(UP, replace(ACT, name="up"))),
    "two blocks have one name": replace(SOUND, blocks=(BODY, BODY)),
    "hands on c, which it does not make": changed(leaves=("c",)),
    "the sequence names block tail, which is not there": ordered(first=("body",), last=("tail",)),
    "the sequence names block layer, which is not there": ordered(
        first=("body",), period=(("layer",),), layers=1.0
    ),
    "block body has no place in the sequence": ordered(),
    "has a node with other ops than the block": changed(nodes=((1.0, (UP, ACT)), (3.0, (UP,)))),
}


@pytest.mark.parametrize("said", BROKEN)
def test_each_broken_law_is_refused_in_one_line(said):
    check_graph(SOUND)
    with pytest.raises(BadValue, match=said) as raised:
        check_graph(BROKEN[said])
    assert "\n" not in str(raised.value) and str(raised.value).startswith("graph: ")


@pytest.mark.parametrize("change", [{"name": "other"}, {"inputs": ("x",)}, {"output": "c"}])
def test_nodes_differ_in_sizes_only(change):
    with pytest.raises(BadValue, match="has a node with other ops than the block"):
        check_graph(changed(nodes=((1.0, (UP, ACT)), (3.0, (UP, replace(ACT, **change))))))
    smaller = replace(UP, m=extent(8, "m")), replace(ACT, m=extent(8, "m"))
    check_graph(changed(nodes=((1.0, (UP, ACT)), (3.0, smaller))))


def test_a_tensor_of_another_block_is_named_by_its_block():
    tail = Block(name="tail", ops=(elementwise("use", ("body:b", "body:h"), "c", m=M, n=N),))
    body = replace(BODY, entry=tensor("h", M, K), ops=(replace(UP, inputs=("h",)), ACT))
    both = Graph(blocks=(body, tail), sequence=BlockSequence(first=("body",), last=("tail",)))
    assert check_graph(both) is both
    for wrong in ("body:c", "tale:b", "b"):
        ops = (replace(tail.ops[0], inputs=(wrong,)),)
        with pytest.raises(BadValue, match=f"tail.use reads {wrong}"):
            check_graph(replace(both, blocks=(body, replace(tail, ops=ops))))


def test_every_pass_checks_its_graph_in_tests(monkeypatch):
    """`STRATA_CHECK` is set by conftest.py: a pass that breaks a graph raises where it does."""
    from strata.mapping.shard import shard
    from strata.workload.backward import with_backward

    broken = changed(leaves=("c",))
    division = st.layout({"p": 2}, {"m": "p"})
    passes = (
        with_backward,
        lambda graph: shard(graph, division.sharding(graph, st.forward(1.0), division.active())),
    )
    for one in passes:
        with pytest.raises(BadValue, match="hands on c"):
            one(broken)
    monkeypatch.delenv("STRATA_CHECK")
    for one in passes:
        one(broken)


# --------------------------------------------------------------------------------------------------- sequence

NAMES = ("a", "b", "c")


@hy.composite
def sequences(draw):
    kinds = hy.sampled_from(NAMES)
    layer = hy.tuples(kinds.map(lambda n: f"x{n}"), kinds.map(lambda n: f"y{n}"))
    period = tuple(draw(hy.lists(layer, min_size=1, max_size=4)))
    prefix = draw(hy.one_of(hy.just(()), layer))
    layers = draw(hy.integers(1, 70))
    leading = draw(hy.integers(0, layers)) if prefix else 0
    return BlockSequence(
        first=("first",), prefix=prefix, prefix_layers=leading * 1.0, period=period, layers=layers * 1.0,
        last=("last",),
    )  # fmt: skip


@given(sequences())
def test_blocks_within_layers_are_those_of_each_layer(order):
    """`within` counts what `layer_blocks` lists, after any number of layers."""
    seen = dict.fromkeys((f"{side}{n}" for side in "xy" for n in NAMES), 0.0)
    for layer in range(int(order.layers) + 1):
        assert {n: float(order.within(float(layer), n)) for n in seen} == seen
        if layer < order.layers:
            blocks = order.layer_blocks(layer)
            assert order.starts_layer(blocks[0])
            for block in blocks:
                seen[block] += 1.0
                assert order.in_layers(block)
    assert not any(order.in_layers(n) for n in ("first", "last", "none"))
    many = np.arange(order.layers + 1.0)
    for name in seen:
        assert np.array_equal(order.within(many, name), [float(order.within(n, name)) for n in many])


@pytest.mark.parametrize("name", MODELS)
def test_counts_of_blocks_are_those_of_the_sequence(name):
    graph = model(name).trace(st.train(1.0, 8.0))
    order = graph.sequence
    for block in graph.blocks:
        stands = block.gradient_of or block.name
        expected = order.within(order.layers, stands) if order.in_layers(stands) else 1.0
        assert block.count == expected, block.name
        role = stands.partition(".")[0]
        assert block.role == {"layer": "attention"}.get(role, role)  # attention and ffn side by side
