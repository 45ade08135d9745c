"""What every fitted number is worth: the error on families left out with it, and without it.

A number of a chip is carried to others, whose rows judge it, or stays there as it was before any fit. Where
no other takes it or has such rows the held-out third of its own does. A number of many families together is
left at what changes nothing, the others refitted, each family left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.params import Param, leaf_paths, unfitted, value_at
from strata.validation.fit.calibrate import CHIP, TRANSPORT, joined_by, same_chip, with_entries
from strata.validation.fit.left_out import (
    KINDS,
    NETWORK,
    LeavingOut,
    families_of,
    families_of_runs,
    refitted_without,
)
from strata.validation.fit.rows import READ, GroupRows, Versions, free_quantities, group_rows
from strata.validation.fit.runs import RunLines, on_all_cores
from strata.validation.fit.shipped import carried_from, shipped_calibration
from strata.validation.fit.solver import Lines, moved_along
from strata.validation.fit.table import FitGroup, fit_table
from strata.validation.readers.comparison import ComparedPoints, is_held_out
from strata.validation.readers.labels import Catalogue

MOVED = 1e-6  # relative difference of a prediction that a number moves
ALL = "all"  # records that have one value
OTHERS, OWN, FAMILIES = "others it is carried to", "its held-out third", "families left out"


@dataclass(frozen=True, kw_only=True)
class QuantityWorth:
    """A fitted number, the rows and configurations it was fitted to, and mean errors with it and without."""

    group: str
    record: str
    path: str
    value: float
    unit: str
    rows: int
    configurations: int
    kind: str
    judged_by: str
    judged: int
    error_with: float
    error_without: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        plain = asdict(self)
        return plain | {"with": plain.pop("error_with"), "without": plain.pop("error_without")}


def _worth(
    group: FitGroup,
    number: tuple[str, str, float, str],
    own: Sequence[ComparedPoints],
    by: str,
    errors: Array,
) -> QuantityWorth:
    """From a number's record, path, value and unit, the points it was fitted to, what judges it, and errors
    with it and without: [2, points].
    """
    record, path, value, unit = number
    means = np.mean(errors, axis=1) if errors.shape[1] else np.full(2, np.nan)
    return QuantityWorth(
        group=group.name,
        record=record,
        path=path,
        value=value,
        unit=unit,
        rows=sum(map(len, own)),
        configurations=sum(len(set(points.first.tolist())) for points in own),
        kind=group.kind,
        judged_by=by,
        judged=errors.shape[1],
        error_with=float(means[0]),
        error_without=float(means[1]),
    )


def quantities_worth(
    folder: Path | str, only: Sequence[str] = (), leaving: LeavingOut | None = None
) -> list[QuantityWorth]:
    """Every fitted number, or those of some records, with what it is worth."""
    leaving = leaving or LeavingOut(Path(folder))
    table = fit_table()
    worth: list[QuantityWorth] = []
    for kind in (CHIP, TRANSPORT):
        for name in table.records[kind]:
            worth += _of_record(name, kind, Path(folder)) if not only or name in only else ()
    for group in (g for g in table.groups if g.together and (not only or {*only} & {*g.records})):
        worth += _of_runs(group, leaving) if group.search.slopes else _of_networks(group, leaving)
    return worth


# ------------------------------------------------------------------------------- of chips and transports


def _of_record(name: str, kind: str, folder: Path) -> Iterator[QuantityWorth]:
    donor = shipped_calibration(name, kind)
    settled: set[str] = set()
    groups = [group for group in fit_table().of_kind(kind) if not group.together]
    for group in sorted(groups, key=lambda group: not group.again):  # the last that moved a number first
        rows = _rows_of(group, folder, name, kind)
        if not rows.enough:
            continue
        paths = [q.path for q in free_quantities(rows, [donor.record], settled) if q.path in donor.entries]
        settled |= set(paths)
        own = rows.points(Versions(kind=kind, records=(donor.record,), quantities=()).at(()))
        wider = replace(group, files=(*group.files, *group.unseen))
        judges = [(taker, _rows_of(wider, folder, taker[0], kind)) for taker in _takers(name)]
        for path in paths:
            left = replace(donor, entries={p: e for p, e in donor.entries.items() if p != path})
            errors = [
                _errors_of(some, kind, *(_taken_over(one, kind, *taker) for one in (donor, left)))
                for taker, some in judges
                if len(some)
            ]
            by, both = OTHERS, np.concatenate([np.zeros((2, 0)), *errors], axis=1)
            if not both.shape[1]:
                by, both = OWN, _own_errors(rows, kind, donor.record, path)
            param = donor.entries[path]
            yield _worth(group, (name, path, float(param.value), param.unit), own, by, both)


def _taken_over(donor: Any, kind: str, other: str, rule: dict[str, Any]) -> Any:
    """A chip or a transport before any fit with what another's fits found."""
    with unfitted():
        return carried_from(donor, kind, other, rule).record


def _takers(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Records that have the numbers of another, or would if they were left out, and how."""
    rules = {**fit_table().left_out, **fit_table().siblings}
    return [(other, rule) for other, rule in rules.items() if rule["of"] == name]


def _rows_of(group: FitGroup, folder: Path, name: str, kind: str) -> GroupRows:
    return group_rows(group, folder, partial(same_chip if kind == CHIP else joined_by, name, Catalogue()))


def _own_errors(rows: GroupRows, kind: str, record: Any, path: str) -> Array:
    """Errors of a record's held-out rows, as it is and with one number as before any fit."""
    with unfitted():
        base = READ[kind](record.name)
    value = float(value_at(base if path in leaf_paths(base) else record, path))
    other = with_entries(record, {path: Param(value, "", "before any fit")}, kind)
    return _errors_of(rows, kind, record, other, held=True)


def _errors_of(rows: GroupRows, kind: str, one: Any, other: Any, held: bool = False) -> Array:
    """Errors of rows by two versions of a record, of those whose prediction differs: [version, point]."""
    versions = [Versions(kind=kind, records=(record,), quantities=()).at(()) for record in (one, other)]
    with_it, without = (rows.points(version) for version in versions)
    pairs = zip(with_it, without, strict=True)
    return np.concatenate([_moved_errors(one, other, held) for one, other in pairs], axis=1)


def _moved_errors(one: ComparedPoints, other: ComparedPoints, held: bool) -> Array:
    sound = (one.predicted > 0) & (other.predicted > 0)
    moved = sound & (np.abs(other.predicted - one.predicted) > MOVED * one.predicted)
    if held:
        moved &= is_held_out(one)
    return np.abs([p.predicted[moved] / p.measured[moved] - 1.0 for p in (one, other)])


# ---------------------------------------------------------------------------- of many families together


def _of_networks(group: FitGroup, leaving: LeavingOut) -> Iterator[QuantityWorth]:
    (table,) = group_rows(group, leaving.folder).tables
    now = leaving.points(table)
    family = families_of(table, now, NETWORK, leaving.plain)
    assert family is not None
    record = READ[group.kind](group.records[0])
    with_all = _ratios(group, table, now, family, leaving)
    for quantity in group.quantities:
        fewer = replace(group, quantities=tuple(q for q in group.quantities if q is not quantity))
        without = _ratios(fewer, table, now, family, leaving)
        errors = np.abs([now.predicted * ratio / now.measured - 1.0 for ratio in (with_all, without)])
        value, unit = float(value_at(record, quantity.path)), leaf_paths(record)[quantity.path]["unit"]
        yield _worth(group, (ALL, quantity.path, value, unit), [now], FAMILIES, errors)


def _ratios(group: FitGroup, table: Any, now: ComparedPoints, family: Array, leaving: LeavingOut) -> Array:
    ratios: Mapping[Any, float] = refitted_without(group, table, now, family, leaving)
    return np.array(list(ratios.values()))


def _of_runs(group: FitGroup, leaving: LeavingOut) -> Iterator[QuantityWorth]:
    runs = leaving.run_lines(group)
    families = [families_of_runs(runs, kind, leaving.plain) for kind in KINDS]
    families = [family for family in families if len(set(family)) > 1]
    quantities = runs.versions.quantities
    every = np.arange(len(quantities))
    with_all = _left_out_errors(runs, runs.lines, every, families)
    moved = on_all_cores(lambda i: runs.moved_with(i, group.neutral[quantities[i].path]), len(quantities))
    for place, quantity in enumerate(quantities):
        lines = Lines(runs.lines.errors + moved[place], np.delete(runs.lines.slopes, place, axis=1))
        without = _left_out_errors(runs, lines, np.delete(every, place), families)
        value = float(runs.versions.start[place])
        both = np.stack([with_all, without])
        yield _worth(group, (ALL, quantity.path, value, quantity.unit), [runs.points], FAMILIES, both)


def _left_out_errors(runs: RunLines, lines: Lines, places: Array, families: Sequence[Array]) -> Array:
    """Errors along straight lines of all configurations, by each kind of family, each family left out."""
    every, errors = runs.versions, []
    own: dict[str, Any] = {
        name: tuple(getattr(every, name)[i] for i in places) for name in ("quantities", "here", "before")
    }
    versions = replace(every, **own)
    for family in families:
        logs = np.zeros(len(family))
        for name in set(family):
            inside = family == name
            moved = moved_along(lines, ~inside, versions, runs.rows.group.search)
            logs[inside] = (lines.errors + lines.slopes @ moved)[inside]
        errors.append(np.abs(np.expm1(np.where(runs.points.rate, -logs, logs))))
    return np.concatenate(errors)
