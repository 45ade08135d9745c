"""Operations an element: the table of ONNX, language models, kernels and programs count the same."""

import pytest

from strata.params import data_folder, load_table
from strata.pricing.kernel_ops import STREAMS
from strata.workload.moe import NORM_FLOP, ROPE_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import OPERATIONS

ELEMENT, ROW = OPERATIONS["element"], OPERATIONS["row"]


def test_functions_are_the_sum_of_their_parts():
    """Hand counts: negation and sum of 1 / (1 + exp(-x)); Horner's nine of five terms of erf, and eight more."""
    assert ELEMENT["Sigmoid"] == (2.0, 2.0)
    assert ELEMENT["Swish"] == (ELEMENT["Sigmoid"][0] + ELEMENT["Mul"][0], 2.0)
    assert ELEMENT["Erf"] == (9.0 + 3.0 + 2.0 + 1.0 + 1.0 + 1.0, 2.0)
    assert ELEMENT["Gelu"] == (ELEMENT["Erf"][0] + 4.0, 2.0)
    assert ELEMENT["BiasGelu"][0] == ELEMENT["Gelu"][0] + 1.0
    assert ROW["LayerNormalization"][0] == ROW["MeanVarianceNormalization"][0] + 2.0
    assert ROW["SkipLayerNormalization"][0] == ROW["LayerNormalization"][0] + 1.0


def test_models_and_kernels_count_by_the_table():
    assert (NORM_FLOP, ROPE_FLOP, SILU_FLOP, SILU_SPECIAL) == (4.0, 3.0, 4.0, 2.0)
    assert STREAMS["softmax"][2:] == ROW["Softmax"] and STREAMS["gelu"][2:] == ELEMENT["Gelu"]
    assert STREAMS["rms_norm"][2:] == ROW["RMSNormalization"]


GATED = (ELEMENT["Swish"][0] + 1.0, ELEMENT["Swish"][1])
STATED = {
    ("gpt3-layer", "norm"): ROW["LayerNormalization"],
    ("gpt3-layer", "softmax"): ROW["Softmax"],
    ("gpt3-layer", "gelu"): ELEMENT["FastGelu"],
    ("llama-3-70b-layer", "norm"): ROW["RMSNormalization"],
    ("llama-3-70b-layer", "softmax"): ROW["Softmax"],
    ("llama-3-70b-layer", "silu"): GATED,
    ("llama-3-70b-layer", "rope"): ROW["RotaryEmbedding"],
    ("mixtral-moe-layer", "norm"): ROW["RMSNormalization"],
    ("mixtral-moe-layer", "softmax"): ROW["Softmax"],
    ("mixtral-moe-layer", "silu"): GATED,
    ("dit-xl-2-block", "softmax"): ROW["Softmax"],
    ("dit-xl-2-block", "gelu"): ELEMENT["FastGelu"],
    ("dit-xl-2-block", "silu"): ELEMENT["Swish"],
    ("mamba2-2.7b-layer", "norm"): ROW["RMSNormalization"],
    ("mamba2-2.7b-layer", "silu"): ELEMENT["Swish"],
    ("mamba2-2.7b-layer", "step"): (ELEMENT["Softplus"][0] + 2.0, ELEMENT["Softplus"][1]),
}


@pytest.mark.parametrize(("name", "function"), STATED, ids=str)
def test_programs_state_what_the_table_has(name, function):
    sizes = load_table("program", data_folder("programs") / f"{name}.toml")["sizes"]
    flop = sizes[f"{function}_flop"]["value"]
    special = sizes.get(f"{function}_special", {"value": 0.0})["value"]
    assert (flop, special) == STATED[name, function]
