"""Search for the page: studies in a folder, the same as `strata search` finds; points as designs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from strata.app.terminal import plain_json
from strata.app.web.answers.search import PointsAsked, point_designs, search_choices, space_told, studies_kept
from strata.app.web.answers.search_runs import StudyStart, opened_study, searched_study
from strata.app.web.answers.what_if import START, changes, question_of
from strata.base.errors import StrataError
from strata.search.points import evaluate_points, point_design
from strata.search.run import search
from strata.search.space import space

KEEP = {"weights": ["fp8"], "capacity": ["141 GB"], "power_cap": ["700 W"], "batch": ["64", "128", "256"]}
ASKED: dict[str, Any] = {"study": "small", "limits": ["tpot <= 20 ms"], "keep": KEEP}
BUILT = {
    "axes": [
        {"name": "bw", "field": "chip.memory.bandwidth", "kind": "times", "choices": ["1", "x2"]},
        {
            "name": "room",
            "field": "chip.memory.capacity",
            "kind": "range",
            "choices": ["96 GB", "192 GB", "3"],
        },
        {"name": "batch", "field": "batch", "choices": ["8", "32"]},
        {"name": "plan", "kind": "plans", "choices": ["(cp == 1) & (zero == 0)"]},
    ]
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_study_finds_what_the_search_does_and_opens_again() -> None:
    news: list[dict[str, Any]] = []
    found = searched_study(ASKED, news.append)
    own = search(space("next-node", **KEEP), "tokens_per_s", limits=["tpot <= 20 ms"])
    assert found["frontier"][0]["metrics"]["tokens_per_s"] == own.best["metrics"]["tokens_per_s"]
    assert found["rows"] == own.rows and found["gap"] == pytest.approx(own.gap)
    assert found["frontier"][0]["index"] == str(own.best["index"])
    assert news[0]["goals"] == ["tokens_per_s"] and any("progress" in one for one in news)
    again = opened_study({"study": "small"})
    for key in ("frontier", "rows", "gap", "bound", "points", "maps", "matters", "out", "ended"):
        assert plain_json(again[key]) == plain_json(found[key]), key
    json.dumps(plain_json(found), allow_nan=False)
    assert [s["name"] for s in studies_kept({})["studies"]] == ["small"]


def test_a_stopped_study_keeps_what_is_known_and_is_resumed() -> None:
    asked = {**ASKED, "keep": {}, "sampler": "random", "budget": 3000}

    class Stopped(Exception):
        pass

    def stop(told: dict[str, Any]) -> None:
        if "progress" in told:
            raise Stopped

    with pytest.raises(Stopped):
        searched_study(asked, stop)
    known = opened_study({"study": "small"})
    assert 0 < known["rows"] < 3000
    whole = searched_study({"study": "small", "resume": True}, lambda _: None)
    assert whole["rows"] == 3000 and whole["ended"] == "finished"
    with pytest.raises(StrataError, match="already"):
        searched_study(asked, lambda _: None)


def test_a_space_is_built_from_numbers() -> None:
    told = space_told({"space": "", "built": BUILT})
    assert [a["count"] for a in told["axes"][:3]] == [2, 3, 2]
    found = searched_study({"study": "mine", "space": "", "built": BUILT}, lambda _: None)
    assert found["frontier"][0]["design"]["bw"] == "x 2" and found["frontier"][0]["design"]["batch"] == "32"
    pairs = {(m["x"], m["y"]) for m in found["maps"]}
    assert any({"bw", "room"} == set(pair) for pair in pairs)
    rooms = next(m for m in found["maps"] if "room" in (m["x"], m["y"]))
    assert "144 GB" in rooms["x_labels"] + rooms["y_labels"]


@pytest.mark.parametrize("name", ["next-node", "deepflow-v100"])
def test_a_point_opened_in_what_if_is_that_point(name: str) -> None:
    made = space(name)
    rows = made.random(np.random.default_rng(3), 60)
    every = evaluate_points(made, rows)
    inside = np.flatnonzero(every.reason == 0)[:3]
    assert len(inside)
    for i, design in ((i, START | point_design(made, rows[i])) for i in inside):
        result, _ = question_of(design).answer(changes(design))
        assert float(result.metrics.step_time) == pytest.approx(every.columns["step_time"][i], rel=1e-9)


def test_points_and_named_systems_become_designs() -> None:
    found = searched_study(ASKED, lambda _: None)
    best = found["frontier"][0]
    told = point_designs(
        {"study": "small", "points": [best["index"]], "like": best["index"], "systems": ["8xh100"]}
    )
    assert told["designs"][0]["batch"] == int(best["design"]["batch"])
    assert told["named"][0]["design"]["system"] == "8xh100"
    assert told["named"][0]["metrics"]["tokens_per_s"] > 0
    assert point_designs({"study": "small", "systems": ["8xnonesuch"]})["named"][0]["why"]


def test_nothing_that_fits_is_an_answer() -> None:
    found = searched_study({**ASKED, "limits": ["tpot <= 1 us"]}, lambda _: None)
    assert found["why_none"] and found["frontier"] == []


@pytest.mark.parametrize(
    "asked",
    [
        {"space": "nonesuch"},
        {"space": ""},
        {"sampler": "nonesuch"},
        {"goal": ["nonesuch"]},
        {"goal": ["ttft"]},
        {"limits": ["tpot <= 3"]},
        {"keep": {"nonesuch": ["1"]}},
        {"space": "", "keep": {}, "built": {"axes": [{"name": "a", "field": "chip.zz", "choices": ["1"]}]}},
        {"study": "missing", "resume": True},
    ],
)
def test_mistakes_are_one_line(asked: dict[str, Any]) -> None:
    with pytest.raises(StrataError) as error:
        searched_study({**ASKED, **asked}, lambda _: None)
    assert str(error.value) and "\n" not in str(error.value)
    assert studies_kept({})["studies"] == []


def test_a_broken_manifest_is_one_line() -> None:
    Path("odd").mkdir()
    for text in ("", "[]", '{"space": {}}', '{"space": {"spec": {}}, "goal": {}}', '{"space": 3}'):
        Path("odd/manifest.json").write_text(text)
        with pytest.raises(StrataError):
            opened_study({"study": "odd"})
        studies_kept({})


def test_names_are_checked_at_the_door() -> None:
    for bad in ("../x", "a/b", ".hidden", "a b", "", "x" * 61, "a.toml"):
        with pytest.raises(ValidationError):
            StudyStart(study=bad)
    with pytest.raises(ValidationError):
        PointsAsked(study="a", points=["-1"])
    assert "tokens_per_s" in search_choices({})["metrics"]
