"""Recurrent language models and single products: parameters, operations and bytes by hand, laws, boxes."""

import json
from pathlib import Path

import numpy as np
import pytest
from cases import roomy, uncapped

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.workload.graph_walks import check_graph

REFERENCE = json.loads((Path(__file__).parents[1] / "data/deepflow/kernel_parallel.json").read_text())
B, V, D, P, S = 64.0, 40000.0, 4096.0, 2048.0, 10.0
TRAIN = st.train(B, 1.0)


def matmuls(graph):
    return {op.name: op for _, op in graph.ops() if op.kind == "matmul"}


@pytest.mark.parametrize("row", REFERENCE["language_models"], ids=lambda r: r["label"])
def test_deepflow_reference_lstm_parameters(row):
    """V D of the table, 2 D x 4 D and 4 D of each layer, D P of the projection, and V D + V of a softmax that
    reads the hidden state although the projection stands beside it.
    """
    sizes = {k: row[k] for k in ("vocab", "layers", "hidden", "projection", "steps")}
    made = st.program("lstm-lm-v100", **sizes)
    assert made.softmax_reads == "hidden"
    assert made.trace(st.forward(row["batch"])).parameters() == row["params"]
    # with a softmax of what the projection made, it saves (D - P) V parameters
    own = st.program("lstm-lm-v100", **sizes, softmax_reads="projection").trace(st.forward(1.0)).parameters()
    assert row["params"] - own == (row["hidden"] - row["projection"]) * row["vocab"]


def test_operations_and_bytes_by_hand():
    made = st.program("lstm-lm-v100")
    graph = check_graph(made.trace(st.forward(B)))
    products = (2 * D) * (4 * D) + D * P + D * V
    assert graph.flop() == 2 * B * S * products
    assert check_graph(made.trace(TRAIN)).flop() == 3 * graph.flop()
    ops = matmuls(graph)
    assert ops["gates"].weight_bytes() == 2 * (8 * D * D + 4 * D)
    cell = next(op for _, op in graph.ops() if op.name == "cell")
    # four sums and the state are read, the state and h are written; h alone is handed on
    assert (cell.reads, cell.writes, cell.output_bytes()) == (5.0, 2.0, 2 * B * D)
    back = next(op for _, op in made.trace(TRAIN).ops() if op.name == "cell_backward")
    assert (back.reads, back.writes, back.output_bytes()) == (7.0, 5.0, 2 * B * 4 * D)
    assert graph.items == B and graph.item == "sequence"


def test_training_keeps_every_time_step():
    few, many = (
        st.evaluate(roomy("1xh200"), st.program("lstm-lm-v100", steps=s), TRAIN).summary.memory
        for s in (10.0, 40.0)
    )
    assert many["activations"] == pytest.approx(4 * few["activations"], rel=1e-12)
    assert many["parameters"] == few["parameters"]
    # what gradients read: looked-up rows, gates, h (the softmax reads this, not the projection); logits with
    # their rows' sums lie apart, and shares are their own gradient
    assert few["activations"] == pytest.approx(10 * B * (D + 4 * D + D) * 2, rel=1e-12)
    assert few["logits"] == pytest.approx(10 * (B * V * 2 + 2 * B * 4), rel=1e-12)


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3), ("vanilla", 1)])
def test_cells_of_benchmarks_alone(cell, gates):
    made = st.program("lstm-lm-v100", cell=cell, vocab=0, projection=0, input_projection=False)
    graph = check_graph(made.trace(st.train(16.0, 1.0)))
    assert [b.name for b in graph.blocks] == ["cell", "cell.backward"]
    assert graph.parameters() == D * gates * D + gates * D
    assert graph.flop() == 3 * 2 * 16 * D * gates * D * S
    assert st.evaluate("1xh200", made, st.forward(16.0)).fits


def test_time_grows_with_steps_and_layers():
    def time(**sizes):
        made = st.program("lstm-lm-v100", **sizes)
        return st.evaluate(uncapped(roomy("1xh200")), made, st.forward(B)).metrics.step_time

    assert time(steps=20) == pytest.approx(2 * time(steps=10), rel=1e-9)
    one, two, three = (time(layers=n) for n in (1, 2, 3))
    assert three - two == pytest.approx(two - one, rel=1e-9) and two > one


@pytest.mark.parametrize("work", [st.forward(256.0), st.train(256.0, 1.0)], ids=["forward", "train"])
def test_sizes_of_a_model_are_axes(work):
    """Hidden, layers and batch in one box, each point as by itself, and the same under JAX."""
    hidden, layers = np.array([4096.0, 8192.0, 16384.0])[:, None], np.array([1.0, 2.0, 4.0])
    made = st.program("lstm-lm-512", hidden=hidden, layers=layers, vocab=100000)
    box = st.evaluate(roomy("64xh200"), made, work, "RC-4-2-d8")
    assert box.shape == (3, 3)
    for i, j in ((0, 0), (1, 2), (2, 1)):
        one = st.program("lstm-lm-512", hidden=float(hidden[i, 0]), layers=float(layers[j]), vocab=100000)
        alone = st.evaluate(roomy("64xh200"), one, work, "RC-4-2-d8")
        assert box.metrics.step_time[i, j] == pytest.approx(alone.metrics.step_time, rel=1e-12)
    compiled = st.evaluate(roomy("64xh200"), made, work, "RC-4-2-d8", backend="jax")
    np.testing.assert_allclose(compiled.metrics.step_time, box.metrics.step_time, rtol=1e-9)


def test_a_product_alone():
    made = st.program("gemm-8192", m=4096, k=2048, n=1024)
    assert made.trace(st.forward(2.0)).flop() == 2 * 2 * 4096 * 2048 * 1024
    assert made.trace(st.train(1.0, 1.0)).flop() == 3 * 2 * 4096 * 2048 * 1024
    assert made.trace(st.forward(2.0)).parameters() == 2048 * 1024
    ours = st.evaluate("1xh200", made, st.forward(1.0)).metrics.step_time
    assert ours > 2 * 4096 * 2048 * 1024 / 989e12  # the matrix peak of an H200
    assert ours < 2 * (2 * 4096 * 2048 * 1024 / 989e12) + 1e-5


def test_words_are_checked():
    with pytest.raises(UnknownName, match="lstn"):
        st.program("lstm-lm-v100", cell="lstn")
    with pytest.raises(BadValue, match="softmax_reads"):
        st.program("lstm-lm-v100", softmax_reads="nothing")
