"""`strata validate`, `strata seal`: predictions against measurements, and before there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.commands.options import FORM, AnswerForm, MeasuredFolder, argument, command, flag, option
from strata.app.terminal import progress_bar, wrote
from strata.base.errors import BadFile, UnknownName, require
from strata.base.shipped import shipped_folder

if TYPE_CHECKING:
    from strata.validation.accuracy.run import Watched

SHOWN = 10  # families and rows of --by without --worst


@command("validate", "Predictions against measurements.", "strata validate --report out/accuracy.html")
def validate_command(
    file: str = argument(
        "", "[FILE]", "one file of the folder, like serving/silicon.csv, or the path of your own"
    ),
    data: MeasuredFolder = None,
    only: list[str] | None = option(
        None, "NAME", "some files or groups of rows, as often as needed: h200/gemm.csv, 'h200/*', 'tpot/*'"
    ),
    row: int | None = option(
        None, "N", "one line of FILE: the command that predicts it, beside what was measured"
    ),
    worst: int = option(0, "N", "where the error is: the N families with most of it, the N worst rows"),
    by: str = option("", "NAMES", "families of --worst: some of chip, model, engine, network, file, group"),
    predictions: Path | None = option(
        None, "FILE", "score another predictor's CSV (file, row, predicted) on the same rows"
    ),
    sealed: bool = flag("--sealed", "sealed predictions for which a result was added since; see strata seal"),
    form: AnswerForm = FORM,
    report: Path | None = option(None, "FILE", "write an HTML page with predicted against measured"),
    pictures: Path | None = option(None, "DIR", "write a picture (SVG) for each file, and an overview"),
) -> None:
    """Predictions against measurements, file by file and group by group."""
    from strata.app.render.validated import unread_line, validated_rows, validated_tables
    from strata.validation import validate
    from strata.validation.accuracy.arena import predicted_files

    folder = data or shipped_folder("validation")
    if sealed:
        return _sealed(folder, form)
    folder, file = _placed(folder, file)
    if row is not None:
        return _row(folder, file, row, form)
    worst = worst or (SHOWN if by else 0)
    kept = bool(worst or predictions or report or pictures)
    only = [*(only or []), *([file] if file else []), *(predicted_files(predictions) if predictions else [])]
    unseen = data is None and folder.is_dir()
    with files_bar() as tell:
        outcome = validate(folder, keep_points=kept, unseen=unseen, only=only, progress=tell)
    points = outcome.pop("points", [])
    _add_more(outcome, points, folder, unseen, predictions, worst, by)
    form.answer(outcome, lambda: validated_tables(outcome), validated_rows)
    if report:
        from strata.app.render.accuracy_pictures import accuracy_report

        wrote("report", accuracy_report(outcome, points, report))
    if pictures:
        from strata.app.render.accuracy_pictures import draw_accuracy

        wrote("pictures", pictures, f" ({len(draw_accuracy(points, pictures))} files)")
    if unread := unread_line(outcome):
        raise BadFile(unread)


def _add_more(
    outcome: dict[str, Any],
    points: list[dict[str, Any]],
    folder: Path,
    unseen: bool,
    predictions: Path | None,
    worst: int,
    by: str,
) -> None:
    """Families left out of the project's own data, another predictor's figures, and where the error is."""
    folder = folder.parent if folder.is_file() else folder
    if unseen:
        from strata.validation.accuracy.headline import stored_families

        outcome["families"] = stored_families(folder, (entry["file"] for entry in outcome["files"]))
    if predictions:
        from strata.validation.accuracy.arena import add_predictions

        add_predictions(outcome, folder, predictions, points)
    if worst:
        from strata.validation.accuracy.worst import where_the_error_is

        names, families = tuple((by or "file").split(",")), outcome.get("families", [])
        outcome["worst"] = where_the_error_is(folder, points, worst, names, families)


def _placed(folder: Path, file: str) -> tuple[Path, str]:
    """A file by its name below the folder, or where it is a user's own, its path and no name."""
    path = Path(file).resolve()
    if not file or (not Path(file).is_absolute() and (folder / file).is_file()):
        return folder, file
    if path.is_relative_to(folder.resolve()):
        return folder, path.relative_to(folder.resolve()).as_posix()
    return (path, "") if path.is_file() else (folder, file)


def _row(folder: Path, name: str, line: int, form: AnswerForm) -> None:
    """One measured row and the command that predicts it."""
    from strata.app.render.validated import row_table
    from strata.validation.measured.own import own_place
    from strata.validation.measured.reader import data_files, row_points

    if folder.is_file():
        folder, name = own_place(folder)
    else:
        require(bool(name), "--row is of one file: strata validate FILE --row N")
        every = data_files(folder)
        if name not in every:
            raise UnknownName("file of measurements", name, every, "strata validate")
    rows = row_points(folder, name, line)
    form.answer(rows, lambda: [row_table(rows)])


def _sealed(folder: Path, form: AnswerForm) -> None:
    """Sealed predictions that a result was added for."""
    from strata.app.render.validated import sealed_table
    from strata.validation.accuracy.sealed import scored_seals

    scored = scored_seals(folder / "sealed")
    form.answer(scored, lambda: [sealed_table(scored)], "entries")


@contextmanager
def files_bar() -> Iterator[Callable[[Watched], None]]:
    """A bar on stderr, where that is a terminal: files and rows done, and the time left."""
    with progress_bar() as bar:
        task = bar.add_task("reading", total=None)

        def tell(at: Watched) -> None:
            said = f"{at.files} of {at.of_files} files, {at.rows:,} rows {at.name}"
            bar.update(task, description=said, completed=at.size, total=max(at.of_size, 1))

        yield tell


@command("seal", "Predictions before results are public, sealed by a hash.", "strata seal announced-2026")
def seal_command(
    name: str = argument(..., "NAME", "name of a TOML of questions in the folder"),
    folder: Path | None = option(None, "DIR", "folder of seals  [default: the project's validation/sealed]"),
    form: AnswerForm = FORM,
) -> None:
    """Predict the questions of NAME.toml and seal the answers as NAME.json: version, inputs, predictions,
    intervals, and a hash over them and the seal before. A seal is never written again.
    """
    from strata.app.render.validated import seal_table
    from strata.validation.accuracy.sealed import write_seal

    path, content = write_seal(folder or shipped_folder("validation") / "sealed", name)
    content.pop("chips")  # their numbers stand in the file
    form.answer(content, lambda: [seal_table(content)], "entries")
    wrote("seal", path)
