"""`strata validate`: predictions against measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.commands.options import JsonFlag, MeasuredFolder, TableFile
from strata.app.rows_out import answer
from strata.app.terminal import wrote
from strata.errors import BadFile
from strata.shipped import shipped_folder

if TYPE_CHECKING:
    from strata.validation.accuracy.run import Watched


def register_validate(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "validate",
        short_help="Predictions against measurements.",
        epilog="Example: strata validate --report out/accuracy.html",
    )(validate_command)


def validate_command(
    data: MeasuredFolder = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="some files or groups of rows, as often as needed: h200/gemm.csv, 'h200/*', 'tpot/*'",
        ),
    ] = None,
    json: JsonFlag = False,
    table: TableFile = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an HTML page with predicted against measured")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a picture (SVG) for each file, and an overview")
    ] = None,
) -> None:
    """Predictions against measurements, file by file and group by group."""
    from strata.app.render.accuracy import accuracy_rows, accuracy_table, unread_line
    from strata.validation import validate

    folder, drawn = data or shipped_folder("validation"), report is not None or pictures is not None
    with files_bar() as tell:
        outcome = validate(folder, keep_points=drawn, unseen=data is None, only=only or (), progress=tell)
    points = outcome.pop("points", [])
    answer(lambda: outcome, lambda: [accuracy_table(outcome)], json, table, accuracy_rows)
    if report:
        from strata.app.render.accuracy_report import accuracy_report

        wrote("report", accuracy_report(outcome, points, report))
    if pictures:
        from strata.validation.accuracy.pictures import draw_accuracy

        wrote("pictures", pictures, f" ({len(draw_accuracy(points, pictures))} files)")
    if unread := unread_line(outcome):
        raise BadFile(unread)


@contextmanager
def files_bar() -> Iterator[Callable[[Watched], None]]:
    """A bar on stderr, where that is a terminal: files and rows done, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("reading", total=None)

        def tell(at: Watched) -> None:
            said = f"{at.files} of {at.of_files} files, {at.rows:,} rows {at.name}"
            bar.update(task, description=said, completed=at.size, total=max(at.of_size, 1))

        yield tell
