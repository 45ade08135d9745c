"""Programs on the command line: shown with their kernels, drawn, and predicted without a plan."""

import json
from xml.etree import ElementTree

import pytest

from strata.params import data_folders

SHIPPED = sorted(path.stem for folder in data_folders("programs") for path in folder.glob("*.toml"))


def test_kernels_are_shown_with_their_work(answer):
    shown = answer("show", "program", "gpt3-layer", "--batch", "2", "--json")
    by_name = {row["name"]: row for row in shown["kernels"]}
    assert by_name["q"]["flop"] == 2 * 2 * 2048 * 12288**2
    assert by_name["q"]["output_bytes"] == 2 * 2 * 2048 * 12288
    assert by_name["scores"]["reads"] == ["q", "k"]
    text = answer("show", "program", "gpt3-layer", "--phase", "train")
    assert "q_wgrad" in text and "layer.backward" in text


def test_graphs_are_drawn(answer, strata, tmp_path):
    picture, text = tmp_path / "new" / "moe.svg", tmp_path / "moe.dot"
    answer("show", "program", "mixtral-moe-layer", "--svg", picture, "--dot", text)
    assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")
    assert text.read_text().startswith("digraph")
    answer("show", "model", "llama-3-8b", "--svg", picture)
    assert "attention" in picture.read_text()
    got = strata("show", "chip", "h200", "--svg", picture)
    assert got.code == 2 and "--svg and --dot draw a program or a model, but got 'chip'" in got.err


@pytest.mark.parametrize("name", [n for n in SHIPPED if n != "dfmodel-dlrm"])
def test_programs_are_predicted_without_a_plan(answer, name):
    got = answer(
        "predict", "--model", name, "--system", "8xh200", "--phase", "forward", "--batch", "8", "--json"
    )
    assert got["fits"]


def test_a_recommender_of_793_billion_parameters_needs_more_than_a_node(strata):
    got = strata("predict", "--model", "dfmodel-dlrm", "--system", "8xh200", "--phase", "forward")
    assert got.code == 2 and "dfmodel-dlrm does not fit on 8xh200" in got.err and "\n" not in got.err.strip()


def test_a_size_is_changed_and_a_wrong_one_named(answer, strata):
    words = ("predict", "--model", "gpt3-layer", "--system", "1xh200", "--phase", "forward")
    small = answer(*words, "--set", "model.sequence=1024", "--json")
    assert small["fits"]
    got = strata(*words, "--set", "model.sequenze=1024")
    assert got.code == 2 and "nearest: sequence" in got.err


def test_the_schema_of_programs(answer):
    schema = json.loads(answer("schema", "program"))
    assert schema["required"] == ["kind", "sizes", "inputs", "kernel"]
