"""`python -m strata.validation.fit.refit`: fit the shipped chips and transports to the project's data anew.

Writes data/calibration/.

Chips of the same make that have no rows of their own take a sibling's quantities, and say that this is
assumed.
"""

from __future__ import annotations

import datetime
import re
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit

from strata.errors import BadFile, UnknownName
from strata.hardware.chip import chip
from strata.hardware.transport import Transport, transport
from strata.params import data_folder
from strata.units import parse, show
from strata.validation.fit.calibrate import calibrate, overlay_toml
from strata.validation.fit.families import NETWORK, Family, Quantity
from strata.validation.fit.networks import FILE, NETWORKS, calibrate_networks
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
from strata.validation.readers.tables import Table, read_table

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


TRANSPORTS = ("nvlink3", "nvlink4", "nvlink5")
MEASURED = ("h200", "a100-80", "b200", "mi300x")
SIBLINGS = {
    "h100": ("h200", "the same GH100 die"),
    "gb200": ("b200", "the same Blackwell dies"),
    "gb300": ("b200", "the next stepping of the Blackwell dies"),
    "mi325x": ("mi300x", "the same compute dies"),
    "mi308x": ("mi300x", "the same compute dies, fewer of their cores"),
    "mi350x": ("mi300x", "the generation before: shares of peaks, fixed times"),
    "mi355x": ("mi300x", "the generation before: shares of peaks, fixed times"),
}
OF_ITS_DRAM = ("energy.memory",)  # not of the die: what a chip with another kind of DRAM states itself
# What one core draws from the caches: so many bytes a clock; or, far below that, as much as its local memory
# holds of what is under way, for each latency.
PER_CLOCK, PER_SRAM = "experts.core_bandwidth", "cache.core_bandwidth"
HEAD = "# Laid over the {kind}'s own file. Written by `python -m strata.validation.fit.refit`.\n\n"


def assumed_from(text: str, sibling: str, why: str) -> str:
    """A sibling's fitted file as assumptions: the same values, their source saying whose they are."""
    return re.sub(r'source = "fitted: [^"]*"', f'source = "assumed: as fitted on {sibling}, {why}"', text)


def carried(text: str, name: str, sibling: str, why: str) -> str:
    """A sibling's fitted file as assumptions of another chip; what a core draws follows the clock, or the
    size of its local memory, and what its DRAM takes stays its own where the sibling has another kind.

    >>> text = '[cache]\\ncore_bandwidth = { value = "40 GB/s", source = "fitted: some rows" }'
    >>> print(carried(text, "mi355x", "mi300x", "old"))
    [cache]
    core_bandwidth = { value = "100 GB/s", source = "assumed: as fitted on mi300x, old, by its local memory" }
    >>> text = '[energy]\\nmemory = { value = "63 pJ/B", source = "fitted: some rows" }'
    >>> carried(text, "h100", "h200", "its die")  # HBM3, where H200 has HBM3e
    '[energy]\\n'
    """
    document = tomlkit.parse(assumed_from(text, sibling, why))
    if chip(name).memory.kind.lower() != chip(sibling).memory.kind.lower():
        for path in OF_ITS_DRAM:
            table, key = path.split(".")
            document.get(table, {}).pop(key, None)
    own, others = chip(name).compute, chip(sibling).compute
    larger = {
        PER_CLOCK: (float(own.clock / others.clock), "by the clock"),
        PER_SRAM: (float(own.sram_capacity / others.sram_capacity), "by its local memory"),
    }
    for path, (factor, said) in larger.items():
        table, key = path.split(".")
        entry: Any = document.get(table, {}).get(key)
        if entry is not None and factor != 1.0:
            entry["value"] = show(parse(entry["value"], "B/s") * factor, "B/s", 3)
            entry["source"] = f"{entry['source']}, {said}"
    return tomlkit.dumps(document)


def _overlay(name: str) -> Path:
    folder = data_folder("calibration")
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.toml"


def refit(folder: Path, date: str) -> None:
    """Fit everything that has rows below the folder and write what was found. A fit starts from the datasheet
    and what we assumed, not from the last fit.
    """
    for old in data_folder("calibration").glob("*.toml"):
        old.unlink()
    refit_chips(folder, date)
    refit_transports(folder, date)


def refit_chips(folder: Path, date: str) -> None:
    """Every chip that has measured kernels, and its siblings."""
    texts = {name: overlay_toml(*calibrate(name, folder, date=date)) for name in MEASURED}
    for name, (sibling, why) in SIBLINGS.items():
        texts[name] = carried(texts[sibling], name, sibling, why)
    for name, text in texts.items():
        _overlay(name).write_text(HEAD.format(kind="chip") + text, encoding="utf-8")


def refit_transports(folder: Path, date: str) -> None:
    """Every transport that has measured collectives."""
    for name in TRANSPORTS:
        _overlay(name).unlink(missing_ok=True)
        text = overlay_toml(*calibrate_transport(name, folder, date=date))
        _overlay(name).write_text(HEAD.format(kind="transport") + text, encoding="utf-8")
    refit_networks(folder, date)


def refit_networks(folder: Path, date: str) -> None:
    """Transports between nodes: one library over all of them."""
    for name in NETWORKS:
        _overlay(name).unlink(missing_ok=True)
    fitted, outcomes = calibrate_networks(read_table(folder, FILE), date=date)
    for name, found in outcomes.items():
        text = overlay_toml(fitted[name], found)
        _overlay(name).write_text(HEAD.format(kind="transport") + text, encoding="utf-8")


if __name__ == "__main__":
    refit(Path("validation"), datetime.date.today().isoformat())
