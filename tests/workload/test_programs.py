"""Programs that are no transformers, by name: their operations, weights and collectives against formulas."""

import numpy as np
import pytest
from cases import collectives, roomy, uncapped

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.mapping.plan import division
from strata.mapping.shard import shard
from strata.params import names
from strata.workload.graph_walks import check_graph
from strata.workload.program import PROGRAMS, program

NAMES = names("programs")


def sent(made, work, plan):
    graph, layout = made.trace(work), division(made, plan)
    part = shard(graph, layout.sharding(graph, work, layout.active()))
    return [(op.pattern, op.group, op.payload) for op in collectives(op for _, op in part.ops())]


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_program_is_priced_alone_and_divided(name):
    made = program(name)
    graph = check_graph(made.trace(st.forward(4096.0)))
    assert graph.flop() > 0 and graph.item != "token"
    key = next(iter(division(made, None).mesh))
    alone, divided = (
        st.evaluate(uncapped(roomy(system)), made, st.forward(4096.0), plan)
        for system, plan in (("1xh200", None), ("2xh200", f"{key}=2"))
    )
    assert alone.fits and divided.fits
    own = [sum(t for k, t in r.summary.time_by_kind.items() if k != "collective") for r in (alone, divided)]
    assert 0.4 * own[0] < own[1] < 0.7 * own[0]  # half of the work; links may well be slower than memory
    assert alone.steps[0].flop == divided.steps[0].flop == graph.flop()
    assert alone.summary.time_by_kind["collective"] == 0.0


def test_a_transform_in_pencils_turns_twice_and_in_slabs_once():
    made, work = program("fft-1024"), st.forward(2.0)
    points = 2.0 * 1024**3
    assert made.trace(work).flop() == pytest.approx(5.0 * points * 3 * np.log2(1024), rel=1e-12)
    share = 2.0 * 4.0 * points / 8  # complex, fp32
    assert sent(made, work, "p=2,q=4") == [("all_to_all", "p", share), ("all_to_all", "q", share)]
    assert sent(made, work, "p=8") == [("all_to_all", "p", share)]


def test_a_recommender_exchanges_embeddings_once_and_back_in_training():
    made = program("dlrm-mlperf")
    width, tables = float(made.width), float(made.tables)
    whole = 4.0 * 4096 * width * tables
    forward = sent(made, st.forward(4096.0), "all=2")
    assert [c[:2] for c in forward] == [("all_to_all", "all")]
    assert forward[0][2] == pytest.approx(whole / 2, rel=1e-12)
    training = sent(made, st.train(4096.0, 1.0), "all=2")
    assert [c[0] for c in training].count("all_to_all") == 2
    # the networks are data parallel: each of their weights' gradients is summed once
    products = [op for _, op in made.trace(st.train(4096.0, 1.0)).ops() if op.weight_gradient]
    assert [c[0] for c in training].count("all_reduce") == len(products) > 0


def test_layers_by_rows_and_columns_or_by_depth():
    """DeepFlow's RC gathers what a layer made along its columns, m / KP1 x n; its CR sums m x n over all
    ranks.
    """
    made, rows = program("mlp-8192"), 4096.0
    width = float(made.width)
    assert sent(made, st.forward(rows), "kp1=4") == []
    assert sent(made, st.forward(rows), "kp1=4,kp2=2") == [("all_gather", "kp2", 2.0 * rows / 4 * width)]
    assert [c[1:] for c in sent(made, st.forward(rows), "depth=8")] == [("depth", 2.0 * rows * width)]
    graph = made.trace(st.forward(rows))
    assert graph.parameters() == made.layers * width**2
    assert graph.flop() == 2.0 * rows * graph.parameters()


def test_words_of_programs():
    assert {"dlrm", "fft", "mlp"} <= set(PROGRAMS)
    with pytest.raises(UnknownName, match="no field of fft-1024 called 'size'"):
        program("fft-1024", size=3)
    with pytest.raises(BadValue, match="is divided like p=2,q=4"):
        division(program("fft-1024"), "tp=2")


def test_a_long_line_turns_once_and_in_order_three_times():
    made, work = program("fft-1d-2e30"), st.forward(2.0)
    points = 2.0 * 2**30
    assert made.trace(work).flop() == pytest.approx(5.0 * points * 30, rel=1e-12)
    turn = ("all_to_all", "p", 2.0 * 4.0 * points / 8)  # complex, fp32
    assert sent(made, work, "p=8") == [turn]
    assert sent(program("fft-1d-2e30", ordered=True), work, "p=8") == [turn] * 3
    rows, columns = program("fft-1d-2e30", points=np.array([2.0**20, 2.0**27])).sides()
    assert rows.tolist() == [2.0**10, 2.0**13] and columns.tolist() == [2.0**10, 2.0**14]


def test_hpl_counts_its_operations_exactly_and_gathers_panels_along_both_sides_of_its_grid():
    made, work = program("hpl-65536"), st.forward(1.0)
    assert made.trace(work).flop() == pytest.approx(2 / 3 * 65536.0**3, rel=1e-12)
    graph, grid = made.trace(work), division(made, "p=2,q=4")
    part = shard(graph, grid.sharding(graph, work, grid.active()))
    total = {"q": 0.0, "p": 0.0}
    for weight, ops in part.blocks[0].nodes:
        there = collectives(iter(ops))
        assert [(op.pattern, op.group) for op in there] == [("all_gather", "q"), ("all_gather", "p")]
        for op in there:
            total[op.group] += weight * op.payload
    # what DFModel sends: (n - i B) B numbers over X and over Y; what is left of U is one block narrower
    sides = 65536.0 - 1024.0 * np.arange(64)
    assert total["q"] == pytest.approx((sides * 1024 * 8 / 2).sum(), rel=2e-4)
    assert total["p"] == pytest.approx(((sides - 1024) * 1024 * 8 / 4).sum(), rel=2e-4)


def test_eight_sizes_stand_for_all_iterations_of_hpl(monkeypatch):
    made = program("hpl-65536")
    few = st.evaluate("8xh200", made, st.forward(1.0), "p=2,q=4")
    monkeypatch.setattr("strata.workload.hpl.NODES", 64)  # as many as there are: each iteration itself
    whole = st.evaluate("8xh200", made, st.forward(1.0), "p=2,q=4")
    assert float(few.steps[0].time) == pytest.approx(float(whole.steps[0].time), rel=1e-3)
    assert float(few.timeline.time) == pytest.approx(float(few.steps[0].time), rel=1e-9)
    part = st.evaluate("8xh200", program("hpl-65536", iterations=8.0), st.forward(1.0), "p=2,q=4")
    assert 0.2 < float(part.steps[0].time / whole.steps[0].time) < 1 - (7 / 8) ** 3 + 0.02


def test_hpl_takes_arrays():
    orders = np.array([32768.0, 65536.0])
    every = st.evaluate("8xh200", program("hpl-65536", order=orders), st.forward(1.0), "p=2,q=4")
    alone = [
        st.evaluate("8xh200", program("hpl-65536", order=n), st.forward(1.0), "p=2,q=4")
        for n in orders.tolist()
    ]
    for kind in ("matmul", "collective"):
        each = [float(r.summary.time_by_kind[kind]) for r in alone]
        assert every.summary.time_by_kind[kind] == pytest.approx(each, rel=1e-9)
