"""The one door for files: text, TOML, JSON and CSV from outside, checked before anything else sees them.

A file is there, a file and readable, of a sensible size, in UTF-8; its tables are nested not too deep, name
each key once and hold finite numbers. What is not so is one line that names the file, and the key where there
is one.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from strata.base.errors import BadFile, nearest
from strata.base.units import LARGEST

MOST_BYTES = 64 << 20  # of a file that is read whole
DEEPEST = 64  # tables within tables


def file_bytes(path: Path | str, what: str = "file") -> bytes:
    """The bytes of a file of a sensible size; `what` says in an error what it should be."""
    path = Path(path)
    try:
        if path.is_dir():
            raise BadFile(f"{path} is a folder, not a {what}")
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise BadFile(f"{path} has {size / 2**20:,.0f} MiB; a {what} has at most {MOST_BYTES >> 20} MiB")
        return path.read_bytes()
    except BadFile:
        raise
    except FileNotFoundError:
        raise BadFile(f"no {what} at {path}") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise BadFile(f"{path} cannot be read: {said.lower()}") from None


def file_text(path: Path | str, what: str = "file", form: str = "text") -> str:
    """The text of a file, without a byte order mark; `what` and `form` say in an error what it should be."""
    path, content = Path(path), file_bytes(path, what)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{path.name} is not {form}: byte {error.start} is not UTF-8") from None
    if "\x00" in text:
        raise BadFile(f"{path.name} is not {form}: byte {text.index(chr(0))} is zero")
    return text


def toml_file(path: Path | str, what: str = "TOML file") -> dict[str, Any]:
    """The table of a TOML file, every number in it finite."""
    text, name = file_text(path, what, "TOML"), Path(path).name
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{name} is not TOML: {error}") from None
    except (RecursionError, ValueError) as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise BadFile(f"{name} is not TOML: {said}") from None
    check_tree(table, name)
    return table


def json_file(path: Path | str, what: str = "JSON file") -> Any:
    """What a JSON file holds: each key of an object once, every number finite."""
    return json_text(file_text(path, what, "JSON"), Path(path).name)


def json_text(text: str, name: str) -> Any:
    """What JSON text holds, checked as a file's."""

    def constant(word: str) -> Any:
        raise BadFile(f"{name}: {word} is not a finite number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            keys = [key for key, _ in pairs]
            raise BadFile(f"{name} names key '{next(k for k in keys if keys.count(k) > 1)}' twice")
        return made

    try:
        value = json.loads(text, parse_constant=constant, object_pairs_hook=once)
    except BadFile:
        raise
    except RecursionError:
        raise BadFile(f"{name} is not JSON: it is nested too deep") from None
    except ValueError as error:
        raise BadFile(f"{name} is not JSON: {error}") from None
    check_tree(value, name)
    return value


def csv_file(path: Path | str, name: str = "") -> list[tuple[int, list[str]]]:
    """The rows of a CSV file that are not empty, cells stripped, each with the line it ends on."""
    name = name or Path(path).name
    lines = file_text(path, "CSV file", "CSV").splitlines()
    reader = csv.reader(lines, strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise BadFile(f"{name} cannot be read as CSV: line {reader.line_num}: {error}") from None


def check_tree(value: Any, file: str, path: str = "", depth: int = 0) -> None:
    """Refuse numbers that are not finite, and tables nested too deep, with where they stand.

    >>> check_tree({"memory": {"bandwidth": float("inf")}}, "my.toml")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadFile: my.toml: 'memory.bandwidth' must be a finite number, but got inf
    """
    if isinstance(value, dict | list):
        if depth > DEEPEST:
            raise BadFile(f"{file}: '{path[:60]}...' is nested deeper than {DEEPEST} tables")
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            check_tree(inner, file, f"{path}.{key}" if path else str(key), depth + 1)
    elif not isinstance(value, str | int | float | None):  # TOML has dates
        raise BadFile(f"{file}: '{path}' is a number, text, true or false, but got the date {value}")
    elif isinstance(value, int | float) and not abs(value) < LARGEST:
        what = "a finite number" if value != value or value in (inf, -inf) else f"a number below {LARGEST:g}"
        raise BadFile(f"{file}: '{path}' must be {what}, but got {_brief(value)}")


# ------------------------------------------------------------------------------------------ tables inside


def known_keys(table: Any, known: Iterable[str], where: str) -> None:
    """Refuse what is no table, and keys nobody reads, with the nearest right one."""
    if not isinstance(table, Mapping):
        raise BadFile(f"{where} is a table, but got {_brief(table)}")
    for key in table:
        if key not in known:
            close = nearest(str(key), known)
            more = f"nearest: {', '.join(close)}" if close else f"keys here: {', '.join(known)}"
            raise BadFile(f"{where}: unknown key '{key}'; {more}")


def text_of(table: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    """The text under a key; one that is needed is not empty."""
    if key not in table and default is not None:
        return default
    if key not in table:
        raise BadFile(f"{where}: missing key '{key}'")
    value = table[key]
    if not isinstance(value, str) or not (value.strip() or default is not None):
        raise BadFile(f"{where}: '{key}' is text, but got {_brief(value)}")
    return value


def number_of(
    table: Mapping[str, Any], key: str, where: str, default: float | None = None, *, whole: bool = False
) -> float:
    """The number under a key, positive; `whole` where parts of one make no sense."""
    if key not in table and default is not None:
        return default
    if key not in table:
        raise BadFile(f"{where}: missing key '{key}'")
    value = table[key]
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < LARGEST
    if not good or (whole and value != value // 1):
        raise BadFile(
            f"{where}: '{key}' is a positive {'whole ' if whole else ''}number, but got {_brief(value)}"
        )
    return float(value)


def flag_of(table: Mapping[str, Any], key: str, where: str) -> bool:
    """Whether a key is set: true or false, and false where it is left out."""
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise BadFile(f"{where}: '{key}' is true or false, but got {_brief(value)}")
    return value


def table_of(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """The table under a key, empty where it is left out."""
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise BadFile(f"{where}: [{key}] is a table, but got {_brief(value)}")
    return value


def tables_of(table: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """The tables under a key, empty where it is left out.

    >>> tables_of({"axis": {"layers": {}}}, "axis", "space mine")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadFile: space mine: 'axis' is a list of tables, each under [[axis]], but got a table
    """
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        shown = "a table" if isinstance(value, dict) else _brief(value)
        raise BadFile(f"{where}: '{key}' is a list of tables, each under [[{key}]], but got {shown}")
    return value


def texts_of(
    table: Mapping[str, Any], key: str, where: str, default: tuple[str, ...] | None = None
) -> list[str]:
    """The list of texts under a key."""
    if key not in table and default is None:
        raise BadFile(f"{where}: missing key '{key}'")
    value = table.get(key, list(default or ()))
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadFile(f"{where}: '{key}' is a list of texts, but got {_brief(value)}")
    return value


def _brief(value: Any) -> str:
    long = isinstance(value, int) and value.bit_length() > 1000
    shown = f"{float(str(value)[:20]):g}..." if long else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
