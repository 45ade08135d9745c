"""What a kind of question is: the arguments it takes, the numbers it answers with, and the function that
answers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from math import nan
from typing import Any

from strata.base.errors import BadValue, UnknownName
from strata.base.expression import calculate
from strata.validation.readers.labels import Catalogue

NEEDED = object()  # the default of an argument that every row must give


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument: a number in a unit, or a text where it has none. Rows that differ in a text or in a
    number that is `alike` are asked about apart; all others of a file in one call of arrays.
    """

    meaning: str
    unit: str | None = None
    default: Any = NEEDED
    alike: bool = False

    @property
    def is_text(self) -> bool:
        return self.unit is None

    @property
    def needed(self) -> bool:
        return self.default is NEEDED


def word(meaning: str, default: Any = NEEDED) -> Argument:
    """An argument that is a word."""
    return Argument(meaning=meaning, default=default)


def number(meaning: str, unit: str = "1", default: Any = NEEDED, alike: bool = False) -> Argument:
    """An argument that is a number; nan is a default that says "not told"."""
    return Argument(meaning=meaning, unit=unit, default=default, alike=alike)


@dataclass(frozen=True, kw_only=True)
class QuestionKind:
    """A kind of question. `ask` gets the arguments (texts, and arrays of one number for each row) and a
    catalogue, and answers with arrays by name, names within names where that is how users are answered;
    what takes longer is a function that gives the array.
    `command` is the line that a user types for one row, by its arguments as single values.
    """

    name: str
    arguments: Mapping[str, Argument]
    answers: Mapping[str, str]  # names, dotted where one is inside another, and units
    ask: Callable[[dict[str, Any], Catalogue], Mapping[str, Any]]
    command: Callable[[dict[str, Any]], str] | None = None
    slow: bool = False  # a simulation for each row: of long files the table predicts one row in some
    rates: tuple[str, ...] = field(default=())  # answers of which more is better
    sets: str = ""  # what names with a dot are: further arguments, texts that need not be given

    @property
    def defaults(self) -> dict[str, Any]:
        """Arguments that need not be given, as they are then."""
        return {name: one.default for name, one in self.arguments.items() if not one.needed}

    def argument(self, name: str, where: str) -> Argument:
        if self.sets and "." in name:
            return word(self.sets, "")
        if name not in self.arguments:
            raise UnknownName(
                f"argument of {self.name} in {where}",
                name,
                self.arguments,
                ", ".join(n for n in self.arguments if "." not in n),
            )
        return self.arguments[name]

    def answer(self, answered: Mapping[str, Any], path: str) -> Any:
        """The answer at a dotted path, or a formula of answers."""
        if not re.fullmatch(r"[\w.]+", path):
            used = {name: self.answer(answered, name) for name in self.answers if name in path}
            return calculate(path, used, f"answers of {self.name}")
        found: Any = answered
        for key in path.split("."):
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, ValueError):
                if path in self.answers:  # not an answer to this row
                    return nan
                raise BadValue(f"{self.name} answers with {', '.join(self.answers)}, not {path}") from None
        return found() if callable(found) else found


def set_words(values: Mapping[str, Any], units: Mapping[str, str | None]) -> list[str]:
    """Quantities and words of a row as `--set` takes them."""
    words: list[str] = []
    for path, value in values.items():
        unit = units.get(path) or "1"
        typed = value if isinstance(value, str) else f"{float(value):.12g} {unit}".removesuffix(" 1")
        words += ["--set", f"{path}={typed}"]
    return words


# Modules that hold questions, each in a table QUESTIONS by name.
ROOMS = ("kernels", "hardware", "network", "served", "programs", "steps")


@lru_cache(maxsize=1)
def questions() -> dict[str, QuestionKind]:
    """All questions."""
    rooms = [import_module(f"strata.validation.questions.{room}") for room in ROOMS]
    return {name: one for room in rooms for name, one in room.QUESTIONS.items()}


def question(name: str) -> QuestionKind:
    """A question by name.

    >>> sorted(question("train").answers)[:2]
    ['backward', 'does_not_fit']
    """
    known = questions()
    if name not in known:
        raise UnknownName("question", name, known, ", ".join(known))
    return known[name]
