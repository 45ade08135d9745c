"""Measured against predicted: forecasts of a table's rows, one pricing call for each group of like rows, and
the points they give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import StrataError, UnknownName
from strata.validation.readers.tables import Table

NOT_POSITIVE = "the prediction is not a positive number"


@dataclass(frozen=True, eq=False)
class Forecast:
    """Predicted quantities of every row, one array for each metric (nan where there is none), and why rows
    have none.
    """

    values: Array  # [metrics, rows]
    why: dict[int, str] = field(default_factory=dict)

    def __getitem__(self, metric: int) -> Array:
        values: Array = self.values[metric]
        return values


def forecast(
    table: Table,
    keys: Sequence[Array],
    price: Callable[[tuple[Any, ...], Array], Any],
    metrics: int = 1,
    refused: Mapping[int, str] | None = None,
) -> Forecast:
    """Price all rows that share the same keys in one call.

    `price` gets the key and the row indices and returns one array (or `metrics` of them). A group that is
    refused is tried row by row, so that one impossible row does not take its neighbours along. Rows of
    `refused` are not priced, for the reason it gives.
    """
    values = np.full((metrics, len(table)), np.nan)
    why: dict[int, str] = dict(refused or {})
    for key, rows in rows_by_key(keys, len(table)):
        rows = np.array([i for i in rows if int(i) not in why], int)
        if len(rows):
            _fill(values, why, key, rows, price)
    for i in np.flatnonzero(~(np.isfinite(values) & (values > 0)).any(axis=0)):
        why.setdefault(int(i), NOT_POSITIVE)
    return Forecast(values, why)


def _fill(
    values: Array,
    why: dict[int, str],
    key: tuple[Any, ...],
    rows: Array,
    price: Callable[[tuple[Any, ...], Array], Any],
) -> None:
    try:
        with np.errstate(all="ignore"):  # sizes no kernel has: what is no positive number is a failed row
            priced = np.asarray(price(key, rows), float)
        values[:, rows] = np.broadcast_to(priced, (values.shape[0], len(rows)))
    except UnknownName as error:
        why.update(dict.fromkeys(map(int, rows), str(error)))
    except StrataError as error:
        if len(rows) == 1:
            why[int(rows[0])] = str(error)
        else:
            for row in rows:
                _fill(values, why, key, np.array([row]), price)


def rows_by_key(keys: Sequence[Array], count: int) -> list[tuple[tuple[Any, ...], Array]]:
    """Row indices by equal keys, in order of appearance."""
    rows: dict[tuple[Any, ...], list[int]] = {}
    for i in range(count):
        rows.setdefault(tuple(k[i] for k in keys), []).append(i)
    return [(key, np.array(same)) for key, same in rows.items()]


def fastest_rows(table: Table, same: Sequence[str], measured: Array) -> Array:
    """Of rows that are alike in some columns the one with the least time."""
    best: list[int] = []
    for _, rows in rows_by_key([table.text(c) for c in same], len(table)):
        filled = rows[~np.isnan(measured[rows])]
        if len(filled):
            best.append(int(filled[np.argmin(measured[filled])]))
    return np.array(sorted(best), int)


COLUMNS = ("measured", "predicted", "group", "line", "headline", "rate", "case", "command", "first")


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedPoints:
    """Measured against predicted. A failed point is predicted as 0, an error of -1.

    `headline` marks the points behind the file's own figures; `rate` marks metrics of which more is better;
    `case` is phase|chip|kind|family of whole-model points, for the intervals of `strata predict`; `command`
    is the line that predicts a point of a served file: rows with the same one are one configuration. `first`
    is the first line that asks the same in every argument: such lines are held out, or not, together.
    `families` say what a point is of (chip, model, engine, network), `rivals` what other predictors say, nan
    where they say nothing.
    """

    measured: Array
    predicted: Array
    group: Array
    line: Array
    headline: Array
    rate: Array
    case: Array
    why: dict[int, str]  # line of the file to reason
    command: Array = field(default_factory=lambda: np.zeros(0, dtype=object))  # "" where there is none
    first: Array = field(default_factory=lambda: np.zeros(0, int))  # its own line where not known
    # node count to indices of points that are ranked together
    ranks: dict[str, Array] = field(default_factory=dict)
    later: tuple[str, ...] = ()  # groups of rows whose physics is not modelled yet, how many rows of each
    families: Mapping[str, Array] = field(default_factory=dict)
    rivals: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.command) != len(self.measured):
            object.__setattr__(self, "command", np.full(len(self.measured), "", dtype=object))
        if len(self.first) != len(self.measured):
            object.__setattr__(self, "first", self.line)

    def __len__(self) -> int:
        return len(self.measured)

    def keep(self, which: Array) -> ComparedPoints:
        """The chosen points (a mask or indices), without their ranks."""
        columns: dict[str, Any] = {name: getattr(self, name)[which] for name in COLUMNS}
        for name in ("families", "rivals"):
            columns[name] = {key: values[which] for key, values in getattr(self, name).items()}
        return replace(self, **columns, ranks={})


def configurations(points: ComparedPoints) -> ComparedPoints:
    """Points of rows with the same command, group and prediction as one, measured as their median; points
    without a command each by itself.
    """
    if not any(points.command):
        return points
    places: dict[tuple[Any, ...], list[int]] = {}
    for i in range(len(points)):
        same = (points.command[i], points.group[i], float(points.predicted[i]))
        places.setdefault(same if points.command[i] else (i,), []).append(i)
    first = np.array([rows[0] for rows in places.values()], int)
    median = np.array([float(np.median(points.measured[rows])) for rows in places.values()])
    return replace(points.keep(first), measured=median)


HELD_OUT = 3  # every third configuration of a file that is fitted is held out, by its first line


def held_out(points: ComparedPoints) -> ComparedPoints:
    """The points of a fitted file that no fit has seen."""
    kept = is_held_out(points)
    seen = set(points.line[~kept].tolist())
    why = {line: reason for line, reason in points.why.items() if line not in seen}
    return replace(points.keep(kept), why=why)


def is_held_out(points: ComparedPoints) -> Array:
    """Which points of a fitted file no fit has seen."""
    held: Array = points.first.astype(int) % HELD_OUT == 0
    return held


def no_points(later: tuple[str, ...]) -> ComparedPoints:
    """A file of which nothing is predicted yet."""
    columns: dict[str, Any] = {name: np.zeros(0, dtype=object) for name in COLUMNS}
    return ComparedPoints(**columns, why={}, later=later)


def join_metrics(parts: Sequence[ComparedPoints]) -> ComparedPoints:
    """Several metrics of one file as one set of points."""
    why: dict[int, str] = {}
    for part in parts:
        why.update(part.why)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS
    }
    for name, lacking in (("families", ""), ("rivals", np.nan)):
        keys = dict.fromkeys(key for part in parts for key in getattr(part, name))
        columns[name] = {
            key: np.concatenate(
                [np.asarray(getattr(part, name).get(key, [lacking] * len(part))) for part in parts]
            )
            for key in keys
        }
    return ComparedPoints(**columns, why=why)
