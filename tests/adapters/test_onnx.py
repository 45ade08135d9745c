"""ONNX models exported from PyTorch: their operations and weights by hand, their axes, their collectives."""

import json
from pathlib import Path

import numpy as np
import pytest
from cases import collectives

import strata as st
from strata.adapters.onnx.graph import onnx_program
from strata.adapters.onnx.ops import RULES
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.mapping.plan import division
from strata.mapping.shard import shard
from strata.workload.graph_walks import check_graph
from strata.workload.program import program

onnx = pytest.importorskip("onnx")
FOLDER = Path(__file__).parents[1] / "data" / "onnx"
FACTS = json.loads((FOLDER / "facts.json").read_text())
FIXED = {"lstm": 20.0}  # sequences that an exporter fixed
B, S, WIDTH, MLP, VOCAB = 8, 128, 64, 256, 1000
BOTH = [name + ending for name in FACTS for ending in ("", "-script")]


def read(name, **more):
    base = name.removesuffix("-script")
    sizes = {"sequence": FIXED[base]} if name in FIXED else {}
    return onnx_program(FOLDER / f"{name}.onnx", sizes=sizes, **more)


def traced(name, batch=float(B)):
    return check_graph(read(name).trace(st.forward(batch)))


def attention(rows, keys, width):
    """Scores and their product with values, over all heads."""
    return 2 * 2 * rows * keys * width


def convolutions(*layers):
    """Two operations for each output, input channel and place of the window."""
    return sum(2 * out * out * made * taken * window**2 for out, made, taken, window in layers)


def recurrent(gates, taken, width):
    return 2 * gates * width * (taken + width)


TOKENS = B * S
FLOP = {
    "gpt": 2 * TOKENS * (4 * WIDTH**2 + 2 * WIDTH * MLP) + attention(TOKENS, S, WIDTH),
    "llama": 2 * TOKENS * (3 * WIDTH**2 + 3 * WIDTH * MLP) + attention(TOKENS, S, WIDTH),
    "bert": 2 * TOKENS * (4 * WIDTH**2 + 2 * WIDTH * MLP + WIDTH * VOCAB) + attention(TOKENS, S, WIDTH),
    "resnet": B * (convolutions((32, 16, 3, 7), (8, 32, 16, 3), (8, 32, 32, 3), (8, 32, 16, 1)) + 2 * 32 * 10),
    "unet": B * (convolutions((16, 32, 4, 3), (8, 64, 32, 3), (8, 64, 64, 3), *[(8, 64, 64, 1)] * 4,
                              (16, 32, 64, 3), (16, 4, 64, 3)) + 2 * 32 * 64 + attention(64, 64, 64)),
    "vit": B * (convolutions((4, 64, 3, 8)) + 2 * (2 * 64 * 17 * 32 + 2 * 17 * WIDTH * MLP + WIDTH * 10)),
    "moe": 2 * B * (2 * 8 * WIDTH + 2 * 8 * WIDTH * MLP),
    "window": B * (2 * 256 * 4 * 32**2 + attention(256, 16, 32)),
    "step": 2 * B * 4 * WIDTH**2 + attention(B, S + 1, WIDTH),
    "mobile": B * (convolutions((32, 16, 3, 3), (32, 16, 1, 3), (32, 32, 16, 1)) + 2 * 2 * 32 * 8),
    "dlrm": 2 * B * (13 * 32 + 32 * 16 + 4 * 4 * 16 + 22 * 32 + 32),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_operations_are_those_of_the_formulas(name):
    base = name.removesuffix("-script")
    graph = traced(name)
    if base == "lstm":
        steps = B * FIXED.get(name, S)
        assert graph.flop() == steps * (recurrent(4, 32, 64) + recurrent(3, 64, 48) + 2 * 48 * 10)
    else:
        assert graph.flop() == FLOP[base]


# What a file holds beside PyTorch's parameters: norms folded into convolutions (weights and biases of them are
# one bias), statistics of a norm, unit scales of a group norm, a table stored twice because one exporter
# turns it round.
BESIDE = {"resnet": 112 - 2 * 112, "mobile": 2 * 32, "unet": 16, "bert-script": WIDTH * VOCAB}


@pytest.mark.parametrize("name", BOTH)
def test_parameters_are_those_of_pytorch(name):
    base = name.removesuffix("-script")
    beside = BESIDE.get(name, BESIDE.get(base, 0))
    assert traced(name).parameters() == FACTS[base]["parameters"] + beside


@pytest.mark.parametrize("name", BOTH)
def test_every_exported_model_is_priced_and_trained(name):
    made = read(name)
    result = st.evaluate("1xh200", made, st.forward(float(B)))
    assert result.fits and result.steps[0].flop == made.trace(st.forward(float(B))).flop()
    assert check_graph(made.trace(st.train(float(B), 1.0))).flop() > 2 * result.steps[0].flop


@pytest.mark.parametrize("name", BOTH)
def test_every_exported_model_is_written_as_a_program_file(name, tmp_path):
    made = read(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(made.to_toml())
    there, back = (p.trace(st.forward(float(B))) for p in (made, program(path)))
    assert there.flop() == back.flop() and there.parameters() == back.parameters()


def sent(made, work, plan):
    graph, layout = made.trace(work), division(made, plan)
    part = check_graph(shard(graph, layout.sharding(graph, work, layout.active())))
    found = [(op.pattern, op.group, op.payload) for op in collectives(op for _, op in part.ops())]
    return found, part.flop() / graph.flop()


@pytest.mark.parametrize("name", ["gpt", "gpt-script", "llama", "llama-script"])
def test_a_block_divided_by_heads_sums_twice_forward_and_twice_back(name):
    """Megatron-LM: one all-reduce of the hidden state after attention, one after the network."""
    hidden = 4.0 * TOKENS * WIDTH
    made = read(name)
    sums, share = sent(made, st.forward(float(B)), "tp=2")
    assert sums == [("all_reduce", "tp", hidden)] * 2 and share == 0.5
    both, _ = sent(made, st.train(float(B), 1.0), "tp=2")
    assert both == [("all_reduce", "tp", hidden)] * 4


@pytest.mark.parametrize("name", [n for n in BOTH if n != "lstm"])
def test_the_batch_divides_without_collectives(name):
    found, share = sent(read(name), st.forward(float(B)), "dp=2")
    assert found == [] and share == 0.5


def test_both_dimensions_divide_a_product_of_heads_at_once():
    found, share = sent(read("gpt"), st.forward(float(B)), "dp=4,tp=2")
    assert [c[0] for c in found] == ["all_reduce"] * 2 and share == 1 / 8


def test_exporters_agree():
    for base in FACTS:
        old, new = read(f"{base}-script"), read(base)
        counts = [sorted(k.kind for k in made.kernels if k.kind != "simd") for made in (old, new)]
        assert counts[0] == counts[1], base


def test_axes_have_names_of_their_part_in_products():
    made = read("gpt")
    assert {"heads": 4.0, "head": 16.0}.items() <= made.sizes.items()
    assert ("keys", "sequence") in made.derived
    scores = next(k for k in made.kernels if k.kind == "gemm" and "keys" in k.writes)
    assert scores.writes == ("batch", "heads", "sequence", "keys")
    softmax = next(k for k in made.kernels if dict(k.settings).get("whole") == "keys")
    assert softmax.writes == scores.writes
    renamed = read("gpt", names={"d256": "inner"})
    assert "inner" in renamed.sizes and ("*", "inner") in dict(renamed.layouts)["tp"]


def test_heads_of_keys_are_fewer_and_shared():
    made = read("llama")
    scores = next(k for k in made.kernels if k.kind == "gemm" and "keys" in k.writes)
    assert made.sizes["heads"] == 2.0  # those of keys; queries have two for each
    assert len(scores.writes) == 5


def test_open_dimensions_may_be_varied_also_as_arrays():
    made = onnx_program(FOLDER / "gpt.onnx", sizes={"sequence": 32})
    batch = np.array([1.0, 4.0, 16.0])
    whole = made.trace(st.forward(batch)).flop()
    one = [made.trace(st.forward(b)).flop() for b in batch]
    np.testing.assert_array_equal(whole, one)
    rows = batch * 32
    assert list(whole) == list(2 * rows * (4 * WIDTH**2 + 2 * WIDTH * MLP) + attention(rows, 32, WIDTH))
    by_sequence = onnx_program(FOLDER / "gpt.onnx", batch="sequence", sizes={"batch": 4})
    assert by_sequence.trace(st.forward(32.0)).flop() == one[1]


def test_a_file_is_a_program_with_changes():
    made = program(FOLDER / "gpt.onnx", sequence="64", precision="bf16")
    assert made.sizes["sequence"] == 64.0 and made.precision == "bf16" and made.name == "gpt"
    graph = made.trace(st.forward(2.0))
    assert sum(op.weight_bytes() for _, op in graph.ops()) == 2 * graph.parameters()
    with pytest.raises(UnknownName, match="no open dimension of gpt called 'sequense'"):
        program(FOLDER / "gpt.onnx", sequense=3)


def test_a_dimension_that_an_exporter_fixed_is_told():
    with pytest.raises(BadValue, match="an open dimension was fixed in the export"):
        onnx_program(FOLDER / "lstm.onnx")


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(BadFile, match="there is no file"):
        program(tmp_path / "none.onnx")
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"not a model")
    with pytest.raises(BadFile, match="is not an ONNX model"):
        program(bad)


def test_the_list_of_ops_covers_what_onnx_exporters_write():
    assert len(RULES) > 150
