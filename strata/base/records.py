"""Records people can read: a short repr, a small table in notebooks, plain dictionaries; and rows as tables
of Arrow, pandas and polars, each asked for only where it is wanted. `Infeasible`: why a point does not fit.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from strata.base.arrays import is_leaf
from strata.base.shipped import extra_package
from strata.base.units import show

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


EXTRA = "frames"


class Tabular:
    """Answers that are rows: `columns()` says what they hold, the rest follows."""

    def columns(self) -> dict[str, Any]:
        """Columns by name, all of one length."""
        raise NotImplementedError

    def to_table(self) -> Any:
        """An Arrow table, one row a point."""
        return extra_package("pyarrow", "an Arrow table", "search").table(self.columns())

    def to_pandas(self) -> Any:
        """A pandas DataFrame of the same rows."""
        return extra_package("pandas", "a pandas DataFrame", EXTRA).DataFrame(self.columns())

    def to_polars(self) -> Any:
        """A polars DataFrame of the same rows."""
        # rows may begin with integers and go on with floats
        return extra_package("polars", "a polars DataFrame", EXTRA).DataFrame(self.columns(), strict=False)


def box_columns(columns: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Columns with a row for each point of a box: its place on each axis, then the quantities.

    >>> {k: v.tolist() for k, v in box_columns({"time": np.array([[1.0, 2.0]])}, (1, 2)).items()}
    {'axis_0': [0, 0], 'axis_1': [0, 1], 'time': [1.0, 2.0]}
    """
    places = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), int)
    found = {f"axis_{i}": place for i, place in enumerate(places)}
    told = ((name, np.broadcast_to(np.asarray(value), shape or ())) for name, value in columns.items())
    return found | {name: value.reshape(-1) for name, value in told}


def row_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of rows that are dictionaries; None where a row lacks a key.

    >>> row_columns([{"a": 1}, {"a": 2, "b": 3}])
    {'a': [1, 2], 'b': [None, 3]}
    """
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    return {name: [row.get(name) for row in listed] for name in names}


@dataclass(frozen=True)
class Infeasible:
    """Why a point does not fit: what it asks for, what there is, and what would help."""

    what: str
    demand: float
    limit: float
    unit: str
    levers: tuple[str, ...]

    def __str__(self) -> str:
        need, have = show(self.demand, self.unit), show(self.limit, self.unit)
        told = f"but got {need} against {have}" if self.unit == "1" else f"needs {need}, has {have}"
        return f"{self.what}: {told}; levers: {', '.join(self.levers)}"
