"""Published tables as runs of a study: cells with sources, predictions of rows, errors in one line."""

from pathlib import Path

import numpy as np
import pytest

import strata as st
from dfmodel.published_table import predict_row, published_rows, run_published
from strata import studies
from strata.base.errors import StrataError
from strata.params import read_toml
from strata.search.inputs import make_workload
from strata.workload.program import program

TABLE = """
[[row]]
name = "small"
group = "llama"
measured = { value = 900.0, source = "nobody" }
tp = 1

[[row]]
name = "large"
group = "llama"
measured = { source = "a bar without a number" }
tp = 8

[[row]]
name = "other"
group = "none"
measured = 3
"""
PREDICT = {
    "column": "ours",
    "rows": {"group": "llama"},
    "system": "8xa100-80",
    "model": "llama-2-7b",
    "phase": "train",
    "batch": 8,
    "input": 512,
    "plan": "tp={tp},dp=1",
    "set": ["chip.memory.capacity=1 TB"],
}
DFMODEL = Path(studies.studies_folder()) / "dfmodel-validation"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.toml").write_text(TABLE, encoding="utf-8")
    (tmp_path / "rows.csv").write_text("# from nowhere\na,b\n1,x\n,y\n", encoding="utf-8")
    return tmp_path


def test_cells_are_numbers_words_or_nothing(folder):
    told = run_published({"name": "t", "published": "rows.toml"}, "t", folder)
    assert told["measured"][[0, 2]].tolist() == [900.0, 3.0] and np.isnan(told["measured"][1])
    assert told["name"].tolist() == ["small", "large", "other"] and np.isnan(told["tp"][2])
    lines = run_published({"name": "t", "published": "rows.csv"}, "t", folder)
    assert lines["a"][0] == 1.0 and np.isnan(lines["a"][1]) and lines["b"].tolist() == ["x", "y"]


def test_a_prediction_is_that_of_evaluate_with_the_rows_values(folder):
    kept = run_published({"name": "t", "published": "rows.toml", "predict": [PREDICT]}, "t", folder)
    chip = st.system("8xa100-80", **{"memory.capacity": "1 TB"})
    whole = st.evaluate(chip, "llama-2-7b", st.train(8, 512), "tp=8,dp=1")
    assert kept["ours"][1] == pytest.approx(float(whole.metrics.step_time), rel=1e-12)
    assert kept["ours_fits"].tolist() == [bool(kept["ours_fits"][0]), True, False] and np.isnan(
        kept["ours"][2]
    )


def test_a_run_that_does_not_fit_is_no_number(folder):
    tight = PREDICT | {"set": ["chip.memory.capacity=1 GB"]}
    told = run_published({"name": "t", "published": "rows.toml", "predict": [tight]}, "t", folder)
    assert not told["ours_fits"].any() and np.isnan(told["ours"]).all()


def test_a_table_of_sizes_is_the_model_of_that_config():
    sizes = {"model_type": "gpt2", "n_layer": 128, "n_embd": 25600, "n_head": 160, "n_inner": 102400}
    sizes |= {"n_positions": 2048, "vocab_size": "{vocab}", "tie_word_embeddings": True}
    base = {"system": "512xa100-80", "phase": "train", "batch": 512, "input": 2048}
    base |= {"plan": "tp=8,pp=64,recompute=full,microbatches=512", "column": "made"}
    told = predict_row(base | {"model": sizes}, {"vocab": "51200"}, "t")
    named = predict_row(base | {"model": "gpt3-1t"}, {}, "t")
    assert float(told.metrics.step_time) == pytest.approx(float(named.metrics.step_time), rel=1e-12)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"published": "nowhere.csv"}, "no such table"),
        ({"published": "rows.toml", "keep": {"group": "gpt"}}, "no row is kept"),
        ({"published": "rows.toml", "kept": {}}, "kept"),
        ({"published": "rows.toml", "predict": [PREDICT | {"plan": "tp={degree}"}]}, "degree"),
        ({"published": "rows.toml", "predict": [PREDICT | {"metric": "speed"}]}, "speed"),
        ({"published": "rows.toml", "predict": [PREDICT | {"column": "tp"}]}, "the table has that column"),
        ({"published": "rows.toml", "predict": [{"column": "x", "model": "llama-2-7b"}]}, "system"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, entry, said):
    with pytest.raises(StrataError) as error:
        run_published({"name": "t", **entry}, "t", folder)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_dfmodel_reference_rows_have_a_source_and_say_whether_it_was_read():
    table = read_toml(DFMODEL / "fig6.toml")["row"]
    assert len(table) == 29 and all(len(row["measured"]["source"]) > 20 for row in table)
    assert all(row["read"] in (0, 1) and row["cited"] in (0, 1) for row in table)
    # nothing is read that is not there
    assert all("value" in row["measured"] for row in table if row["read"])


def test_dfmodel_reference_megatron_tokens_follow_from_the_printed_rate():
    rows = [r for r in published_rows(DFMODEL / "fig6.toml") if r["group"] == "megatron"]
    for r in rows:
        ends = 1 + r["seq"] / (6 * r["hidden"]) + 51200 / (16 * r["layers"] * r["hidden"])
        flop = 96 * r["batch"] * r["seq"] * r["layers"] * r["hidden"] ** 2 * ends
        seconds = flop / (r["printed"] * 1e12 * r["gpus"])
        assert r["measured"] == pytest.approx(r["batch"] * r["seq"] / seconds, rel=1e-5)


def test_dfmodel_reference_calculon_differences_are_those_of_its_runs():
    told = run_published({"name": "t", "published": "fig8.csv"}, "t", DFMODEL)
    assert len(told["line"]) == 20 and (told["tp"] * told["pp"] * told["dp"] == 4096).all()
    wanted = (6.1, 15.5, 4.0, 13.2, 6.0, 4.2, 28.7, 5.4, 6.2, 4.1)
    for setting, percent in zip("ABCDEFGHJK", wanted, strict=True):
        off = 100 * np.mean(np.abs(told["dfmodel"] / told[f"calculon_{setting}"] - 1))
        assert off == pytest.approx(percent, abs=0.05)


def test_a_program_beside_the_study_in_the_unit_of_its_row(folder):
    """Grids a second times the operations of one, as of cuFFTMp's rows; a file is read from the folder."""
    (folder / "grid.json").write_text('{"kind": "fft", "points": 512}', encoding="utf-8")
    told = {"column": "ours", "system": "8xa100-80", "model": "grid.json", "plan": "p=8"}
    told |= {"scale": "{measured}"}
    told |= {"rows": {"name": "small"}, "metric": "items_per_s", "phase": "forward"}
    kept = run_published({"name": "t", "published": "rows.toml", "predict": [told]}, "t", folder)
    work = make_workload("forward", 1.0, 1.0, 0.0)
    alone = st.evaluate("8xa100-80", program(folder / "grid.json"), work, "p=8")
    assert kept["ours"][0] == pytest.approx(900.0 * float(alone.metrics.items_per_s), rel=1e-12)
    with pytest.raises(StrataError, match="scale is a number or a column of numbers, but got 'small'"):
        scaled = [told | {"scale": "{name}"}]
        run_published({"name": "t", "published": "rows.toml", "predict": scaled}, "t", folder)


@pytest.mark.parametrize("model, rows, parameters", [("a", 800 * 10658602, 20 * 6750**2), ("f", 4 * 100 * 468750000, 7 * 980**2), ("i", 4 * 60 * 60144927, 6 * 3650**2)])  # fmt: skip
def test_dfmodel_reference_sizes_of_recommenders(model, rows, parameters):
    """Weights of networks as DFModel logged them, tables as its setups have them; both passes are there."""
    graph = program(DFMODEL / f"dlrm-{model}.toml").trace(make_workload("forward", 512.0, 1.0, 0.0))
    ops = [op for _, op in graph.ops()]
    weights = {op.name: float(op.weight_elements()) for op in ops if not op.backward}
    assert sum(v for k, v in weights.items() if k != "lookup") == parameters
    width = {"a": 93, "f": 64, "i": 23}[model]
    assert weights["lookup"] == pytest.approx(rows * width)
    layers = sum(name.startswith("MLP") for name in weights)
    assert sum(op.name.startswith("MLP") for op in ops) == 3 * layers
