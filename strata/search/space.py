"""Spaces of designs as data: axes over any field of a system, its plan and its workload, ties and constraints
between them.

A space file names a question (model, system, engine, phase, lengths) and its axes. A point is a row of
digits, one an axis: which of its choices is taken. Axes that constraints join are counted together, so that
legal points are numbered without gaps.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from strata.errors import BadValue, UnknownName, require
from strata.params import find, read_toml
from strata.search.expression import calculate, mentions
from strata.search.fields import PLAN_FIELDS, Question, known_field, number_at, plan_rows, plan_values

COUNTED = 1 << 22  # most combinations of axes joined by constraints that are counted one by one
_AXIS_KEYS = {
    "name",
    "field",
    "fields",
    "values",
    "times",
    "range",
    "variants",
    "plans",
    "unit",
    "stage",
    "source",
}


@dataclass(frozen=True, eq=False)
class Axis:
    """One choice of a design: numbers of one or more fields, multiples of what they are, words, named
    variants, or plans.
    """

    name: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    kind: str  # number, times, word, variant, plan
    unit: str = "1"
    source: str = ""
    stage: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ordered(self) -> bool:
        """Whether its choices are numbers, in rising order."""
        return self.kind in ("number", "times")


@dataclass(frozen=True)
class Tie:
    """A field that follows from axes: its value in SI as an expression over their names, with a source."""

    field: str
    value: str
    source: str


@dataclass(frozen=True)
class Constraint:
    """What a legal point keeps: a condition over names of axes, and why."""

    keep: str
    why: str


@dataclass(frozen=True, eq=False)
class Space:
    """Axes, ties and constraints over one question."""

    name: str
    title: str
    note: str
    question: Question
    axes: tuple[Axis, ...]
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
    def _parts(self) -> tuple[_Part, ...]:
        return tuple(self._counted(group) for group in self._joined())

    def _joined(self) -> list[list[int]]:
        """Axes in groups: those one constraint names belong together."""
        group = list(range(len(self.axes)))
        for constraint in self.constraints:
            named = [i for i, a in enumerate(self.axes) if mentions(constraint.keep, a.name)]
            require(bool(named), "a constraint names axes of its space", constraint=constraint.keep)
            least = min(group[i] for i in named)
            old = {group[i] for i in named}
            group = [least if g in old else g for g in group]
        return [[i for i, g in enumerate(group) if g == leader] for leader in dict.fromkeys(group)]

    def _counted(self, group: list[int]) -> _Part:
        sizes = tuple(len(self.axes[i]) for i in group)
        if len(group) == 1 and not any(mentions(c.keep, self.axes[group[0]].name) for c in self.constraints):
            return _Part(tuple(group), sizes, None)
        require(
            math.prod(sizes) <= COUNTED,
            f"axes joined by constraints have at most {COUNTED} combinations",
            combinations=math.prod(sizes),
        )
        digits = np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1)
        named = {self.axes[i].name: self._axis_values(i, digits[:, k]) for k, i in enumerate(group)}
        kept = np.ones(len(digits), bool)
        for constraint in self.constraints:
            if any(mentions(constraint.keep, name) for name in named):
                kept &= np.asarray(
                    calculate(constraint.keep, named, f"constraint of space {self.name}"), bool
                )
        require(
            bool(kept.any()),
            "constraints leave no point",
            constraints="; ".join(c.keep for c in self.constraints),
        )
        return _Part(tuple(group), sizes, np.flatnonzero(kept))

    def joined_parts(self) -> list[_Part]:
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
        return {a.name: self._axis_values(i, rows[:, i]) for i, a in enumerate(self.axes)}

    def _axis_values(self, i: int, digits: np.ndarray) -> np.ndarray:
        axis = self.axes[i]
        return np.array(axis.values if axis.ordered else axis.labels)[digits]

    def spec(self) -> dict[str, Any]:
        """All that makes this space again, as plain JSON."""
        return {"table": self.table, "narrow": self.narrow}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        return _kept(_whole(json.dumps(spec["table"])), spec["narrow"])

    @cached_property
    def hash(self) -> str:
        """What tells this space from another: its file and the choices kept; those of its plan axis by their
        text.
        """
        axes = [[a.name, a.kind, list(a.labels)] for a in self.axes]
        return hashlib.sha256(json.dumps([self.spec(), axes], sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class _Part:
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
        k: [str(v) for v in (values if isinstance(values, list | tuple) else [values])]
        for k, values in narrow.items()
    }
    return _kept(whole, wanted)


def _kept(whole: Space, narrow: dict[str, list[str]]) -> Space:
    """A space with some choices of some axes."""
    axes = list(whole.axes)
    for name, wanted in narrow.items():
        i = whole.axis(name)
        axis = axes[i]
        if axis.kind == "plan":
            kept = sorted({k for text in wanted for k in _plans_meant(axis, text)})
        else:
            kept = [k for k in range(len(axis)) if any(_means(axis, k, text) for text in wanted)]
            for text in wanted:
                if not any(_means(axis, k, text) for k in range(len(axis))):
                    raise UnknownName(
                        f"choice of axis {name}", text, axis.labels, ", ".join(axis.labels[:12])
                    )
        axes[i] = replace(
            axis, values=tuple(axis.values[k] for k in kept), labels=tuple(axis.labels[k] for k in kept)
        )
    return replace(whole, axes=tuple(axes), narrow=dict(narrow))


def _plans_meant(axis: Axis, text: str) -> list[int]:
    """The plan a text names, or all that keep a condition over their degrees, like ``(ep == 1) & (cp == 1)``."""
    if text in axis.labels:
        return [axis.labels.index(text)]
    if not any(sign in text for sign in ("==", "<", ">", "!=")):
        raise UnknownName(
            f"choice of axis {axis.name}",
            text,
            axis.labels,
            "a plan as it is typed, or a condition like (ep == 1) & (cp == 1)",
        )
    degrees = dict(zip(PLAN_FIELDS, np.array(axis.values, float).T, strict=True))
    kept = np.flatnonzero(
        np.broadcast_to(np.asarray(calculate(text, degrees, f"axis {axis.name}"), bool), len(axis))
    )
    require(bool(len(kept)), "no plan is left by the condition on plans", where=text)
    found: list[int] = kept.tolist()
    return found


def _means(axis: Axis, k: int, text: str) -> bool:
    """Whether a text is this choice of an axis: its label, or the same number."""
    if text == axis.labels[k]:
        return True
    if not axis.ordered:
        return False
    try:
        return bool(np.isclose(number_at(text, axis.unit, axis.name), axis.values[k], rtol=1e-9))
    except BadValue:
        return False


# ------------------------------------------------------------------------------------------------ reading
# files


def _table(name: str) -> dict[str, Any]:
    """A space's file; one with a `base` is that space with another name, note and question."""
    table = read_toml(find("space", name))
    if "base" not in table:
        return table
    base, question = _table(table.pop("base")), table.pop("question", {})
    return base | table | {"question": base["question"] | question}


@lru_cache(maxsize=8)
def _whole(table: str) -> Space:
    """A space from its table; listing its plans takes a second or two, so that it is kept."""
    return _read(json.loads(table))


def _read(table: dict[str, Any]) -> Space:
    where = f"space {table.get('name', '')}"
    known = {"name", "title", "note", "question", "axis", "tie", "constraint"}
    for key in table:
        if key not in known:
            raise UnknownName(f"entry of {where}", key, known, ", ".join(sorted(known)))
    question = Question.read(table.get("question", {}), where)
    axes = tuple(_axis(raw, question, where) for raw in table.get("axis", []))
    require(bool(axes), f"{where} has no axis: write [[axis]] with a name, a field and values")
    names = [a.name for a in axes]
    twice = next((n for n in names if names.count(n) > 1), "")
    require(not twice, f"{where}: each axis has a name of its own", twice=twice)
    ties = tuple(
        Tie(known_field(t["field"], question, where), str(t["value"]), t.get("source", ""))
        for t in table.get("tie", [])
    )
    for tie in ties:
        require(bool(tie.source), f"{where}: a tie needs a source", field=tie.field)
    rules = tuple(Constraint(c["keep"], c.get("why", "")) for c in table.get("constraint", []))
    made = Space(
        table["name"], table.get("title", ""), table.get("note", ""), question, axes, ties, rules, table
    )
    taken = [f for a in axes for f in a.fields] + [t.field for t in ties]
    twice = next((f for f in taken if taken.count(f) > 1), "")
    require(not twice, f"{where}: each field follows from one axis or tie", twice=twice)
    require(made.size < 1 << 62, f"{where} has more points than can be numbered", size=made.size)
    return made


def _axis(raw: dict[str, Any], question: Question, where: str) -> Axis:
    name = raw.get("name", "")
    require(bool(name), f"{where}: an axis needs a name")
    for key in raw:
        if key not in _AXIS_KEYS:
            raise UnknownName(
                f"entry of axis {name} of {where}", key, _AXIS_KEYS, ", ".join(sorted(_AXIS_KEYS))
            )
    rest = {"source": raw.get("source", ""), "stage": int(raw.get("stage", 0))}
    require(bool(rest["source"]), f"{where}: axis {name} needs a source")
    if "plans" in raw:
        rows = plan_rows(question, raw["plans"])
        return Axis(name, ("plan",), *plan_values(rows), "plan", **rest)
    if "variants" in raw:
        return _variants(name, raw["variants"], question, where, rest)
    named = raw.get("fields", [raw["field"]] if "field" in raw else [])
    require(bool(named), f"{where}: axis {name} needs a field", axis=name)
    fields = tuple(known_field(f, question, where) for f in named)
    unit = question.unit(fields[0])
    if unit is None:
        words = tuple(str(v) for v in raw.get("values", []))
        require(bool(words), f"{where}: axis {name} needs values")
        return Axis(name, fields, words, words, "word", **rest)
    times = "times" in raw
    listed = raw.get("times", raw.get("values"))
    if listed is None:
        start, stop, count = raw["range"] if len(raw.get("range", [])) == 3 else (0, 0, 0)
        require(count >= 1, f"{where}: axis {name} needs values, times, or a range [from, to, how many]")
        listed = np.linspace(start, stop, int(count)).tolist()
    numbers = tuple(number_at(v, "1" if times else unit, name) for v in listed)
    require(
        bool(numbers) and all(a < b for a, b in itertools.pairwise(numbers)),
        f"{where}: axis {name} lists rising numbers",
    )
    labels = tuple(v if isinstance(v, str) else f"{v:g}" for v in listed)
    return Axis(name, fields, numbers, labels, "times" if times else "number", "1" if times else unit, **rest)


def _variants(
    name: str, variants: dict[str, dict[str, Any]], question: Question, where: str, rest: dict[str, Any]
) -> Axis:
    """Named variants: each sets some fields; what it does not name stays as it is."""
    require(bool(variants), f"{where}: axis {name} needs variants")
    made = []
    for own in variants.values():
        full = {known_field(f, question, where): v for f, v in own.items()}
        made.append(
            {
                f: v if question.unit(f) is None else number_at(v, question.unit(f) or "1", f)
                for f, v in full.items()
            }
        )
    fields = tuple(dict.fromkeys(f for own in made for f in own))
    return Axis(name, fields, tuple(made), tuple(variants), "variant", **rest)
