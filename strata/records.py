"""Records people can read: a short repr, a small table in notebooks, and plain dictionaries."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from strata.arrays import is_leaf

HIDDEN = ("sources",)  # fields that say where numbers come from; they have commands of their own
LONGEST = 4  # values of an array that are written out
T = TypeVar("T")


def readable(*shown: str) -> Callable[[type[T]], type[T]]:
    """Give a record a repr of the named fields (all but hidden ones), a table for notebooks, `to_dict`."""

    def decorated(cls: type[T]) -> type[T]:
        names = shown or tuple(f.name for f in fields(cls) if f.name not in HIDDEN)  # type: ignore[arg-type]

        def __repr__(self: Any) -> str:
            return f"{cls.__name__}({', '.join(f'{n}={brief(getattr(self, n))}' for n in names)})"

        def _repr_html_(self: Any) -> str:
            return record_html(cls.__name__, {n: brief(getattr(self, n)) for n in names})

        for name, method in (("__repr__", __repr__), ("_repr_html_", _repr_html_), ("to_dict", to_dict)):
            if name == "__repr__" or name not in cls.__dict__:
                setattr(cls, name, method)
        return cls

    return decorated


def brief(value: Any) -> str:
    """A value in a few characters: numbers as written, arrays by ends and shape, records by their name.

    >>> brief(64.0), brief(np.arange(8.0)), brief("bf16"), brief({"tp": 8.0})
    ('64', '[0, 1 ... 7] (8)', "'bf16'", '{tp: 8}')
    """
    if isinstance(value, np.ndarray) and value.ndim:
        flat = value.ravel()
        if flat.size <= LONGEST:
            return f"[{', '.join(brief(v) for v in flat.tolist())}]"
        size = " x ".join(str(n) for n in value.shape)
        return f"[{brief(flat[0])}, {brief(flat[1])} ... {brief(flat[-1])}] ({size})"
    if is_leaf(value):
        return f"{float(value):.6g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {brief(v)}" for k, v in value.items()) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        named = getattr(value, "name", "")
        return str(named) if named else repr(value)
    return repr(value)


def record_html(title: str, rows: dict[str, str]) -> str:
    """A two-column table for notebooks."""
    body = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items())
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"


def to_dict(record: Any) -> Any:
    """A record as plain dictionaries, lists, numbers and text, without its sources.

    >>> from strata.hardware.money import economics
    >>> sorted(to_dict(economics()))[:2]
    ['electricity', 'host']
    """
    if isinstance(record, np.ndarray | np.generic):
        return record.tolist()
    if is_dataclass(record) and not isinstance(record, type):
        held = (f.name for f in fields(record) if f.name not in HIDDEN and not f.name.startswith("_"))
        return {name: to_dict(getattr(record, name)) for name in held}
    if isinstance(record, dict):
        return {key: to_dict(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_dict(value) for value in record]
    return record if record is None or isinstance(record, str | int | float | bool) else str(record)
