"""calibrate_all(): every fitted number made anew from the measured files, and compared with what is
shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.drawing import keep
from strata.base.units import parse, show
from strata.params import Param, data_folder, find, fitted_file, read_toml, stating_file, unfitted
from strata.validation.fit.calibrate import (
    CHIP,
    TRANSPORT,
    FitOutcome,
    calibrate,
    carried,
    fit_group,
    fitted_entries,
    overlay_toml,
    versions_of,
    with_entries,
)
from strata.validation.fit.rows import READ, Versions, group_rows
from strata.validation.fit.table import FitGroup, Quantity, fit_table
from strata.validation.readers.labels import Catalogue

HEAD = "# Laid over the file of this name in {folder}. Written by `strata calibrate --all`.\n\n"
SAME = 1e-6  # relative difference within which numbers are the same


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Everything that fits found of a file's numbers, and what each group of them rests on (nothing of what
    is carried from another chip). `record`: the chip or transport that has them.
    """

    file: Path
    entries: dict[str, Param]
    outcomes: tuple[FitOutcome, ...] = ()
    record: Any = None

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def text(self) -> str:
        return HEAD.format(folder=self.file.parent.name) + overlay_toml(self.entries)

    @property
    def path(self) -> Path:
        return fitted_file(self.file)


def calibrate_all(
    folder: Path | str, only: Sequence[str] = (), progress: Callable[[str], None] = lambda name: None
) -> list[Calibration]:
    """Fit all chips and transports that have rows below a folder, or some of them by name, from what their
    own files state, not from the last fit; chips without rows carry the numbers of a sibling.
    """
    table, every = fit_table(), dict[str, Calibration]()
    chips = {name: READ[CHIP](name) for name in (*table.records[CHIP], *table.siblings)}
    shared = [name for group in table.of_kind(TRANSPORT) if group.together for name in group.records]
    transports = {name: READ[TRANSPORT](name) for name in (*table.records[TRANSPORT], *shared)}
    with unfitted():
        for name in _wanted(table.records[CHIP], only):
            progress(name)
            every[name] = _calibrated(name, CHIP, folder, Catalogue())
        for name, rule in table.siblings.items():
            if rule["of"] in every:
                every[name] = carried_from(every[rule["of"]], CHIP, name, rule)
        catalogue = Catalogue(chips=chips | {name: one.record for name, one in every.items()})
        for name in _wanted(table.records[TRANSPORT], only):
            progress(name)
            every[name] = _calibrated(name, TRANSPORT, folder, catalogue)
            transports[name] = every[name].record
        for group in (g for g in table.groups if g.together and _wanted(g.records, only)):
            progress(group.name)
            others = {name: one for name, one in transports.items() if name not in group.records}
            catalogue = replace(catalogue, transports=others, one_in=group.search.one_in)
            for one in _of_many(group, Path(folder), catalogue):
                every[f"{group.kind} {one.name}"] = one
                transports |= {one.name: one.record} if group.kind == TRANSPORT else {}
    return list(every.values())


def _of_many(group: FitGroup, folder: Path, catalogue: Catalogue) -> Iterator[Calibration]:
    """What the records of a group have in common, by the file that states it."""
    rows = group_rows(group, folder)
    versions = versions_of(rows, catalogue)
    records, outcome = fit_group(rows, versions)
    for file, quantities in _by_file(group, versions).items():
        if outcome is not None:
            units = {q.path: q.unit for q in quantities if q.path in outcome.values}
            own = {path: Param(outcome.values[path], u, outcome.source) for path, u in units.items()}
            record = next((one for one in records if one.name == file.stem), None)
            yield Calibration(file=file, entries=own, outcomes=(outcome,), record=record)


def _by_file(group: FitGroup, versions: Versions) -> dict[Path, list[Quantity]]:
    files: dict[Path, list[Quantity]] = {}
    for quantity in versions.quantities:
        for record, paths in zip(versions.records, versions.paths, strict=True):
            if quantity.path in paths:
                same = files.setdefault(stating_file(group.kind, record.name, quantity.path), [])
                same += [] if quantity in same else [quantity]
    return files


def _wanted(names: Sequence[str], only: Sequence[str]) -> list[str]:
    return [name for name in names if not only or name in only]


def _calibrated(name: str, kind: str, folder: Path | str, catalogue: Catalogue) -> Calibration:
    record, outcomes = calibrate(name, folder, kind=kind, catalogue=catalogue)
    entries, file = fitted_entries(record, outcomes), find(kind, record.name)
    return Calibration(file=file, entries=entries, outcomes=tuple(outcomes), record=record)


def shipped_calibration(name: str, kind: str) -> Calibration:
    """What is shipped of a chip or a transport that was fitted."""
    record, file = READ[kind](name), find(kind, name)
    paths = dict(_numbers(read_toml(fitted_file(file))))
    return Calibration(file=file, entries={path: record.sources[path] for path in paths}, record=record)


def carried_from(donor: Calibration, kind: str, name: str, rule: Mapping[str, Any]) -> Calibration:
    """What a chip without rows of its own takes from another one, by a rule of the table of fits."""
    own = READ[kind](name)
    entries = carried(donor.entries, donor.record, own, rule["why"], rule.get("share", 1.0))
    return Calibration(file=find(kind, name), entries=entries, record=with_entries(own, entries, kind))


def stale_numbers(made: Calibration) -> list[str]:
    """How a shipped file of fitted numbers differs from what the fit gives: a line for each number."""
    path, fitted = made.path, made.entries
    shipped = dict(_numbers(read_toml(path))) if path.exists() else {}
    lines = []
    for name in sorted({*fitted, *shipped}):
        gives = show(float(fitted[name].value), fitted[name].unit, 3) if name in fitted else "none"
        ships = shipped.get(name, "none")
        same = "none" not in (gives, ships) and np.isclose(
            parse(ships, fitted[name].unit), float(fitted[name].value), rtol=SAME, atol=0.0
        )
        if not same:
            lines.append(f"{path.name}: {name}: {ships} is shipped, the fit gives {gives}")
    return lines


def _numbers(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if "value" in value:
            yield prefix + key, value["value"]
        else:
            yield from _numbers(value, f"{prefix}{key}.")


def stale_files(made: Sequence[Calibration]) -> list[Path]:
    """Shipped files of fitted numbers that no fit gives any more."""
    kept = {one.path for one in made if one.entries}
    return [path for path in sorted(data_folder("calibration").rglob("*.toml")) if path not in kept]


def write_all(made: Sequence[Calibration], whole: bool = True) -> list[Path]:
    """Write what was found over what is shipped, and delete what no fit gives any more where `whole` it was
    fitted; files whose numbers are the same stay as they are.
    """
    for path in stale_files(made) if whole else ():
        path.unlink()
    changed = [one for one in made if one.entries and stale_numbers(one)]
    for one in changed:
        keep(one.path, one.text)
    return [one.path for one in changed]
