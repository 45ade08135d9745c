"""How a dataclass describes its file: quantities with unit and meaning, parts, words; their sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, TypeVar, dataclass_transform

from strata.arrays import Number, register_pytree
from strata.errors import BadValue
from strata.units import show

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
