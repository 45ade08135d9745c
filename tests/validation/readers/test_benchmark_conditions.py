"""Conditions of published runs: files beside the data, each number with its source."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from strata.errors import BadFile
from strata.params import data_folder
from strata.validation.readers.benchmark_conditions import (
    ThroughputConditions,
    parallel_degree,
    read_conditions,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.online_conditions import OnlineConditions, online_runs_of
from strata.validation.readers.registry import data_files, reader_of
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
TABLE = read_table(DATA, "serving/silicon.csv")
KNOWN = read_conditions(OnlineConditions, TABLE, "serving/silicon.toml")
CONDITIONS = data_folder("conditions")
FILES = sorted(p.relative_to(CONDITIONS).as_posix() for p in CONDITIONS.rglob("*.toml"))


def numbers(tree, path=""):
    """Every number of a file with its place, and its source where it has one."""
    if isinstance(tree, dict) and "value" in tree:
        yield path, tree.get("source", "")
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from numbers(value, f"{path}.{key}")
    elif isinstance(tree, list):
        for value in tree:
            yield from numbers(value, path)
    elif not isinstance(tree, str):
        yield path, ""


@pytest.mark.parametrize("name", FILES)
def test_every_number_has_a_source(name):
    found = dict(numbers(tomllib.loads((CONDITIONS / name).read_text(encoding="utf-8"))))
    assert {path: source for path, source in found.items() if len(source) < 20} == {}


def test_conditions_are_no_data():
    assert FILES and not set(FILES) & set(data_files(DATA))


@pytest.mark.parametrize(
    "name", ["serving/silicon.csv", "serving/trtllm_max_throughput.csv", "training/h100_nanotron_oom.csv"]
)
def test_a_folder_of_data_alone_takes_the_shipped_conditions(tmp_path, name):
    (tmp_path / name).parent.mkdir()
    shutil.copy(DATA / name, tmp_path / name)
    catalogue = Catalogue()
    tables = [read_table(folder, name) for folder in (tmp_path, DATA)]
    few = [table.keep(np.arange(len(table)) % 40 == 0) for table in tables]
    found, usual = (reader_of(name, catalogue)(table, catalogue).predicted for table in few)
    assert np.array_equal(found, usual, equal_nan=True)


def test_a_wrong_key_is_one_line(tmp_path):
    (tmp_path / "serving").mkdir()
    text = (CONDITIONS / "serving/silicon.toml").read_text(encoding="utf-8")
    (tmp_path / "serving/silicon.toml").write_text(text.replace("mean_share", "mean_shares"))
    shutil.copy(DATA / "serving/silicon.csv", tmp_path / "serving")
    with pytest.raises(BadFile, match=r"unknown key 'drawn.mean_shares'; nearest: mean_share"):
        read_conditions(OnlineConditions, read_table(tmp_path, "serving/silicon.csv"), "serving/silicon.toml")


def test_requests_of_a_throughput_run_follow_its_lengths():
    table = read_table(DATA, "serving/trtllm_max_throughput.csv")
    known = read_conditions(ThroughputConditions, table, "serving/trtllm_max_throughput.toml")
    lengths = np.array([256.0, 2048.0, 9216.0, 40000.0])
    assert known.requests(lengths).tolist() == [3000.0, 3000.0, 1500.0, 1000.0]


def test_what_a_file_does_not_say_of_its_runs_is_known_by_version_and_lengths():
    table = TABLE

    def of(backend, chip, keep, predicts=True):
        rows = table.keep((table.text("backend") == backend) & (table.text("system") == chip) & keep)
        assert len(rows)
        return rows, online_runs_of(rows, chip, backend, predicts, KNOWN)

    guessing = table.text("backend_version") == "1.2.0rc6.post3"
    rows, found = of("trtllm", "b200_sxm", guessing)
    assert np.array_equal(found.guesses, np.where(parallel_degree(rows, "attention_dp_size") > 1, 1.0, 3.0))
    assert (
        not of("trtllm", "b200_sxm", ~guessing)[1].guesses.any()
        and not of("trtllm", "b200_sxm", guessing, False)[1].guesses.any()
    )
    rows, found = of("sglang", "b200_sxm", table.text("mode") == "agg")
    assert set(zip(rows.number("conc") >= 16, found.polled, strict=True)) == {(True, 30.0), (False, 10.0)}
    assert set(found.first[rows.text("backend_version") != ""]) == {0.0}
    assert set(of("sglang", "h200_sxm", table.text("mode") == "agg")[1].polled) == {1.0}
    _, kept = of("vllm", "h200_sxm", table.text("backend_version") == "0.12.0")
    assert np.all(kept.fresh < 1) and np.all(kept.input >= 1000)
    _, drawn = of("vllm", "b200_sxm", np.ones(len(table), bool))
    assert np.all(drawn.fresh == 1) and set(drawn.input) == {0.9 * 1024, 0.9 * 8192}
