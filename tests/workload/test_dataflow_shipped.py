"""Shipped dataflow programs against published counts: parameters, operations, graphs of DFModel."""

import itertools
import json
from pathlib import Path

import pytest

import strata as st
from strata.workload.program import program

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "dfmodel" / "gpt_graphs.json").read_text())
GPT3 = {"hidden": 12288, "seq": 2048, "nh": 96, "hd": 128, "mlp": 49152}


def counts(name, batch=1.0, **changes):
    graph = program(name, **changes).trace(st.forward(batch))
    return float(graph.parameters()), float(graph.flop())


def sized(text):
    return eval(text, {"__builtins__": {}}, GPT3)


@pytest.mark.parametrize(("name", "kernels", "edges"), [
    ("dfmodel-gpt-forward", 18, 21), ("dfmodel-gpt-training", 41, 53),
])  # fmt: skip
def test_dfmodel_reference_graphs_of_gpt(name, kernels, edges):
    made = program(name)
    ops = {op.name: op for _, op in made.trace(st.forward(1.0)).ops()}
    assert list(ops) == [kernel for kernel, *_ in REFERENCE["kernels"][:kernels]]
    for kernel, kind, m, k, n, weight in REFERENCE["kernels"][:kernels]:
        op, size = ops[kernel], sized(m) * sized(n)
        assert (op.flop() if kind == "GEMM" else op.vector_flop()) == (
            2 * size * sized(k) if kind == "GEMM" else size
        )
        read = op.read_weight()
        assert op.weight_elements() + (read.elements() if read else 0.0) == sized(weight), kernel
    found = {(source, op.name) for op in ops.values() for source in op.inputs if source in ops}
    assert found == {(source, target) for source, target, _ in REFERENCE["edges"][:edges]}
    assert len(REFERENCE["edges"][:edges]) == sum(
        source in ops for op in ops.values() for source in op.inputs
    )
    for source, _, elements in REFERENCE["edges"][:edges]:
        assert ops[source].output_bytes() == 2 * sized(elements)


def test_dfmodel_reference_recommender():
    """793 billion parameters in tables (800 of 10,658,602 rows of 93) and 911,250,000 in 20 layers of 6750."""
    made = program("dfmodel-dlrm")
    graph = made.trace(st.forward(512.0))
    products = [op for _, op in graph.ops() if op.kind == "matmul"]
    assert len(products) == 60
    assert sum(op.weight_elements() for op in products) == 911_250_000
    assert graph.parameters() == pytest.approx(793e9 + 0.911e9, rel=1e-4)
    assert sum(op.flop() for op in products) == 60 * 2 * 6750**2 * 512


def test_gpt_layers_against_the_counts_of_their_papers():
    """Narayanan et al. (2021), sec. 5.1: 24 B s h^2 + 4 B s^2 h forward; parameters l (12 h^2 + 13 h)."""
    for name, h, layers, published in (
        ("gpt3-layer", 12288, 96, 175e9),
        ("gpt3-1t-layer", 25600, 128, 1008e9),
    ):
        parameters, flop = counts(name, 4.0)
        assert flop == 4 * (24 * 2048 * h**2 + 4 * 2048**2 * h)
        assert parameters == 12 * h**2 + 13 * h
        vocabulary = 51200 * h + 2048 * h
        assert parameters * layers + vocabulary == pytest.approx(published, rel=0.005)
        trained = program(name).trace(st.train(4.0, 1.0))
        assert trained.flop() == 3 * flop


def test_a_llama_layer_is_that_of_the_language_model():
    model = st.model("llama-3-70b")
    parameters, flop = counts("llama-3-70b-layer", sequence=1024)
    whole = model.trace(st.prefill(1.0, 1024.0))
    layers = [b for b in whole.blocks if b.role in ("attention", "ffn")]
    assert parameters == sum(op.weight_elements() for b in layers for op in b.ops)
    products = sum(op.flop() for b in layers for op in b.ops if op.kind == "matmul")
    attention = sum(op.flop() for b in layers for op in b.ops if op.kind == "attention")
    # the language model counts the pairs a causal mask leaves, half of them and the diagonal
    assert flop == pytest.approx(products + attention * 2 * 1024 / 1025, rel=1e-12)


def test_experts_of_mixtral_as_the_language_model_counts_them():
    model = st.model("mixtral-8x7b")
    whole = model.trace(st.prefill(1.0, 4096.0))
    (block,) = (b for b in whole.blocks if any(op.kind == "experts" for op in b.ops))
    parameters, flop = counts("mixtral-moe-layer")
    assert parameters == sum(op.weight_elements() for op in block.ops)
    assert flop == pytest.approx(sum(op.flop() for op in block.ops), rel=1e-12)


def test_mamba2_parameters_and_products():
    """Dao and Gu (2024), sec. 6: a layer of 2.7B has in and out projections, 5376 filters of 4 with biases,
    80 heads with A, D and a bias of dt, a gated norm; 64 of them and a tied vocabulary of 50,288 make 2.7e9.
    """
    parameters, flop = counts("mamba2-2.7b-layer")
    d, inner, state, heads, head, chunk, n = 2560, 5120, 128, 80, 64, 256, 2048
    assert parameters == d * (2 * inner + 2 * state + heads) + 5 * (inner + 2 * state) + 3 * heads + inner + (
        inner * d + d
    )
    assert 64 * parameters + 50_288 * d + d == pytest.approx(2.7e9, rel=0.002)
    projections = 2 * n * d * (2 * inner + 2 * state + heads) + 2 * n * inner * d
    chunks = 2 * n * chunk * state + 2 * n * chunk * heads * head + 2 * 2 * n * heads * head * state
    assert flop == projections + chunks


def test_dit_block_against_its_paper():
    """Peebles and Xie (2022): 28 blocks of DiT-XL/2 have most of 675M parameters, and 118.6 Gflops (119 in the
    README.md of its code), which count a multiply-add as one.
    """
    parameters, flop = counts("dit-xl-2-block")
    h = 1152
    assert parameters == 18 * h**2 + 15 * h
    assert 28 * parameters == pytest.approx(675e6, rel=0.01)
    assert 28 * flop / 2 == pytest.approx(118.6e9, rel=0.002)


def test_dcnv2_against_its_configuration():
    parameters, flop = counts("dlrm-dcnv2")
    bottom, top = (13, 512, 256, 128), (3456, 1024, 1024, 512, 256, 1)
    dense = sum((a + 1) * b for net in (bottom, top) for a, b in itertools.pairwise(net))
    cross = 3 * (2 * 3456 * 512 + 3456)
    tables = 128 * 204_184_588
    assert parameters == pytest.approx(dense + cross + tables, rel=1e-12)
    biases = sum(bottom[1:]) + sum(top[1:]) + 3 * 3456
    assert flop == 2 * (dense + cross - biases)
    (lookup,) = (op for _, op in program("dlrm-dcnv2").trace(st.forward(1.0)).ops() if op.kind == "gather")
    assert lookup.elements() * lookup.reads == pytest.approx(214 * 128)
