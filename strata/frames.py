"""Answers as tables of other libraries: Arrow, pandas and polars, each asked for only where it is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from strata.shipped import extra_package

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
