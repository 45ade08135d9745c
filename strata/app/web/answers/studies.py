"""Studies: each paper's claims beside what was found, its committed pictures, and the study run again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from strata.app.render.study import claim_text
from strata.app.web.answers import Name, Tell, WebQuestion, answers
from strata.base.errors import UnknownName
from strata.base.reading import file_text
from strata.studies import Study, run_study, stored_result, studies_folder, study, study_names


class WhichStudy(WebQuestion):
    """A study by its name."""

    study: Name = "deepstack-layers"


class RunStudy(WhichStudy):
    """A study to be run again; `search`: search anew where it searches, in place of what was found before."""

    search: bool = False


@answers("studies")
def listed_studies(_: dict[str, Any]) -> dict[str, Any]:
    """Every study with how many of its claims hold."""
    rows = []
    for name in study_names():
        named = study(name)
        claims = (stored_result(named) or {}).get("claims", [])
        row: dict[str, Any] = {"study": name, "title": named.title, "paper": str(named.table["paper"])}
        row |= {"claims": len(named.table["claim"]), "hold": sum(bool(claim["holds"]) for claim in claims)}
        rows.append(row | {"pictures": len(named.table.get("picture", []))})
    return {"studies": rows}


@answers("studies/one", WhichStudy)
def study_told(question: dict[str, Any]) -> dict[str, Any]:
    """A study's claims and its committed pictures."""
    named = _shipped(question["study"])
    found = stored_result(named) or {"claims": []}
    pictures = [_picture(entry, named.folder) for entry in named.table.get("picture", [])]
    shown = [picture for picture in pictures if picture]
    return _told(named, found["claims"], shown, bool(found.get("searches")))


@answers("studies/run", RunStudy, job=True)
def study_again(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run a study again, claim by claim."""
    named = _shipped(question["study"])
    outcome = run_study(
        named,
        quick=not question["search"],
        progress=lambda name, done, of: tell({"run": name, "done": done, "of": of}),
    )
    tell({"run": "pictures", "done": len(outcome.runs), "of": len(outcome.runs)})
    return _told(named, outcome.claims, _drawn(outcome), "searches" in outcome.as_dict())


def claim_rows(claims: list[dict[str, Any]], named: Study) -> list[dict[str, Any]]:
    """Claims as people read them, each with the condition it is judged by."""
    rules = {claim["id"]: claim for claim in named.table["claim"]}
    rows = []
    for claim in claims:
        row = {"id": claim["id"], "says": claim["says"]}
        row |= {side: claim_text(claim[side]) for side in ("paper", "ours")}
        row |= {"holds": bool(claim["holds"]), "note": claim["note"]}
        rule = rules.get(claim["id"], {})
        rows.append(row | {"rule": str(rule.get("holds", "")), "formula": str(rule.get("ours", ""))})
    return rows


def _shipped(name: str) -> Study:
    """A study of the project; no folder of anybody else."""
    known = study_names()
    if name not in known:
        raise UnknownName("study", name, known, ", ".join(known))
    return study(studies_folder() / name)


def _told(named: Study, claims: list[Any], pictures: list[Any], searches: bool) -> dict[str, Any]:
    head = {"study": named.name, "title": named.title, "paper": str(named.table["paper"])}
    head |= {"about": str(named.table.get("about", ""))}
    return head | {"claims": claim_rows(claims, named), "pictures": pictures, "searches": searches}


def _picture(entry: dict[str, Any], folder: Path) -> dict[str, str]:
    path = folder / str(entry["file"])
    if not path.is_file():
        return {}
    return {"file": path.name, "title": str(entry.get("title", path.stem)), "svg": file_text(path)}


def _drawn(outcome: Any) -> list[dict[str, str]]:
    from strata.app.render.study import draw_study

    # a worker writes to its own folder alone; matplotlib keeps its list of fonts there, too
    os.environ.setdefault("MPLCONFIGDIR", str(Path.cwd() / ".matplotlib"))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        draw_study(outcome, Path(place))
        return [_picture(entry, Path(place)) for entry in outcome.study.table.get("picture", [])]
