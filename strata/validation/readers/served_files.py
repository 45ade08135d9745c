"""Which files are of served models, by their names below the data folder."""

from __future__ import annotations

from pathlib import Path

from strata.errors import UnknownName
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.served_batches import BATCHES
from strata.validation.readers.served_loops import LOOPS
from strata.validation.readers.served_rows import RowPoint, ServedConditions, ServedFile, row_points
from strata.validation.readers.tables import read_table

SERVED: dict[str, ServedFile] = {**LOOPS, **BATCHES}


def row_of_file(folder: Path, name: str, kind: ServedFile, line: int) -> list[RowPoint]:
    """What was measured in a line of a served file, beside what its command prints."""
    table = read_table(folder, name)
    known = read_conditions(ServedConditions, table, kind.conditions)
    for cells in kind.rows(table):
        if cells.line == line:
            return row_points(kind, cells, known, Catalogue())
    lines = [cells.line for cells in kind.rows(table)]
    raise UnknownName(
        f"row of {name}", str(line), [str(n) for n in lines], f"lines {lines[0]} to {lines[-1]}"
    )
