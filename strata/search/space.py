"""Spaces of designs as data: axes over any field of a system, its plan and its workload, ties and constraints
between them.

A space file names a question (model, system, engine, phase, lengths) and its axes. A point is a row of
digits, one an axis: which of its choices is taken. Axes that constraints join are counted together, so that
legal points are numbered without gaps.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from strata.base.errors import UnknownName, require
from strata.base.expression import holds_at, mentions
from strata.base.reading import known_keys, number_of, table_of, tables_of, text_of
from strata.params import find, read_toml
from strata.search.axes import DesignAxis, read_axis
from strata.search.fields import twice_named
from strata.search.scenario import Scenario, checked_field

_KEYS = ("name", "title", "note", "question", "axis", "tie", "constraint")
COUNTED = 1 << 22  # most combinations of axes joined by constraints that are counted one by one


@dataclass(frozen=True, kw_only=True)
class Tie:
    """A field that follows from axes: its value in SI as an expression over their names, with a source."""

    field: str
    value: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """What a legal point keeps: a condition over names of axes, and why."""

    keep: str
    why: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Space:
    """Axes, ties and constraints over one scenario."""

    name: str
    title: str
    note: str
    scenario: Scenario
    axes: tuple[DesignAxis, ...]
    ties: tuple[Tie, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    table: dict[str, Any] = field(default_factory=dict, repr=False)  # the file, as read
    narrow: dict[str, list[str]] = field(default_factory=dict)  # choices kept of some axes, by label

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(a) for a in self.axes)

    def axis(self, name: str) -> int:
        """Where an axis of that name stands."""
        names = [a.name for a in self.axes]
        if name not in names:
            raise UnknownName(f"axis of space {self.name}", name, names, ", ".join(names))
        return names.index(name)

    @cached_property
    def _parts(self) -> tuple[LegalPart, ...]:
        return tuple(self._legal_part(group) for group in self._axis_groups())

    def _axis_groups(self) -> list[list[int]]:
        """Axes in groups: those one constraint names belong together."""
        group = list(range(len(self.axes)))
        for constraint in self.constraints:
            named = [i for i, a in enumerate(self.axes) if mentions(constraint.keep, a.name)]
            require(bool(named), "a constraint names axes of its space", constraint=constraint.keep)
            least = min(group[i] for i in named)
            old = {group[i] for i in named}
            group = [least if g in old else g for g in group]
        return [[i for i, g in enumerate(group) if g == leader] for leader in dict.fromkeys(group)]

    def _legal_part(self, group: list[int]) -> LegalPart:
        sizes = tuple(len(self.axes[i]) for i in group)
        if len(group) == 1 and not any(mentions(c.keep, self.axes[group[0]].name) for c in self.constraints):
            return LegalPart(tuple(group), sizes, None)
        require(
            math.prod(sizes) <= COUNTED,
            f"axes joined by constraints have at most {COUNTED} combinations",
            combinations=math.prod(sizes),
        )
        digits = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1)
        named = {self.axes[i].name: self.axes[i].values_at(digits[:, k]) for k, i in enumerate(group)}
        kept = np.ones(len(digits), bool)
        for constraint in self.constraints:
            if any(mentions(constraint.keep, name) for name in named):
                kept &= holds_at(constraint.keep, named, len(digits), f"constraint of space {self.name}")
        require(
            bool(kept.any()),
            "constraints leave no point",
            constraints="; ".join(c.keep for c in self.constraints),
        )
        return LegalPart(tuple(group), sizes, np.flatnonzero(kept))

    def joined_parts(self) -> list[LegalPart]:
        """Axes that constraints join, with their legal combinations."""
        return [p for p in self._parts if p.legal is not None]

    @property
    def size(self) -> int:
        """Legal points, counted exactly."""
        return math.prod(p.count for p in self._parts)

    def digits(self, index: Any) -> np.ndarray:
        """The points of these numbers: their digits [N, axes]."""
        rest = np.atleast_1d(np.asarray(index, np.int64))
        require(
            bool(np.all((rest >= 0) & (rest < self.size))),
            "a point's number is below the size of its space",
            size=self.size,
        )
        found = np.empty((len(rest), len(self.axes)), np.int64)
        for part in reversed(self._parts):
            rest, own = np.divmod(rest, part.count)
            found[:, part.axes] = part.digits(own)
        return found

    def index(self, digits: Any) -> np.ndarray:
        """The numbers of legal points; -1 where a constraint is broken."""
        rows = np.atleast_2d(np.asarray(digits, np.int64))
        total, legal = np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
        for part in self._parts:
            own = part.number(rows[:, part.axes])
            legal &= own >= 0
            total = total * part.count + np.maximum(own, 0)
        return np.where(legal, total, -1)

    def legal(self, digits: Any) -> np.ndarray:
        """Whether points keep every constraint."""
        return self.index(digits) >= 0

    def random(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Legal points drawn evenly: digits [count, axes]."""
        return self.digits(rng.integers(0, self.size, count))

    def values(self, digits: Any) -> dict[str, np.ndarray]:
        """What points are: for each axis its numbers in SI, or its words."""
        rows = np.atleast_2d(np.asarray(digits, np.int64))
        return {a.name: a.values_at(rows[:, i]) for i, a in enumerate(self.axes)}

    def spec(self) -> dict[str, Any]:
        """All that makes this space again, as plain JSON."""
        return {"table": self.table, "narrow": self.narrow}

    @cached_property
    def hash(self) -> str:
        """Of the file and the choices kept, those of its plan axis by their degrees."""
        axes = [
            [a.name, a.kind, _digest(a.values) if a.kind == "plan" else list(a.labels)] for a in self.axes
        ]
        return hashlib.sha256(json.dumps([self.spec(), axes], sort_keys=True).encode()).hexdigest()[:16]


def _digest(rows: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows, float).tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class LegalPart:
    """Axes counted together, and which of their combinations are legal (None: all)."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    legal: np.ndarray | None

    @property
    def count(self) -> int:
        return math.prod(self.sizes) if self.legal is None else len(self.legal)

    def digits(self, own: np.ndarray) -> np.ndarray:
        return np.stack(np.unravel_index(own if self.legal is None else self.legal[own], self.sizes), axis=1)

    def number(self, digits: np.ndarray) -> np.ndarray:
        flat = np.ravel_multi_index(tuple(digits.T), self.sizes)
        if self.legal is None:
            return flat
        at = np.minimum(np.searchsorted(self.legal, flat), len(self.legal) - 1)
        return np.where(self.legal[at] == flat, at, -1)


def space(name: str, **narrow: Any) -> Space:
    """A space by name or TOML path; keywords keep some choices of an axis: numbers, texts with units, or
    words.

    >>> small = space("deepstack-3d", batch=[4])
    >>> small.size < space("deepstack-3d").size, small.axes[small.axis("batch")].labels
    (True, ('4',))
    """
    whole = _whole(json.dumps(_table(name)))
    wanted = {
        k: [str(v) for v in (values if isinstance(values, list | tuple) or np.ndim(values) else [values])]
        for k, values in narrow.items()
    }
    return _narrowed(whole, wanted)


def space_of_spec(spec: dict[str, Any]) -> Space:
    """The space that a spec, as `Space.spec` writes it, makes again.

    >>> small = space("next-node", batch=[4])
    >>> space_of_spec(small.spec()).hash == small.hash
    True
    """
    return _narrowed(_whole(json.dumps(spec["table"])), spec.get("narrow", {}))


def _narrowed(whole: Space, choices: dict[str, list[str]]) -> Space:
    """A space with some choices of some axes."""
    axes = list(whole.axes)
    for name, texts in choices.items():
        i = whole.axis(name)
        axes[i] = axes[i].named(texts)
    return replace(whole, axes=tuple(axes), narrow=dict(choices))


def _table(name: str, _above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A space's file; one with a `base` is that space with another name, note and question."""
    path = find("space", name)
    table = read_toml(path)
    known_keys(table, (*_KEYS, "base"), path.name)
    if "base" not in table:
        return table
    named = text_of(table, "base", path.name)
    require(path.name not in _above, f"{path.name}: base files form a circle", base=named)
    base, question = _table(named, (*_above, path.name)), table_of(table, "question", path.name)
    own = {key: value for key, value in table.items() if key not in ("base", "question")}
    return base | own | {"question": table_of(base, "question", named) | question}


@lru_cache(maxsize=8)
def _whole(table: str) -> Space:
    """A space from its table; listing its plans takes a second or two, so that it is kept."""
    return _read(json.loads(table))


def _read(table: dict[str, Any]) -> Space:
    where = f"space {table.get('name', '')}"
    known_keys(table, _KEYS, where)
    scenario = Scenario.read(table_of(table, "question", where), where)
    axes = tuple(read_axis(raw, scenario, where) for raw in tables_of(table, "axis", where))
    require(bool(axes), f"{where} has no axis: write [[axis]] with a name, a field and values")
    twice = twice_named([a.name for a in axes])
    require(not twice, f"{where}: each axis has a name of its own", twice=twice)
    at = f"{where}: a tie"
    ties = tuple(
        Tie(
            field=checked_field(text_of(t, "field", at), scenario, where),
            value=str(number_of(t, "value", at)) if _is_number(t.get("value")) else text_of(t, "value", at),
            source=text_of(t, "source", at, ""),
        )
        for t in tables_of(table, "tie", where)
    )
    for tie in ties:
        require(bool(tie.source), f"{where}: a tie needs a source", field=tie.field)
    twice = twice_named([f for a in axes for f in a.fields] + [t.field for t in ties])
    require(not twice, f"{where}: each field follows from one axis or tie", twice=twice)
    at = f"{where}: a constraint"
    space = Space(
        name=text_of(table, "name", where),
        title=text_of(table, "title", where, ""),
        note=text_of(table, "note", where, ""),
        scenario=scenario,
        axes=axes,
        ties=ties,
        constraints=tuple(
            Constraint(keep=text_of(c, "keep", at), why=text_of(c, "why", at, ""))
            for c in tables_of(table, "constraint", where)
        ),
        table=table,
    )
    require(space.size < 1 << 62, f"{where} has more points than can be numbered", size=space.size)
    return space


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
