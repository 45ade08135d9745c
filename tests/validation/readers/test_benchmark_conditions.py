"""Conditions of published runs: files beside the data, each number with its source."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from strata.errors import BadFile
from strata.params import data_folder
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.registry import data_files, reader_of
from strata.validation.readers.served_rows import ServedConditions, StatedOption
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
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
    (tmp_path / "serving/silicon.toml").write_text(text.replace("rounds = ", "round = "))
    shutil.copy(DATA / "serving/silicon.csv", tmp_path / "serving")
    with pytest.raises(BadFile, match=r"unknown key 'round'; nearest: rounds"):
        read_conditions(ServedConditions, read_table(tmp_path, "serving/silicon.csv"), "serving/silicon.toml")


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("serving/")])
def test_every_option_of_served_runs_has_a_source(name):
    stated = tomllib.loads((CONDITIONS / name).read_text(encoding="utf-8"))["option"]
    assert stated and all(len(one["source"]) >= 8 for one in stated)


def test_options_hold_for_the_rows_they_name():
    known = ServedConditions(
        title="",
        option=(
            StatedOption(flag="--input {input}", source="all rows"),
            StatedOption(flag="--tokens 10", source="some", rows="vllm b200|b300", least="clients 16"),
            StatedOption(flag="--set engine.recv_interval=10", source="some"),
            StatedOption(flag="--set engine.recv_interval=30", source="some", least="clients 16"),
            StatedOption(flag="--load closed:clients={clients}", source="some", rows="kept"),
            StatedOption(flag="--find-rate", source="some", rows="kept"),
        ),
    )
    many = known.options({"vllm", "b300"}, {"input": 8, "clients": 16})
    assert many == {"input": "8", "tokens": "10", "set": ("engine.recv_interval=30",)}
    few = known.options({"vllm", "b300"}, {"input": 8, "clients": 4})
    assert few == {"input": "8", "set": ("engine.recv_interval=10",)}
    whole = known.options({"kept"}, {"input": 8, "clients": 4})
    assert whole == {"load": "closed:clients=4", "find_rate": True, "set": ("engine.recv_interval=10",)}
