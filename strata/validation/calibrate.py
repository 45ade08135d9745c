"""calibrate(): a few physically named quantities of a chip, fitted to measured kernels and written with what
they rest on.

Two thirds of the rows are fitted, every third line of a file is held out and only reported. No shape is
looked up: the same equations price the rows before and after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import BadFile, UnknownName
from strata.hardware.chip import Chip, chip
from strata.params import leaf_paths, override, value_at
from strata.units import show
from strata.validation.datasets import HELD_OUT, Array, Points, Table, read_table
from strata.validation.families import FAMILIES, FORMAT_OF, POWER, Family, Quantity
from strata.validation.power import Draw, draws, energies, power_of
from strata.validation.run import data_files, fitting, reader_of
from strata.validation.steps import substituted

LEAST_ROWS = 12  # fitted rows below which a quantity would only remember them
# weight of a file of bare kernels against one from inside a serving framework, where other kernels may hide
BARE = 2.0
COARSE, FINE = 0.1, 0.03  # steps of a logarithm with which slopes are taken
MOST_ROWS = 1500  # fitted rows of one file: more cost time and change nothing


@dataclass(frozen=True)
class Fitted:
    """What a fit of a family of kernels, or of an engine, gave: new quantities, the rows behind them, and the
    error on rows that were not fitted.
    """

    family: str
    values: dict[str, float]
    rows: int
    held_out: int
    before: float
    after: float
    files: tuple[str, ...]


def calibrate(
    name: str, folder: Path | str, *, only: tuple[str, ...] = (), date: str = ""
) -> tuple[Chip, list[Fitted]]:
    """Fit a chip to the measured kernels of it below a folder: the chip with its new quantities, and what
    each fit rests on.
    """
    known = {f.name: f for f in (POWER, *FAMILIES)}
    for word in only:
        if word not in known:
            raise UnknownName("family of kernels", word, known, ", ".join(known))
    made = chip(name)
    outcomes: list[Fitted] = []
    skipped: list[str] = []
    if not only or POWER.name in only:
        made, told = _fit_power(made, Path(folder), date)
        outcomes += told
    for family in FAMILIES:
        if only and family.name not in only:
            continue
        tables = _tables(family, made, Path(folder))
        rows = sum(len(t) for t in tables)
        if rows < LEAST_ROWS * HELD_OUT // (HELD_OUT - 1):
            skipped.append(
                f"{family.name}: {rows} rows of {made.name} in {', '.join(family.files).replace('*', made.name)}"
            )
            continue
        free = _free(family, made, tables, outcomes)
        made, fitted = _fit(family, free, tables, made, date)
        outcomes.append(fitted)
    if not outcomes:
        raise BadFile(
            f"nothing to fit {made.name} on: it needs at least {LEAST_ROWS} rows to fit and as many thirds to hold out, but found {'; '.join(skipped)}"
        )
    return made, outcomes


def _tables(family: Family, made: Chip, folder: Path) -> list[Table]:
    """The rows of a family that were measured on this chip."""
    found = []
    for name in data_files(folder):
        if not fitting(name, *family.files):
            continue
        table = read_table(folder, name)
        keep = np.ones(len(table), bool)
        if "system" in table.columns:
            labels = table.text("system").astype(str)
            keep &= np.isin(labels, [label for label in np.unique(labels) if _same_chip(label, made.name)])
        elif not _same_chip(name.split("/")[0], made.name):
            continue
        for column in family.column:
            if column in table.columns:
                keep &= np.isin(table.text(column).astype(str), family.values)
        if keep.any():
            found.append(table.keep(keep))
    return found


def _same_chip(label: str, name: str) -> bool:
    if label.lower() == name.lower():  # a chip of the user's own
        return True
    try:
        return chip(label.lower()).name == name
    except UnknownName:
        return False


def _fit(
    family: Family, paths: list[Quantity], tables: list[Table], made: Chip, date: str
) -> tuple[Chip, Fitted]:
    from scipy.optimize import least_squares

    start = np.array([float(value_at(made, q.path)) for q in paths])
    low, high = np.array([q.low for q in paths]), np.array([q.high for q in paths])
    first = _points(tables, made)
    # Points, not lines, are held out: a shape that two backends ran is one point.
    learn = [np.flatnonzero(p.line % HELD_OUT != 0) for p in first]
    learn = [rows[:: max(1, math.ceil(len(rows) / MOST_ROWS))] for rows in learn]
    check = [np.flatnonzero(p.line % HELD_OUT == 0) for p in first]
    shares = [1.0 if "system" in t.columns else BARE for t in tables]
    weights = np.concatenate(
        [
            np.full(len(rows), share / math.sqrt(max(len(rows), 1)))
            for rows, share in zip(learn, shares, strict=True)
        ]
    )
    weights *= math.sqrt(len(weights)) / np.linalg.norm(weights)

    def residual(x: Array) -> Array:
        found = _points(tables, _changed(made, paths, np.exp(x)))
        errors = [
            np.log(np.maximum(p.predicted[r], 1e-12) / p.measured[r])
            for p, r in zip(found, learn, strict=True)
        ]
        return np.concatenate(errors) * weights

    # Logarithms: all quantities are positive, and their sizes lie fifteen decades apart.
    def search(at: Array, step: float) -> Any:
        inside = np.clip(at, np.log(low) + 1e-3, np.log(high) - 1e-3)
        return least_squares(
            residual,
            inside,
            bounds=(np.log(low), np.log(high)),
            loss="soft_l1",
            f_scale=0.1,
            diff_step=step,
            max_nfev=80,
        )

    # Tiles and splits are chosen, so that the error has many small valleys: coarse slopes first may find a
    # deeper one, or not.
    tries = [search(np.log(start), FINE), search(search(np.log(start), COARSE).x, FINE)]
    at = min(tries, key=lambda found: float(found.cost)).x
    values = dict(zip([q.path for q in paths], np.exp(at).tolist(), strict=True))
    rows, held = sum(map(len, learn)), sum(map(len, check))
    before, after = (_mape(_points(tables, c), check) for c in (made, _changed(made, paths, np.exp(at))))
    if after >= before:  # what the chip had is better on rows nobody fitted: keep it
        return made, Fitted(family.name, {}, rows, held, before, before, tuple(t.name for t in tables))
    outcome = Fitted(family.name, values, rows, held, before, after, tuple(t.name for t in tables))
    return _noted(made, outcome, date)


def _fit_power(made: Chip, folder: Path, date: str) -> tuple[Chip, list[Fitted]]:
    """Energies from loads whose power, time and clock are known, where there are more of them than energies
    to find.
    """
    tables = _tables(POWER, made, folder)
    # Loads of seconds with their clock say more than short products without it.
    tables = [t for t in tables if "load" in t.columns] or tables
    learn, check = [], []
    for table in tables:
        learn += draws(table.keep(table.lines % HELD_OUT != 0), made)
        check += draws(table.keep(table.lines % HELD_OUT == 0), made)
    if len(learn) < len({d.format for d in learn if d.format}) + 3:
        return made, []
    values = {path: v for path, v in energies(learn, made).items() if path in leaf_paths(made)}
    new, _ = override(made, values, "chip")
    before, after = (_power_error(c, check or learn) for c in (made, new))
    outcome = Fitted(POWER.name, values, len(learn), len(check), before, after, tuple(t.name for t in tables))
    made, outcome = _noted(made, outcome, date)
    return made, [outcome]


def _power_error(made: Chip, rows: list[Draw]) -> float:
    return float(np.mean([abs(power_of(d, made) / d.power - 1.0) for d in rows]))


def _noted(made: Chip, outcome: Fitted, date: str) -> tuple[Chip, Fitted]:
    """The chip with fitted values, rounded to the digits they deserve, each with its source."""
    source = (
        f"fitted: {' and '.join(outcome.files)}, rows of {made.name}, two thirds of them ({outcome.rows}), {date or 'undated'}; "
        f"mean error of the {f'held-out third ({outcome.held_out} rows)' if outcome.held_out else 'fitted rows, none to spare,'} "
        f"{outcome.after:.1%}, {outcome.before:.1%} before"
    )
    shown = {p: show(v, leaf_paths(made)[p]["unit"], 3) for p, v in outcome.values.items()}
    new, noted = override(made, shown, "chip")
    entries = {p: type(noted[p])(noted[p].value, noted[p].unit, source) for p in noted}
    new = replace(new, sources=made.sources.updated(entries))
    return new, replace(outcome, values={p: float(value_at(new, p)) for p in outcome.values})


def _free(family: Family, made: Chip, tables: list[Table], done: list[Fitted]) -> list[Quantity]:
    """What a family may move: what the chip has, of formats that were measured, and what no family before it
    has told.
    """
    told = {path for o in done for path in o.values}
    seen = {
        FORMAT_OF.get(str(v), "")
        for t in tables
        for c in family.column
        if c in t.columns
        for v in np.unique(t.text(c).astype(str))
    }
    free = []
    for q in family.quantities:
        unmeasured = q.format and q.format not in seen
        if q.path in leaf_paths(made) and q.path not in told and not unmeasured:
            free.append(q)
    return free


def _changed(made: Chip, paths: list[Quantity], values: Array) -> Chip:
    new, _ = override(made, {q.path: float(v) for q, v in zip(paths, values, strict=True)}, "chip")
    new_chip: Chip = new
    return new_chip


def _points(tables: list[Table], made: Chip) -> list[Points]:
    with substituted(made):
        readers = [reader_of(t.name) for t in tables]
        return [reader(table) for reader, table in zip(readers, tables, strict=True) if reader is not None]


def _mape(found: list[Points], rows: list[Array]) -> float:
    errors = [np.abs(p.predicted[r] / p.measured[r] - 1.0) for p, r in zip(found, rows, strict=True)]
    return float(np.mean(np.concatenate(errors)))


def as_toml(made: Chip, outcomes: list[Fitted]) -> str:
    """The fitted quantities as a file to lay over the chip's own: `base = "..."` in front makes a chip of it."""
    sections: dict[str, list[str]] = {}
    for outcome in outcomes:
        for path in outcome.values:
            param = made.sources[path]
            section, key = path.rsplit(".", 1)
            value: Any = (
                f"{param.value:.3g}" if param.unit == "1" else f'"{show(param.value, param.unit, 3)}"'
            )
            sections.setdefault(section, []).append(
                f'{key} = {{ value = {value}, source = "{param.source}" }}'
            )
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())
