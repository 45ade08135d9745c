"""Serving as runs of a study: the closed form by name, drafts by `evaluate`, and mistakes in one line."""

import numpy as np
import pytest

import strata as st
from dfmodel.study_serving import run_drafts, run_served
from strata.base.errors import StrataError

LAYER = {"hidden": 4096, "inner": 14336, "heads": 32, "layers": 32, "read": 436207616}
SERVED = {
    "served_layers": {"8B": LAYER, "half": {**LAYER, "layers": 16}},
    "chips": {"peak": 638.976e12, "efficiency": 0.9, "memory": 1638.4e9, "link": 50e9, "latency": 150e-9},
}
DRAFTED = {"drafts": ["llama-3.2-1b"], "target": "llama-3-70b", "system": "8xh200", "window": [2, 4]}


def test_served_layers_are_by_model_and_place():
    run = run_served({**SERVED, "tp": [16, 8], "pp": [1, 2], "context": 4097}, "a run")
    assert run["latency"].shape == (2, 2) and run["place"].tolist() == ["TP16 PP1", "TP8 PP2"]
    assert run["throughput"][0, 0] == pytest.approx(1187.798, rel=1e-6)
    assert np.allclose(run["interval"][1], run["interval"][0] / 2)


def test_guesses_are_by_draft_window_and_acceptance():
    asked = {**SERVED, "tp": 16, "target": "8B", "window": [1, 2], "acceptance": [0.5, 1.0]}
    run = run_served(asked, "a run")
    assert run["tokens_per_s"].shape == (1, 2, 2) and run["draft"].tolist() == ["half"]
    step = 0.5 / run["plain"]  # half of the layers
    assert run["guess"][0].tolist() == pytest.approx([step, 2 * step])
    assert run["tokens_per_s"][0, 1, 1] == pytest.approx(3 / (2 * step + run["verify"][1]))
    tree = run_served({**asked, "tree": True}, "a run")
    assert tree["guess"][0, 1] == pytest.approx(4 * step) and tree["verify"][1] > run["verify"][1]


def test_drafts_are_those_of_the_library():
    run = run_drafts({**DRAFTED, "acceptance": [0.6, 0.8], "plan": "tp=8", "context": 1024}, "a run")
    asked = {"window": [2, 4], "acceptance": [0.6, 0.8], "plan": "tp=8", "context": 1024, "engine": "ideal"}
    found = st.serving.compare_drafts("llama-3-70b", "llama-3.2-1b", "8xh200", **asked)
    assert np.array_equal(run["tokens_per_s"][0], found.tokens_per_s("llama-3.2-1b"))
    slow = run_drafts({**DRAFTED, "acceptance": [0.6], "set": ["chip.memory.bandwidth=1 TB/s"]}, "a run")
    assert slow["plain"] < run["plain"]


@pytest.mark.parametrize(
    ("run", "entry", "said"),
    [
        (run_served, {**SERVED, "tp": [16], "pp": [1, 2]}, "go in pairs"),
        (run_served, {**SERVED, "tp": [16], "window": [1]}, "window"),
        (run_served, {**SERVED, "chips": {}, "tp": [16]}, "needs peak"),
        (run_served, {**SERVED, "tp": 16, "target": "70B"}, "target is one of"),
        (run_drafts, {**DRAFTED, "wndow": [1]}, "nearest: window"),
        (run_drafts, {"drafts": ["llama-3.2-1b"]}, "needs target and system"),
    ],
)
def test_mistakes_are_one_line(run, entry, said):
    with pytest.raises(StrataError) as error:
        run(entry, "a run")
    assert said in str(error.value) and "\n" not in str(error.value)
