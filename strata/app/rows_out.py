"""Answers as tables: rows of plain values, in CSV or Parquet files, with units in the names of columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from strata.app.terminal import plain_json, print_json, say, wrote
from strata.app.told_units import ONE, unit_read, unit_under, with_units
from strata.errors import BadFile, BadValue
from strata.shipped import extra_package

KINDS_OF_TABLE = (".csv", ".parquet")
Rows = list[dict[str, Any]]
# Parts of an answer whose names say nothing in a column's name, and parts that are no columns.
_PLAIN, _LEFT_OUT = ("question", "metrics", "design", "numbers"), ("units", "inputs")


def answer(
    told: Callable[..., Any],
    shown: Callable[..., Iterable[Any]],
    json: bool,
    table: Path | None,
    rows: str | Callable[[Any], Rows] = "",
    of: Sequence[Any] = (),
) -> None:
    """Give an answer, of what was found: JSON where asked for, else tables for people; and its rows in a file
    where asked.
    """
    data = told(*of) if json or table else None
    if json:
        print_json(data)
    elif parts := list(shown(*of)):
        say(*parts)
    keep_table(table, data, rows)


def keep_table(table: Path | None, told: Any, rows: str | Callable[[Any], Rows] = "") -> None:
    """Write the rows of an answer, where a file is asked for: its entries, those under a key, or as told."""
    if table is not None:
        data = with_units(plain_json(told))
        wrote("table", write_rows(table, *named_rows(data, rows)))


def named_rows(told: Any, rows: str | Callable[[Any], Rows] = "") -> tuple[Rows, dict[str, str]]:
    """The rows of an answer and the unit of each column.

    >>> named_rows({"chip": "a", "dies": [{"name": "logic", "max_K": 350.0, "parts_W": {"io": 2.0}}]}, "dies")
    ([{'chip': 'a', 'name': 'logic', 'max_K': 350.0, 'parts_W.io': 2.0}], {'max_K': 'K', 'parts_W.io': 'W'})
    """
    entries, before = (rows(told), {}) if callable(rows) else _entries(told, rows)
    units: dict[str, str] = told.get("units", {}) if isinstance(told, dict) else {}
    paths = [_flat(entry) for entry in entries]
    names = _column_names(list(dict.fromkeys(keys for flat in paths for keys in flat)))
    found = [before | {names[keys]: value for keys, value in flat.items()} for flat in paths]
    own = [with_units(entry).get("units", {}) for entry in entries[:1]]
    known = [table for table in (units, *own) if isinstance(table, dict)]
    columns = {}
    for keys, name in names.items():
        if any(isinstance(flat.get(keys), str | bool) for flat in paths):
            continue
        inside = (rows, *keys) if isinstance(rows, str) and rows else keys
        stated = (u for table in known if (u := unit_read(inside, table)))
        if unit := next(stated, None) or (unit_under(inside) or ("", ""))[1]:
            columns[name] = unit
    return found, {} if any("unit" in entry for entry in entries) else columns


def _entries(told: Any, key: str) -> tuple[Rows, dict[str, Any]]:
    """The entries of an answer that are rows, and what all of them have in common: names of the answer."""
    if isinstance(told, list):
        return [entry for entry in told if isinstance(entry, dict)], {}
    under = told.get(key) if key else None
    if not under:
        return [told], {}
    if isinstance(under, dict):
        under = [{"name": name, **one} for name, one in under.items()]
    taken = {k for entry in under for k in entry}
    taken |= {"title", "note", "why", "proof", "paper"}  # sentences
    return under, {k: v for k, v in told.items() if isinstance(v, str) and k not in taken}


def _flat(node: dict[str, Any], keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Plain values of an entry by their keys; a list of them is one text, lists of entries are left out."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            found |= {} if key in _LEFT_OUT else _flat(value, (*keys, key))
        elif not isinstance(value, list):
            found[*keys, key] = value
        elif not any(isinstance(item, dict | list) for item in value):
            found[*keys, key] = ", ".join(str(item) for item in value)
    return found


def _column_names(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for each column: its keys, without those that say nothing, as long as no two are the same."""
    short = {keys: ".".join(k for k in keys if k not in _PLAIN) or keys[-1] for keys in paths}
    given = list(short.values())
    return {keys: name if given.count(name) == 1 else ".".join(keys) for keys, name in short.items()}


def quantity_rows(told: Any, keys: tuple[str, ...] = (), units: dict[str, str] | None = None) -> Rows:
    """An answer with parts in parts as rows, one for each value: its keys, the value and its unit.

    >>> quantity_rows({"use": {"power_W": {"core": 1.5}}, "units": {"power_W": "W"}})
    [{'quantity': 'use.power_W.core', 'value': 1.5, 'unit': 'W'}]
    """
    known: dict[str, str] = told.get("units", {}) if units is None else units
    found: Rows = []
    for key, value in told.items():
        path = (*keys, key)
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            value = {str(one.get("name", i)): one for i, one in enumerate(value)}
        if key in _LEFT_OUT:
            continue
        if isinstance(value, dict):
            found += quantity_rows(value, path, known)
        elif not isinstance(value, list):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            unit = unit_read(path, known) if number else None
            found.append({"quantity": ".".join(path), "value": value, "unit": unit})
    return found


# ------------------------------------------------------------------------------------------------- files


def check_table(path: Path | None) -> Path | None:
    """The file a table is to go into, refused before any work where it cannot: by its ending, for want of a
    package, because it is a folder.
    """
    if path is None:
        return None
    if path.suffix.lower() not in KINDS_OF_TABLE:
        raise BadValue(
            f"--table writes CSV or Parquet: a name that ends in .csv or .parquet, but got '{path}'"
        )
    if path.suffix.lower() == ".parquet":
        extra_package("pyarrow.parquet", "a Parquet file", "search")
    if path.is_dir():
        raise BadFile(f"{path} is a folder, no file for a table")
    return path


def write_rows(path: Path, rows: Rows, units: dict[str, str] | None = None) -> Path:
    """Write rows into a file, CSV or Parquet by its ending; a column with a unit is called `name [unit]`.

    Numbers are in SI units and keep every digit; what is not there, or not finite, is empty. The folder need
    not be there yet.
    """
    check_table(path)
    columns = columns_of_rows(rows, units or {})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".parquet":
            _write_parquet(path, columns)
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(zip(*map(_as_text, columns.values()), strict=True))
    except OSError as error:
        said = str(error.strerror or error).lower()
        raise BadFile(f"{path} cannot be written: {said}") from None
    return path


def columns_of_rows(rows: Rows, units: dict[str, str]) -> dict[str, list[Any]]:
    """Columns by name, each of one type: numbers, yes or no, or text where they are mixed.

    >>> columns_of_rows([{"tpot": 0.02, "plan": "tp=8"}, {"tpot": None, "plan": 1.0}], {"tpot": "s"})
    {'tpot [s]': [0.02, None], 'plan': ['tp=8', '1.0']}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    told = {name: f"{name} [{unit}]" if (unit := units.get(name, ONE)) != ONE else name for name in names}
    return {told[name]: _of_one_type([_finite(row.get(name)) for row in rows]) for name in names}


def _finite(value: Any) -> Any:
    """A value as a file holds it."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(plain_json(value), default=str)


def _of_one_type(values: list[Any]) -> list[Any]:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        return [v if v is None else float(v) for v in values]
    return [v if v is None else str(v) for v in values] if len(kinds) > 1 else values


def _as_text(values: list[Any]) -> list[str]:
    return ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]


def _write_parquet(path: Path, columns: dict[str, list[Any]]) -> None:
    parquet = extra_package("pyarrow.parquet", "a Parquet file", "search")
    pyarrow = extra_package("pyarrow", "a Parquet file", "search")
    arrays = {name: pyarrow.array(values, from_pandas=False) for name, values in columns.items()}
    try:
        with path.open("wb") as file:
            parquet.write_table(pyarrow.table(arrays), file)
    except pyarrow.ArrowException as error:
        raise BadFile(f"{path} cannot be written: {str(error).splitlines()[0]}") from None
