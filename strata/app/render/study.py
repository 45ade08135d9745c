"""A study for people: its claims as a table, and as a page."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.render.page import cards_html, html_page, paragraphs, picture_html, section
from strata.app.render.study_picture import draw_study
from strata.app.terminal import plain_table, titled
from strata.drawing import keep
from strata.studies import StudyOutcome

if TYPE_CHECKING:
    from strata.studies import StudyOutcome


def studies_table(known: dict[str, str]) -> Any:
    """A line a study."""
    table = plain_table("<study", "what it repeats")
    for name, title in known.items():
        table.add_row(name, title)
    return table


def claim_text(value: Any) -> str:
    """A claim's number as people read it.

    >>> claim_text(0.123456), claim_text([1.0, 2.5]), claim_text(None), claim_text(True)
    ('0.1235', '1, 2.5', '', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(claim_text(v) for v in value)
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def claims_table(outcome: StudyOutcome) -> Any:
    """A line a claim."""
    from rich.text import Text

    table = plain_table()
    for column in ("claim", "paper", "ours", "holds"):
        table.add_column(column, overflow="fold")
    for claim in outcome.claims:
        mark = Text("yes", style="green") if claim["holds"] else Text("no", style="red")
        said = Text(claim["says"])
        if claim["note"]:
            said.append(f"\n{claim['note']}", style="dim")
        table.add_row(said, claim_text(claim["paper"]), claim_text(claim["ours"]), mark)
    held = sum(c["holds"] for c in outcome.claims)
    source = str(outcome.study.table["paper"])
    return titled(f"{outcome.study.title}\n{source}", table, f"{held} of {len(outcome.claims)} claims hold")


def study_dict(outcome: StudyOutcome) -> dict[str, Any]:
    """A study for machines; the numbers of its searches are in the units of their goals."""
    told = outcome.as_dict()
    return told | ({"units": {"bound": "as the goal says"}} if "searches" in told else {})


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
