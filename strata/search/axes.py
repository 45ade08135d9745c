"""Axes of a space of designs: what a design may choose, read from the space's file, and some of the choices
kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.errors import StrataError, UnknownName, require
from strata.base.expression import holds_at
from strata.base.reading import known_keys, number_of, table_of, text_of, texts_of
from strata.search.fields import PLAN_FIELDS, si_number, twice_named
from strata.search.scenario import PlanLabels, Scenario, checked_field, plan_choices, plans_of_scenario

_AXIS_KEYS = (
    *("name", "field", "fields", "values", "times", "range"),
    *("variants", "plans", "unit", "stage", "source"),
)
MOST_CHOICES = 100_000  # of one axis


@dataclass(frozen=True, eq=False, kw_only=True)
class DesignAxis:
    """A choice of a design: numbers of fields, multiples of them, words, named variants, or plans."""

    name: str
    fields: tuple[str, ...]
    values: Any  # a tuple of numbers, words or tables of fields; plans: an array [plans, fields]
    labels: Sequence[str]
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

    def keep(self, choices: Iterable[int]) -> DesignAxis:
        """The axis with some of its choices."""
        which = list(choices)
        if self.kind == "plan":
            rows = np.asarray(self.values, float)[which]
            return replace(self, values=rows, labels=PlanLabels(rows))
        return replace(
            self, values=tuple(self.values[k] for k in which), labels=tuple(self.labels[k] for k in which)
        )

    def values_at(self, digits: np.ndarray) -> np.ndarray:
        """Numbers in SI, or labels, of some choices."""
        if self.kind == "plan":
            chosen, place = np.unique(digits, return_inverse=True)
            return np.array([self.labels[int(k)] for k in chosen])[place]
        return np.array(self.values if self.ordered else self.labels)[digits]

    def named(self, texts: list[str]) -> DesignAxis:
        """The axis with the choices that texts name: labels, the same numbers, or conditions on plans."""
        if self.kind == "plan":
            return self.keep(sorted({k for text in texts for k in self._plans_meant(text)}))
        meant = [[k for k in range(len(self)) if self._means(k, text)] for text in texts]
        for text, choices in zip(texts, meant, strict=True):
            if not choices:
                raise UnknownName(
                    f"choice of axis {self.name}", text, self.labels, ", ".join(self.labels[:12])
                )
        return self.keep(sorted({k for choices in meant for k in choices}))

    def _plans_meant(self, text: str) -> list[int]:
        """The plan a text names, or all that keep a condition over their degrees, like ``(ep == 1)``."""
        if not any(sign in text for sign in ("==", "<", ">", "!=")):
            if text in self.labels:
                return [self.labels.index(text)]
            raise UnknownName(
                f"choice of axis {self.name}",
                text,
                self.labels,
                "a plan as it is typed, or a condition like (ep == 1) & (cp == 1)",
            )
        degrees = dict(zip(PLAN_FIELDS, np.asarray(self.values, float).T, strict=True))
        kept: list[int] = np.flatnonzero(holds_at(text, degrees, len(self), f"axis {self.name}")).tolist()
        require(bool(kept), "no plan is left by the condition on plans", where=text)
        return kept

    def _means(self, k: int, text: str) -> bool:
        """Whether a text is this choice: its label, or the same number."""
        if text == self.labels[k]:
            return True
        if not self.ordered:
            return False
        try:
            return bool(np.isclose(si_number(text, self.unit, self.name), self.values[k], rtol=1e-9))
        except StrataError:
            return False


def read_axis(table: dict[str, Any], scenario: Scenario, where: str) -> DesignAxis:
    """An axis from its table in a space's file."""
    require("name" in table, f"{where}: an axis needs a name")
    name = text_of(table, "name", f"{where}: an axis")
    at = f"{where}: axis {name}"
    known_keys(table, _AXIS_KEYS, at)
    require("source" in table, f"{at} needs a source")
    stage = number_of(table, "stage", at, 0.0, whole=True) if table.get("stage") else 0.0
    rest: dict[str, Any] = {"name": name, "source": text_of(table, "source", at), "stage": int(stage)}
    if "plans" in table:
        values, labels = plan_choices(plans_of_scenario(scenario, table_of(table, "plans", at)))
        return DesignAxis(fields=("plan",), values=values, labels=labels, kind="plan", **rest)
    if "variants" in table:
        return _variants(table_of(table, "variants", at), scenario, where, rest)
    one = [text_of(table, "field", at)] if "field" in table else []
    named = texts_of(table, "fields", at) if "fields" in table else one
    require(bool(named), f"{at} needs a field", axis=name)
    fields = tuple(checked_field(f, scenario, where) for f in named)
    unit = scenario.unit(fields[0])
    if unit is None:
        words = tuple(texts_of(table, "values", at, ()))
        require(bool(words), f"{at} needs values")
        require(twice_named(words) is None, f"{at} names each choice once", twice=twice_named(words))
        return DesignAxis(fields=fields, values=words, labels=words, kind="word", **rest)
    return _numbers(table, fields, unit, where, rest)


def _numbers(
    table: dict[str, Any], fields: tuple[str, ...], unit: str, where: str, rest: dict[str, Any]
) -> DesignAxis:
    """Numbers of fields, or multiples of what they are, in rising order."""
    name, kind = rest["name"], "times" if "times" in table else "number"
    unit, at = "1" if kind == "times" else unit, f"{where}: axis {name}"
    listed = table.get("times", table.get("values"))
    if listed is None:
        listed = _ranged(table.get("range"), unit, at)
    require(isinstance(listed, list), f"{at} lists its values", values=str(listed)[:60])
    require(len(listed) <= MOST_CHOICES, f"{at} has at most {MOST_CHOICES} values", values=len(listed))
    numbers = tuple(si_number(v, unit, at) for v in listed)
    rising = all(a < b for a, b in itertools.pairwise(numbers))
    require(bool(numbers) and rising, f"{at} lists rising numbers")
    require(kind == "number" or numbers[0] > 0, f"{at}: multiples are positive", times=numbers[0])
    labels = tuple(v if isinstance(v, str) else f"{v:g}" for v in listed)
    require(twice_named(labels) is None, f"{at} names each choice once", twice=twice_named(labels))
    return DesignAxis(fields=fields, values=numbers, labels=labels, kind=kind, unit=unit, **rest)


def _ranged(given: Any, unit: str, at: str) -> list[float]:
    """The numbers of a range: from, to (in SI, or with their units), how many."""
    told = isinstance(given, list) and len(given) == 3
    require(told, f"{at} needs values, times, or a range [from, to, how many]", range=str(given)[:60])
    start, stop = (si_number(v, unit, at) for v in given[:2])
    count = si_number(given[2], "1", at)
    whole = count >= 1 and count == count // 1
    require(whole, f"{at}: a range ends with how many values it has", count=count)
    require(count <= MOST_CHOICES, f"{at} has at most {MOST_CHOICES} values", values=f"{count:g}")
    found: list[float] = np.linspace(start, stop, int(count)).tolist()
    return found


def _variants(variants: dict[str, Any], scenario: Scenario, where: str, rest: dict[str, Any]) -> DesignAxis:
    """Named variants: each sets some fields; what it does not name stays as it is."""
    at = f"{where}: axis {rest['name']}"
    require(bool(variants), f"{at} needs variants")
    tables = []
    for name in variants:
        own = table_of(variants, name, f"{at}: variants")
        full = {checked_field(f, scenario, where): v for f, v in own.items()}
        units = {f: scenario.unit(f) for f in full}
        tables.append(
            {
                f: text_of({f: v}, f, f"{at}: {name}") if (u := units[f]) is None else si_number(v, u, f)
                for f, v in full.items()
            }
        )
    fields = tuple(dict.fromkeys(f for own in tables for f in own))
    return DesignAxis(fields=fields, values=tuple(tables), labels=tuple(variants), kind="variant", **rest)
