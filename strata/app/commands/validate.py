"""`strata validate`: predictions against measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.commands.options import JsonFlag, MeasuredFolder, TableFile, command, typed
from strata.app.rows_out import answer
from strata.app.terminal import wrote
from strata.errors import BadFile, BadValue, UnknownName, require
from strata.shipped import shipped_folder

if TYPE_CHECKING:
    from strata.validation.accuracy.run import Watched


@command("validate", "Predictions against measurements.", "strata validate --report out/accuracy.html")
def validate_command(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="one file of the folder, like serving/silicon.csv")
    ] = "",
    data: MeasuredFolder = None,
    only: Annotated[
        list[str] | None,
        typed(
            "", "NAME", "some files or groups of rows, as often as needed: h200/gemm.csv, 'h200/*', 'tpot/*'"
        ),
    ] = None,
    row: Annotated[
        int | None, typed("", "N", "one line of FILE: the command that predicts it, beside what was measured")
    ] = None,
    json: JsonFlag = False,
    table: TableFile = None,
    report: Annotated[
        Path | None, typed("", "FILE", "write an HTML page with predicted against measured")
    ] = None,
    pictures: Annotated[
        Path | None, typed("", "DIR", "write a picture (SVG) for each file, and an overview")
    ] = None,
) -> None:
    """Predictions against measurements, file by file and group by group."""
    from strata.app.render.accuracy import accuracy_rows, accuracy_table, unread_line
    from strata.validation import validate

    folder, drawn = data or shipped_folder("validation"), report is not None or pictures is not None
    if file and Path(file).resolve().is_relative_to(folder.resolve()):
        file = Path(file).resolve().relative_to(folder.resolve()).as_posix()
    if row is not None:
        _row(folder, file, row, json, table)
        return
    only = [*(only or []), *([file] if file else [])]
    with files_bar() as tell:
        outcome = validate(folder, keep_points=drawn, unseen=data is None, only=only, progress=tell)
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


def _row(folder: Path, name: str, line: int, json: bool, table: Path | None) -> None:
    """One measured row and the command that predicts it."""
    from strata.app.render.accuracy import row_table
    from strata.validation.readers.registry import data_files, served_kind
    from strata.validation.readers.served_files import row_of_file

    require(bool(name), "--row is of one file: strata validate FILE --row N")
    every = data_files(folder)
    if name not in every:
        raise UnknownName("file of measurements", name, every, "strata validate")
    kind = served_kind(name)
    if kind is None:
        raise BadValue(f"rows of {name} have no command yet; those of serving/* have")
    points = row_of_file(folder, name, kind, line)
    rows = [
        {
            "command": point.command,
            "at": point.metric.at,
            "predicted": point.predicted if not point.why else None,
            "measured": point.metric.measured,
            "group": point.metric.group,
            **({"why": point.why} if point.why else {}),
        }
        for point in points
    ]
    answer(lambda: rows, lambda: [row_table(rows)], json, table)


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
