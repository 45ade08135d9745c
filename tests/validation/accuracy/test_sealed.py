"""Seals: written once, changed by nobody, scored when results are public."""

import json
import shutil
from pathlib import Path

import pytest

from strata.base.errors import BadFile, BadValue
from strata.validation.accuracy.sealed import chain, scored_seals, write_seal

SEALED = Path(__file__).parents[3] / "validation" / "sealed"
# Hashes of all seals, in order: a line is added with a seal, and none is ever changed.
HASHES = {"announced-2026": "5efcd8a26d14a94ef673f34c75401566d9a07492665f35581b2ea1d10b1918d1"}

QUESTIONS = """
title = "One product"
[[entry]]
name = "square"
question = "gemm"
metric = "time"
why = "a test"
source = "nobody"
[entry.ask]
chip = "vr200"
m = 4096
n = 4096
k = 4096
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("first", "second"):
        (tmp_path / f"{name}.toml").write_text(QUESTIONS)
        write_seal(tmp_path, name)
    (tmp_path / "results.csv").write_text("seal,entry,measured,source,date\n")
    return tmp_path


def test_the_projects_seals_are_as_they_were_sealed():
    assert {seal["seal"]: seal["sha256"] for seal in chain(SEALED)} == HASHES
    told = scored_seals(SEALED)
    assert told["predictions"] >= 20 and told["open"] == told["predictions"] - len(told["entries"])


def test_a_seal_is_written_once_and_holds_the_one_before(folder):
    first, second = chain(folder)
    assert second["previous"] == first["sha256"] and first["previous"] == ""
    with pytest.raises(BadValue, match=r"first\.json is sealed and stays as it is"):
        write_seal(folder, "first")


def test_a_seal_that_was_changed_or_taken_out_is_noticed(folder):
    path = folder / "first.json"
    content = json.loads(path.read_text())
    content["entries"][0]["predicted"] *= 1.01
    path.write_text(json.dumps(content))
    with pytest.raises(BadFile, match=r"first\.json was changed after it was sealed"):
        chain(folder)
    path.unlink()
    with pytest.raises(BadFile, match="the seal before second is missing"):
        chain(folder)


def test_a_result_scores_its_prediction(folder, answer):
    predicted = chain(folder)[0]["entries"][0]["predicted"]
    (folder / "results.csv").write_text(
        f"seal,entry,measured,source,date\nfirst,square,{2e6 * predicted} us,a page,2999-01-01\n"
    )
    (folder.parent / "data").mkdir()
    shutil.copytree(folder, folder.parent / "data" / "sealed")
    told = answer("validate", "--data", folder.parent / "data", "--sealed", "--json")
    assert told["entries"][0]["error"] == pytest.approx(-0.5) and told["open"] == 1
    (folder / "results.csv").write_text(
        "seal,entry,measured,source,date\nfirst,square,1 us,a page,2001-01-01\n"
    )
    with pytest.raises(BadValue, match="was public when first was sealed"):
        scored_seals(folder)
