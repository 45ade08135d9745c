"""A study for people: its claims as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strata.app.terminal import plain_table, titled

if TYPE_CHECKING:
    from strata.studies import StudyOutcome


def studies_table(known: dict[str, str]) -> Any:
    """A line a study."""
    table = plain_table()
    table.add_column("study", no_wrap=True)
    table.add_column("what it repeats")
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
