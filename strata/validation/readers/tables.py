"""Measured files as column arrays."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import BadFile, StrataError, nearest
from strata.base.reading import csv_file, json_file
from strata.base.units import finite_number


class BadRows(BadFile):
    """Rows of a file that cannot be read, each by its line; the others can, and may have been compared."""

    def __init__(self, file: str, why: Mapping[int, str], others: Any = None):
        self.why, self.others = dict(why), others
        first, *rest = sorted(self.why.items())
        more = f" (and {len(rest)} more rows)" if rest else ""
        super().__init__(f"{file} line {first[0]}: {first[1]}{more}")


@dataclass(frozen=True, eq=False)
class Table:
    """One CSV file: its name below the data folder, its columns as text, and the line each row stands on."""

    name: str
    folder: Path
    columns: dict[str, Array]
    lines: Array
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the conditions its runs were made under
    bad: Mapping[int, str] = field(default_factory=dict)  # lines that are no rows of it, and why

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
        values, why = np.full(len(cells), float(empty)), dict[int, str]()
        for i, cell in enumerate(cells):
            if cell:
                try:
                    values[i] = finite_number(cell)
                except StrataError:
                    why[int(self.lines[i])] = f"column '{column}' must be a number, but got '{cell}'"
        if why:
            raise BadRows(self.name, why)
        return values

    def keep(self, rows: Array) -> Table:
        """The table of the chosen rows (a mask or indices)."""
        return replace(self, columns={k: v[rows] for k, v in self.columns.items()}, lines=self.lines[rows])


def read_table(folder: Path, name: str) -> Table:
    """Read a CSV or JSON file below a folder; every row must have as many cells as the header, every record
    the same keys.
    """
    if name.endswith(".json"):
        return _read_records(folder, name)
    rows = csv_file(folder / name, name)
    if not rows:
        raise BadFile(f"{name} is empty; it needs a header line")
    header = rows[0][1]
    if len(set(header)) != len(header):
        raise BadFile(f"{name} names a column twice: {', '.join(header)}")
    bad = {
        line: f"{len(row)} cells, but the header has {len(header)}"
        for line, row in rows[1:]
        if len(row) != len(header)
    }
    kept = [(line, row) for line, row in rows[1:] if line not in bad]
    if bad and not kept:
        raise BadRows(name, bad)
    columns = {h: np.array([row[i] for _, row in kept], dtype=object) for i, h in enumerate(header)}
    return Table(name, folder, columns, np.array([line for line, _ in kept], int), bad=bad)


def _read_records(folder: Path, name: str) -> Table:
    """A JSON list of records as a table: a record is a row, and stands on the line of its number; lists in it
    stay JSON text.
    """
    records = json_file(folder / name)
    if not (isinstance(records, list) and records and all(isinstance(row, dict) for row in records)):
        raise BadFile(f"{name} must be a list of records, each with the same keys")
    for i, row in enumerate(records, 1):
        if set(row) != set(records[0]):
            other = ", ".join(sorted(set(row) ^ set(records[0])))
            raise BadFile(f"{name} record {i} has other keys than the first: {other}")
    columns = {}
    for key in records[0]:
        cells = [row[key] if isinstance(row[key], str) else json.dumps(row[key]) for row in records]
        columns[key] = np.array(cells, dtype=object)
    return Table(name, folder, columns, np.arange(1, len(records) + 1))


def matches(name: str, *patterns: str) -> bool:
    """Whether a file's name fits one of some patterns, folder by folder.

    >>> matches("h100/gemm.csv", "ops/gemm.csv", "*/gemm.csv"), matches("a/b/gemm.csv", "*/gemm.csv")
    (True, False)
    """
    return any(fnmatch.fnmatchcase(name, p) and name.count("/") == p.count("/") for p in patterns)
