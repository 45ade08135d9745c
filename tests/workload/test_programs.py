"""Programs that are no transformers, by name: their operations, weights and collectives against formulas."""

import numpy as np
import pytest
from cases import collectives, roomy, uncapped

import strata as st
from strata.errors import BadValue, UnknownName
from strata.mapping.plan import division
from strata.mapping.shard import shard
from strata.params import names
from strata.workload.graph import check_graph
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
