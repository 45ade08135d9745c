"""Tables and cards as every answer shows them, and fields of records as people and machines read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.base.units import show

FORMATTED = re.compile(r"\+?[,.]|g$")  # how a format begins; all else is a unit
Head = str | Sequence[str]
Rows = Iterable[Sequence[Any]]


def rows_table(head: Head, rows: Rows, styles: Iterable[str] = (), *, headed: bool = True) -> Any:
    """Rows under a head, which names its columns, with | between them where it is one text: a name after < or
    > stands at that side and is never folded, one after ) stands at the right, one before ~ is folded
    anywhere. `styles` of rows.
    """
    names = head.split("|") if isinstance(head, str) and head else head
    made = plain_table(*(name.removeprefix(")").removesuffix("~") for name in names), show_header=headed)
    for column, name in zip(made.columns, names, strict=True):
        column.justify = "right" if name.startswith(")") else column.justify
        column.overflow = "fold" if name.endswith("~") else column.overflow
    for cells, style in zip_longest(rows, styles, fillvalue=""):
        made.add_row(*cells, style=style)
    return made


def table(title: str, head: Head, rows: Rows, below: str = "", styles: Iterable[str] = ()) -> Any:
    """A table (`rows_table`) under its title."""
    return titled(title, rows_table(head, rows, styles), below)


def bare(title: str, rows: Rows, head: str = "", below: str = "") -> Any:
    """A table without a header; `head` says only where columns stand."""
    return titled(title, rows_table(head, rows, headed=False), below)


def card_table(rows: Rows) -> Any:
    """Headline numbers, a line each: what, how much, and what to know about it."""
    made = rows_table("<|>|", rows, headed=False)
    for column, style in zip(made.columns, ("dim", "bold", "dim"), strict=True):
        column.style = style
    return made


def card(title: str, rows: Rows, below: str = "") -> Any:
    """Headline numbers (`card_table`) under their title."""
    return titled(title, card_table(rows), below)


def cells_of(record: Any, fields: str) -> list[str]:
    """Fields of a record, or entries of a dictionary, as people read them: after a colon the unit, or the
    format, of each.

    >>> cells_of({"ranks": 8.0, "time_s": 2e-3, "algorithm": "ring"}, "ranks:g time_s:s algorithm")
    ['8', '2 ms', 'ring']
    """
    cells = []
    for field in fields.split():
        name, _, how = field.partition(":")
        value = record[name] if isinstance(record, Mapping) else attrgetter(name)(record)
        if not how:
            cells.append(str(value))
        elif FORMATTED.match(how):
            cells.append(format(np.asarray(value).item(), how))
        else:
            cells.append(show(float(value), how))
    return cells


def picked(record: Any, fields: str, of: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """Fields of a record by their names; `name=path` calls one by another, and takes one of a part.

    >>> picked(complex(1, 2), "real imaginary=imag")
    {'real': 1.0, 'imaginary': 2.0}
    """
    pairs = [field.partition("=") for field in fields.split()]
    return {name: of(attrgetter(path or name)(record)) for name, _, path in pairs}


def floats(record: Any, fields: str) -> dict[str, Any]:
    """The same as floats, None where there is no number."""
    return picked(record, fields, lambda value: None if value is None else float(value))
