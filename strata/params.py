"""Numbers with sources: how data files become frozen dataclasses of plain quantities.

A dataclass describes its file: each field made by `quantity` has a unit and a meaning, each `part` is a table
of its own. In a file a quantity is ``{ value = "4.8 TB/s", source = "H200 datasheet, table 1" }``; sources
used often stand once under ``[sources]`` and are cited as ``"@datasheet: table 1"``. ``base = "h200"`` starts
from another file and overrides it. Equations see plain numbers; `Param` (value, unit, source) travels beside
them in `Sources`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from strata.arrays import Number, is_leaf
from strata.errors import BadFile, BadValue, UnknownName, nearest
from strata.units import parse, show

KINDS = {
    "chip": "chips",
    "fabric": "fabrics",
    "system": "systems",
    "engine": "engines",
    "transport": "transports",
    "memory": "memories",
    "space": "spaces",
}
_ASSUMED = ("assumed", "guess")


@dataclass(frozen=True)
class Param:
    """One number of a data file: its value in SI, its unit and where it comes from."""

    value: Number
    unit: str
    source: str

    @property
    def assumed(self) -> bool:
        return self.source.lower().startswith(_ASSUMED)

    def __str__(self) -> str:
        return f"{show(self.value, self.unit)}  [{self.source}]"


class Sources(Mapping[str, Param]):
    """The side table: dotted path of a quantity to its `Param`. Compared by identity, so it never enters
    arithmetic.
    """

    def __init__(self, entries: Mapping[str, Param] = {}):
        self._entries = dict(entries)

    def __getitem__(self, path: str) -> Param:
        return self._entries[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def updated(self, entries: Mapping[str, Param]) -> Sources:
        return Sources({**self._entries, **entries})


def quantity(
    unit: str, doc: str, *, optional: bool = False, minimum: float = 0.0, positive: bool = False
) -> Any:
    """A dataclass field that holds a physical quantity in SI; `positive` where zero would mean that nothing
    ever ends.
    """
    meta = {"unit": unit, "doc": doc, "optional": optional, "minimum": minimum, "positive": positive}
    return field(default=None, metadata=meta) if optional else field(metadata=meta)


def by_name(unit: str, doc: str, *, optional: bool = False) -> Any:
    """A dataclass field that holds one positive quantity for each of several names (precisions, dimensions),
    as a dict.
    """
    meta = {"unit": unit, "doc": doc, "table": True, "optional": optional, "minimum": 0.0, "positive": True}
    return field(default=None, metadata=meta) if optional else field(metadata=meta)


def part(cls: type, doc: str, *, optional: bool = False, many: bool = False) -> Any:
    """A dataclass field that is itself described by a dataclass: a table of the file (or a list of tables)."""
    meta = {"part": cls, "doc": doc, "optional": optional, "many": many}
    return field(default=None, metadata=meta) if optional else field(metadata=meta)


def text(doc: str, *, choices: tuple[str, ...] = (), default: Any = MISSING) -> Any:
    """A dataclass field that holds a word: structure, not a quantity."""
    meta = {"text": True, "doc": doc, "choices": choices}
    return field(metadata=meta) if default is MISSING else field(default=default, metadata=meta)


# ---------------------------------------------------------------------------------------------- finding files


def data_folder(kind: str) -> Path:
    return Path(__file__).parent / "data" / KINDS.get(kind, kind)


def names(kind: str) -> list[str]:
    """Every shipped name of a kind (chip, fabric, system, engine, models …)."""
    return sorted(p.stem for p in data_folder(kind).glob("*.*") if p.suffix in (".toml", ".json"))


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadFile(f"no file at {path}") from None
    except IsADirectoryError:
        raise BadFile(f"{path} is a folder, not a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{path.name} is not TOML: {error}") from None


def find(kind: str, name: str | Path) -> Path:
    """The file of a shipped name, or of a path given by the user (recognised by its .toml ending)."""
    if str(name).endswith(".toml"):
        path = Path(name)
        if not path.exists():
            raise BadFile(f"no {kind} file at {path}")
        return path
    known = names(kind)
    wanted = str(name).lower()
    if wanted not in known:
        called = [
            n
            for n in known
            if wanted in str(read_toml(data_folder(kind) / f"{n}.toml").get("aliases", "")).split()
        ]
        if not called:
            raise UnknownName(kind, str(name), known, f"strata list {KINDS.get(kind, kind)}")
        wanted = called[0]
    return data_folder(kind) / f"{wanted}.toml"


def load_table(kind: str, name: str | Path, _above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A file's table with its ``base`` merged underneath and its source citations written out."""
    path = find(kind, name)
    table = read_toml(path)
    if str(path) in _above:
        raise BadFile(
            f"{path.name}: base files form a circle: {' -> '.join(Path(p).stem for p in (*_above, str(path)))}"
        )
    table = _cite(table, table.pop("sources", {}), path.name)
    fitted = data_folder("calibration") / path.name
    if kind in ("chip", "transport") and path.parent == data_folder(kind) and fitted.exists():
        # what `strata calibrate` found, over what the datasheet and we assumed
        table = merged(table, read_toml(fitted))
    if "base" in table:
        base = str(table.pop("base"))
        beside = path.parent / base
        below = load_table(kind, beside if base.endswith(".toml") else base, (*_above, str(path)))
        table = merged(below, table)
    elif kind == "chip" and (defaults := data_folder("kinds") / f"{table.get('kind', '')}.toml").exists():
        # what is assumed of a chip of its kind until it is measured
        table = merged(read_toml(defaults), table)
    return table


def _cite(value: Any, sources: Mapping[str, str], where: str) -> Any:
    if isinstance(value, dict):
        new = {k: _cite(v, sources, where) for k, v in value.items()}
        source = new.get("source")
        if isinstance(source, str) and source.startswith("@"):
            key, _, detail = source[1:].partition(":")
            if key not in sources:
                raise BadFile(
                    f"{where}: source '@{key}' is not under [sources]; there: {', '.join(sources) or 'nothing'}"
                )
            new["source"] = f"{sources[key]}{',' if detail else ''}{detail}"
        return new
    return [_cite(v, sources, where) for v in value] if isinstance(value, list) else value


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """One table over another: tables inside are merged too, a quantity is replaced whole."""
    both = dict(below)
    for key, value in above.items():
        inner = isinstance(value, dict) and isinstance(both.get(key), dict) and "value" not in value
        both[key] = merged(both[key], value) if inner else value
    return both


# ------------------------------------------------------------------------------- files to dataclasses and
# back


@lru_cache(maxsize=32)
def file_model(cls: type) -> Any:
    """The pydantic model of a dataclass's file: exact keys, each quantity a value with a source."""
    from pydantic import BaseModel, ConfigDict, Field, create_model

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
            return str
        return dict[str, stated] if meta.get("table") else stated  # type: ignore[valid-type]

    entries: dict[str, Any] = {}
    for f in fields(cls):
        meta = f.metadata
        if not meta:
            continue
        required = not meta.get("optional") and f.default is MISSING
        unit = f" [{meta['unit']}]" if "unit" in meta else ""
        described = Field(... if required else None, description=meta["doc"] + unit)
        entries[f.name] = (annotation(meta) if required else annotation(meta) | None, described)
    config = ConfigDict(extra="forbid", strict=True, title=cls.__name__)
    model: type[BaseModel] = create_model(cls.__name__, __config__=config, __doc__=cls.__doc__, **entries)
    return model


def build(cls: type, table: Mapping[str, Any], where: str) -> tuple[Any, dict[str, Param]]:
    """A dataclass instance of plain quantities from a file's table, and the `Param` of each quantity by path."""
    from pydantic import ValidationError

    try:
        file_model(cls).model_validate(dict(table))
    except ValidationError as error:
        raise BadFile(_one_line(error, cls, where)) from None
    params: dict[str, Param] = {}
    return _construct(cls, table, where, "", params), params


def _construct(cls: type, table: Mapping[str, Any], where: str, prefix: str, params: dict[str, Param]) -> Any:
    made: dict[str, Any] = {}
    for f in fields(cls):
        if not f.metadata or f.name not in table:
            continue
        meta, raw, path = f.metadata, table[f.name], prefix + f.name
        if "part" in meta and meta["many"]:
            inner = [_construct(meta["part"], t, where, f"{path}.{i}.", params) for i, t in enumerate(raw)]
            made[f.name] = tuple(inner)
        elif "part" in meta:
            made[f.name] = _construct(meta["part"], raw, where, path + ".", params)
        elif meta.get("text"):
            if meta["choices"] and raw not in meta["choices"]:
                raise BadFile(f"{where}: {path} must be one of {', '.join(meta['choices'])}, but got '{raw}'")
            made[f.name] = raw
        elif meta.get("table"):
            made[f.name] = {k: _quantity(v, meta, where, f"{path}.{k}", params) for k, v in raw.items()}
        else:
            made[f.name] = _quantity(raw, meta, where, path, params)
    return cls(**made)


def _quantity(
    raw: Mapping[str, Any], meta: Mapping[str, Any], where: str, path: str, params: dict[str, Param]
) -> float:
    value = parse(raw["value"], meta["unit"], f"{where}: {path}")
    _check_range(value, meta, f"{where}: {path}", f"'{raw['value']}'")
    params[path] = Param(value, meta["unit"], raw["source"])
    return value


def _check_range(value: float, meta: Mapping[str, Any], what: str, shown: str) -> None:
    if meta["positive"] and not value > 0:
        raise BadValue(f"{what} must be positive, but got {shown}")
    if not value >= meta["minimum"]:
        raise BadValue(f"{what} must be at least {meta['minimum']:g}, but got {shown}")


def _one_line(error: Any, cls: type, where: str) -> str:
    """The first thing wrong with a file, said in one line with the nearest right key, and how many more there
    are.
    """
    # A mistyped key is both unknown and missing; the first says more.
    first, *rest = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path = [str(p) for p in first["loc"]]
    key, kind = path[-1], first["type"]
    known = _keys_at(cls, path[:-1])
    if kind == "extra_forbidden":
        close = nearest(key, known)
        said = f"unknown key '{'.'.join(path)}'" + (
            f"; nearest: {', '.join(close)}" if close else f"; keys here: {', '.join(known)}"
        )
    elif kind == "missing":
        said = f"missing key '{'.'.join(path)}'"
    else:
        said = f"'{'.'.join(p for p in path if not p.startswith('Stated'))}': {first['msg'].lower()}"
    return f"{where}: {said}" + (f" (and {len(rest)} more)" if rest else "")


def _keys_at(cls: type, path: list[str]) -> list[str]:
    for name in path:
        if name.isdigit():
            continue
        inner = {f.name: f.metadata.get("part") for f in fields(cls)}.get(name)
        if inner is None:
            return ["value", "source"]
        cls = inner
    return [f.name for f in fields(cls) if f.metadata]


# ---------------------------------------------------------------------------------------------------
# overrides


def leaf_paths(record: Any, prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """Dotted path of each quantity a record describes, with its metadata."""
    found: dict[str, Mapping[str, Any]] = {}
    for f in fields(record):
        value, meta = getattr(record, f.name), f.metadata
        if "part" in meta and is_dataclass(value):
            found.update(leaf_paths(value, f"{prefix}{f.name}."))
        elif "part" in meta and isinstance(value, tuple):
            for i, inner in enumerate(value):
                found.update(leaf_paths(inner, f"{prefix}{f.name}.{i}."))
        elif meta.get("table") and isinstance(value, dict):
            found.update({f"{prefix}{f.name}.{k}": meta for k in value})
        elif "unit" in meta:
            found[prefix + f.name] = meta
    return found


def value_at(record: Any, path: str) -> Any:
    """The quantity at a dotted path."""
    node = record
    for name in path.split("."):
        node = (
            node[name]
            if isinstance(node, dict)
            else node[int(name)]
            if isinstance(node, tuple)
            else getattr(node, name)
        )
    return node


def stated(record: Any) -> dict[str, Param]:
    """Every quantity a record holds now, with its unit and source; what was computed from others says so."""
    found = {}
    for path, meta in leaf_paths(record).items():
        value = value_at(record, path)
        if value is not None:
            known = record.sources.get(path)
            found[path] = Param(
                value,
                meta["unit"],
                known.source if known else "derived from the other numbers of this record",
            )
    return found


def override(record: Any, changes: Mapping[str, Any], what: str) -> tuple[Any, dict[str, Param]]:
    """A record with some quantities replaced, each named by its path or by its last part: that of the
    outermost part that has one.

    A value may be a number in SI, an array of such numbers, or text with a unit ("6 TB/s"); a field that
    holds a word takes another word.
    """
    paths, words = leaf_paths(record), word_paths(record)
    noted: dict[str, Param] = {}
    for name, value in changes.items():
        wanted = name.replace("__", ".")
        hits = _called(wanted, paths)
        if not hits and (worded := _called(wanted, words)):
            _check_word(value, words[worded[0]], worded[0])
            record = _set(record, worded[0].split("."), value)
            continue
        if not hits:
            raise UnknownName(
                f"{what} quantity",
                wanted,
                [*paths, *{p.rsplit(".", 1)[-1] for p in paths}],
                f"strata schema {what}",
            )
        if len(hits) > 1:
            raise BadValue(
                f"'{wanted}' names several {what} quantities: {', '.join(hits)}; write the whole path"
            )
        meta = paths[hits[0]]
        if isinstance(value, str):
            value = parse(value, meta["unit"], hits[0])
        elif not is_leaf(value):
            raise BadValue(f"{hits[0]} is a number, an array or text with a unit, but got {value!r}")
        low = value.min() if hasattr(value, "min") else value
        _check_range(low, meta, hits[0], f"{low:g}")
        record = _set(record, hits[0].split("."), value)
        noted[hits[0]] = Param(value, meta["unit"], "given by the caller")
    return record, noted


def _called(wanted: str, paths: Mapping[str, Any]) -> list[str]:
    """Paths of that name, or that end with it and lie least deep."""
    if wanted in paths:
        return [wanted]
    ending = [p for p in paths if p.endswith("." + wanted)]
    least = min((p.count(".") for p in ending), default=0)
    return [p for p in ending if p.count(".") == least]


def word_paths(record: Any, prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """Dotted path of each word a record holds inside its parts, or chooses, with its metadata; its own name
    and titles are not among them.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for f in fields(record):
        value, meta = getattr(record, f.name), f.metadata
        if "part" in meta and is_dataclass(value):
            found.update(word_paths(value, f"{prefix}{f.name}."))
        elif (
            meta.get("text")
            and (prefix or meta.get("choices"))
            and f.name not in ("name", "title", "note", "kind")
        ):
            found[prefix + f.name] = meta
    return found


def _check_word(value: Any, meta: Mapping[str, Any], path: str) -> None:
    legal = meta.get("choices") or ()
    if not isinstance(value, str) or (legal and value not in legal):
        raise BadValue(
            f"{path} must be {'one of ' + ', '.join(legal) if legal else 'a word'}, but got {value!r}"
        )


def _set(node: Any, path: list[str], value: Any) -> Any:
    head, *rest = path
    if isinstance(node, dict):
        return {**node, head: value if not rest else _set(node[head], rest, value)}
    if isinstance(node, tuple):
        i = int(head)
        return (*node[:i], _set(node[i], rest, value), *node[i + 1 :])
    return replace(node, **{head: value if not rest else _set(getattr(node, head), rest, value)})
