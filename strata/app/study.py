"""`strata study`: repeat a published study, claim by claim."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.words import plain_table, print_json, titled
from strata.drawing import keep

if TYPE_CHECKING:
    from strata.studies import Outcome


def add_to(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        short_help="Repeat a published study, claim by claim.",
        epilog="Example: strata study deepstack-layers --report out/layers.html",
    )(study)


def _names(incomplete: str) -> list[str]:
    from strata.studies import study_names

    return [n for n in study_names() if n.startswith(incomplete)]


def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help="a study, or the path of its folder; left out: all there are",
            autocompletion=_names,
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="print JSON for machines")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an HTML page with pictures")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="keep what was found, and the pictures, in the study's folder")
    ] = False,
) -> None:
    """Repeat a published study: for each claim what the paper says, what we get, and whether it holds."""
    from rich.console import Console

    from strata import studies
    from strata.app.cli import say, wrote

    if not name:
        known = {n: studies.study(n).title for n in studies.study_names()}
        if json:
            print_json(known)
        else:
            say(_list(known))
        return
    with Console(stderr=True).status(f"running study {name}"):
        outcome = studies.run_study(name)
    if json:
        print_json(outcome.as_dict())
    else:
        say(claims_table(outcome))
    if write or report:
        from strata.app.study_picture import draw

        if write:
            wrote("result", studies.write_down(outcome))
            wrote("pictures", outcome.study.folder, f" ({len(draw(outcome, outcome.study.folder))} files)")
        if report:
            wrote("report", keep(report, study_page(outcome, report.parent)))


def _list(known: dict[str, str]) -> Any:
    table = plain_table()
    table.add_column("study", no_wrap=True)
    table.add_column("what it repeats")
    for name, title in known.items():
        table.add_row(name, title)
    return table


def shown(value: Any) -> str:
    """A claim's number as people read it.

    >>> shown(0.123456), shown([1.0, 2.5]), shown(None), shown(True)
    ('0.1235', '1, 2.5', '', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(shown(v) for v in value)
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def claims_table(outcome: Outcome) -> Any:
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
        table.add_row(said, shown(claim["paper"]), shown(claim["ours"]), mark)
    held = sum(c["holds"] for c in outcome.claims)
    source = str(outcome.study.table["paper"])
    return titled(f"{outcome.study.title}\n{source}", table, f"{held} of {len(outcome.claims)} claims hold")


def study_page(outcome: Outcome, folder: Path) -> str:
    """A study as a page: pictures first, then claim by claim."""
    import tempfile

    from strata.app.report import page, rows_table
    from strata.app.study_picture import draw

    with tempfile.TemporaryDirectory(dir=folder) as place:
        pictures = [
            path.read_text(encoding="utf-8").partition("<svg")[1:] for path in draw(outcome, Path(place))
        ]
    about = str(outcome.study.table.get("about", ""))
    parts = [
        f"<p class=dim>{html.escape(str(outcome.study.table['paper']))}</p>",
        f"<p>{html.escape(about)}</p>",
    ]
    parts += [f"<p>{''.join(p)}</p>" for p in pictures]
    rows = [
        [c["says"], shown(c["paper"]), shown(c["ours"]), "yes" if c["holds"] else "no", c["note"]]
        for c in outcome.claims
    ]
    return page(
        outcome.study.title,
        [*parts, rows_table(["claim", "paper", "ours", "holds", "note"], rows, (0, 3, 4))],
    )
