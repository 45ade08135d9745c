"""calibrate_logs(): transports fitted to logged collectives, which a user prices with afterwards. Only
quantities that rows tell move, one for every few rows, and none goes far from what is shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tomlkit

from strata.base.drawing import keep
from strata.base.errors import BadFile, BadValue
from strata.hardware.fabric import fabric
from strata.hardware.transport import Transport, transport
from strata.params import find, leaf_paths, names, value_at
from strata.validation.fit.calibrate import FitOutcome, fit_group, fitted_entries, overlay_toml
from strata.validation.fit.rows import GroupRows, Versions
from strata.validation.fit.solver import LEAST_ROWS
from strata.validation.fit.table import Quantity, fit_table
from strata.validation.measured.reader import reader_of
from strata.validation.readers.collective_files import IN_NODE, LoggedRun, tables_of_runs, texts_of_runs
from strata.validation.readers.comparison import HELD_OUT, ComparedPoints
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import Table

GROUP = replace(fit_table().group("library collectives"), files=(), quantities=(), unseen=())
PARTS = ("rings.", "pairs.")  # of a transport: what a library's collectives tell
# A quantity is moved both ways to see whether rows tell it: so many must move with it, by so much.
NUDGE, TOLD_BY, SEEN = 1.05, 3, 0.002
ROWS_EACH = 3  # rows that are fitted for each quantity that moves
NEAR = 3.0  # times what is shipped, or a third of it: as far as the software of one kind of link may differ
LEAST = LEAST_ROWS * HELD_OUT // (HELD_OUT - 1)
Predict = Callable[[Catalogue], list[ComparedPoints]]


@dataclass(frozen=True, eq=False, kw_only=True)
class LoggedFit:
    """What became of some logs: rows by file, transports with their fits, and why rows were not fitted."""

    runs: tuple[LoggedRun, ...]
    files: dict[str, int]
    fitted: tuple[tuple[Transport, tuple[FitOutcome, ...]], ...]
    notes: tuple[str, ...]


def calibrate_logs(runs: Sequence[LoggedRun], *, date: str = "") -> LoggedFit:
    """Fit every transport that the chips of some runs use and that enough rows tell of."""
    catalogue = Catalogue()
    for run in runs:
        if not catalogue.has_chip(run.gpu):
            raise BadValue(
                f"{run.log}: no shipped chip is called '{run.gpu}': give the one it is, as "
                "`strata calibrate h100 --log ...` (strata list chips)"
            )
    inside = {joined.dimension[0].transport for joined in map(catalogue.usual_fabric, _chips(runs))}
    tables = tables_of_runs(runs)
    files = {table.name: len(table) for table in tables}
    fitted: list[tuple[Transport, tuple[FitOutcome, ...]]] = []
    notes = []
    for table in tables:
        # what joins GPUs of a node is told by runs inside it, what joins nodes by the others
        wanted = [n for n in names("transport") if (n in inside) == (table.name == IN_NODE)]
        found = [one for name in wanted if (one := _fitted(name, table, date))]
        fitted += found
        notes += [] if found else [_why_not(table, catalogue)]
    return LoggedFit(runs=tuple(runs), files=files, fitted=tuple(fitted), notes=tuple(notes))


def _chips(runs: Sequence[LoggedRun]) -> list[str]:
    return list(dict.fromkeys(run.gpu for run in runs))


def _fitted(name: str, table: Table, date: str) -> tuple[Transport, tuple[FitOutcome, ...]] | None:
    """A transport fitted to the rows that tell of it, where enough do; kept where it does not get better."""
    shipped, catalogue = transport(name), Catalogue()
    if len(table) < LEAST:
        return None
    table = table.keep(~np.isin(table.lines, list(_why(table, catalogue))))
    rows = GroupRows(GROUP, [table])
    free = told_quantities(shipped, rows.points, len(table) * (HELD_OUT - 1) // HELD_OUT)
    if not free:
        return None
    versions = Versions(kind="transport", records=(shipped,), quantities=free, catalogue=catalogue)
    (moved,), outcome = fit_group(rows, versions, date=date, rows_of=f"logs over {name}")
    return None if outcome is None else (moved, (outcome,))


def told_quantities(version: Transport, predict: Predict, rows: int) -> list[Quantity]:
    """The quantities of a transport that rows tell best: those of one collective say nothing of the others',
    and what rules one or two rows would only remember them.
    """
    found = []
    for path in leaf_paths(version):
        here = value_at(version, path) if path.startswith(PARTS) else None
        if here is None or not float(here) > 0.0:
            continue
        top = min(1.0, NEAR * float(here)) if path.split(".")[1] in _SHARES else NEAR * float(here)
        quantity = Quantity(path, float(here) / NEAR, top)
        versions = Versions(kind="transport", records=(version,), quantities=[quantity])
        ends = [predict(versions.at([float(here) * factor])) for factor in (1.0 / NUDGE, NUDGE)]
        steps = [
            np.abs(b.predicted - a.predicted) / np.maximum(a.predicted, 1e-12)
            for a, b in zip(*ends, strict=True)
        ]
        moved = np.concatenate(steps)
        if np.sum(moved > SEEN) >= TOLD_BY:
            found.append((float(np.sum(moved)), quantity))
    best = sorted(found, key=lambda pair: -pair[0])[: max(1, rows // ROWS_EACH)]
    return [quantity for _, quantity in best]


_SHARES = ("share", "tree", "channel")  # of a link: not more than all of it


def _why_not(table: Table, catalogue: Catalogue) -> str:
    name, rows = table.name, len(table)
    if rows < LEAST:
        return f"{name}: {rows} rows are too few to fit; {LEAST} are needed, a third of them held out"
    why = next(iter(_why(table, catalogue).values()), "no shipped transport moves them")
    return f"{name}: nothing is fitted to its {rows} rows: {why}"


def _why(table: Table, catalogue: Catalogue) -> dict[int, str]:
    """Lines that cannot be priced, and why."""
    reader = reader_of(table.name, catalogue)
    assert reader is not None  # of files that are shipped
    return reader(table, catalogue).why


def write_fit(fit: LoggedFit, folder: Path) -> list[Path]:
    """Write the rows as measured files, each transport that moved, and the fabrics that use it; what is there
    already with other content is not written over.
    """
    texts = texts_of_runs(fit.runs)
    changed: dict[str, Path] = {}
    for record, outcomes in fit.fitted:
        if any(o.values for o in outcomes):
            texts[f"{record.name}.toml"] = _transport_text(record, outcomes)
            changed[record.name] = (folder / f"{record.name}.toml").resolve()
    for name in _fabrics(_chips(fit.runs), changed):
        texts[f"{name}.toml"] = _fabric_text(name, changed)
    for name, text in texts.items():
        path = folder / name
        if path.suffix == ".csv" and path.exists() and path.read_text(encoding="utf-8") != text:
            raise BadFile(f"{path} is there already, with other rows; give another folder")
    return [keep(folder / name, text) for name, text in texts.items()]


def _fabrics(chips: Sequence[str], changed: dict[str, Path]) -> list[str]:
    """For each chip a fabric with fitted transports: its usual one, or one with the same node's links."""
    catalogue, found = Catalogue(), []
    for chip_name in chips:
        usual = catalogue.usual_fabric(chip_name).name
        others = [name for name in names("fabric") if name != usual and _inside(name) == _inside(usual)]
        using = [name for name in (usual, *others) if set(_transports(name)) & set(changed)]
        found += using[:1]
    return list(dict.fromkeys(found))


def _transports(name: str) -> list[str]:
    document = tomlkit.parse(find("fabric", name).read_text(encoding="utf-8"))
    return [str(d.get("transport", "")) for d in document.get("dimension", [])]


def _inside(name: str) -> tuple[object, ...]:
    """What joins the GPUs of a node of a shipped fabric."""
    first = fabric(name).dimension[0]
    return (first.transport, first.kind, first.size, first.bandwidth)


def _transport_text(record: Transport, outcomes: Sequence[FitOutcome]) -> str:
    document = tomlkit.document()
    document.update({"base": record.name, "name": f"{record.name}-measured"})
    document.update(tomlkit.parse(overlay_toml(fitted_entries(record, outcomes))))
    return tomlkit.dumps(document)


def _fabric_text(name: str, changed: dict[str, Path]) -> str:
    """A shipped fabric's file whose dimensions use fitted transports."""
    document = tomlkit.parse(find("fabric", name).read_text(encoding="utf-8"))
    for dimension in document.get("dimension", []):
        if dimension.get("transport") in changed:
            dimension["transport"] = changed[dimension["transport"]].as_posix()
    document["name"] = f"{name}-measured"
    return tomlkit.dumps(document)
