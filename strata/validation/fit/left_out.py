"""Families left out: every row predicted by numbers that were fitted without its own chip, model, engine,
network, number of nodes or release.

A chip is left out by giving it the numbers that were fitted on another, as a chip without rows carries
them; a transport by giving it those of its own file, from before any fit. What is fitted to many families
together is fitted again without each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import StrataError
from strata.params import unfitted
from strata.validation.fit.calibrate import CHIP, TRANSPORT, fit_group, transport_inside, versions_of
from strata.validation.fit.rows import READ, SMALLEST, GroupRows, group_rows, of_metrics
from strata.validation.fit.runs import Key, RunLines, run_lines, values_by_key
from strata.validation.fit.shipped import carried_from, shipped_calibration
from strata.validation.fit.table import FitGroup, fit_table
from strata.validation.measured.reader import data_files, reader_of
from strata.validation.measured.spec import spec_of
from strata.validation.questions.question import question
from strata.validation.readers.comparison import ComparedPoints, configurations, no_points
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import BadRows, Table, matches, read_table

NETWORK = "network"
KINDS = ("chip", "model", "engine", NETWORK, "nodes", "release")
ALONE = (CHIP, NETWORK)  # kinds of which one family in a file is worth leaving out
WITHOUT = "without its family"


@dataclass(frozen=True, eq=False, kw_only=True)
class FamiliesLeftOut:
    """Configurations of a file, the family of each, and what is predicted of it by numbers fitted without
    that (`points.predicted`: as shipped).
    """

    file: str
    kind: str
    rows: Array  # groups of the rows of the file, several of which may be one configuration
    family: Array
    points: ComparedPoints
    predicted: Array
    refitted: bool  # whether anything was fitted to a family of it

    def keep(self, which: Array) -> FamiliesLeftOut:
        """Some of the configurations."""
        points, family, predicted = self.points.keep(which), self.family[which], self.predicted[which]
        return replace(self, points=points, family=family, predicted=predicted)


@dataclass(frozen=True, eq=False)
class LeavingOut:
    """What is worked out once for all files of a folder."""

    folder: Path
    plain: Catalogue = field(default_factory=Catalogue)
    lines: dict[str, RunLines] = field(default_factory=dict)
    shown: dict[tuple[str, bytes], ComparedPoints] = field(default_factory=dict)  # by name and lines

    @cached_property
    def lent_chips(self) -> Catalogue:
        """Every fitted chip with the numbers of another."""
        return reduce(Catalogue.with_chip, _lent(CHIP), self.plain)

    @cached_property
    def lent_transports(self) -> Catalogue:
        return reduce(Catalogue.with_transport, _lent(TRANSPORT), self.plain)

    def run_lines(self, group: FitGroup) -> RunLines:
        if group.name not in self.lines:
            rows = group_rows(group, self.folder)
            points, shipped = [self.points(table) for table in rows.tables], versions_of(rows, self.plain)
            with unfitted():
                before = versions_of(rows, Catalogue()).own
            versions = replace(shipped, here=tuple(shipped.own), before=tuple(before))
            self.lines[group.name] = run_lines(rows, versions, points)
        return self.lines[group.name]

    def points(self, table: Table) -> ComparedPoints:
        """The points behind a file's own figures as it is predicted."""
        key = table.name, np.asarray(table.lines).tobytes()
        if key not in self.shown:
            self.shown[key] = headline_points(table, self.plain)
        return self.shown[key]


def _lent(kind: str) -> list[Any]:
    """Records that were fitted, with the numbers of another or as their own files say before any fit."""
    rules = {name: fit_table().left_out.get(name) for name in fit_table().records[kind]}
    donors = {rule["of"]: shipped_calibration(rule["of"], kind) for rule in rules.values() if rule}
    with unfitted():
        return [
            carried_from(donors[rule["of"]], kind, name, rule).record if rule else READ[kind](name)
            for name, rule in rules.items()
        ]


def left_out_points(
    folder: Path | str, *only: str, kinds: Sequence[str] = KINDS, leaving: LeavingOut | None = None
) -> Iterator[FamiliesLeftOut]:
    """Every file below a folder, or those of some patterns, with each kind of family that it tells of left
    out in turn. `leaving` keeps what was worked out, for another call.
    """
    leaving = leaving or LeavingOut(Path(folder))
    for name in data_files(leaving.folder):
        if only and not matches(name, *only):
            continue
        table = read_table(leaving.folder, name)
        if not len(now := leaving.points(table)):
            continue
        for kind in kinds:
            if kind == CHIP and _is_of_nodes(name):  # what tells of a chip there is its transport
                continue
            family = families_of(table, now, kind, leaving.plain)
            if family is None or (len(set(family) - {""}) < 2 and kind not in ALONE):
                continue
            yield _left_out(table, now, kind, family, leaving)


def headline_points(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """The points behind a file's own figures, and what else is fitted; none where it cannot be read."""
    reader = reader_of(table.name, catalogue, table.folder)
    try:
        points = no_points(()) if reader is None else reader(table, catalogue)
    except BadRows as error:
        points = error.others or no_points(())
    except StrataError:
        points = no_points(())
    fitted = [
        metric
        for group in fit_table().groups
        if matches(table.name, *group.files)
        for metric in group.metrics
    ]
    return points.keep(points.headline.astype(bool) | of_metrics(points, fitted))


def _left_out(
    table: Table, now: ComparedPoints, kind: str, family: Array, leaving: LeavingOut
) -> FamiliesLeftOut:
    predicted = now.predicted.copy()
    if (lent := _lent_names(table.name, kind, leaving)) is not None:
        predicted = headline_points(table, lent).predicted.copy()
    refitted = False
    for group in fit_table().groups:
        if group.together and matches(table.name, *group.files):
            ratio = _refitted_ratio(group, table, now, kind, family, leaving)
            predicted, refitted = predicted * ratio, True
    alike = configurations(replace(now, families={kind: family}, rivals={WITHOUT: predicted}))
    shown = alike.predicted > 0
    points = alike.keep(shown)
    return FamiliesLeftOut(
        file=table.name,
        kind=kind,
        rows=now.group,
        family=points.families[kind],
        points=points,
        predicted=points.rivals[WITHOUT],
        refitted=refitted or not np.array_equal(predicted, now.predicted),
    )


def _lent_names(file: str, kind: str, leaving: LeavingOut) -> Catalogue | None:
    """Names with the numbers of others for the families of a kind; none for runs that are simulated, which a
    chip's fit moves too little to be simulated again.
    """
    spec = spec_of(leaving.folder, file, leaving.plain.has_chip)
    if kind == CHIP and not (spec is not None and question(spec.question).slow):
        return leaving.lent_chips
    return leaving.lent_transports if kind == NETWORK and _is_of_nodes(file) else None


def _refitted_ratio(
    group: FitGroup, table: Table, now: ComparedPoints, kind: str, family: Array, leaving: LeavingOut
) -> Array:
    """Predictions by numbers of a group refitted without the family of each point, over those that stand."""
    if group.search.slopes:
        there = _without_along(group, kind, leaving)
    else:
        there = refitted_without(group, table, now, family, leaving)
    keys = zip(now.line, now.group, strict=True)
    return np.array([there.get((table.name, int(line), str(name)), 1.0) for line, name in keys])


def _without_along(group: FitGroup, kind: str, leaving: LeavingOut) -> dict[Key, float]:
    """The same of a group whose errors are straight lines."""
    runs = leaving.run_lines(group)
    family = families_of_runs(runs, kind, leaving.plain)
    ratio = np.ones(len(runs.points))
    for name in sorted(set(family) - {""}):
        inside = family == name
        values = runs.refitted(~inside)
        ratio[inside] = (runs.predicted(values) / runs.points.predicted)[inside]
    return values_by_key(runs.points, runs.file, ratio)


def refitted_without(
    group: FitGroup, table: Table, now: ComparedPoints, family: Array, leaving: LeavingOut
) -> dict[Key, float]:
    """The same of a group that is searched, anew without each family."""
    ratio = np.ones(len(now))
    for name in sorted(set(family) - {""}):
        inside = family == name
        with unfitted():
            rows = group_rows(group, leaving.folder)
            others = [one.keep(~np.isin(one.lines, now.line[inside])) for one in rows.tables]
            left = GroupRows(group, others)
            records, _ = fit_group(left, versions_of(left, Catalogue()))
        names = leaving.plain
        for one in records:
            names = names.with_transport(one)
        ratio[inside] = headline_points(table, names).predicted[inside] / np.maximum(
            now.predicted[inside], SMALLEST
        )
    return values_by_key(now, np.full(len(now), table.name, dtype=object), ratio)


def families_of_runs(runs: RunLines, kind: str, catalogue: Catalogue) -> Array:
    """The family of each configuration of a group, "" where nothing tells it."""
    family = np.full(len(runs.points), "", dtype=object)
    for table in runs.rows.tables:
        own = np.flatnonzero(runs.file == table.name)
        labels = families_of(table, runs.points.keep(own), kind, catalogue)
        family[own] = "" if labels is None else labels
    return family


def families_of(table: Table, points: ComparedPoints, kind: str, catalogue: Catalogue) -> Array | None:
    """The family of each point: as its file's TOML tells it, else as a column, else as the folder of a chip's
    kernels; None where nothing tells it.
    """
    stated = points.families.get(kind)
    if stated is not None and any(stated):
        labels = np.array([str(label) for label in stated], dtype=object)
    else:
        column = next((c for c in fit_table().columns.get(kind, ()) if c in table.columns), None)
        if column is not None:
            cells = dict(zip(table.lines.tolist(), table.text(column), strict=True))
            labels = np.array([str(cells.get(int(line), "")) for line in points.line], dtype=object)
        elif kind == CHIP and catalogue.has_chip(table.chip):
            labels = np.full(len(points), table.chip, dtype=object)
        elif kind == NETWORK and _is_of_nodes(table.name):
            chips = families_of(table, points, CHIP, catalogue)
            if chips is None:
                return None
            labels = np.array([transport_inside(str(c), catalogue) for c in chips], dtype=object)
        else:
            return None
    if kind == CHIP:
        known = {label for label in set(labels) if catalogue.has_chip(label)}
        named = {label: catalogue.chip(label).name if label in known else label for label in set(labels)}
        labels = np.array([named[label] for label in labels], dtype=object)
    return labels


def _is_of_nodes(file: str) -> bool:
    """Whether some transport inside a node was fitted to a file."""
    return any(matches(file, *group.files) for group in fit_table().of_kind(TRANSPORT) if not group.together)


# ------------------------------------------------------------------------------------ as plain figures


def family_entries(folder: Path | str, left_out: Iterable[FamiliesLeftOut]) -> list[dict[str, Any]]:
    """Figures of `left_out_points` as plain JSON types: for each file, metric and kind of family the errors
    of all configurations without their family, as shipped (`shown`), and family by family.
    """
    return [
        entry
        for one in left_out
        for metric, part in _metrics(Path(folder), one)
        if (entry := family_entry(part, metric)) is not None
    ]


def _metrics(folder: Path, one: FamiliesLeftOut) -> Iterator[tuple[str, FamiliesLeftOut]]:
    """The metrics of a file, each with its points: how groups begin where a file has several."""
    spec = spec_of(folder, one.file)
    firsts = [] if spec is None else [metric.group.split("/")[0] for metric in spec.metric]
    if len(firsts) < 2 or any("{" in first for first in firsts):
        yield "", one
        return
    for first in dict.fromkeys(firsts):
        own = of_metrics(one.points, [first])
        if own.any():
            rows = [str(name).split("/")[0] == first for name in one.rows]
            yield first, replace(one.keep(own), rows=one.rows[rows])


def family_entry(one: FamiliesLeftOut, metric: str) -> dict[str, Any] | None:
    """Figures of one kind of family of a file."""
    if not len(one.points):
        return None
    error, shown = (np.abs(p / one.points.measured - 1.0) for p in (one.predicted, one.points.predicted))
    return {
        "file": one.file,
        "metric": metric,
        "kind": one.kind,
        "refitted": one.refitted,
        "rows": len(one.rows),
        "configurations": len(error),
        "mape": float(np.mean(error)),
        "median": float(np.median(error)),
        "shown": float(np.mean(shown)),
        "families": {
            name: {
                "rows": int(own.sum()),
                "mape": float(np.mean(error[own])),
                "shown": float(np.mean(shown[own])),
            }
            for name in sorted(set(one.family))
            if (own := one.family == name).any()
        },
    }
