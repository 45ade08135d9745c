"""Kernels of other programs: DeepBench on a V100, wide products, LSTMs and transforms on an H200."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from strata.base.errors import BadFile
from strata.validation.accuracy.run import validate
from strata.validation.measured.reader import reader_of
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
CATALOGUE = Catalogue()


def points_of(name, folder=DATA):
    return reader_of(name, CATALOGUE)(read_table(folder, name), CATALOGUE)


def mean_error(points, prefix=""):
    rows = np.array([str(group).startswith(prefix) for group in points.group])
    return float(np.mean(np.abs(points.predicted[rows] / points.measured[rows] - 1.0)))


def test_products_of_a_v100():
    found = points_of("v100/deepbench_gemm.csv")
    assert set(found.group[found.headline]) == {"fp32", "fp16_fp32acc"} and not found.why
    assert mean_error(held_out(found), "fp32") < 0.15 and mean_error(held_out(found), "fp16") < 0.17


@pytest.mark.parametrize(("way", "bound"), [("forward", 0.19), ("backward", 0.13)])
def test_recurrent_layers_of_a_v100(way, bound):
    found = points_of("v100/deepbench_rnn.csv")
    assert {f"{way}/{cell}/fp32" for cell in ("vanilla", "lstm", "gru")} < set(found.group)
    assert mean_error(held_out(found), way) < bound


@pytest.mark.parametrize(
    "kernel", ["gemm", "bmm", "embedding_bag", "lstm_forward", "lstm_train", "fft1d", "fft3d", "lu", "cumsum"]
)
def test_kernels_of_other_programs(kernel):
    found = points_of("h200/other.csv")
    assert mean_error(found, kernel + "/") < 0.15 and mean_error(held_out(found), kernel + "/") < 0.15


@pytest.mark.parametrize(
    ("group", "bound"),
    [
        ("lu/fp32", 0.03),
        ("lu/fp64", 0.03),
        ("cumsum/fp32", 0.08),
        ("fft1d/fp32", 0.06),
        ("fft1d/fp64", 0.06),
        ("fft3d/fp32", 0.09),
        ("fft3d/fp64", 0.08),
        ("embedding_bag/fp32", 0.07),
        ("embedding_bag/bf16", 0.06),
    ],
)
def test_all_rows_of_kernels_of_other_programs(group, bound):
    assert mean_error(points_of("h200/other.csv"), group) < bound


def test_kernels_nobody_prices_are_named_and_do_not_count(tmp_path):
    every = points_of("h200/other.csv")
    assert every.later == () and not every.why
    (tmp_path / "h200").mkdir()
    text = "kernel,precision,a,b,c,d,median_s\nqr,fp64,512,,,,1e-3\nlu,fp64,512,,,,1e-3\n"
    (tmp_path / "h200/other.csv").write_text(text, encoding="utf-8")
    found = points_of("h200/other.csv", tmp_path)
    assert found.later == ("qr/fp64 (1 rows)",) and list(found.group) == ["lu/fp64"]


def test_a_folder_of_its_own_is_read_alike(tmp_path):
    """Other rows, kept apart: the same names of files and columns are enough."""
    (tmp_path / "h200").mkdir()
    lines = (DATA / "h200/other.csv").read_text(encoding="utf-8").splitlines()
    kept = [lines[0], *(line for line in lines if line.startswith(("lu,", "gemm,tf32,512")))]
    (tmp_path / "h200/other.csv").write_text("\n".join(kept) + "\n", encoding="utf-8")
    (tmp_path / "v100").mkdir()
    shutil.copy(DATA / "v100/deepbench_rnn.csv", tmp_path / "v100/deepbench_rnn.csv")
    outcome = validate(tmp_path)
    assert [f["file"] for f in outcome["files"]] == ["h200/other.csv", "v100/deepbench_rnn.csv"]
    assert set(outcome["files"][0]["groups"]) == {"gemm/tf32", "lu/fp32", "lu/fp64"}
    assert outcome["not_yet"] == []


def test_a_cell_nobody_knows_is_a_row_that_failed(tmp_path):
    (tmp_path / "v100").mkdir()
    text = "type,hidden,batch,time_steps,precision,forward_s,backward_s\n"
    (tmp_path / "v100/deepbench_rnn.csv").write_text(
        text + "qrnn,512,16,25,fp32,1e-3,1e-3\n", encoding="utf-8"
    )
    found = points_of("v100/deepbench_rnn.csv", tmp_path)
    assert "no op of recurrent called 'qrnn'" in found.why[2]
    (tmp_path / "v100/deepbench_rnn.csv").write_text(
        "type,hidden,precision\nlstm,512,fp32\n", encoding="utf-8"
    )
    with pytest.raises(BadFile, match="no column 'batch'"):
        points_of("v100/deepbench_rnn.csv", tmp_path)


def test_products_at_a_locked_clock():
    """All rows, with vectors and with products inside the L2; DRAM bytes of the latter, which are not written."""
    found = points_of("a100/gemm_ncu.csv")
    assert mean_error(found, "time") < 0.055
    assert mean_error(found, "dram within") < 0.10 and mean_error(found, "dram above") < 0.16
