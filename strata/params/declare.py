"""How a dataclass describes its file: quantities with unit and meaning, parts, words; their sources.

Files may be a few lines: ``source = "vendor's page, 2026"`` at the top of a file is the source of every
number that is written without one of its own; ``like = "h200"`` (or ``base``) takes everything else from
another file, and such numbers say whom they are inherited from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

from strata.base.arrays import Number, register_pytree
from strata.base.errors import BadFile, BadValue
from strata.base.units import show

_ASSUMED = ("assumed", "guess")
# Where a number comes from, as `Param.mark` tells it.
MARKS = {
    "own": "stated for this very thing by the document that its source names",
    "inherited": "taken from the file that is named, as nothing is known of this one",
    "fitted": "found by `strata calibrate` or by hand from the measurements that its source names",
    "derived": "worked out from other numbers of the same file",
    "assumed": "assumed, for the reason that its source gives",
    "given": "changed by the caller",
}
_INHERITED = re.compile(r"inherited from (\S+): ")
_FITTED_ELSEWHERE = re.compile(r"assumed: as fitted on ([\w.-]+?),? ")
GIVEN = "given by the caller"
# What more of a quantity does, as bounds of searches may rely on: never slower with power and heat off; never
# slower as long as a chip keeps its number of cores; it takes room of cores and nothing else; it costs money
# and nothing else.
MORE_IS = ("faster", "faster at equal cores", "fewer cores", "dearer")
Described = TypeVar("Described")


@dataclass(frozen=True)
class Param:
    """One number of a data file: its value in SI, its unit and where it comes from."""

    value: Number
    unit: str
    source: str

    @property
    def assumed(self) -> bool:
        """Whether it is assumed, here or where it was inherited from."""
        return self.stated_source.lower().startswith(_ASSUMED)

    @property
    def stated_source(self) -> str:
        """The source as the file has it that states the number."""
        return _INHERITED.sub("", self.source, count=1)

    @property
    def inherited_from(self) -> str:
        """The file that a number was taken from; "" where it is the thing's own."""
        found = _INHERITED.match(self.source) or _FITTED_ELSEWHERE.match(self.source)
        return found.group(1) if found else ""

    @property
    def mark(self) -> str:
        """Where it comes from in one word, a key of `MARKS`.

        >>> [Param(1.0, "1", s).mark for s in ("data sheet", "assumed: why", "inherited from h200: p. 2")]
        ['own', 'assumed', 'inherited']
        """
        if self.source == GIVEN:
            return "given"
        return "inherited" if self.inherited_from else _kind_of(self.source)

    @property
    def mark_there(self) -> str:
        """What an inherited number is in the file it comes from; "" where it is not inherited."""
        if not self.inherited_from:
            return ""
        return _kind_of(self.stated_source) if _INHERITED.match(self.source) else "fitted"

    def __str__(self) -> str:
        return f"{show(self.value, self.unit)}  [{self.source}]"


def _kind_of(source: str) -> str:
    """The mark of a source as a file states it."""
    said = source.lower()
    if said.startswith("fitted"):
        return "fitted"
    if said.startswith("derived") or "; derived: " in said:
        return "derived"
    return "assumed" if said.startswith(_ASSUMED) else "own"


def inherited_source(source: str, owner: str) -> str:
    """The source of a number that another file states; that of the file which states it, over several.

    >>> inherited_source(inherited_source("data sheet", "h100"), "h200")
    'inherited from h100: data sheet'
    """
    return source if _INHERITED.match(source) else f"inherited from {owner}: {source}"


class Sources(Mapping[str, Param]):
    """Dotted path of a quantity to its `Param`; compared by identity, so it never enters arithmetic."""

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


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
def record(cls: type[Described]) -> type[Described]:
    """A frozen dataclass whose fields are named, told apart by what it is, and a tree of quantities to JAX.

    A quantity or part that is annotated ``| None`` may be left out.

    >>> @record
    ... class Tank:
    ...     volume: float = positive("m3", "what it holds")
    ...     price: float | None = quantity("USD", "what it costs")
    >>> Tank(volume=2.0)
    Tank(volume=2.0, price=None)
    """
    for name, kind in cls.__annotations__.items():
        held = cls.__dict__.get(name)
        if (
            isinstance(held, Field)
            and held.metadata
            and held.default is MISSING
            and f"{kind}".endswith("| None")
        ):
            setattr(cls, name, field(default=None, metadata={**held.metadata, "optional": True}))
    described = dataclass(frozen=True, eq=False, kw_only=True)(cls)
    register_pytree(described)
    return described


def quantity(
    unit: str,
    doc: str,
    *,
    optional: bool = False,
    minimum: float = 0.0,
    positive: bool = False,
    more: str = "",
    table: bool = False,
) -> Any:
    """A dataclass field with a physical quantity in SI; `more`, of `MORE_IS`, says what more of it does."""
    if more and more not in MORE_IS:
        raise BadValue(f"more of a quantity is one of {', '.join(MORE_IS)}, but got '{more}'")
    meta = {"unit": unit, "doc": doc, "table": table, "optional": optional, "minimum": minimum}
    meta |= {"positive": positive, "more": more}
    return field(default=None, metadata=meta) if optional else field(metadata=meta)


def positive(unit: str, doc: str, *, optional: bool = False, more: str = "") -> Any:
    """A `quantity` that is above zero, where zero would mean that nothing ever ends."""
    return quantity(unit, doc, optional=optional, positive=True, more=more)


def by_name(unit: str, doc: str, *, optional: bool = False, more: str = "") -> Any:
    """A dataclass field with a positive quantity for each of several names (precisions), as a dict."""
    return quantity(unit, doc, optional=optional, positive=True, more=more, table=True)


def needed(one: Field[Any]) -> bool:
    """Whether a file must have what a field holds."""
    there = one.default is not MISSING or one.default_factory is not MISSING
    return not (one.metadata.get("optional") or there)


def part(
    cls: type,
    doc: str,
    *,
    optional: bool = False,
    many: bool = False,
    default: Callable[[], Any] | None = None,
) -> Any:
    """A dataclass field that is itself described by a dataclass: a table of the file (or a list of them)."""
    meta = {"part": cls, "doc": doc, "optional": optional, "many": many}
    if default is not None:
        return field(default_factory=default, metadata=meta)
    return field(default=None, metadata=meta) if optional else field(metadata=meta)


def of_other_files(doc: str) -> Any:
    """A dataclass field with records of other files, whose quantities have paths here."""
    return field(default=None, metadata={"part": None, "doc": doc, "optional": True, "many": False})


def texts(doc: str) -> Any:
    """A dataclass field that holds a word for each of several names, as a dict; {} where left out."""
    return field(default_factory=dict, metadata={"text": True, "doc": doc, "choices": (), "table": True})


def text(doc: str, *, choices: tuple[str, ...] = (), default: Any = MISSING) -> Any:
    """A dataclass field that holds a word: structure, not a quantity."""
    meta = {"text": True, "doc": doc, "choices": choices}
    return field(metadata=meta) if default is MISSING else field(default=default, metadata=meta)


def choice(doc: str, *words: str) -> Any:
    """A dataclass field that holds one of some words, the first of them where it is left out."""
    return text(doc, choices=words, default=words[0])


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


@record
class Named:
    """What every record of a file begins with."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    sources: Sources = field(default_factory=Sources)
