"""Backward passes: edges that are there, gradients of everything, and operations in the field's
proportions.
"""

from dataclasses import replace

import pytest
from cases import FAMILIES, MODELS, model
from programs import elementwise, extent, one_block, product, tensor

import strata as st
from strata.workload.backward import with_backward
from strata.workload.graph_walks import check_graph

# Choices among experts and among keys have no gradient: what reads them takes it for given.
CHOICES = {"top_k_backward", "index_top_backward"}


def training(name):
    return model(name).trace(st.train(4.0, 256.0))


@pytest.mark.parametrize("name", MODELS)
def test_every_input_of_a_gradient_is_made_by_something(name):
    """True edges: a gradient that arrives, or a tensor of the forward block, made before."""
    graph = training(name)
    forward = {b.name: b for b in graph.blocks if b.direction == "forward"}
    made = {f"{b.name}:{op.output}" for b in forward.values() for op in b.ops}
    made |= {f"{b.name}:{b.entry.name}" for b in forward.values() if b.entry is not None}
    for block in graph.blocks:
        if block.direction == "forward":
            continue
        here = {block.entry.name} if block.entry else set()
        for op in block.ops:
            assert op.backward and op.inputs, (block.name, op.name)
            for tensor_read in op.inputs:
                assert tensor_read in here | made | set(graph.inputs), (block.name, op.name, tensor_read)
                if ":" in tensor_read:
                    assert tensor_read.partition(":")[0] == block.gradient_of
            assert op.name in CHOICES or any(i in here for i in op.inputs) or not block.entry, op.name
            here.add(op.output)


@pytest.mark.parametrize("name", MODELS)
def test_backward_blocks_mirror_the_forward_ones(name):
    graph = training(name)
    forward = [b for b in graph.blocks if b.direction == "forward"]
    back = [b for b in graph.blocks if b.direction == "backward"]
    assert [b.gradient_of for b in back] == [b.name for b in reversed(forward)]
    for one, other in zip(reversed(forward), back, strict=True):
        assert (one.count, one.repeats, one.role) == (other.count, other.repeats, other.role)
        assert sum(op.weight_elements() for op in other.ops if op.kind != "experts") == 0.0
        order = [op.name.rpartition("_")[0] for op in other.ops]
        assert list(dict.fromkeys(order)) == [op.name for op in reversed(one.ops)]
        # What flows back to the block before is as large as what came from it.
        if other.output is not None and other.entry is not None:
            assert other.output.elements() == one.entry.elements() == other.entry.elements()


@pytest.mark.parametrize("name", MODELS)
def test_training_takes_three_times_the_operations_of_products_and_three_and_a_half_of_attention(name):
    """Each product has two gradients of its own size; attention makes its scores again (2.5 times as
    much).
    """
    graph = training(name)
    flop = {(d, k): 0.0 for d in ("forward", "backward") for k in ("matmul", "experts", "attention")}
    for block, op in graph.ops():
        if op.kind in ("matmul", "experts", "attention"):
            flop[block.direction, op.kind] += block.count * op.flop()
    for kind, more in (("matmul", 2.0), ("experts", 2.0), ("attention", 2.5)):
        assert flop["backward", kind] == pytest.approx(more * flop["forward", kind], rel=1e-12), kind


@pytest.mark.parametrize("name", FAMILIES)
def test_a_training_step_stores_each_weight_once(name):
    graph = training(name)
    assert graph.parameters() == model(name).trace(st.prefill(4.0, 256.0)).parameters()


def test_gradients_of_several_readers_meet_where_the_tensor_was_made():
    """Two products read one norm: its gradient waits for both; a residual brings the block's own along."""
    rows, wide, narrow = extent(64, "m"), extent(32), extent(16, "n")
    norm = elementwise("norm", "h", "a", m=rows, n=wide, adds=True)
    one = product("one", "a", "p", m=rows, n=narrow, k=wide)
    two = product("two", "a", "q", m=rows, n=narrow, k=wide)
    join = elementwise("join", ("p", "q"), "s", m=rows, n=narrow)
    back_to = product("down", "s", "y", m=rows, n=wide, k=narrow)
    stream = tensor("h", rows, wide)
    graph = with_backward(
        one_block(norm, one, two, join, back_to, entry=stream, output=stream, leaves=("y",), inputs=())
    )
    back = {op.name: op for op in check_graph(graph).blocks[1].ops}
    assert list(back) == [
        "down_dgrad", "down_wgrad", "join_backward", "two_dgrad", "two_wgrad", "one_dgrad", "one_wgrad",
        "norm_backward",
    ]  # fmt: skip
    assert back["down_dgrad"].inputs == ("d_h",) and back["down_wgrad"].inputs == ("body:s", "d_h")
    assert back["join_backward"].inputs == ("d_s@down", "body:p", "body:q")
    assert back["one_dgrad"].inputs == back["two_dgrad"].inputs == ("d_p@join",)
    assert back["norm_backward"].inputs == ("d_a@two", "d_a@one", "body:h")
    shapes = {n: (op.m.size, op.n[0].size, op.k.size) for n, op in back.items() if op.kind == "matmul"}
    assert shapes["down_dgrad"] == (64.0, 16.0, 32.0) and shapes["down_wgrad"] == (16.0, 32.0, 64.0)
    assert [op.weight_gradient for op in back.values()].count(True) == 3


def test_nodes_have_gradients_of_their_own_sizes():
    sizes = (64.0, 32.0)
    nodes = tuple(
        (weight, (product("p", "x", "y", m=extent(m, "m"), n=extent(16), k=extent(8)),))
        for weight, m in zip((1.0, 3.0), sizes, strict=True)
    )
    graph = one_block(*nodes[0][1], nodes=nodes)
    graph = with_backward(replace(graph, blocks=(replace(graph.blocks[0], repeats=5.0),)))
    forward, back = graph.blocks
    assert back.repeats == 5.0 and [w for w, _ in back.nodes] == [1.0, 3.0]
    assert [ops[0].m.size for _, ops in back.nodes] == list(sizes) and back.ops is back.nodes[0][1]
    assert graph.flop() == pytest.approx(3.0 * replace(graph, blocks=(forward,)).flop())
