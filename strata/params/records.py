"""Files to dataclasses: the pydantic model of a record's file, and the record that a table makes; and back:
each number written with its unit and source, so that reading it gives the record again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from strata.base.arrays import has_axes
from strata.base.errors import LONGEST_LIST, BadFile, BadValue, nearest
from strata.base.units import parse
from strata.params.declare import Param, Sources, missing_paths, needed, spelled_out
from strata.params.files import find, load_table, remembered


@lru_cache(maxsize=32)
def file_model(cls: type) -> Any:
    """The pydantic model of a dataclass's file: exact keys, each quantity a value with a source."""
    from pydantic import ConfigDict, Field, create_model

    stated = create_model(
        "Stated",
        __config__=ConfigDict(extra="forbid", strict=True),
        value=(float | int | str, Field(description="a number with its unit, like '4.8 TB/s'")),
        source=(str, Field(min_length=8, description="document with page, table or URL, or 'assumed: why'")),
    )

    def annotation(meta: Mapping[str, Any]) -> Any:
        if "part" in meta:
            inner = file_model(meta["part"])
            return list[inner] if meta["many"] else inner  # type: ignore[valid-type]
        if meta.get("text"):
            return dict[str, str] if meta.get("table") else str
        return dict[str, stated] if meta.get("table") else stated  # type: ignore[valid-type]

    entries: dict[str, Any] = {}
    for f in fields(cls):
        meta = f.metadata
        if not in_file(meta):
            continue
        required = needed(f)
        unit = f" [{meta['unit']}]" if "unit" in meta else ""
        described = Field(... if required else None, description=meta["doc"] + unit)
        entries[f.name] = (annotation(meta) if required else annotation(meta) | None, described)
    if getattr(cls, "DATED_VERSIONS", False):
        entries["versions"] = _versions(entries)
    config = ConfigDict(extra="forbid", strict=True, title=cls.__name__)
    return create_model(cls.__name__, __config__=config, __doc__=cls.__doc__, **entries)


def _versions(entries: dict[str, Any]) -> tuple[Any, Any]:
    """The releases of a record: version, date, and any entry in which one differs from the next."""
    from pydantic import ConfigDict, Field, create_model

    changed: dict[str, Any] = {
        name: (kind | None, Field(None, description=f.description)) for name, (kind, f) in entries.items()
    }
    release = create_model(
        "Version",
        __config__=ConfigDict(extra="forbid", strict=True),
        version=(str, Field(description="its number, like 0.14.0")),
        date=(str, Field(description="the day it came out, like 2026-01-20")),
        **changed,
    )
    doc = "releases, and what each and those before it did otherwise than the next"
    return list[release] | None, Field(None, description=doc)  # type: ignore[valid-type]


def in_file(meta: Mapping[str, Any]) -> bool:
    """Whether a record's file holds a field: not what is worked out, nor records of other files."""
    return bool(meta) and meta.get("part", True) is not None


Record = TypeVar("Record")


@remembered
def read_record(
    cls: type[Record],
    kind: str,
    name: str | Path,
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> tuple[Record, dict[str, Param], str]:
    """A record as a shipped file or a TOML path has it, the `Param` of each quantity, the file's name.

    `prepare` is what is done to the file's table first. Read once, and again where a file has changed.
    """
    table, file = load_table(kind, name, written=partial(spelled_out, cls)), find(kind, name).name
    return (*build(cls, table if prepare is None else prepare(table), file), file)


def sourced_record(cls: type[Record], kind: str, name: str | Path, **changes: Any) -> Record:
    """A record as its file has it, with the sources of its quantities; `changes` set fields."""
    stated, params, _ = read_record(cls, kind, name)
    return replace(stated, sources=Sources(params), **changes)  # type: ignore[type-var]


def build(cls: type, table: Mapping[str, Any], file: str) -> tuple[Any, dict[str, Param]]:
    """A record of plain quantities from a file's table, and the `Param` of each quantity by path."""
    if not isinstance(table, Mapping):
        raise BadFile(f"{file}: a {cls.__name__.lower()} is a table, but got {table!r}")
    if not _as_declared(cls, table):  # the file's model takes long to build, and says what is wrong
        from pydantic import ValidationError

        try:
            file_model(cls).model_validate(dict(table))
        except ValidationError as error:
            raise BadFile(_one_line(error, cls, file, table), LONGEST_LIST) from None
    params: dict[str, Param] = {}
    return _construct(cls, table, file, "", params), params


def _as_declared(cls: type, table: Any) -> bool:
    """Whether a table has all keys a record needs and no other, each right: what `file_model` takes."""
    if not isinstance(table, dict):
        return False
    known = {f.name: f for f in fields(cls) if in_file(f.metadata)}
    if not table.keys() <= known.keys() or any(needed(f) and n not in table for n, f in known.items()):
        return False
    return all(_held_right(known[name].metadata, value) for name, value in table.items())


def _held_right(meta: Mapping[str, Any], value: Any) -> bool:
    if "part" in meta:
        parts = value if meta["many"] else [value]
        return isinstance(parts, list) and all(_as_declared(meta["part"], each) for each in parts)
    each = value if meta.get("table") else {"": value}
    right = _is_stated if "unit" in meta else lambda word: isinstance(word, str)
    return isinstance(each, dict) and all(isinstance(k, str) and right(v) for k, v in each.items())


def _is_stated(value: Any) -> bool:
    """Whether a value is a number or text, with its source."""
    if not isinstance(value, dict) or value.keys() != {"value", "source"}:
        return False
    number, source = value["value"], value["source"]
    return type(number) in (float, int, str) and isinstance(source, str) and len(source) >= 8


def _construct(cls: type, table: Mapping[str, Any], file: str, prefix: str, params: dict[str, Param]) -> Any:
    made: dict[str, Any] = {}
    for f in fields(cls):
        if not in_file(f.metadata) or f.name not in table:
            continue
        meta, raw, path = f.metadata, table[f.name], prefix + f.name
        if "part" in meta and meta["many"]:
            inner = [_construct(meta["part"], t, file, f"{path}.{i}.", params) for i, t in enumerate(raw)]
            made[f.name] = tuple(inner)
        elif "part" in meta:
            made[f.name] = _construct(meta["part"], raw, file, path + ".", params)
        elif meta.get("text"):
            if meta["choices"] and raw not in meta["choices"]:
                raise BadFile(f"{file}: {path} must be one of {', '.join(meta['choices'])}, but got '{raw}'")
            made[f.name] = raw
        elif meta.get("table"):
            made[f.name] = {k: _quantity(v, meta, file, f"{path}.{k}", params) for k, v in raw.items()}
        else:
            made[f.name] = _quantity(raw, meta, file, path, params)
    return cls(**made)


def _quantity(
    raw: Mapping[str, Any], meta: Mapping[str, Any], file: str, path: str, params: dict[str, Param]
) -> float:
    value = parse(raw["value"], meta["unit"], f"{file}: {path}")
    check_range(value, meta, f"{file}: {path}", f"'{raw['value']}'")
    params[path] = Param(value, meta["unit"], raw["source"])
    return value


def check_range(value: float, meta: Mapping[str, Any], what: str, shown: str) -> None:
    """Refuse a value outside of what its field allows."""
    if meta["positive"] and not value > 0:
        raise BadValue(f"{what} must be positive, but got {shown}")
    if not value >= meta["minimum"]:
        raise BadValue(f"{what} must be at least {meta['minimum']:g}, but got {shown}")
    if not value < inf:
        raise BadValue(f"{what} must be finite, but got {shown}")


def _one_line(error: Any, cls: type, file: str, table: Mapping[str, Any]) -> str:
    """The first thing wrong with a file, the nearest right key, how many more; of missing things, all."""
    # A mistyped key is both unknown and missing; the first says more.
    first, *rest = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path = [str(p) for p in first["loc"]]
    key, kind = path[-1], first["type"]
    known = _keys_at(cls, path[:-1])
    if kind == "extra_forbidden":
        close = nearest(key, known)
        said = f"unknown key '{'.'.join(path)}'" + (
            f"; nearest: {', '.join(close)}" if close else f"; keys here: {_few(known)}"
        )
    elif kind == "missing":
        return f"{file}: {all_missing(list(missing_paths(cls, table)) or ['.'.join(path)])}"
    else:
        said = f"'{'.'.join(p for p in path if not p.startswith('Stated'))}': {first['msg'].lower()}"
    return f"{file}: {said}" + (f" (and {len(rest)} more)" if rest else "")


def _few(names: list[str]) -> str:
    """Names, the first of many."""
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def all_missing(paths: list[str]) -> str:
    """What to say of keys that a file lacks: all of them.

    >>> all_missing(["name"]), all_missing(["name", "title", "chip"])
    ("missing key 'name'", "missing key 'name' and 2 more: 'title', 'chip'")
    """
    first, *rest = paths
    more = f" and {len(rest)} more: {', '.join(repr(p) for p in rest)}" if rest else ""
    return f"missing key '{first}'{more}"


def _keys_at(cls: type, path: list[str]) -> list[str]:
    for name in path:
        if name.isdecimal():
            continue
        inner = {f.name: f.metadata.get("part") for f in fields(cls)}.get(name)
        if inner is None:
            return ["value", "source"]
        cls = inner
    return [f.name for f in fields(cls) if in_file(f.metadata)]


def record_table(record: Any, sources: Sources, prefix: str = "") -> dict[str, Any]:
    """The table of a record's file: words, quantities with their sources, parts.

    >>> from strata.hardware.generate.budget import budget
    >>> h100 = budget("h100")
    >>> record_table(h100, h100.sources)["power"]["value"]
    '700.0 W'
    """
    table: dict[str, Any] = {}
    for f in fields(record):
        value, meta, path = getattr(record, f.name), f.metadata, prefix + f.name
        if not in_file(meta) or value is None or (meta.get("text") and not value):
            continue
        if "part" in meta and is_dataclass(value):
            table[f.name] = record_table(value, sources, path + ".")
        elif "part" in meta:
            table[f.name] = [record_table(each, sources, f"{path}.{i}.") for i, each in enumerate(value)]
        elif meta.get("text"):
            table[f.name] = value
        elif meta.get("table"):
            table[f.name] = {k: _written(v, meta["unit"], sources, f"{path}.{k}") for k, v in value.items()}
        else:
            table[f.name] = _written(value, meta["unit"], sources, path)
    return table


def _written(value: Any, unit: str, sources: Sources, path: str) -> dict[str, Any]:
    if has_axes(value):
        raise BadValue(f"a file holds one record, but {path} is an array of {value.size}")
    number, known = float(value), sources.get(path)
    source = known.source if known else "assumed: stated by the caller"
    return {"value": number if unit == "1" else f"{number!r} {unit}", "source": source}


def as_toml(table: dict[str, Any]) -> str:
    """A table as TOML, each quantity on a line of its own."""
    import tomlkit

    return tomlkit.dumps(_ordered(tomlkit, table, tomlkit.document()))


def _ordered(tomlkit: Any, table: dict[str, Any], into: Any) -> Any:
    """Words and quantities first, then tables and lists of tables."""
    later = {}
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            later[key] = _ordered(tomlkit, value, tomlkit.table())
        elif isinstance(value, list):
            later[key] = tomlkit.aot()
            for each in value:
                later[key].append(_ordered(tomlkit, each, tomlkit.table()))
        elif isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(value)
            into.add(key, inline)
        else:
            into.add(key, value)
    for key, value in later.items():
        into.add(key, value)
    return into
