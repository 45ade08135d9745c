"""From a rank's ops to a fusion problem: prices of the pricers, tensors of the graph, collectives as network."""

import math
from functools import partial

import pytest
from cases import rank_graph
from gpt_layer import gpt_layer
from programs import elementwise, extent, one_block, product

import strata as st
from strata.base.errors import BadValue
from strata.mapping.place import Placement, place
from strata.optimise.fuse import fuse_kernels, kernel_by_kernel
from strata.optimise.fusion.fusion_graph import fusion_problem, kernel_shape
from strata.pricing.fused_block import tensor_sizes
from strata.pricing.fusion import STREAM_AXES, is_streamed
from strata.pricing.kernels.device import device
from strata.pricing.pricers import Rank, on_chip, price_op
from strata.workload.graph import is_collective
from strata.workload.graph_walks import extents_of
from strata.workload.program import program

SYSTEM = st.system("8xh200")
ALONE = Rank(device=device(SYSTEM.chip), placement=Placement({}), fabric=SYSTEM.fabric)
T, H, F, S = extent(512, "tokens"), extent(256), extent(1024), extent(512, "kv_tokens")


def shape(op, graph=None):
    """What an array of multipliers sees of an op, along the stream of a graph or of language models."""
    axes = (graph.stream,) if graph else STREAM_AXES
    columns = math.prod(e.size for e in extents_of(op) if is_streamed(e.axis, axes))
    return kernel_shape(op, columns, 2.0)


def rank_of(plan):
    made = st.plan(plan)
    return Rank(
        device=ALONE.device, placement=place(made, SYSTEM.fabric, made.active()), fabric=SYSTEM.fabric
    )


def mlp():
    up = product("up", "x", "a", m=T, n=F, k=H)
    act = elementwise("act", "a", "b", m=T, n=F)
    return one_block(up, act, product("down", "b", "y", m=T, n=H, k=F)).blocks[0]


def test_kernels_and_tensors_are_those_of_the_block():
    block = mlp()
    problem = fusion_problem(block, ALONE, shape, sizes={"x": 512 * 256 * 2.0})
    assert [k.name for k in problem.kernels] == ["up", "act", "down"]
    ends = [(t.source, t.target, t.bytes) for t in problem.tensors]
    wide, narrow = 512 * 1024 * 2.0, 512 * 256 * 2.0
    assert ends == [("", "up", narrow), ("up", "act", wide), ("act", "down", wide), ("down", "", narrow)]
    for op, kernel in zip(block.ops, problem.kernels, strict=True):
        price = price_op(
            op, Rank(device=on_chip(ALONE.device), placement=ALONE.placement, fabric=ALONE.fabric)
        )
        assert kernel.time == pytest.approx(price.time - price.overhead, rel=1e-12)
        assert kernel.weight_bytes == op.weight_bytes() and kernel.flop == (op.flop() or 512 * 1024)
        assert kernel.time <= price_op(op, ALONE).time
    assert problem.tiles[-1] == 512  # as many as there are tokens
    assert not any(t.whole for t in problem.tensors)


def test_an_operand_without_the_streamed_axis_is_needed_whole():
    """Scores of queries against keys: the keys' tokens are another axis than the queries'."""
    q = product("q", "x", "qs", m=T, n=H, k=H)
    k = product("k", "x", "ks", m=T, n=H, k=H)
    score = product("score", ("qs", "ks"), "s", m=T, n=S, k=H, stored=False)
    problem = fusion_problem(one_block(q, k, score).blocks[0], ALONE, shape, sizes={"x": 1.0})
    assert {t.source: t.whole for t in problem.tensors if t.target == "score"} == {"q": False, "k": True}


@pytest.mark.parametrize(
    ("name", "backward"), [("dfmodel-gpt-forward", False), ("dfmodel-gpt-training", True)]
)
def test_dfmodel_reference_graph_of_a_gpt_layer(name, backward):
    """The shipped program gives the kernels that the paper's generator writes; keys and values are whole."""
    graph = program(name).trace(st.forward(1.0))
    sizes = {"loss": 2048 * 12288 * 2.0}
    problem = fusion_problem(
        graph.blocks[0], ALONE, partial(shape, graph=graph), stream_axes=(graph.stream,), sizes=sizes
    )
    expected, ops = gpt_layer(1, backward=backward), {op.name: op for op in graph.blocks[0].ops}
    assert {k.name for k in problem.kernels} == {k.name for k in expected.kernels}
    for kernel in expected.kernels:
        made = problem.kernels[problem.index[kernel.name]]
        assert made.rows * made.columns == kernel.rows * kernel.columns
        # a product that sums over the streamed axis has its sides in the program's order
        summed = any(is_streamed(axis, (graph.stream,)) for axis in ops[kernel.name].contracted_axes())
        sides = () if summed or kernel.name == "MHA_GEMM_2_bwd2" else ("rows", "columns")
        for part in (*sides, "depth", "flop", "weight_bytes", "backward"):
            assert getattr(made, part) == getattr(kernel, part), (kernel.name, part)
    inside = {(t.source, t.target): t.bytes for t in problem.tensors if t.source and t.target}
    assert inside == {(t.source, t.target): t.bytes for t in expected.tensors}
    held = {t.source for t in problem.tensors if t.whole}
    assert held == {"K", "V"}


def test_what_comes_from_outside_must_have_a_size():
    with pytest.raises(BadValue, match=r"up reads x from outside.*give it in sizes"):
        fusion_problem(mlp(), ALONE, shape)


@pytest.mark.parametrize("work", [st.prefill(1.0, 2048.0), st.decode(16.0, 2048.0), st.train(8.0, 2048.0)])
def test_layers_of_a_model_are_fused_on_a_rank(work):
    """Network time is that of the collectives; fused is never slower than kernel by kernel."""
    graph, rank = rank_graph("llama-3-8b", work, "tp=8"), rank_of("tp=8")
    for block in graph.blocks:
        problem = fusion_problem(block, rank, shape, sizes={"ids": 0.0, **tensor_sizes(graph)})
        expected = sum(float(price_op(op, rank).time) for op in block.ops if is_collective(op))
        assert sum(sum(k.network) for k in problem.kernels) == pytest.approx(expected, rel=1e-12)
        assert len(problem.kernels) == sum(not is_collective(op) for op in block.ops)
        found = fuse_kernels(problem)
        assert found.optimal and found.time <= kernel_by_kernel(problem).time * (1 + 1e-12)


def test_rows_of_a_table_are_read_and_the_table_only_held():
    graph, rank = rank_graph("llama-3-8b", st.decode(16.0, 2048.0), "tp=8"), rank_of("tp=8")
    block = next(b for b in graph.blocks if b.role == "embedding")
    problem = fusion_problem(block, rank, shape, sizes={"ids": 0.0})
    table = sum(float(op.weight_bytes()) for op in block.ops)
    assert problem.kernels[0].weight_bytes == 0.0
    assert problem.kernels[0].extra_bytes < 1e-3 * table
