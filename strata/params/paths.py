"""Quantities of a record by their dotted path: which there are, their values, records with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.base.arrays import highest, is_leaf, lowest
from strata.base.errors import BadValue, UnknownName
from strata.base.units import finite_array, finite_number, parse
from strata.params.declare import GIVEN, Param
from strata.params.records import check_range


def _described(record: Any, prefix: str = "") -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Dotted path, value and metadata of each field that a record and its parts describe."""
    for f in fields(record):
        if not f.metadata:  # not of the file: a field that is solved on first use is left alone
            continue
        value, meta, path = getattr(record, f.name), f.metadata, prefix + f.name
        if "part" not in meta:
            yield path, value, meta
        elif is_dataclass(value):
            yield from _described(value, path + ".")
        elif isinstance(value, tuple | dict):
            for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
                yield from _described(inner, f"{path}.{name}.")


def leaf_paths(record: Any) -> dict[str, Mapping[str, Any]]:
    """Dotted path of each quantity a record describes, with its metadata."""
    paths: dict[str, Mapping[str, Any]] = {}
    for path, value, meta in _described(record):
        if meta.get("table") and not meta.get("text"):
            paths |= {f"{path}.{k}": meta for k in value or ()}
        elif "unit" in meta:
            paths[path] = meta
    return paths


@lru_cache(maxsize=256)
def unit_at(cls: Any, path: str) -> str | None:
    """The unit of the quantity at a dotted path of a record's file; None where there is none."""
    head, _, rest = path.partition(".")
    meta: Mapping[str, Any] = next((f.metadata for f in fields(cls) if f.name == head), {})
    if meta.get("part") is not None:
        return unit_at(meta["part"], rest) if rest else None
    return meta.get("unit")


def value_at(record: Any, path: str) -> Any:
    """The quantity at a dotted path; names of a table may hold dots themselves.

    >>> value_at({"prompt": {"llama-3.1-8b": 5, ".x": 7}}, "prompt.llama-3.1-8b")
    5
    """
    node: Any = record
    rest: str | None = path
    while rest is not None:
        name, rest = _first_name(node, rest)
        place: Any = int(name) if isinstance(node, tuple) else name
        node = node[place] if isinstance(node, dict | tuple) else getattr(node, name)
    return node


def _first_name(node: Any, path: str) -> tuple[str, str | None]:
    """The name that a path begins with inside of a node, and the path from there; None at its end."""
    if isinstance(node, dict):
        if path in node:
            return path, None
        longest = max((name for name in node if path.startswith(f"{name}.")), key=len, default=None)
        if longest is not None:
            return longest, path[len(longest) + 1 :]
    head, dot, rest = path.partition(".")
    return head, rest if dot else None


def stated(record: Any) -> dict[str, Param]:
    """Every quantity a record holds now, with its unit and source; what was computed from others says so."""
    derived = Param(0.0, "", "derived from the other numbers of this record")
    return {
        path: Param(value, meta["unit"], record.sources.get(path, derived).source)
        for path, meta in leaf_paths(record).items()
        if (value := value_at(record, path)) is not None
    }


def override(record: Any, changes: Mapping[str, Any], what: str) -> tuple[Any, dict[str, Param]]:
    """A record with some quantities replaced, each by its path or its last part, the outermost so called.

    A value may be a number in SI, an array of such numbers, or text with a unit ("6 TB/s"); a field that
    holds a word takes another word.
    """
    paths, words = leaf_paths(record), word_paths(record)
    noted: dict[str, Param] = {}
    for name, value in changes.items():
        wanted = name.replace("__", ".")
        hits = called(wanted, paths)
        if not hits and (worded := called(wanted, words)):
            _check_word(value, words[worded[0]], worded[0])
            record = with_value(record, worded[0], value)
            continue
        if not hits:
            raise UnknownName(
                f"{what} quantity",
                wanted,
                [*paths, *{p.rsplit(".", 1)[-1] for p in paths}],
                f"strata schema {what}",
            )
        inside = [p for p in paths if p.startswith(wanted + ".")]
        if inside and hits != [wanted]:  # memory is DRAM, not the energy that is called memory
            raise BadValue(
                f"'{wanted}' is a part of a {what} that holds {', '.join(inside[:3])} and others; write the "
                f"whole path of a quantity, or {hits[0]}"
            )
        if len(hits) > 1:
            raise BadValue(
                f"'{wanted}' names several {what} quantities: {', '.join(hits)}; write the whole path"
            )
        meta = paths[hits[0]]
        value = _given(value, meta, hits[0])
        record = with_value(record, hits[0], value)
        noted[hits[0]] = Param(value, meta["unit"], GIVEN)
    return record, noted


def changed_record(given: Any, changes: Mapping[str, Any], what: str) -> Any:
    """A record with some quantities replaced, and their sources noted."""
    if not changes:
        return given
    changed, noted = override(given, changes, what)
    return replace(changed, sources=given.sources.updated(noted))


def _given(value: Any, meta: Mapping[str, Any], path: str) -> Any:
    """A quantity as given, inside of what its field allows: text with a unit, a number, an array, a list."""
    if isinstance(value, str):
        value = parse(value, meta["unit"], path)
    elif isinstance(value, list | tuple | np.ndarray):
        value = finite_array(value, path)
    elif not is_leaf(value):
        raise BadValue(f"{path} is a number, an array or text with a unit, but got {value!r}")
    elif isinstance(value, int | float):
        finite_number(value, path)
    for bound in (lowest(value), highest(value)):
        check_range(bound, meta, path, f"{bound:g}")
    return value


def called(wanted: str, paths: Mapping[str, Any]) -> list[str]:
    """Paths of that name, or that end with it and lie least deep."""
    if wanted in paths:
        return [wanted]
    ending = [p for p in paths if p.endswith("." + wanted)]
    least = min((p.count(".") for p in ending), default=0)
    return [p for p in ending if p.count(".") == least]


def word_paths(record: Any) -> dict[str, Mapping[str, Any]]:
    """Dotted path of each word inside a record's parts, or chosen, with its metadata: no names and titles."""
    paths: dict[str, Mapping[str, Any]] = {}
    for path, value, meta in _described(record):
        *parts, name = path.split(".")
        if not meta.get("text") or any(part.isdecimal() for part in parts):
            continue
        if isinstance(value, dict):
            paths |= {f"{path}.{word}": meta for word in value}
        elif (parts or meta.get("choices")) and name not in ("name", "title", "note", "kind"):
            paths[path] = meta
    return paths


def _check_word(value: Any, meta: Mapping[str, Any], path: str) -> None:
    legal = meta.get("choices") or ()
    if not isinstance(value, str) or (legal and value not in legal):
        raise BadValue(
            f"{path} must be {'one of ' + ', '.join(legal) if legal else 'a word'}, but got {value!r}"
        )


def with_value(record: Any, path: str, value: Any) -> Any:
    """A record with what stands at a dotted path replaced.

    >>> with_value({"a": {"b": (1, 2)}}, "a.b.1", 5)
    {'a': {'b': (1, 5)}}
    """
    head, rest = _first_name(record, path)
    if isinstance(record, dict):
        return {**record, head: value if rest is None else with_value(record[head], rest, value)}
    if isinstance(record, tuple):
        i = int(head)
        return (*record[:i], value if rest is None else with_value(record[i], rest, value), *record[i + 1 :])
    return replace(
        record, **{head: value if rest is None else with_value(getattr(record, head), rest, value)}
    )
