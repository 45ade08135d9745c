"""DFModel's systems as runs of a study: what they tell, and what is said of runs that are wrong."""

import json

import numpy as np
import pytest

from strata import studies
from strata.app.render.study import draw_study
from strata.base.errors import StrataError

TEXT = """
title = "Two chips"
paper = "nobody"

[[run]]
name = "fft"
dfmodel_systems = "FFT"
work = "dfmodel-fft"
chips = ["dfmodel-h100", "dfmodel-wse-2"]
partitions = [0, 1]
memories = ["dfmodel-ddr4", "dfmodel-hbm3"]
links = ["dfmodel-pcie4", "dfmodel-nvlink4"]
published = "published.json"

[run.topologies]
torus = { kinds = ["ring", "ring"], sizes = [32, 32] }
dragonfly = { kinds = ["full", "full"], sizes = [32, 32] }

[[run]]
name = "slow"
dfmodel_systems = "FFT"
like = "fft"
slowed = { chip = "dfmodel-h100", topology = "dragonfly", share = 0.5 }

[[run]]
name = "llm"
dfmodel_systems = "LLM"
like = "fft"
work = "dfmodel-gpt-training"
model = { hidden = 25600, heads = 160, head = 160 }
outer = "dfmodel-pcie4"
batch = 4096.0
free = 1024

[[claim]]
id = "logged"
says = "as logged"
ours = "max(abs(fft.utilisation / fft.logged_utilisation - 1))"
holds = "ours < 1e-7"

[[claim]]
id = "links"
says = "NVLink helps"
ours = "geomean(fft.utilisation[..., 1]) / geomean(fft.utilisation[..., 0])"
holds = "ours > 1"

[[claim]]
id = "slow"
says = "half a chip reaches less of what a whole one has"
ours = "slow.reached[0, 1] / fft.reached[0, 1]"
holds = "all(ours > 0) & all(slow.utilisation[1] == fft.utilisation[1]) & all(llm.tp * llm.pp * llm.dp == 1024)"

[[picture]]
file = "cells.svg"
cells = ["fft.utilisation", "llm.utilisation"]
words = ["", "llm.plans"]
panels = ["FFT", "free"]
rows = ["fft.chip", "fft.topology"]
columns = ["fft.memory_kind", "fft.link_kind"]

[[picture]]
file = "stacks.svg"
stacks = ["fft.compute", "fft.memory", "fft.network"]
each = ["compute", "memory", "network"]
rows = ["fft.chip", "fft.topology"]
columns = ["fft.memory_kind", "fft.link_kind"]
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "two"
    made.mkdir()
    logged = json.loads((studies.studies_folder() / "dfmodel-systems" / "published.json").read_text())
    kept = np.array(logged["FFT"]["utilisation"])[[0, 3]][:, [0, 2]]
    kept[0, 1] = [[0.0441, 0.155], [0.05, 0.369]]  # not with half a chip
    (made / "published.json").write_text(json.dumps({"FFT": {"utilisation": kept.tolist()}, "LLM": {}}))
    (made / "study.toml").write_text(TEXT, encoding="utf-8")
    return made


def test_a_study_of_systems(folder, tmp_path):
    text = TEXT.replace('holds = "ours < 1e-7"', 'holds = "ours < 0.01"')
    (folder / "study.toml").write_text(text, encoding="utf-8")
    first = studies.run_study(folder)
    assert all(claim["holds"] for claim in first.claims), first.claims
    run = first.runs["fft"]
    assert run["utilisation"].shape == run["cost"].shape == (2, 2, 2, 2) and run["axes"][0] == "chip"
    assert run["cost_efficiency"] == pytest.approx(run["reached"] / run["cost"])
    studies.store_result(first)
    assert studies.run_study(folder, quick=True).claims == first.claims
    drawn = draw_study(first, tmp_path)
    said = drawn[0].read_text(encoding="utf-8")
    assert "h100" in said and "dragonfly" in said and first.runs["llm"]["plans"].ravel()[0] in said
    assert "network" in drawn[1].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('links = ["dfmodel', 'linkz = ["dfmodel', "linkz"),
        ('dfmodel_systems = "FFT"\nwork', 'dfmodel_systems = "FTF"\nwork', "FFT"),
        ('like = "fft"\nslowed', 'like = "tff"\nslowed', "fft"),
        ('published = "published.json"', 'published = "none.json"', "none.json"),
        ('outer = "dfmodel-pcie4"\n', "", "outer"),
        ("partitions = [0, 1]\n", "", "partitions"),
    ],
)
def test_wrong_runs_are_named(folder, old, new, said):
    assert old in TEXT
    (folder / "study.toml").write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(StrataError, match=said):
        studies.run_study(folder)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('rows = ["fft.chip", "fft.topology"]', 'rows = ["fft.chip"]', "two axes"),
        ('cells = ["fft.utilisation"', 'cells = ["fft.utilisation[0]"', "8 cells"),
        ('words = ["", "llm.plans"]', 'words = [""]', "words"),
        ('each = ["compute", "memory", "network"]', 'each = ["compute"]', "each"),
    ],
)
def test_wrong_pictures_are_named(folder, tmp_path, old, new, said):
    (folder / "study.toml").write_text(TEXT.replace(old, new), encoding="utf-8")
    outcome = studies.run_study(folder)
    with pytest.raises(StrataError, match=said):
        draw_study(outcome, tmp_path)
