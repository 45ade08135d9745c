"""Typed errors, each one clear line. `Infeasible` (records.py) is an answer and not an error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LONGEST_LINE = 400  # characters of a message; of a longer one the middle is left out
LONGEST_LIST = 4000  # of one that lists all that a file lacks
LONGEST_WORD = 100  # of a word in it, as a number of thousands of digits
MOST_VALUES = 3  # of an array that breaks a relation


_LONG_WORDS = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


class StrataError(ValueError):
    """Base of everything a user's input can cause: one line, printed with exit status 2."""

    def __init__(self, said: str = "", longest: int = LONGEST_LINE):
        super().__init__(printable_line(said, longest))


class Unforeseen(StrataError):
    """What no check foresaw: a fault of Strata's, said in one line all the same."""


class UnknownName(StrataError):
    """A name that is not in a catalogue; the message carries the nearest right ones and the next command."""

    def __init__(self, kind: str, name: str, known: Iterable[str], more: str = ""):
        hint = nearest(name, known)
        parts = [f"no {kind} called '{name}'"]
        if hint:
            parts.append("nearest: " + ", ".join(hint))
        if more:
            parts.append("all: " + more)
        super().__init__("; ".join(parts))


class BadValue(StrataError):
    """A value that breaks a stated relation; the message says which, with the values."""


class BadFile(StrataError):
    """A data file that cannot be read or has wrong keys; the message says where and what is right."""


class BadUnit(StrataError):
    """A quantity whose unit is unknown or of the wrong dimension."""


class MissingQuantity(StrataError):
    """A number that is needed and was not given; never replaced by another chip's."""


def printable_line(said: str, longest: int = LONGEST_LINE) -> str:
    """A message as one line of printable characters, without the middle of what is very long.

    >>> printable_line("no chip called 'a\\n\\x00b'"), len(printable_line("x y " * 10**6)) <= 400
    ("no chip called 'a \\\\x00b'", True)
    >>> printable_line(f"no chip called '{'x' * 5000}'; all: strata list chips")[-32:]
    "xxxxxxx'; all: strata list chips"
    """
    said = _without_middle(said, 100_000)  # before every character is looked at
    if not said.isprintable():
        joined = " ".join(said.split())
        said = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
    if len(said) > longest:
        said = _LONG_WORDS.sub(lambda word: _without_middle(word[0], LONGEST_WORD), said)
    return _without_middle(said, longest)


def _without_middle(said: str, longest: int) -> str:
    """A text of at most so many characters."""
    if len(said) <= longest:
        return said
    between = f" ... ({len(said)} characters) ... "
    kept = max(longest - len(between), 0)
    return f"{said[: kept - kept // 3]}{between}{said[len(said) - kept // 3 :]}"


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names closest to a mistyped one, best first.

    >>> nearest("h20o", ["h200", "h100", "tpu-v4"])
    ['h200', 'h100']
    """
    by_key = {str(k).lower(): str(k) for k in known}
    wanted = str(name).lower()[:200]  # comparing takes the product of both lengths
    return [by_key[k] for k in difflib.get_close_matches(wanted, list(by_key), count, 0.5)]


def require(condition: bool, relation: str, **values: object) -> None:
    """Raise `BadValue` with the broken relation and the values that break it.

    >>> require(8 % 3 == 0, "plan.tp must divide devices", tp=3, devices=8)
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: plan.tp must divide devices, but got (tp=3, devices=8)
    """
    if not condition:
        shown = ", ".join(f"{k}={_value(v)}" for k, v in values.items())
        raise BadValue(f"{relation}, but got ({shown})" if shown else relation)


def _value(value: object) -> str:
    """A value in a few words: of an array its first few and how many there are."""
    count = getattr(value, "size", None)
    if isinstance(value, str) or not isinstance(count, int) or count <= MOST_VALUES:
        return repr(value) if isinstance(value, str) else str(value)
    few = [str(v) for _, v in zip(range(MOST_VALUES), value.flat, strict=False)]  # type: ignore[attr-defined]
    return f"{', '.join(few)}, ... ({count} values)"
