"""calibrate(): a few physically named quantities of a chip, fitted to measured kernels and written with what
they rest on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from strata.errors import BadFile, UnknownName
from strata.hardware.chip import Chip, chip
from strata.params import leaf_paths, override
from strata.units import show
from strata.validation.fit.families import FAMILIES, POWER, STEP_POWER, Family, Quantity
from strata.validation.fit.solver import (
    LEAST_ROWS,
    FitOutcome,
    FitProblem,
    FitSearch,
    FitSolution,
    even_weights,
    family_tables,
    free_quantities,
    has_enough,
    outcome_of,
    solve_fit,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints
from strata.validation.readers.power import PowerDraw, energies_of_draws, measured_draws, predicted_draw
from strata.validation.readers.registry import reader_of
from strata.validation.readers.tables import Table


def overlay_toml(record: Any, outcomes: Iterable[FitOutcome]) -> str:
    """Fitted quantities as a file to lay over the record's own: `base = "..."` in front makes one of it."""
    return written_into("", record, outcomes)


def written_into(text: str, record: Any, outcomes: Iterable[FitOutcome]) -> str:
    """A record's file with fitted quantities in place of what stood there."""
    document = tomlkit.parse(text)
    units = leaf_paths(record)
    for outcome in outcomes:
        for path, value in outcome.values.items():
            *tables, key = path.split(".")
            table: Any = document
            for name in tables:
                table = table.setdefault(name, tomlkit.table())
            unit = units[path]["unit"]
            entry = tomlkit.inline_table()
            entry["value"] = float(f"{value:.3g}") if unit == "1" else show(value, unit, 3)
            entry["source"] = outcome.source
            table[key] = entry
    return tomlkit.dumps(document)


# weight of a file of bare kernels against one from inside a serving framework, where other kernels may hide
BARE = 2.0
# Tiles and splits are chosen, so that the error has many small valleys: coarse slopes first may find a deeper
# one, or not.
SEARCH = FitSearch(tries=((0.03,), (0.1, 0.03)), robust=0.1, evaluations=80)


def calibrate(
    name: str, folder: Path | str, *, only: tuple[str, ...] = (), date: str = ""
) -> tuple[Chip, list[FitOutcome]]:
    """Fit a chip to the measured kernels of it below a folder: the chip with its new quantities, and what
    each fit rests on.
    """
    known = {f.name: f for f in (POWER, *FAMILIES, STEP_POWER)}
    for word in only:
        if word not in known:
            raise UnknownName("family of kernels", word, known, ", ".join(known))
    fitted, catalogue = chip(name), Catalogue()
    of_chip = partial(_same_chip, fitted.name, catalogue)
    outcomes: list[FitOutcome] = []
    skipped: list[str] = []
    for family in (f for f in known.values() if not only or f.name in only):
        tables = family_tables(family, Path(folder), of_chip)
        if family is POWER:
            fitted, told = _fit_power(fitted, tables, date)
            outcomes += told
        elif has_enough(tables):
            settled = {path for o in outcomes for path in o.values if family is not STEP_POWER}
            free = free_quantities(family, fitted, tables, settled)
            fitted, outcome = _fit_family(family, free, tables, fitted, catalogue, date)
            outcomes.append(outcome)
        else:
            files = ", ".join(family.files).replace("*", fitted.name)
            skipped.append(f"{family.name}: {sum(map(len, tables))} rows of {fitted.name} in {files}")
    if not outcomes:
        raise BadFile(
            f"nothing to fit {fitted.name} on: it needs at least {LEAST_ROWS} rows to fit and as many thirds "
            f"to hold out, but found {'; '.join(skipped)}"
        )
    return fitted, outcomes


def _same_chip(name: str, catalogue: Catalogue, label: str) -> bool:
    """Whether a data set's label means the chip of this name, which may be the user's own."""
    if label.lower() == name.lower():
        return True
    return catalogue.has_chip(label) and catalogue.chip(label).name == name


def _fit_family(
    family: Family, free: list[Quantity], tables: list[Table], fitted: Chip, catalogue: Catalogue, date: str
) -> tuple[Chip, FitOutcome]:
    def predict(version: Chip) -> list[ComparedPoints]:
        named = catalogue.with_chip(version)
        pairs = [(reader_of(table.name, named), table) for table in tables]
        points = [reader(table, named) for reader, table in pairs if reader is not None]
        return [_counted(family, each) for each in points] if family.skips else points

    problem = FitProblem(
        record=fitted,
        kind="chip",
        quantities=free,
        predict=predict,
        search=SEARCH,
        weights=() if family.skips else [1.0 if "system" in t.columns else BARE for t in tables],
        even=[even_weights(t, p, family.even) for t, p in zip(tables, predict(fitted), strict=True)]
        if family.even
        else (),
    )
    solution = solve_fit(problem)
    if solution.after >= solution.before:  # what the chip had is better on rows nobody fitted: keep it
        solution = replace(solution, record=fitted, values={}, after=solution.before)
    outcome = outcome_of(solution, family.name, [t.name for t in tables], date, rows_of=fitted.name)
    return _with_source(solution.record, outcome), outcome


def _counted(family: Family, points: ComparedPoints) -> ComparedPoints:
    """The points of the metrics that a family is fitted to."""
    return points.keep(np.array([str(g).split("/")[0] not in family.skips for g in points.group], bool))


def _fit_power(fitted: Chip, tables: list[Table], date: str) -> tuple[Chip, list[FitOutcome]]:
    """Energies from loads whose power, time and clock are known, where there are more of them than energies
    to find and DRAM binds some: solved, not searched.
    """
    # Loads of seconds with their clock say more than short products without it.
    tables = [t for t in tables if "load" in t.columns] or tables
    learn: list[PowerDraw] = []
    check: list[PowerDraw] = []
    for table in tables:
        learn += measured_draws(table.keep(table.lines % HELD_OUT != 0), fitted)
        check += measured_draws(table.keep(table.lines % HELD_OUT == 0), fitted)
    if len(learn) < len({d.format for d in learn if d.format}) + 3 or not any(map(_bound_by_dram, learn)):
        return fitted, []
    solved = energies_of_draws(learn, fitted)
    values = {path: float(f"{v:.3g}") for path, v in solved.items() if path in leaf_paths(fitted)}
    new: Chip = override(fitted, values, "chip")[0]
    before, after = (_power_error(version, check or learn) for version in (fitted, new))
    solution = FitSolution(
        record=new, values=values, rows=len(learn), held_out=len(check), before=before, after=after
    )
    outcome = outcome_of(solution, POWER.name, [t.name for t in tables], date, rows_of=fitted.name)
    return _with_source(new, outcome), [outcome]


def _bound_by_dram(draw: PowerDraw) -> bool:
    """Whether a load waits for little but DRAM: without one, products share its energy among them."""
    return bool(draw.price.memory > 0.9 * draw.price.time)


def _power_error(version: Chip, draws: list[PowerDraw]) -> float:
    return float(np.mean([abs(predicted_draw(d, version) / d.power - 1.0) for d in draws]))


def _with_source(version: Chip, outcome: FitOutcome) -> Chip:
    """The chip whose fitted quantities say what they rest on."""
    changed: Any = override(version, outcome.values, "chip")[1]
    entries = {path: replace(param, source=outcome.source) for path, param in changed.items()}
    return replace(version, sources=version.sources.updated(entries))
