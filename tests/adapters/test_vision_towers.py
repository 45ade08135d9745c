"""Vision towers lie in memory beside the decoder, and are not timed."""

import pytest

import strata as st
from strata.adapters.huggingface.config import reading
from strata.app.cli import run_command
from strata.base.errors import StrataError

GEMMA = 416_866_032.0  # SigLIP's parameters (arXiv 2503.19786, table 1: 417 M)


def memory(plan="tp=1", **changes):
    made = st.model("gemma-3-4b", **changes)
    return st.evaluate("4xh200", made, st.decode(batch=8, context=1024), plan)


def test_weights_of_a_tower_are_loaded_in_16_bits():
    assert float(memory("dp=4").summary.memory["vision tower"]) == 2 * GEMMA
    assert float(memory("tp=4").summary.memory["vision tower"]) == GEMMA / 2


def test_text_alone_needs_no_tower_and_takes_as_long():
    both, text = memory("dp=4"), memory("dp=4", vision_tower=False)
    assert "vision tower" not in text.summary.memory
    assert float(both.metrics.memory_used - text.metrics.memory_used) == pytest.approx(2 * GEMMA)
    assert float(both.metrics.step_time) == float(text.metrics.step_time)


def test_training_of_text_leaves_it_out():
    trained = st.evaluate("4xh200", st.model("gemma-3-4b"), st.train(4.0, 512.0), "dp=4,zero=3")
    assert "vision tower" not in trained.summary.memory


def test_a_prediction_says_so(capsys):
    asked = ["predict", "-m", "gemma-3-4b", "-s", "h200"]
    assert run_command(asked) == 0
    said = capsys.readouterr().out
    assert "vision tower 834 MB" in said and "images are not timed; " in said and "FLOP an image" in said
    assert run_command([*asked, "--set", "model.vision_tower=false"]) == 0
    assert "images are not timed" not in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [{"hidden_size": -1}, {"patch_size": 1.5}, {"depth": float("inf")}])
def test_wrong_towers_are_one_line(wrong):
    told = {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 2,
                        "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128},
        "vision_config": {"hidden_size": 32, "depth": 2, "patch_size": 14, **wrong},
    }  # fmt: skip
    with pytest.raises(StrataError) as error:
        reading(told, "odd")
    assert "\n" not in str(error.value)
