"""Groups whose rows are slow to price, as straight lines: logarithms of errors are nearly straight over so
small a way, so that slopes are taken once and every family is left out of the same lines.

Of long files slopes are taken at some configurations with few clients, and another has those of the nearest
like it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from zlib import crc32

import numpy as np

from strata.arrays import Array
from strata.validation.fit.rows import GroupRows
from strata.validation.fit.solver import Lines, log_errors, moved_along
from strata.validation.fit.versions import Version, Versions
from strata.validation.readers.comparison import ComparedPoints, join_metrics

CLIENTS = 64  # most clients of a configuration that slopes are taken at
Key = tuple[str, int, str]  # file, line and group of a point


@dataclass(frozen=True, eq=False, kw_only=True)
class RunLines:
    """Configurations of a group's files, measured and predicted, and how its numbers move them."""

    rows: GroupRows
    versions: Versions
    points: ComparedPoints
    file: Array
    lines: Lines = field(default_factory=lambda: Lines(np.zeros(0), np.zeros((0, 0))))

    @cached_property
    def priced(self) -> tuple[Array, Array]:
        """Which points are priced for slopes, and for each point the place among them of the one like it."""
        one_in = self.rows.group.search.one_in
        some = _slope_rows(self.points, one_in) if one_in > 1 else np.arange(len(self.points))
        return some, _nearest(self.points, some) if one_in > 1 else some

    def moved_with(self, place: int, value: float) -> Array:
        """How the logarithm of every error moves when one quantity takes another value."""
        some, nearest = self.priced
        points, file = self.points.keep(some), self.file[some]
        values = self.versions.start.copy()
        values[place] = value
        only = None
        if self.rows.group.search.one_in > 1:
            only = {name: np.unique(points.line[file == name]) for name in self.rows.files}
        there = _predicted(self.rows, self.versions.at(values), only)
        keys = zip(_keys(points, file), points.predicted, strict=True)
        moved = np.array([there.get(key, as_it_is) for key, as_it_is in keys])
        upside = np.where(points.rate, -1.0, 1.0)
        errors: Array = (upside * np.log(moved / points.predicted))[nearest]
        return errors

    def refitted(self, learn: Array) -> dict[str, float]:
        """The group's numbers fitted to some of its points."""
        moved = moved_along(self.lines, learn, self.versions, self.rows.group.search)
        paths = [q.path for q in self.versions.quantities]
        return dict(zip(paths, (self.versions.start * np.exp(moved)).tolist(), strict=True))

    def predicted(self, values: Mapping[str, float]) -> Array:
        """Predictions of all points at other values: along the lines of long files, priced in full of
        others.
        """
        if self.rows.group.search.one_in > 1:
            moved = np.log([values[q.path] for q in self.versions.quantities]) - np.log(self.versions.start)
            upside = np.where(self.points.rate, -1.0, 1.0)
            along: Array = self.points.predicted * np.exp(upside * (self.lines.slopes @ moved))
            return along
        version = self.versions.at(values[q.path] for q in self.versions.quantities)
        there = _predicted(self.rows, version)
        kept = zip(_keys(self.points, self.file), self.points.predicted, strict=True)
        return np.array([there.get(key, as_it_is) for key, as_it_is in kept])


def run_lines(rows: GroupRows, versions: Versions, shown: list[ComparedPoints]) -> RunLines:
    """A group's rows as they are predicted, priced once more for each of its quantities."""
    points, file = _joined(rows, [rows.counted(part) for part in shown])
    runs = RunLines(rows=rows, versions=versions, points=points, file=file)
    step = rows.group.search.slopes
    slopes = [runs.moved_with(i, value * np.exp(step)) / step for i, value in enumerate(versions.start)]
    return replace(runs, lines=Lines(log_errors(points), np.stack(slopes, axis=1)))


def _joined(rows: GroupRows, parts: list[ComparedPoints]) -> tuple[ComparedPoints, Array]:
    names = [np.full(len(part), name, dtype=object) for name, part in zip(rows.files, parts, strict=True)]
    return join_metrics(parts), np.concatenate(names)


def _keys(points: ComparedPoints, file: Array) -> list[Key]:
    parts = zip(file, points.line, points.group, strict=True)
    return [(str(name), int(line), str(group)) for name, line, group in parts]


def values_by_key(points: ComparedPoints, file: Array, values: Array) -> dict[Key, float]:
    """Values of some points by what tells a point: its file, line and group."""
    return dict(zip(_keys(points, file), values.tolist(), strict=True))


def _predicted(
    rows: GroupRows, version: Version, lines: Mapping[str, Array] | None = None
) -> dict[Key, float]:
    points, file = _joined(rows, rows.points(version, lines))
    return values_by_key(points, file, points.predicted)


def _slope_rows(points: ComparedPoints, one_in: int) -> Array:
    """Configurations with few clients: one in so many of each group by what they are, or the one with the
    fewest.
    """
    clients = np.array([_sizes(c)[0] for c in points.command])
    drawn = np.array([crc32(str(c).encode()) % one_in == 0 for c in points.command], bool)
    chosen = drawn & (clients <= CLIENTS)
    for group in set(points.group):
        own = np.flatnonzero(points.group == group)
        if not chosen[own].any():
            chosen[own[np.argmin(clients[own])]] = True
    return np.flatnonzero(chosen)


def _nearest(points: ComparedPoints, some: Array) -> Array:
    """For each configuration the place of the one among some, of its own group, that is most like it."""
    sizes = np.log(np.array([_sizes(c) for c in points.command]))
    place = np.zeros(len(points), int)
    for group in set(points.group):
        own, there = (w[points.group[w] == group] for w in (np.arange(len(points)), some))
        apart = np.sum(np.abs(sizes[own, None, :] - sizes[None, there, :]), axis=2)
        place[own] = np.searchsorted(some, there)[np.argmin(apart, axis=1)]
    return place


def _sizes(command: str) -> Sequence[float]:
    """Clients and lengths of a command.

    >>> _sizes("strata simulate --clients 8 --input uniform:1024 --output 512")
    [8.0, 1024.0, 512.0]
    """
    names = ("clients", "input", "output")
    cells = [re.search(rf"\b{name}[ =](?:\w+:)?(\d+)", str(command)) for name in names]
    return [float(cell.group(1)) if cell else 1.0 for cell in cells]
