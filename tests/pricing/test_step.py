"""Steps of programs that are no transformers, against sums by hand: repeats with the same weights, sizes that
change by iteration, blocks in any order.
"""

from dataclasses import replace

import numpy as np
import pytest
from cases import roomy, same, uncapped
from hypothesis import given, settings
from hypothesis import strategies as hy
from programs import GraphProgram, elementwise, extent, one_block, product, tensor

import strata as st
from strata.mapping.place import Placement
from strata.pricing.kernels.device import device
from strata.pricing.pricers import Rank, price_op
from strata.workload.backward import with_backward
from strata.workload.graph import Block, BlockSequence, Graph

SYSTEM = uncapped(roomy("1xh200"))
ALONE = Rank(device=device(SYSTEM.chip), placement=Placement({}), fabric=SYSTEM.fabric)


def alone(graph, **more):
    return st.evaluate(SYSTEM, GraphProgram(graph), st.forward(1.0), **more)


def by_hand(*parts):
    """Time and energy of ops, each so many times."""
    prices = [(times, price_op(op, ALONE)) for times, ops in parts for op in ops]
    return tuple(sum(times * getattr(p, name) for times, p in prices) for name in ("time", "energy"))


def recurrence(batch=64, width=2048, layers=4.0, steps=35.0):
    """An LSTM: each layer has weights of its own and runs once for every time step with the same ones."""
    rows, both, gates = extent(batch, "rows"), extent(2 * width), extent(4 * width, "gates")
    cell = (
        product("gates", "h", "g", m=rows, n=gates, k=both, bias=True),
        elementwise("cell", "g", "out", m=rows, n=gates, flop_per_element=6.0, special_per_element=1.25),
    )
    block = Block(
        name="layer", ops=cell, count=layers, repeats=steps, role="layer", entry=tensor("h", rows, both),
        output=tensor("h", rows, both), leaves=("out",),
    )  # fmt: skip
    return Graph(
        blocks=(block,),
        sequence=BlockSequence(period=(("layer",),), layers=layers),
        items=batch * steps,
        item="token",
        formats=(("bf16", "bf16"),),
    )


def shrinking(size=8192, panel=512):
    """HPL: every iteration factors a panel and updates what is left of the matrix, which shrinks."""
    nodes = []
    for left in range(size - panel, 0, -panel):
        rest, deep = extent(left, "rows"), extent(panel)
        nodes.append(
            (
                1.0,
                (
                    elementwise("factor", "a", "u", m=rest, n=deep, flop_per_element=panel * 1.0),
                    product(
                        "update", ("u", "a"), "b", m=rest, n=extent(left, "columns"), k=deep, stored=False
                    ),
                ),
            )
        )
    return one_block(*nodes[0][1], nodes=tuple(nodes), inputs=("a",))


@given(hy.integers(1, 512), hy.integers(1, 8), hy.integers(1, 100))
@settings(max_examples=20)
def test_a_recurrence_runs_its_steps_and_holds_its_weights_once(batch, layers, steps):
    graph = recurrence(batch, 1024, layers * 1.0, steps * 1.0)
    r = alone(graph)
    ops = graph.blocks[0].ops
    time, energy = by_hand((layers * steps * 1.0, ops))
    assert r.metrics.step_time == pytest.approx(time, rel=1e-12)
    assert r.steps[0].price.energy == pytest.approx(energy, rel=1e-12)
    assert graph.flop() == layers * steps * ops[0].flop() == r.steps[0].flop
    weights = layers * (2048 * 4096 + 4096)
    assert graph.parameters() == weights
    assert r.summary.memory["weights"] == 2.0 * weights
    assert r.metrics.items_per_s == pytest.approx(batch * steps / time, rel=1e-12)


def test_more_time_steps_take_longer_and_no_more_memory():
    few, many = (alone(recurrence(steps=n)) for n in (10.0, 20.0))
    assert many.metrics.step_time == pytest.approx(2.0 * few.metrics.step_time, rel=1e-12)
    assert many.summary.memory == few.summary.memory


def test_kinds_of_a_recurrence_add_up_to_its_step():
    (step,) = alone(recurrence()).steps
    assert sum(step.time_by_kind.values()) == pytest.approx(step.time, rel=1e-12)
    assert set(step.time_by_kind) == {"matmul", "vector"}


def test_a_matrix_that_shrinks_is_the_sum_of_its_iterations():
    graph = shrinking()
    r = alone(graph)
    nodes = graph.blocks[0].nodes
    time, energy = by_hand(*nodes)
    assert r.metrics.step_time == pytest.approx(time, rel=1e-12)
    assert r.steps[0].price.energy == pytest.approx(energy, rel=1e-12)
    assert graph.flop() == sum(2.0 * left**2 * 512 for left in range(7680, 0, -512)) == r.steps[0].flop
    assert r.summary.memory["weights"] == 0.0 and graph.parameters() == 0.0
    # 2/3 n^3 operations of an LU factorisation, as its updates add up to
    assert graph.flop() == pytest.approx(2.0 / 3.0 * 8192.0**3, rel=0.1)


@given(hy.lists(hy.tuples(hy.integers(1, 9), hy.integers(1, 2048)), min_size=1, max_size=6))
@settings(max_examples=20)
def test_a_node_counts_as_often_as_its_weight_says(nodes):
    """Nodes with weights are the same iterations one by one."""

    def ops(size):
        return (product("p", "x", "y", m=extent(size), n=extent(512), k=extent(256)),)

    grouped = tuple((weight * 1.0, ops(size)) for weight, size in nodes)
    single = tuple((1.0, o) for weight, o in grouped for _ in range(int(weight)))
    one, other = (alone(one_block(*found[0][1], nodes=found)) for found in (grouped, single))
    assert one.metrics.step_time == pytest.approx(other.metrics.step_time, rel=1e-12)
    assert one.steps[0].flop == pytest.approx(other.steps[0].flop, rel=1e-12)
    assert one.metrics.step_time == pytest.approx(by_hand(*grouped)[0], rel=1e-12)


def test_a_divided_matrix_that_shrinks_is_priced_node_by_node():
    """A 2-D process grid: updates are divided over both dimensions."""
    graph = shrinking(size=65536, panel=2048)
    eight = replace(uncapped(roomy("8xh200")))
    whole = alone(graph).metrics.step_time
    grid = st.layout({"p": 4, "q": 2}, {"rows": "p", "columns": "q"})
    r = st.evaluate(eight, GraphProgram(graph), st.forward(1.0), grid)
    assert whole / 8 < r.metrics.step_time < whole
    (block,) = r.steps[0].blocks
    assert len(block.raw) == len(graph.blocks[0].nodes) and block.block.nodes
    local = [ops[1] for _, ops in block.block.nodes]
    assert [(op.m.size, op.n[0].size) for op in local] == [
        (left / 4, left / 2) for left in range(65536 - 2048, 0, -2048)
    ]


def test_blocks_run_as_often_as_they_stand_in_the_program():
    first = (product("in", "x", "h", m=extent(64), n=extent(512), k=extent(128)),)
    layer = (product("p", "h", "h2", m=extent(64), n=extent(512), k=extent(512)),)
    last = (elementwise("end", "h", "y", m=extent(64), n=extent(512)),)
    stream = tensor("h", extent(64), extent(512))
    blocks = (
        Block(name="a", ops=first, output=stream, leaves=("h",)),
        Block(name="b", ops=layer, count=7.0, entry=stream, output=stream, leaves=("h2",)),
        Block(name="c", ops=last, entry=stream),
    )
    order = BlockSequence(first=("a",), period=(("b",),), layers=7.0, last=("c",))
    graph = Graph(blocks=blocks, sequence=order, inputs=("x",), formats=(("bf16", "bf16"),))
    r = alone(graph)
    assert r.metrics.step_time == pytest.approx(
        by_hand((1.0, first), (7.0, layer), (1.0, last))[0], rel=1e-12
    )
    names = [(e.name, e.layer) for e in r.timeline.events]
    assert names == [("in", -1), *(("p", i) for i in range(7)), ("end", 7)]
    assert r.timeline.time == pytest.approx(r.metrics.step_time, rel=1e-12)


def test_training_of_a_recurrence_runs_its_gradients_as_often():
    graph = with_backward(recurrence())
    r = alone(graph)
    times = [(4.0 * 35.0, b.ops) for b in graph.blocks]
    forward_and_back = by_hand(*times)[0]
    # the optimiser comes on top
    assert forward_and_back < r.metrics.step_time < 1.2 * forward_and_back
    (step,) = r.steps
    assert step.flop == 3.0 * recurrence().flop()
    kernels = sum(b.block.times * b.price.time for b in step.blocks)
    assert kernels == pytest.approx(forward_and_back, rel=1e-12)


def test_sizes_of_a_program_may_be_arrays():
    many = np.array([[8.0], [64.0]]), np.array([16.0, 35.0, 70.0])
    box = alone(recurrence(batch=many[0], steps=many[1]))
    assert box.metrics.step_time.shape == box.shape == (2, 3)
    for i, batch in enumerate(many[0][:, 0]):
        for j, steps in enumerate(many[1]):
            one = alone(recurrence(batch=batch, steps=steps))
            for name in ("step_time", "items_per_s", "energy_per_item", "memory_used", "mfu"):
                assert same(getattr(box.metrics, name)[i, j], getattr(one.metrics, name), 1e-12), name


def test_a_program_that_is_no_language_model_has_no_metrics_of_tokens():
    r = alone(shrinking())
    assert not hasattr(r.metrics, "tpot") and r.metrics.items_per_s > 0
    assert r.notes == [] and r.fits and r.bound_by in ("compute", "memory", "cache", "overhead")
