"""Measured against predicted: forecasts of a table's rows, one pricing call for each group of like rows, and
the points they give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import StrataError, UnknownName
from strata.validation.readers.tables import Table


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
    needs: Sequence[str] = (),
    metrics: int = 1,
) -> Forecast:
    """Price all rows that share the same keys in one call.

    `price` gets the key and the row indices and returns one array (or `metrics` of them). A group that is
    refused is tried row by row, so that one impossible row does not take its neighbours along.
    """
    values = np.full((metrics, len(table)), np.nan)
    why: dict[int, str] = {}
    for column in needs:
        for i in np.flatnonzero(np.isnan(table.number(column))):
            why[int(i)] = f"column '{column}' is empty"
    for key, rows in rows_by_key(keys, len(table)):
        rows = np.array([i for i in rows if int(i) not in why], int)
        if len(rows):
            _fill(values, why, key, rows, price)
    for i in np.flatnonzero(~(np.isfinite(values) & (values > 0)).any(axis=0)):
        why.setdefault(int(i), "the prediction is not a positive number")
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


def fastest_backend(table: Table, same: Sequence[str], time: str) -> Table:
    """One row for each shape: the fastest of its backends."""
    measured = table.number(time)
    best: list[int] = []
    for _, rows in rows_by_key([table.text(c) for c in same], len(table)):
        filled = rows[~np.isnan(measured[rows])]
        if len(filled):
            best.append(int(filled[np.argmin(measured[filled])]))
    return table.keep(np.array(sorted(best), int))


COLUMNS = ("measured", "predicted", "group", "line", "headline", "rate", "case", "command")


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedPoints:
    """Measured against predicted. A failed point is predicted as 0, an error of -1.

    `headline` marks the points behind the file's own figures; `rate` marks metrics of which more is better;
    `case` is phase|chip|kind|family of whole-model points, for the intervals of `strata predict`; `command`
    is the line that predicts a point of a served file: rows with the same one are one configuration.
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
    # node count to indices of points that are ranked together
    ranks: dict[str, Array] = field(default_factory=dict)
    later: tuple[str, ...] = ()  # groups of rows whose physics is not modelled yet: named, not counted

    def __post_init__(self) -> None:
        if len(self.command) != len(self.measured):
            object.__setattr__(self, "command", np.full(len(self.measured), "", dtype=object))

    def __len__(self) -> int:
        return len(self.measured)

    def keep(self, which: Array) -> ComparedPoints:
        """The chosen points (a mask or indices), without their ranks."""
        columns = {name: getattr(self, name)[which] for name in COLUMNS}
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


def compare_metric(
    table: Table,
    measured: Array,
    forecasts: Forecast,
    group: Sequence[str] | Array,
    *,
    metric: int = 0,
    headline: bool | Array = True,
    rate: bool = False,
    case: Sequence[str] | Array | None = None,
) -> ComparedPoints:
    """The points of one metric of a table: rows with a measurement; where there is no prediction, a failed
    point. What was measured as zero or less cannot be compared, and is told with the failures.
    """
    kept = np.flatnonzero(np.isfinite(measured) & (measured > 0))
    unread = np.flatnonzero(np.isfinite(measured) & (measured <= 0))
    values = forecasts[metric][kept]
    failed = ~(np.isfinite(values) & (values > 0))
    names = np.asarray(group, dtype=object)
    cases = np.asarray(case if case is not None else [""] * len(table), dtype=object)
    reasons = {
        int(table.lines[i]): forecasts.why.get(int(i), "the prediction is not a positive number")
        for i in kept[failed]
    } | {int(table.lines[i]): f"what was measured must be positive, but got {measured[i]:g}" for i in unread}
    return ComparedPoints(
        measured=measured[kept],
        predicted=np.where(failed, 0.0, values),
        group=names[kept],
        line=table.lines[kept],
        headline=np.broadcast_to(headline, (len(table),))[kept],
        rate=np.full(len(kept), rate),
        case=cases[kept],
        why=reasons,
    )


HELD_OUT = 3  # every third line of a file that is fitted is held out


def held_out(points: ComparedPoints) -> ComparedPoints:
    """The points of a fitted file that no fit has seen."""
    kept = points.line % HELD_OUT == 0
    why = {line: reason for line, reason in points.why.items() if line % HELD_OUT == 0}
    return replace(points.keep(kept), why=why)


def join_metrics(parts: Sequence[ComparedPoints]) -> ComparedPoints:
    """Several metrics of one file as one set of points."""
    why: dict[int, str] = {}
    for part in parts:
        why.update(part.why)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS
    }
    return ComparedPoints(**columns, why=why)


def group_names(*parts: Array | str, count: int) -> Array:
    """Group names from columns and fixed words, joined by '/'."""
    columns = [[p] * count if isinstance(p, str) else [str(v) for v in p] for p in parts]
    return np.array(["/".join(row) for row in zip(*columns, strict=True)], dtype=object)
