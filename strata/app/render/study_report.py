"""A study as a page: how many of its claims hold, its pictures, then claim by claim."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path

from strata.app.render.page import cards_html, html_page, paragraphs, picture_html, section
from strata.app.render.study import claim_text
from strata.app.render.study_picture import draw_study
from strata.drawing import keep
from strata.studies import StudyOutcome


def study_report(outcome: StudyOutcome, path: Path) -> Path:
    """A study as a page that opens offline: pictures first, then claim by claim, with its source."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = [(one.stem, one.read_text(encoding="utf-8")) for one in draw_study(outcome, Path(folder))]
    held, count = sum(c["holds"] for c in outcome.claims), len(outcome.claims)
    head = [("claims that hold", f"{held} of {count}", ""), ("study", outcome.study.name, "")]
    paper = str(outcome.study.table["paper"])
    parts = [
        cards_html(head),
        paragraphs([str(outcome.study.table.get("about", ""))]),
        *(f"<section>{picture_html(text, name)}</section>" for name, text in drawn),
        section("Claim by claim", _claims(outcome)),
        section("Source", paragraphs([paper])),
    ]
    return keep(path, html_page(outcome.study.title, parts, paper))


def _claims(outcome: StudyOutcome) -> str:
    """What the paper says, what we get, and whether it holds; notes under the claim."""
    rows = []
    for claim in outcome.claims:
        note = f"<br><span class='dim'>{html.escape(claim['note'])}</span>" if claim["note"] else ""
        mark = (
            "<td class='good verdict'>holds</td>"
            if claim["holds"]
            else "<td class='bad verdict'>does not</td>"
        )
        rows.append(
            f"<tr><td class='w'>{html.escape(claim['says'])}{note}</td>"
            f"<td class='w'>{html.escape(claim_text(claim['paper']))}</td>"
            f"<td class='w'>{html.escape(claim_text(claim['ours']))}</td>{mark}</tr>"
        )
    head = "<thead><tr><th>claim</th><th>paper</th><th>ours</th><th></th></tr></thead>"
    return f"<div class='wide'><table>{head}<tbody>{''.join(rows)}</tbody></table></div>"
