"""calibrate_transport(): the quantities of a transport fitted to measured collectives, as `calibrate` fits
those of a chip.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from strata.errors import BadFile, UnknownName
from strata.hardware.transport import Transport, transport
from strata.validation.fit.families import NETWORK, Family, Quantity
from strata.validation.fit.solver import (
    LEAST_ROWS,
    FitOutcome,
    FitProblem,
    FitSearch,
    family_tables,
    free_quantities,
    has_enough,
    outcome_of,
    solve_fit,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.registry import reader_of
from strata.validation.readers.tables import Table

SEARCH = FitSearch(tries=((0.01,),), robust=0.1, evaluations=60)


def calibrate_transport(
    name: str, folder: Path | str, *, date: str = ""
) -> tuple[Transport, list[FitOutcome]]:
    """Fit a transport to the measured collectives of nodes that use it: the transport, and what each fit
    rests on.
    """
    fitted, catalogue = transport(name), Catalogue()
    uses_it = partial(_uses_transport, fitted.name, catalogue)
    outcomes = []
    for family in NETWORK:
        tables = family_tables(family, Path(folder), uses_it)
        free = free_quantities(family, fitted, tables)
        if free and has_enough(tables):
            fitted, outcome = _fit_family(family, free, tables, fitted, catalogue, date)
            outcomes.append(outcome)
    if not outcomes:
        files = ", ".join(file for family in NETWORK for file in family.files)
        raise BadFile(f"nothing to fit {name} on: it needs {LEAST_ROWS} rows of {files}")
    return fitted, outcomes


def _uses_transport(name: str, catalogue: Catalogue, chip_name: str) -> bool:
    """Whether chips of a node of eight are joined by this transport."""
    try:
        return bool(catalogue.system(f"8x{chip_name}").fabric.dimension[0].transport == name)
    except UnknownName:
        return False


def _fit_family(
    family: Family,
    free: list[Quantity],
    tables: list[Table],
    fitted: Transport,
    catalogue: Catalogue,
    date: str,
) -> tuple[Transport, FitOutcome]:
    def predict(version: Transport) -> list[ComparedPoints]:
        """Only the points a file's own figures rest on: rows with the host's launch stand apart."""
        named = catalogue.with_transport(version)
        pairs = [(reader_of(table.name, named), table) for table in tables]
        points = [reader(table, named) for reader, table in pairs if reader is not None]
        return [p.keep(p.headline.astype(bool)) for p in points]

    problem = FitProblem(record=fitted, kind="transport", quantities=free, predict=predict, search=SEARCH)
    solution = solve_fit(problem)
    rows_of = f"nodes with {fitted.name}"
    return solution.record, outcome_of(solution, family.name, [t.name for t in tables], date, rows_of=rows_of)
