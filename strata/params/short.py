"""Files in a few lines: plain numbers under one source, numbers taken from another file, and what is missing.

``source = "vendor's page, 2026"`` at the top of a file is the source of every number that is written without
one of its own. ``like = "h200"`` (or ``base``) takes everything else from another file; such numbers say whom
they are inherited from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from strata.errors import BadFile
from strata.params.declare import inherited_source, needed

# In a table of quantities by name: an entry of the file underneath that does not hold here.
NONE = "none"
_REMOVED = "removed"

Writer = Callable[[dict[str, Any], str], dict[str, Any]]


def spelled_out(cls: type, table: dict[str, Any], file: str) -> dict[str, Any]:
    """A file's table with plain numbers of quantities written as value and source, that of the whole file.

    >>> from strata.params import quantity
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Tank:
    ...     volume: float = quantity("1", "what it holds")
    >>> spelled_out(Tank, {"source": "our drawing, sheet 2", "volume": 3}, "tank.toml")
    {'volume': {'value': 3, 'source': 'our drawing, sheet 2'}}
    """
    if any(f.name == "source" for f in fields(cls)) or not isinstance(source := table.get("source"), str):
        return _spelled(cls, table, None, file, "")
    return _spelled(cls, {k: v for k, v in table.items() if k != "source"}, source, file, "")


def _spelled(cls: type, table: dict[str, Any], source: str | None, file: str, prefix: str) -> dict[str, Any]:
    known = {f.name: f.metadata for f in fields(cls)}
    return {
        key: _value(known.get(key, {}), value, source, file, prefix + key) for key, value in table.items()
    }


def _value(meta: Mapping[str, Any], value: Any, source: str | None, file: str, path: str) -> Any:
    part = meta.get("part")
    if part is not None and isinstance(value, dict):
        return _spelled(part, value, source, file, path + ".")
    if part is not None and isinstance(value, list):
        return [_value(meta, v, source, file, f"{path}.{i}") for i, v in enumerate(value)]
    if "unit" not in meta:
        return value
    if meta.get("table") and isinstance(value, dict):
        return {
            k: {_REMOVED: True} if v == NONE else _quantity(v, meta["unit"], source, file, f"{path}.{k}")
            for k, v in value.items()
        }
    return value if meta.get("table") else _quantity(value, meta["unit"], source, file, path)


def _quantity(value: Any, unit: str, source: str | None, file: str, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        if isinstance(value, dict) and source and "value" in value and "source" not in value:
            return {**value, "source": source}
        return value
    if not source:
        raise BadFile(
            f'{file}: {path} = {value!r} has no source; write source = "..." once at the top of the file, or '
            f'{path.rsplit(".", 1)[-1]} = {{ value = {value!r}, source = "..." }}'
        )
    bare = isinstance(value, (int, float)) and unit != "1"  # a plain number is SI
    return {"value": f"{value!r} {unit}" if bare else value, "source": source}


def inherited(table: Any, owner: str) -> Any:
    """A table whose quantities say that they were taken from another file.

    >>> inherited({"clock": {"value": "2 GHz", "source": "data sheet, p. 3"}}, "h200")
    {'clock': {'value': '2 GHz', 'source': 'inherited from h200: data sheet, p. 3'}}
    """
    if isinstance(table, dict):
        if "value" in table and isinstance(source := table.get("source"), str):
            return {**table, "source": inherited_source(source, owner)}
        return {k: inherited(v, owner) for k, v in table.items()}
    return [inherited(v, owner) for v in table] if isinstance(table, list) else table


def pruned(table: Any) -> Any:
    """A table without the entries that a file said do not hold."""
    if isinstance(table, dict):
        kept = {k: v for k, v in table.items() if not (isinstance(v, dict) and v.get(_REMOVED) is True)}
        return {k: pruned(v) for k, v in kept.items()}
    return [pruned(v) for v in table] if isinstance(table, list) else table


def missing_paths(cls: type, table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted path of each thing a record needs and a file's table lacks, inside parts too."""
    for f in fields(cls):
        meta = f.metadata
        if not meta or meta.get("part", True) is None:
            continue
        part, held, path = meta.get("part"), table.get(f.name), prefix + f.name
        if held is None and not needed(f):
            continue
        if part is not None and not meta["many"] and (held is None or isinstance(held, Mapping)):
            yield from missing_paths(part, held or {}, path + ".")
        elif held is None:
            yield path
