"""A user's own file of measurements: by its TOML, or by a header of arguments and answers of questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import LONGEST_LIST, BadFile, StrataError, UnknownName, nearest
from strata.base.units import factor, finite_number
from strata.validation.measured.compared import compared
from strata.validation.measured.spec import MeasuredMetric, MeasuredSpec, RowFamily, spec_of
from strata.validation.questions.question import QuestionKind, question, questions, word
from strata.validation.readers.comparison import ComparedPoints, join_metrics
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import BadRows, Table

KIND = "question"  # the column that says which question a row asks
_HEAD = re.compile(r"(?:(?P<rival>[^:\[\]]+):\s*)?(?P<name>[^:\[\]]+?)\s*(?:\[(?P<unit>[^\[\]]*)\])?")
_TEXT = word("a text")
_SHOWN = 12  # numbers of a question that a line lists


@dataclass(frozen=True)
class Head:
    """A cell of a header: `name`, `name [unit]`, or `rival: name [unit]` of another predictor's numbers."""

    written: str
    name: str
    unit: str
    rival: str

    @property
    def column(self) -> str:
        """Its name as formulas can use it."""
        return re.sub(r"\W", "_", f"{self.rival} {self.name}".strip())


def header(name: str, written: str) -> Head:
    """A cell of a header in its parts.

    >>> head = header("mine.csv", "their tool: time [ms]")
    >>> head.rival, head.name, head.unit, head.column
    ('their tool', 'time', 'ms', 'their_tool_time')
    """
    match = _HEAD.fullmatch(written.strip())
    if match is None:
        raise BadFile(f"{name}: a column is 'name' or 'name [unit]', like 'time [ms]', but got '{written}'")
    return Head(written, match["name"], match["unit"] or "", match["rival"] or "")


def own_place(path: Path) -> tuple[Path, str]:
    """The folder and name of a file; with the folder it stands in where files of that name are known."""
    path = path.resolve()
    named = f"{path.parent.name}/{path.name}"
    if not path.with_suffix(".toml").is_file() and spec_of(None, named) is not None:
        return path.parent.parent, named
    return path.parent, path.name


def described_rows(table: Table, catalogue: Catalogue) -> Iterator[tuple[Table, MeasuredSpec]]:
    """The rows of a table by what describes them: a TOML beside it or one that is shipped for files of its
    name, else its own header, a spec for each question that it asks.
    """
    spec = spec_of(table.folder, table.name, catalogue.has_chip)
    if spec is not None:
        yield table, spec
        return
    if KIND not in table.columns:
        raise BadFile(
            f"{table.name} has no column '{KIND}', which says what a row asks ({', '.join(questions())}), "
            f"and no {Path(table.name).with_suffix('.toml').name} stands beside it"
        )
    heads = {cell: header(table.name, cell) for cell in table.columns}
    kinds = [question(kind) for kind in dict.fromkeys(table.text(KIND)) if kind in questions()]
    if not kinds:
        question(str(table.text(KIND)[0]) if len(table) else "")
    _check_header(table.name, list(heads.values()), kinds)
    for asked in kinds:
        rows = np.flatnonzero(table.text(KIND) == asked.name)
        yield _asked(table.keep(rows), asked, list(heads.values()))


def own_points(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Measured and predicted of a user's rows. Rows that cannot be compared are told by a BadRows with the
    points of all others.
    """
    parts: list[ComparedPoints] = []
    why: dict[int, str] = {}
    whole = KIND in table.columns and spec_of(table.folder, table.name, catalogue.has_chip) is None
    if whole:
        known, asked_by = questions(), zip(table.lines.tolist(), table.text(KIND), strict=True)
        names = ", ".join(known)
        why = {n: str(UnknownName(KIND, kind, known, names)) for n, kind in asked_by if kind not in known}
    for rows, spec in described_rows(table, catalogue):
        if whole:
            wrong = _wrong_rows(table, rows, question(spec.question))
            why |= wrong
            rows = rows.keep(~np.isin(rows.lines, list(wrong)))
        if len(rows):
            parts.append(compared(rows, catalogue, spec))
    if not parts:
        raise BadRows(table.name, why)
    points = join_metrics(parts) if len(parts) > 1 else parts[0]
    why |= points.why
    if why:
        kept = replace(points.keep(~np.isin(points.line, list(why))), why={})
        raise BadRows(table.name, why, kept)
    return points


def _named(asked: QuestionKind, name: str) -> str:
    """The answer that a column names: by its whole path, as a mean, or by the end of its path where one alone
    ends so.
    """
    if name in asked.answers:
        return name
    ends = [path for path in asked.answers if path == f"{name}.mean" or path.endswith(f".{name}")]
    return ends[0] if len(ends) == 1 else ""


def _is_argument(asked: QuestionKind, field: Head) -> bool:
    """Whether a column is an argument. Names with a dot are fields of records where a question takes such; a
    name that is a text and an answer too is the answer where it has a unit.
    """
    if field.rival or (
        field.unit and _named(asked, field.name) and asked.arguments.get(field.name, _TEXT).is_text
    ):
        return False
    return field.name in asked.arguments or (
        "." in field.name and bool(asked.sets) and field.name not in asked.answers
    )


def _unit_of(asked: QuestionKind, head: Head) -> str | None:
    """The unit of an argument or answer of a question; "" of a text, None of neither."""
    if _is_argument(asked, head):
        return asked.argument(head.name, "").unit or ""
    path = _named(asked, head.name)
    return asked.answers[path] if path else None


def takes(asked: QuestionKind) -> str:
    """The columns of a question, in a few words: what it needs, then what it may be told."""
    needed = [name for name, one in asked.arguments.items() if one.needed]
    others = [f"[{name}]" for name, one in asked.arguments.items() if not one.needed]
    answers = [n if unit == "1" else f"{n} [{unit}]" for n, unit in asked.answers.items()]
    return f"{asked.name} takes {_some(needed + others)} and is measured by {_some(answers)}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _check_header(name: str, heads: list[Head], kinds: list[QuestionKind]) -> None:
    """Refuse a header with wrong names or units, or without what its questions need, in one line."""
    columns = [head.column for head in heads]
    wrong = [f"two columns are called '{column}'" for column in set(columns) if columns.count(column) > 1]
    shown: list[QuestionKind] = []
    for head in heads:
        if head.name == KIND:
            continue
        units = {asked.name: unit for asked in kinds if (unit := _unit_of(asked, head)) is not None}
        if not units:
            every = [one for asked in kinds for one in (*asked.arguments, *asked.answers)]
            near = nearest(head.name, every, 1)
            wrong.append(f"no column '{head.name}' is known" + (f" (is it '{near[0]}'?)" if near else ""))
            shown = kinds
        wrong += [said for kind, unit in units.items() if (said := _wrong_unit(head, kind, unit))]
    for asked in kinds:
        here = {head.name for head in heads if _is_argument(asked, head)}
        lacking = [n for n, one in asked.arguments.items() if one.needed and n not in here]
        if lacking:
            wrong.append(f"{asked.name} needs {' and '.join(lacking)}")
        elif all(_is_argument(asked, head) or head.rival or not _named(asked, head.name) for head in heads):
            wrong.append(f"no column is of what {asked.name} answers")
        else:
            continue
        shown = shown or [asked]
    if wrong:
        raise BadFile(f"{name}: " + "; ".join([*wrong, *map(takes, shown)]), longest=LONGEST_LIST)


def _wrong_unit(head: Head, kind: str, unit: str) -> str:
    """What is wrong with the unit of a column; nothing where it is right."""
    if head.unit and not unit:
        return f"'{head.name}' of {kind} is a text and has no unit: write '{head.name}'"
    if head.unit and not _same_dimension(head.unit, unit):
        like = f"'{head.name}'" if unit == "1" else f"'{head.name} [{unit}]'"
        return f"'{head.written}' of {kind} has a wrong unit: write {like}"
    return ""


def _same_dimension(unit: str, other: str) -> bool:
    try:
        return factor(unit)[1] == factor(other)[1]
    except StrataError:
        return False


def _wrong_rows(table: Table, rows: Table, asked: QuestionKind) -> dict[int, str]:
    """Why rows of a question cannot be asked: cells it does not take, or that are empty or no numbers."""
    why: dict[int, str] = {}
    heads = {cell: header(table.name, cell) for cell in table.columns if cell != KIND}
    cells = {head: table.text(cell) for cell, head in heads.items()}
    place = {line: i for i, line in enumerate(table.lines.tolist())}
    for line in rows.lines.tolist():
        row = {head: str(column[place[line]]) for head, column in cells.items()}
        if reason := _wrong_cells(row, asked):
            why[line] = reason
    return why


def _wrong_cells(row: dict[Head, str], asked: QuestionKind) -> str:
    measured = False
    for head, cell in row.items():
        unit = _unit_of(asked, head)
        needed = _is_argument(asked, head) and asked.argument(head.name, "").needed
        if needed and not cell:
            return f"'{head.written}' is empty, and {asked.name} needs it"
        if cell and unit is None:
            return f"{asked.name} has no '{head.written}': leave it empty; {takes(asked)}"
        if cell and unit and not is_finite_cell(cell):
            return f"'{head.written}' must be a number, but got '{cell}'"
        measured |= bool(cell) and not head.rival and not _is_argument(asked, head)
    return "" if measured else f"nothing was measured; {takes(asked)}"


def is_finite_cell(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return bool(np.isfinite(finite_number(cell)))
    except StrataError:
        return False


def _asked(table: Table, asked: QuestionKind, heads: list[Head]) -> tuple[Table, MeasuredSpec]:
    """The rows of one question, their columns by plain names, and the spec that its header makes."""
    columns: dict[str, Array] = {}
    ask: dict[str, str] = {}
    metrics: dict[str, dict[str, Any]] = {}
    for head in heads:
        cells = table.text(head.written)
        unit = _unit_of(asked, head)
        if unit is None or not any(cells):
            continue
        columns[head.column] = cells
        if _is_argument(asked, head):
            columns[head.column] = _filled(cells, asked.argument(head.name, "").default, head.unit)
            ask[head.name] = f"{head.column} [{head.unit or unit}]" if unit else f"{{{head.column}}}"
            continue
        of_answer = metrics.setdefault(head.name, {"rivals": {}})
        if head.rival:
            of_answer["rivals"][head.rival] = f"{head.column} * {factor(head.unit or unit)[0]!r}"
        else:
            of_answer["measured"] = f"{head.column} * {factor(head.unit or unit)[0]!r}"
    words = {"chip": ("chip", "system"), "model": ("model",), "engine": ("engine",)}
    family = {
        key: ask[name] for key, names in words.items() for name in names[::-1] if ask.get(name, "")[:1] == "{"
    }
    spec = MeasuredSpec(
        title=table.name,
        question=asked.name,
        text=[head.column for head in heads if head.name in ask and asked.argument(head.name, "").is_text],
        ask=ask,
        family=RowFamily(**family),
        metric=[
            MeasuredMetric(
                answer=_named(asked, name),
                group=f"{asked.name}/{name}",
                rate=_named(asked, name) in asked.rates,
                **one,
            )
            for name, one in metrics.items()
            if "measured" in one
        ],
    )
    return replace(table, columns=columns), spec


def _filled(cells: Array, default: Any, unit: str) -> Array:
    """Cells of an argument, its default where they are empty."""
    if isinstance(default, str):
        word = default
    elif isinstance(default, int | float) and np.isfinite(default):
        word = f"{default / (factor(unit)[0] if unit else 1.0):.17g}"
    else:
        return cells
    return np.array([cell or word for cell in cells], dtype=object)
