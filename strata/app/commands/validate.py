"""`strata validate`: predictions against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.app.commands.options import JsonFlag, MeasuredFolder
from strata.app.terminal import (
    print_json,
    say,
    wrote,
)
from strata.errors import BadFile
from strata.shipped import shipped_folder


def register_validate(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "validate",
        short_help="Predictions against measurements.",
        epilog="Example: strata validate --report out/accuracy.html",
    )(validate_command)


def validate_command(
    data: MeasuredFolder = None,
    json: JsonFlag = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an HTML page with predicted against measured")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a picture (SVG) for each file, and an overview")
    ] = None,
) -> None:
    """Predictions against measurements, file by file and group by group."""
    from rich.console import Console

    from strata.app.render.accuracy import accuracy_table, unread_line
    from strata.validation import validate

    folder = data or shipped_folder("validation")
    with Console(stderr=True).status(f"predicting every row below {folder}"):
        outcome = validate(
            folder, keep_points=report is not None or pictures is not None, unseen=data is None
        )
    points = outcome.pop("points", [])
    if json:
        print_json(outcome)
    else:
        say(accuracy_table(outcome))
    if report:
        from strata.app.render.accuracy_report import accuracy_report

        wrote("report", accuracy_report(outcome, points, report))
    if pictures:
        from strata.validation.accuracy.pictures import draw_accuracy

        wrote("pictures", pictures, f" ({len(draw_accuracy(points, pictures))} files)")
    if unread := unread_line(outcome):
        raise BadFile(unread)
