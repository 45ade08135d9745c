"""Groups whose rows are slow to price, as straight lines: logarithms of errors are nearly straight over so
small a way, so that every family is left out of the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import get_all_start_methods, get_context

import numpy as np

from strata.base.arrays import Array, cores
from strata.validation.fit.rows import GroupRows, Versions
from strata.validation.fit.solver import (
    FitSolution,
    Lines,
    log_errors,
    mean_error,
    moved_along,
    rounded_values,
)
from strata.validation.fit.table import fitted_files
from strata.validation.readers.comparison import ComparedPoints, is_held_out, join_metrics
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import matches

Key = tuple[str, int, str]  # file, line and group of a point


@dataclass(frozen=True, eq=False, kw_only=True)
class RunLines:
    """Configurations of a group's files, measured and predicted, and how its numbers move them."""

    rows: GroupRows
    versions: Versions
    points: ComparedPoints
    file: Array
    lines: Lines = field(default_factory=lambda: Lines(np.zeros(0), np.zeros((0, 0))))

    def moved_with(self, place: int, value: float) -> Array:
        """How the logarithm of every error moves when one quantity takes another value."""
        values = self.versions.start.copy()
        values[place] = value
        moved = self._priced(self.versions.at(values))
        errors: Array = np.where(self.points.rate, -1.0, 1.0) * np.log(moved / self.points.predicted)
        return errors

    def refitted(self, learn: Array) -> dict[str, float]:
        """The group's numbers fitted to some of its points."""
        moved = moved_along(self.lines, learn, self.versions, self.rows.group.search)
        paths = [q.path for q in self.versions.quantities]
        return dict(zip(paths, (self.versions.start * np.exp(moved)).tolist(), strict=True))

    def predicted(self, values: Mapping[str, float]) -> Array:
        """Predictions of all points at other values: along the lines where slow, else priced anew."""
        if self.rows.group.search.one_in > 1:
            moved = np.log([values[q.path] for q in self.versions.quantities]) - np.log(self.versions.start)
            upside = np.where(self.points.rate, -1.0, 1.0)
            along: Array = self.points.predicted * np.exp(upside * (self.lines.slopes @ moved))
            return along
        return self._priced(self.versions.at(values[q.path] for q in self.versions.quantities))

    def _priced(self, names: Catalogue) -> Array:
        """Predictions of all points by other versions, as they were where there is none now."""
        points, file = _joined(self.rows, self.rows.points(names))
        there = values_by_key(points, file, points.predicted)
        kept = zip(_keys(self.points, self.file), self.points.predicted, strict=True)
        return np.array([there.get(key, as_it_is) for key, as_it_is in kept])


def run_lines(rows: GroupRows, versions: Versions, shown: list[ComparedPoints]) -> RunLines:
    """A group's rows as they are predicted, priced once more for each of its quantities."""
    points, file = _joined(rows, [rows.counted(part) for part in shown])
    runs = RunLines(rows=rows, versions=versions, points=points, file=file)
    step = rows.group.search.slopes
    slopes = on_all_cores(lambda i: runs.moved_with(i, versions.start[i] * np.exp(step)), len(versions.start))
    return replace(runs, lines=Lines(log_errors(points), np.stack(slopes, axis=1) / step))


def on_all_cores(task: Callable[[int], Array], count: int) -> list[Array]:
    """A task for each number below a count; forked processes have all that it needs, but for the number."""
    if cores() < 2 or "fork" not in get_all_start_methods():
        return [task(i) for i in range(count)]
    with get_context("fork").Pool(cores(), initializer=_TASKS.append, initargs=(task,)) as pool:
        return pool.map(_perform, range(count), chunksize=1)


_TASKS: list[Callable[[int], Array]] = []  # of a forked process


def _perform(number: int) -> Array:
    return _TASKS[-1](number)


def solve_runs(rows: GroupRows, versions: Versions) -> FitSolution:
    """Values that fit best along straight lines, which are drawn anew from where they led until rounded
    values stay. Of files whose held-out third judges, two thirds are fitted.
    """
    search, before, values = rows.group.search, None, dict[str, float]()
    for _ in range(search.rounds):
        runs = run_lines(rows, versions, rows.points(versions.at(versions.start)))
        judged = np.array([matches(str(name), *fitted_files()) for name in runs.file], bool)
        check = is_held_out(runs.points) & judged
        before = before or (runs.points, check)
        moved = moved_along(runs.lines, ~check, versions, search)
        values = rounded_values(versions, versions.start * np.exp(moved), search)
        settled = np.array_equal(list(values.values()), versions.start)
        versions = replace(versions, here=tuple(values.values()))
        if settled:
            break
    assert before is not None  # there is a round
    points, _ = _joined(rows, rows.points(versions.at(versions.start)))
    check = before[1] if before[1].any() else np.ones(len(points), bool)
    return FitSolution(
        values=values,
        rows=int(len(points) - before[1].sum()),
        held_out=int(before[1].sum()),
        before=mean_error([before[0]], [np.flatnonzero(check)]),
        after=mean_error([points], [np.flatnonzero(check)]),
    )


def _joined(rows: GroupRows, parts: list[ComparedPoints]) -> tuple[ComparedPoints, Array]:
    names = [np.full(len(part), name, dtype=object) for name, part in zip(rows.files, parts, strict=True)]
    return join_metrics(parts), np.concatenate(names)


def _keys(points: ComparedPoints, file: Array) -> list[Key]:
    parts = zip(file, points.line, points.group, strict=True)
    return [(str(name), int(line), str(group)) for name, line, group in parts]


def values_by_key(points: ComparedPoints, file: Array, values: Array) -> dict[Key, float]:
    """Values of some points by what tells a point: its file, line and group."""
    return dict(zip(_keys(points, file), values.tolist(), strict=True))
