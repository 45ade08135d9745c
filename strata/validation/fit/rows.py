"""The rows that a group of quantities is fitted to, and their points as a version predicts them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.units import parse
from strata.hardware.chip import chip
from strata.hardware.transport import transport
from strata.params import leaf_paths, override, value_at
from strata.software.engine import engine
from strata.validation.fit.table import FitGroup, Quantity, fit_table
from strata.validation.measured.formulas import Columns, condition
from strata.validation.measured.reader import data_files, reader_of
from strata.validation.measured.spec import spec_of
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints, configurations
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import Table, matches, read_table

READ: dict[str, Callable[[str], Any]] = {"chip": chip, "transport": transport, "engine": engine}
SMALLEST = 1e-12  # of a value or a prediction, so that it has a logarithm


@dataclass(frozen=True, eq=False, kw_only=True)
class Versions:
    """Records of a kind and the quantities of them that move, one value for all that have it. `here`: values
    to go on from, where a fit has moved already; `before`: those that what rows do not tell goes back to.
    """

    kind: str
    records: tuple[Any, ...]
    quantities: Sequence[Quantity]
    catalogue: Catalogue = field(default_factory=Catalogue)
    here: tuple[float, ...] = ()
    before: tuple[float, ...] = ()

    @cached_property
    def own(self) -> Array:
        """The values of the records themselves, or before any fit; none zero."""
        return np.array(self.before or [max(float(self._value(q)), SMALLEST) for q in self.quantities])

    @property
    def start(self) -> Array:
        """The values to go on from."""
        return np.array(self.here) if self.here else self.own

    @property
    def ends(self) -> tuple[Array, Array]:
        """The lowest and the highest value that each quantity may take."""
        low, high = (np.array([getattr(q, end) for q in self.quantities], float) for end in ("low", "high"))
        return low, high

    def changed(self, values: Mapping[str, float]) -> tuple[Any, ...]:
        """The records with other values of their quantities."""
        return tuple(
            override(one, {p: float(v) for p, v in values.items() if p in paths}, self.kind)[0]
            for one, paths in zip(self.records, self.paths, strict=True)
        )

    def at(self, values: Iterable[float]) -> Catalogue:
        """What prices rows at some values."""
        pairs = zip(self.quantities, values, strict=True)
        records = self.changed({quantity.path: float(value) for quantity, value in pairs})
        name = f"{self.kind}s"
        held: Mapping[str, Any] = getattr(self.catalogue, name)
        others: dict[str, Any] = {name: {**held, **{one.name: one for one in records}}}
        return replace(self.catalogue, **others)

    def _value(self, quantity: Quantity) -> Any:
        places = zip(self.records, self.paths, strict=True)
        return value_at(next(one for one, paths in places if quantity.path in paths), quantity.path)

    @cached_property
    def paths(self) -> list[set[str]]:
        """The quantities that each record has."""
        own = {q.path for q in self.quantities}
        every = [own & set(leaf_paths(one)) for one in self.records]
        pairs = zip(self.records, every, strict=True)
        return [{path for path in paths if value_at(one, path) is not None} for one, paths in pairs]


# weight of a file of bare kernels against one from inside a serving framework, where other kernels may hide
BARE = 2.0


@dataclass(frozen=True, eq=False)
class GroupRows:
    """Files of a group, with the rows that count."""

    group: FitGroup
    tables: list[Table]

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    @property
    def files(self) -> list[str]:
        return [table.name for table in self.tables]

    @property
    def enough(self) -> bool:
        """Whether rows remain to be fitted when a third is held out."""
        return len(self) >= self.group.least * HELD_OUT // (HELD_OUT - 1)

    def points(self, names: Catalogue) -> list[ComparedPoints]:
        """The points of each file that count."""
        return [self.counted(self._read(table, names)) for table in self.tables]

    def weights(self) -> list[float]:
        """What each file counts, whatever its size."""
        return [1.0 if "system" in table.columns else BARE for table in self.tables]

    def _read(self, table: Table, names: Catalogue) -> ComparedPoints:
        reader = reader_of(table.name, names, table.folder)
        assert reader is not None  # files of a group have one
        return reader(table, names)

    def counted(self, points: ComparedPoints) -> ComparedPoints:
        """The points of a file that count. Runs of one configuration are one; of chips every metric counts,
        of others those of headlines.
        """
        if self.group.kind != "chip":
            points = points.keep(points.headline.astype(bool) | of_metrics(points, self.group.metrics))
        if self.group.search.slopes:
            points = configurations(points)
            points = points.keep(points.predicted > 0)
        if self.group.skips:
            points = points.keep(~of_metrics(points, self.group.skips))
        return points


def of_metrics(points: ComparedPoints, metrics: Collection[str]) -> Array:
    """Which points are of some metrics, as their groups begin."""
    return np.array([str(name).split("/")[0] in metrics for name in points.group], bool)


def group_rows(
    group: FitGroup,
    folder: Path,
    belongs: Callable[[str], bool] | None = None,
    catalogue: Catalogue | None = None,
) -> GroupRows:
    """The rows of a group below a folder, of owners that `belongs`: the chip in their column, else in their
    folder, which a catalogue knows.
    """
    tables = []
    for name in data_files(folder):
        if not matches(name, *group.files):
            continue
        table = read_table(folder, name)
        keep = np.ones(len(table), bool)
        if belongs is not None:
            # the system or chip of each row: as a column says, else the folder
            stated = [table.text(column) for column in ("system", "chip") if column in table.columns]
            owners = np.asarray(stated[0] if stated else np.full(len(table), table.chip)).astype(str)
            keep &= np.isin(owners, [owner for owner in np.unique(owners) if belongs(str(owner))])
        for column, values in group.rows.items():
            if column in table.columns:
                keep &= np.isin(table.text(column).astype(str), values)
        if group.where and (spec := spec_of(folder, name)) is not None:
            keep &= condition(group.where, Columns(table, spec), "where")
        if keep.any() and reader_of(name, catalogue or Catalogue(), folder) is not None:
            tables.append(table if keep.all() else table.keep(keep))
    return GroupRows(group, tables)


def free_quantities(rows: GroupRows, records: Sequence[Any], settled: Collection[str] = ()) -> list[Quantity]:
    """What a group may move, its range in SI: what a record has (a * in a path stands for every name), of
    formats that were measured, and what no group before it has settled.
    """
    formats = fit_table().formats
    seen = {
        formats.get(str(value), "")
        for table in rows.tables
        for column in rows.group.rows
        if column in table.columns
        for value in np.unique(table.text(column).astype(str))
    }
    units = {path: str(meta["unit"]) for one in records for path, meta in leaf_paths(one).items()}
    return [
        Quantity(path, parse(q.low, unit), parse(q.high, unit), q.format, unit)
        for q in rows.group.quantities
        if not q.format or q.format in seen
        for path, unit in units.items()
        if fnmatch.fnmatchcase(path, q.path) and path not in settled
    ]
