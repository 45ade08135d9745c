"""Formulas and templates over the rows of a table: what the TOML of a measured file writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadFile, BadValue, StrataError, nearest
from strata.base.expression import FUNCTIONS, calculate
from strata.base.units import factor, finite_number, parse
from strata.params import dashed
from strata.validation.measured.spec import MeasuredSpec
from strata.validation.readers.comparison import rows_by_key
from strata.validation.readers.labels import server_label
from strata.validation.readers.tables import BadRows, Table

_BRACES = re.compile(r"\{([^{}]*)\}")
_UNIT = re.compile(r"\s*\[([^\]]*)\]$")
_NAME = re.compile(r"[A-Za-z_]\w*")


def version_order(said: str) -> tuple[int, ...]:
    """A version as numbers that compare as versions follow each other.

    >>> version_order("v5.1") < version_order("v10.0"), version_order("nemo:26.04.01")
    (True, (26, 4, 1))
    """
    return tuple(int(part) for part in re.findall(r"\d+", said))


def _each(function: Any, kind: Any = object) -> Any:
    """A function of one cell, of every cell of a column."""

    def of_column(column: Any, *more: Any) -> Any:
        return np.array([function(str(cell), *more) for cell in np.atleast_1d(column)], dtype=kind)

    return of_column


def _part(cell: str, pattern: str, group: int = 1) -> str:
    match = re.search(pattern, cell, re.IGNORECASE)
    return (match.group(group) or "") if match else ""


def _first(cell: str) -> str:
    """The first of two settings, the second in brackets; nothing where a setting does not apply.

    >>> _first("31508 (29789)"), _first("DeepSeekV3 (tokendrop)"), _first("n/a")
    ('31508', 'DeepSeekV3', '')
    """
    before = re.sub(r"\s*\(.*\)$", "", cell).strip()
    return "" if before.lower() in ("n/a", "-") else before


class NotNumbers(Exception):
    """Cells of a column that are no numbers, by their places."""


def _numbers(column: Any) -> Array:
    cells = np.atleast_1d(column)
    values, wrong = np.full(len(cells), np.nan), dict[int, str]()
    for i, cell in enumerate(cells):
        try:
            values[i] = finite_number(str(cell)) if cell else np.nan
        except StrataError:
            wrong[i] = f"must be a number, but got '{cell}'"
    if wrong:
        raise NotNumbers(wrong)
    return values


def _largest(column: Any, *alike: Any) -> Array:
    """For each row the largest number of a column in all rows that are alike in others.

    >>> _largest(np.array([1.0, 5.0, 3.0]), np.array(["a", "b", "a"])).tolist()
    [3.0, 5.0, 3.0]
    """
    keys = list(zip(*(np.asarray(other).astype(str) for other in alike), strict=True))
    most: dict[Any, float] = {}
    for key, value in zip(keys, column, strict=True):
        most[key] = float(np.fmax(most.get(key, np.nan), value))
    return np.array([most[key] for key in keys])


def _sides(*counts: Any) -> Array:
    """Sides of a shape that are longer than 1: 4, 2 and 1 are 4x2."""
    rows = np.broadcast_arrays(*(np.atleast_1d(np.asarray(c, float)) for c in counts))
    return np.array(
        ["x".join(f"{n:.0f}" for n in row if n > 1) or "1" for row in zip(*rows, strict=True)], dtype=object
    )


def _beaten(times: Array, sizes: Array, often: float, *runs: Array) -> Array:
    """Rows whose time is beaten so often by that of a larger size of the same run.

    >>> _beaten(np.array([9e-3, 3e-4, 4e-4]), np.array([1.0, 2.0, 4.0]), 2, np.array(["a"] * 3)).tolist()
    [True, False, False]
    """
    beaten = np.zeros(len(sizes), bool)
    for _, rows in rows_by_key(runs, len(sizes)):
        order = rows[np.argsort(sizes[rows], kind="stable")]
        known = np.where(np.isfinite(times[order]) & (times[order] > 0), times[order], np.inf)
        least = np.minimum.accumulate(known[::-1])[::-1]
        beaten[order] = np.isfinite(known) & (known > often * least)
    return beaten


# What formulas of measured files can do beside what every expression can.
COLUMN_FUNCTIONS: dict[str, Any] = {
    "empty": _each(lambda cell: not cell, bool),
    "has": _each(lambda cell, pattern: bool(re.search(pattern, cell, re.IGNORECASE)), bool),
    "part": _each(_part),
    "lower": _each(str.lower),
    "first": _each(_first),
    "dashed": _each(dashed),
    "server": _each(server_label),  # the serving engine that a label means
    "largest": _largest,
    "log2": np.log2,
    "one_of": _each(lambda cell, words: cell in words.split(), bool),
    "since": _each(lambda cell, version: bool(cell) and version_order(cell) >= version_order(version), bool),
    "number": _numbers,
    "isnan": np.isnan,
    "sides": _sides,
    "beaten": _beaten,
    "filled": lambda column, otherwise: np.where(np.isnan(column), otherwise, column),
}


class Columns(Mapping[str, Any]):
    """Names that formulas of a file know: its columns, as numbers unless the spec calls them words; `given`
    numbers; `folder`, `file`, its whole `path` and `line` of a row.
    """

    def __init__(self, table: Table, spec: MeasuredSpec) -> None:
        self.table, self.spec = table, spec
        self._given = {
            name: parse(value, one.unit)
            if isinstance(value := table.changes.get(name, one.value), str)
            else value
            for name, one in spec.given.items()
        }
        self._words = {*spec.text, *spec.codes}

    def words(self, column: str) -> Array:
        """A column as words, by their codes."""
        codes = self.spec.codes.get(column, {})
        cells = self.table.text(column)
        return np.array([codes.get(cell, cell) for cell in cells], dtype=object)

    def __getitem__(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        if name in ("folder", "file"):
            whole = self.table.name
            said = whole.split("/")[0] if name == "folder" else whole.rsplit("/", 1)[-1]
            return np.full(len(self.table), said, dtype=object)
        if name == "path":
            whole = (self.table.folder / self.table.name).as_posix()
            return np.full(len(self.table), whole, dtype=object)
        if name in self.spec.derive:
            return self.table.columns[name]
        if name == "line":
            return self.table.lines
        if name not in self.table.columns and name in self.spec.optional:
            return np.full(len(self.table), self.spec.codes.get(name, {}).get("", ""), dtype=object)
        return self.words(name) if name in self._words else self.table.number(name)

    def __contains__(self, name: object) -> bool:
        known = {*self.table.columns, *self.spec.optional, *self._given, "folder", "file", "path", "line"}
        return name in known

    def __iter__(self) -> Iterator[str]:
        return iter((*self.table.columns, *self._given))

    def __len__(self) -> int:
        return len(self.table.columns) + len(self._given)


def formula_value(formula: str, columns: Columns, where: str) -> Any:
    """A formula over columns, `[unit]` behind it where it is not in SI: a number for each row, or one."""
    unit = _UNIT.search(formula)
    text = formula[: unit.start()] if unit else formula
    names = _names(text, columns, where)
    try:
        value = calculate(text, names, where, COLUMN_FUNCTIONS)
    except NotNumbers as error:
        lines = columns.table.lines
        why = {int(lines[i]): f"'{where}' {reason}" for i, reason in error.args[0].items()}
        raise BadRows(columns.table.name, why) from None
    return value * factor(unit.group(1))[0] if unit else value


def condition(formula: str, columns: Columns, where: str) -> Array:
    """At which rows a condition holds; at all where there is none."""
    if not formula:
        return np.ones(len(columns.table), bool)
    return np.broadcast_to(np.asarray(formula_value(formula, columns, where), bool), (len(columns.table),))


def template_value(template: str, columns: Columns, where: str) -> Array:
    """A text for each row: `{formulas}` in braces become their values, whole numbers without a point, and
    nothing where there is no number.
    """
    count, parts, at = len(columns.table), [], 0
    for match in _BRACES.finditer(template):
        parts += [[template[at : match.start()]] * count, _shown(match.group(1), columns, where)]
        at = match.end()
    parts.append([template[at:]] * count)
    return np.array(["".join(cells) for cells in zip(*parts, strict=True)], dtype=object)


def _shown(formula: str, columns: Columns, where: str) -> list[str]:
    if formula in columns.table.columns and formula not in columns.spec.derive:  # a column alone is its cells
        return [str(cell) for cell in columns.words(formula)]
    value = np.asarray(formula_value(formula, columns, where))
    cells = np.broadcast_to(value, (len(columns.table),)) if value.ndim == 0 else value
    return [str(cell) if isinstance(cell, str) else _written(float(cell)) for cell in cells]


def _written(value: float) -> str:
    if np.isnan(value):
        return ""
    return str(int(value)) if value == int(value) else f"{value:g}"


def _names(text: str, columns: Columns, where: str) -> dict[str, Any]:
    """Values of the names that a formula uses."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    used = {name for name in _NAME.findall(plain) if name in columns}
    unknown = [
        name
        for name in dict.fromkeys(_NAME.findall(plain))
        if name not in used
        and name not in COLUMN_FUNCTIONS
        and name not in FUNCTIONS
        and name not in ("and", "or", "not", "in", "if", "else", "e", "E", "e3", "e6", "e9")
        and not re.search(rf"\d{name}\b", plain)
    ]
    if unknown:
        near = nearest(unknown[0], columns.table.columns, 1)
        guess = f" (is it '{near[0]}'?)" if near else ""
        has = ", ".join(columns.table.columns)
        raise BadFile(
            f"{columns.table.name} has no column '{unknown[0]}'{guess}, which {where} needs; it has: {has}"
        )
    return {name: columns[name] for name in used}


def derived_columns(table: Table, spec: MeasuredSpec) -> Table:
    """A table with the columns that its spec derives from all its rows, after its checks."""
    named = {name: table.text(header) for name, header in spec.columns.items()}
    table = replace(table, columns={**table.columns, **named})
    missing = [name for name in spec.derive if name not in table.columns]
    for name in missing:
        formula = spec.derive[name]
        write = template_value if "{" in formula else formula_value
        values = np.asarray(write(formula, Columns(table, spec), name))
        column = np.broadcast_to(values, (len(table),)) if values.ndim == 0 else values
        if codes := spec.codes.get(name):
            column = np.array([codes.get(cell, cell) for cell in column], dtype=object)
        table = replace(table, columns={**table.columns, name: column})
    wrong = {
        int(line): why
        for why, formula in spec.check.items()
        for line in table.lines[~condition(formula, Columns(table, spec), "check")]
    }
    if wrong:
        raise BadRows(table.name, wrong)
    return table


def checked_numbers(value: Any, count: int, what: str) -> Array:
    """A number for each row."""
    try:
        return np.broadcast_to(np.asarray(value, float), (count,))
    except (TypeError, ValueError):
        raise BadValue(f"{what} must be a number for each row, but got {str(value)[:60]}") from None
