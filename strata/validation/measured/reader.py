"""The measured files of a folder, what reads them, and single rows of any file with their commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from strata.base.errors import BadFile, BadValue, StrataError, UnknownName
from strata.validation.measured.compared import asked_for, compared, row_command, unfolded
from strata.validation.measured.formulas import Columns, condition, derived_columns, template_value
from strata.validation.measured.own import described_rows
from strata.validation.measured.spec import MeasuredSpec, spec_of
from strata.validation.readers.comparison import ComparedPoints, join_metrics, no_points
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import BadRows, Table, read_table

Reader = Callable[[Table, Catalogue], ComparedPoints]


INPUTS = ("training/h100_nanotron_models.csv",)  # read by other files, not predicted
# What stands beside the data in the project's folder.
BESIDE = (
    "accuracy.json",
    "limits.json",
    "points.json.gz",
    "published.toml",
    "sealed/*",
    "graphs/*.xz",
    "*.md",
    "LICENSE*",
    "ns3/LICENSE",
    "ns3/*.cc",
    "ns3/*.py",
    "serving/*.toml",
    "training/*.toml",
)


def data_files(folder: Path) -> list[str]:
    """Names of the data files below a folder, sorted."""
    if not folder.is_dir():
        raise BadFile(f"no data folder at {folder}; it holds files such as h200/gemm.csv")
    every = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    names = [p.as_posix() for p in every if not any(part.startswith(".") for part in p.parts)]
    described = {str(Path(n).with_suffix(".toml")) for n in names if n.endswith((".csv", ".json"))}
    data = [n for n in names if n not in described and not any(fnmatchcase(n, p) for p in BESIDE)]
    if not data:
        raise BadFile(f"{folder} holds no data files; it should hold files such as h200/gemm.csv")
    return data


def reader_of(name: str, catalogue: Catalogue, folder: Path | None = None) -> Reader | None:
    """What reads a file: the TOML beside it, or that shipped for files of its name; None where none is."""
    if spec_of(folder, name, catalogue.has_chip) is None:
        return None

    def read(table: Table, names: Catalogue) -> ComparedPoints:
        spec = spec_of(table.folder, name, names.has_chip)
        assert spec is not None
        return compared(table, names, spec)

    return read


def _specs_of_row(table: Table, line: int, catalogue: Catalogue) -> Iterator[tuple[Table, MeasuredSpec]]:
    """One line of a table with what describes it, further columns among its own: several rows where it is a
    list of them.
    """
    for rows, spec in described_rows(table, catalogue):
        if line in rows.lines:
            rows = derived_columns(unfolded(rows, spec.unfold) if spec.unfold else rows, spec)
            whole = {"unfold": "", "check": {}, "columns": {}}
            yield rows.keep(rows.lines == line), spec.model_copy(update=whole)


def command_of_row(folder: Path, name: str, line: int) -> str:
    """The line that a user types for one line of a file; "" where its question has none."""
    try:
        some = list(_specs_of_row(read_table(folder, name), line, Catalogue()))
        return row_command(*some[0]) if some else ""
    except StrataError:  # a file that no TOML describes, a row that is refused
        return ""


def row_points(folder: Path, name: str, line: int) -> list[dict[str, Any]]:
    """What was measured in one line of a file, beside what is predicted and the command that predicts it."""
    table = read_table(folder, name)
    if line not in table.lines:
        ends = f"lines {table.lines[0]} to {table.lines[-1]}" if len(table) else "none"
        raise UnknownName(f"row of {name}", str(line), [str(n) for n in table.lines.tolist()], ends)
    try:
        specs = list(_specs_of_row(table, line, Catalogue()))
        parts = [compared(rows, Catalogue(), spec) for rows, spec in specs]
        points = join_metrics(parts) if parts else no_points(())
    except BadRows as error:
        raise BadFile(f"{name} line {line}: {error.why.get(line, error)}") from None
    if not len(points):
        raise BadValue(f"line {line} of {name} has no number that is compared")
    command = command_of_row(folder, name, line)
    paths = {
        str(group): (metric.answer, row_command(rows, asked_for(spec, metric)) if metric.ask else command)
        for rows, spec in specs
        for metric in spec.metric
        if condition(metric.rows, Columns(rows, spec), "rows").any()
        for group in template_value(metric.group, Columns(rows, spec), "group")
    }
    return [
        {
            "command": str(points.command[i]) or paths.get(str(points.group[i]), ("", command))[1],
            "at": paths.get(str(points.group[i]), ("", command))[0],
            "predicted": float(points.predicted[i]) or None,
            "measured": float(points.measured[i]),
            "group": str(points.group[i]),
            **({"why": points.why[line]} if not points.predicted[i] else {}),
        }
        for i in range(len(points))
    ]
