"""calibrate_transport(): the quantities of a transport fitted to measured collectives, as `calibrate` fits
those of a chip.

Two thirds of the lines are fitted, every third is held out and only reported.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from strata.errors import BadFile, UnknownName
from strata.hardware.transport import Transport, transport
from strata.params import leaf_paths, override, value_at
from strata.units import show
from strata.validation.collectives import moved_by
from strata.validation.datasets import HELD_OUT, Array, Points, Table, held_out, read_table
from strata.validation.families import NETWORK, Family, Quantity
from strata.validation.run import data_files, fitting, reader_of
from strata.validation.steps import named_system

LEAST_ROWS = 12  # fitted rows below which a quantity would only remember them


@dataclass(frozen=True)
class Moved:
    """One family's outcome: the new quantities as they are written, and the source that says what they rest
    on.
    """

    family: str
    values: dict[str, str]
    source: str


def calibrate_transport(name: str, folder: Path | str, *, date: str = "") -> tuple[Transport, list[Moved]]:
    """Fit a transport to the measured collectives of nodes that use it: the transport, and what each fit
    rests on.
    """
    made = transport(name)
    outcomes = []
    for family in NETWORK:
        tables = _tables(family, made.name, Path(folder))
        free = _free(family, made)
        if free and sum(len(t) for t in tables) >= LEAST_ROWS * HELD_OUT // (HELD_OUT - 1):
            made, found = _fit(family, free, tables, made, date)
            outcomes.append(found)
    if not outcomes:
        raise BadFile(
            f"nothing to fit {name} on: it needs {LEAST_ROWS} rows of {', '.join(f for family in NETWORK for f in family.files)}"
        )
    return made, outcomes


def as_toml(made: Transport, outcomes: list[Moved]) -> str:
    """The fitted quantities as a file to lay over the transport's own."""
    units = leaf_paths(made)
    sections: dict[str, list[str]] = {}
    for outcome in outcomes:
        for path, value in outcome.values.items():
            section, key = path.rsplit(".", 1)
            shown = value if units[path]["unit"] == "1" else f'"{value}"'
            sections.setdefault(section, []).append(
                f'{key} = {{ value = {shown}, source = "{outcome.source}" }}'
            )
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())


@lru_cache(maxsize=64)
def _transport_of(system: str) -> str:
    try:
        return named_system(f"8x{system}").fabric.dimension[0].transport
    except UnknownName:
        return ""


def _tables(family: Family, name: str, folder: Path) -> list[Table]:
    """The rows of a family that were measured on nodes with this transport."""
    found = []
    for file in data_files(folder):
        if fitting(file, *family.files):
            table = read_table(folder, file)
            nodes = table.text("system") if "system" in table.columns else [table.chip] * len(table)
            keep = np.array([_transport_of(str(s)) == name for s in nodes], bool)
            if keep.any():
                found.append(table.keep(keep))
    return found


def _free(family: Family, made: Transport) -> list[Quantity]:
    """The family's quantities that the transport has, names with * written out."""
    return [
        Quantity(p, q.low, q.high)
        for p in leaf_paths(made)
        for q in family.quantities
        if fnmatch.fnmatchcase(p, q.path)
    ]


def _points(tables: list[Table], made: Transport) -> list[Points]:
    with moved_by(made):
        readers = [reader_of(t.name) for t in tables]
        return [
            _headline(reader(table))
            for reader, table in zip(readers, tables, strict=True)
            if reader is not None
        ]


def _headline(found: Points) -> Points:
    """Only the points a file's own figures rest on: rows with the host's launch stand apart."""
    kept = found.headline.astype(bool)
    names = ("measured", "predicted", "group", "line", "headline", "rate", "case")
    return replace(found, **{name: getattr(found, name)[kept] for name in names})


def _changed(made: Transport, free: list[Quantity], values: Array) -> Transport:
    new, _ = override(made, {q.path: float(v) for q, v in zip(free, values, strict=True)}, "transport")
    found: Transport = new
    return found


def _error(tables: list[Table], made: Transport) -> tuple[float, int]:
    """Mean error of the held-out points, and how many there are."""
    errors = np.concatenate(
        [np.abs(p.predicted / p.measured - 1.0) for p in map(held_out, _points(tables, made))]
    )
    return float(np.mean(errors)), len(errors)


def _fit(
    family: Family, free: list[Quantity], tables: list[Table], made: Transport, date: str
) -> tuple[Transport, Moved]:
    from scipy.optimize import least_squares

    start = np.log([float(value_at(made, q.path)) for q in free])
    low, high = np.log([q.low for q in free]), np.log([q.high for q in free])
    learn = [p.line % HELD_OUT != 0 for p in _points(tables, made)]

    # Logarithms: all quantities are positive, and their sizes lie fifteen decades apart.
    def residual(x: Array) -> Array:
        found = _points(tables, _changed(made, free, np.exp(x)))
        return np.concatenate(
            [
                np.log(np.maximum(p.predicted[r], 1e-12) / p.measured[r])
                for p, r in zip(found, learn, strict=True)
            ]
        )

    inside = np.clip(start, low + 1e-3, high - 1e-3)
    best = least_squares(
        residual, inside, bounds=(low, high), loss="soft_l1", f_scale=0.1, diff_step=0.01, max_nfev=60
    )
    before, _ = _error(tables, made)
    units = leaf_paths(made)
    values = {
        q.path: show(float(v), units[q.path]["unit"], 3) for q, v in zip(free, np.exp(best.x), strict=True)
    }
    made, _ = override(made, values, "transport")
    after, held = _error(tables, made)
    source = (
        f"fitted: {' and '.join(t.name for t in tables)}, rows of nodes with {made.name}, two thirds of them ({sum(int(r.sum()) for r in learn)}), "
        f"{date or 'undated'}; mean error of the held-out third ({held} rows) {after:.1%}, {before:.1%} before"
    )
    return made, Moved(family.name, values, source)
