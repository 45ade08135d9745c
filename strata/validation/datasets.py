"""Measured files as column arrays, and forecasts of their rows: one pricing call for each group of like rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import BadFile, StrataError, UnknownName, nearest

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Table:
    """One CSV file: its name below the data folder, its columns as text, and the line each row stands on."""

    name: str
    folder: Path
    columns: dict[str, Array]
    lines: Array

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def chip(self) -> str:
        """The chip that a file of bare kernels was measured on: the name of its folder."""
        return self.name.split("/")[0]

    def text(self, column: str) -> Array:
        """A column as stripped text."""
        if column not in self.columns:
            hint = nearest(column, self.columns, 1)
            guess = f" (is it '{hint[0]}'?)" if hint else ""
            raise BadFile(f"{self.name} has no column '{column}'{guess}; it has: {', '.join(self.columns)}")
        return self.columns[column]

    def number(self, column: str, empty: float = np.nan) -> Array:
        """A column as numbers; an empty cell is `empty`."""
        cells = self.text(column)
        values = np.full(len(cells), float(empty))
        for i, cell in enumerate(cells):
            if cell:
                try:
                    values[i] = float(cell)
                except ValueError:
                    raise BadFile(
                        f"{self.name} line {self.lines[i]}: column '{column}' must be a number, but got '{cell}'"
                    ) from None
        return values

    def numbers(self, *columns: str) -> dict[str, Array]:
        return {c: self.number(c) for c in columns}

    def keep(self, rows: Array) -> Table:
        """The table of the chosen rows (a mask or indices)."""
        return replace(self, columns={k: v[rows] for k, v in self.columns.items()}, lines=self.lines[rows])


def read_table(folder: Path, name: str) -> Table:
    """Read a CSV or JSON file below a folder; every row must have as many cells as the header, every record
    the same keys.
    """
    if name.endswith(".json"):
        return _read_records(folder, name)
    try:
        with (folder / name).open(encoding="utf-8-sig", newline="") as stream:
            rows = [(reader_line, row) for reader_line, row in _rows(csv.reader(stream, strict=True)) if row]
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise BadFile(f"{name} cannot be read as CSV: {error}") from None
    if not rows:
        raise BadFile(f"{name} is empty; it needs a header line")
    header = [cell.strip() for cell in rows[0][1]]
    if len(set(header)) != len(header):
        raise BadFile(f"{name} names a column twice: {', '.join(header)}")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise BadFile(f"{name} line {line} has {len(row)} cells, but the header has {len(header)}")
    body = [[cell.strip() for cell in row] for _, row in rows[1:]]
    columns = {h: np.array([row[i] for row in body], dtype=object) for i, h in enumerate(header)}
    return Table(name, folder, columns, np.array([line for line, _ in rows[1:]], int))


def _read_records(folder: Path, name: str) -> Table:
    """A JSON list of records as a table: a record is a row, and stands on the line of its number; lists in it
    stay JSON text.
    """
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise BadFile(f"{name} cannot be read as JSON: {error}") from None
    if not (isinstance(found, list) and found and all(isinstance(row, dict) for row in found)):
        raise BadFile(f"{name} must be a list of records, each with the same keys")
    for i, row in enumerate(found, 1):
        if set(row) != set(found[0]):
            raise BadFile(
                f"{name} record {i} has other keys than the first: {', '.join(sorted(set(row) ^ set(found[0])))}"
            )
    cells = {
        key: [row[key] if isinstance(row[key], str) else json.dumps(row[key]) for row in found]
        for key in found[0]
    }
    return Table(
        name,
        folder,
        {key: np.array(column, dtype=object) for key, column in cells.items()},
        np.arange(1, len(found) + 1),
    )


def _rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    for row in reader:
        yield reader.line_num, row


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predicted quantities of every row, one array for each metric (nan where there is none), and why rows
    have none.
    """

    values: Array  # [metrics, rows]
    why: dict[int, str] = field(default_factory=dict)

    def __getitem__(self, metric: int) -> Array:
        values: Array = self.values[metric]
        return values


def forecast(
    table: Table,
    keys: Sequence[Array],
    price: Callable[[tuple[Any, ...], Array], Any],
    needs: Sequence[str] = (),
    metrics: int = 1,
) -> Forecast:
    """Price all rows that share the same keys in one call.

    `price` gets the key and the row indices and returns one array (or `metrics` of them). A group that is
    refused is tried row by row, so that one impossible row does not take its neighbours along.
    """
    values = np.full((metrics, len(table)), np.nan)
    why: dict[int, str] = {}
    for column in needs:
        for i in np.flatnonzero(np.isnan(table.number(column))):
            why[int(i)] = f"column '{column}' is empty"
    for key, rows in groups(keys, len(table)):
        rows = np.array([i for i in rows if int(i) not in why], int)
        if len(rows):
            _fill(values, why, key, rows, price)
    for i in np.flatnonzero(~(np.isfinite(values) & (values > 0)).any(axis=0)):
        why.setdefault(int(i), "the prediction is not a positive number")
    return Forecast(values, why)


def _fill(
    values: Array,
    why: dict[int, str],
    key: tuple[Any, ...],
    rows: Array,
    price: Callable[[tuple[Any, ...], Array], Any],
) -> None:
    try:
        values[:, rows] = np.broadcast_to(np.asarray(price(key, rows), float), (values.shape[0], len(rows)))
    except UnknownName as error:
        why.update(dict.fromkeys(map(int, rows), str(error)))
    except StrataError as error:
        if len(rows) == 1:
            why[int(rows[0])] = str(error)
        else:
            for row in rows:
                _fill(values, why, key, np.array([row]), price)


def groups(keys: Sequence[Array], count: int) -> list[tuple[tuple[Any, ...], Array]]:
    """Row indices by equal keys, in order of appearance."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for i in range(count):
        found.setdefault(tuple(k[i] for k in keys), []).append(i)
    return [(key, np.array(rows)) for key, rows in found.items()]


def fastest(table: Table, same: Sequence[str], time: str) -> Table:
    """One row for each shape: the fastest of its backends."""
    measured = table.number(time)
    best: list[int] = []
    for _, rows in groups([table.text(c) for c in same], len(table)):
        filled = rows[~np.isnan(measured[rows])]
        if len(filled):
            best.append(int(filled[np.argmin(measured[filled])]))
    return table.keep(np.array(sorted(best), int))


@dataclass(frozen=True, eq=False)
class Points:
    """Measured against predicted. A failed point is predicted as 0, an error of -1.

    `headline` marks the points behind the file's own figures; `rate` marks metrics of which more is better;
    `case` is phase|chip|kind|family of whole-model points, for the intervals of `strata predict`.
    """

    measured: Array
    predicted: Array
    group: Array
    line: Array
    headline: Array
    rate: Array
    case: Array
    why: dict[int, str]  # line of the file to reason
    # node count to indices of points that are ranked together
    ranks: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.measured)


def points(
    table: Table, measured: Array, made: Forecast, group: Sequence[str] | Array, *, metric: int = 0,
    headline: bool | Array = True, rate: bool = False, case: Sequence[str] | Array | None = None,
) -> Points:  # fmt: skip
    """The points of one metric of a table: rows with a measurement; where there is no prediction, a failed
    point.
    """
    kept = np.flatnonzero(np.isfinite(measured) & (measured > 0))
    values = made[metric][kept]
    failed = ~(np.isfinite(values) & (values > 0))
    names = np.asarray(group, dtype=object)
    cases = np.asarray(case if case is not None else [""] * len(table), dtype=object)
    reasons = {
        int(table.lines[i]): made.why.get(int(i), "the prediction is not a positive number")
        for i in kept[failed]
    }
    return Points(
        measured[kept],
        np.where(failed, 0.0, values),
        names[kept],
        table.lines[kept],
        np.broadcast_to(headline, (len(table),))[kept],
        np.full(len(kept), rate),
        cases[kept],
        reasons,
    )


HELD_OUT = 3  # every third line of a file that is fitted is held out


def held_out(found: Points) -> Points:
    """The points of a fitted file that no fit has seen."""
    kept = found.line % HELD_OUT == 0
    columns = {
        name: getattr(found, name)[kept]
        for name in ("measured", "predicted", "group", "line", "headline", "rate", "case")
    }
    return replace(
        found, **columns, why={line: reason for line, reason in found.why.items() if line % HELD_OUT == 0}
    )


def joined(parts: Sequence[Points]) -> Points:
    """Several metrics of one file as one set of points."""
    why: dict[int, str] = {}
    for part in parts:
        why.update(part.why)

    def column(name: str) -> Array:
        return np.concatenate([getattr(p, name) for p in parts])

    return Points(
        column("measured"),
        column("predicted"),
        column("group"),
        column("line"),
        column("headline"),
        column("rate"),
        column("case"),
        why,
    )


def labels(*parts: Array | str, count: int) -> Array:
    """Group names from columns and fixed words, joined by '/'."""
    made = [
        ["" if p is None else str(p)] * count if isinstance(p, str) else [str(v) for v in p] for p in parts
    ]
    return np.array(["/".join(row) for row in zip(*made, strict=True)], dtype=object)
