"""Answers of the studies page: every committed study with its claims and pictures, and one run again."""

import pytest

from strata.app.web.answers import studies as page
from strata.app.web.worker import answered
from strata.studies import stored_result, study, study_names


def done(call, question):
    told = answered(call, question, print)
    assert "error" not in told, told
    return told["done"]


def test_every_study_is_listed():
    rows = done("studies.listed_studies", {})["studies"]
    assert [row["study"] for row in rows] == study_names()
    assert all(0 <= row["hold"] <= row["claims"] for row in rows)


@pytest.mark.parametrize("name", study_names())
def test_claims_and_pictures_are_the_committed_ones(name):
    told, kept = done("studies.study_told", {"study": name}), stored_result(study(name))
    assert [c["id"] for c in told["claims"]] == [c["id"] for c in kept["claims"]]
    assert [c["holds"] for c in told["claims"]] == [c["holds"] for c in kept["claims"]]
    assert all(c["rule"] and c["formula"] for c in told["claims"])
    assert len(told["pictures"]) == len(study(name).table.get("picture", []))
    assert all("<svg" in p["svg"] for p in told["pictures"])


def test_a_study_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    question = page.RunStudy(study="deepflow-intensity").model_dump()
    told = answered("studies.study_again", question, said.append)["done"]
    kept = done("studies.study_told", {"study": "deepflow-intensity"})
    assert [c["holds"] for c in told["claims"]] == [c["holds"] for c in kept["claims"]]
    assert len(told["pictures"]) == len(kept["pictures"]) and said[-1]["run"] == "pictures"


@pytest.mark.parametrize("name", ["nonesuch", "deepstack-layer", ".."])
def test_a_wrong_name_is_one_line(name):
    told = answered("studies.study_told", {"study": name}, print)
    assert told["status"] == 422 and told["error"].startswith(("no study called", "study: "))
