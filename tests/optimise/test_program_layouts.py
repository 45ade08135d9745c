"""Layouts between chips of shipped dataflow programs: what papers divide by hand comes out by itself."""

from dataclasses import replace

import strata as st
from strata.optimise.layout import best_layout, layout_setting
from strata.workload.program import program


def collectives_of(choice):
    return [(op.pattern, op.output) for _, op in choice.collectives]


def test_dfmodel_reference_four_all_reduces_of_a_layer_with_its_backward_pass():
    """DFModel (2024), logs at 62db2278: heads and feed-forward divided, sums after PROJ_GEMM, FFN1, FFN0_bwd
    and one of the products that end the layer (V_bwd there; here the three of them are one sum).
    """
    made = program("dfmodel-gpt-training")
    choice = best_layout(layout_setting("8xh200", made, st.forward(1.0), {"tp": 8}), rules="dfmodel-2024")
    assert choice.gap == 0.0
    assert collectives_of(choice) == [("all_reduce", op) for op in ("PROJ_GEMM", "FFN1", "FFN0_bwd", "K_bwd")]
    divided = {module: axes for module, axes in choice.layout.modules if axes}
    assert divided["Q"] == divided["SOFTMAX_bwd"] == (("heads", ("tp",)),)
    assert divided["GeLU"] == divided["FFN1_bwd"] == (("mlp", ("tp",)),)
    assert "LayerNorm_1" not in divided and "Add_2" not in divided


def test_sequences_of_a_batch_are_divided_without_a_word_between_devices():
    choice = best_layout(layout_setting("8xh200", program("gpt3-layer"), st.forward(8.0), {"ranks": 8}))
    assert collectives_of(choice) == [] and choice.gap == 0.0


def test_one_sequence_is_divided_as_ulysses_does():
    whole = program("gpt3-layer")
    made = replace(whole, layouts=tuple(pair for pair in whole.layouts if pair[0] == "tp"))
    choice = best_layout(layout_setting("8xh200", made, st.forward(1.0), {"ranks": 8}))
    assert collectives_of(choice) == [("all_to_all", op) for op in ("q", "k", "v", "attended")]
