"""calibrate_logs(): transports fitted to logged collectives, as `calibrate_transport` fits them to the project's
own files, and the files that a user prices with afterwards.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tomlkit

from strata.errors import BadFile, BadValue
from strata.hardware.transport import Transport, transport
from strata.params import data_folder, names, override, value_at
from strata.validation.fit.families import NETWORK, Quantity
from strata.validation.fit.overlay import overlay_toml
from strata.validation.fit.solver import LEAST_ROWS, FitOutcome
from strata.validation.fit.transports import Predict, calibrate_transport
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.collective_files import write_runs
from strata.validation.readers.comparison import HELD_OUT
from strata.validation.readers.nccl_logs import LoggedRun
from strata.validation.readers.registry import matches, reader_of

# A quantity is moved both ways to see whether rows tell it: so many must move with it, by so much.
NUDGE, TOLD_BY, SEEN = 1.05, 3, 0.002
NEAR = 3.0  # times what is shipped, or a third of it: as far as the software of one kind of link may differ


@dataclass(frozen=True, eq=False, kw_only=True)
class LoggedFit:
    """What became of some logs: rows by the measured file they belong to, transports with what each fit rests
    on, and why rows were not fitted.
    """

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
                f"{run.log}: no shipped chip is called '{run.gpu}': give the one it is, as `strata calibrate h100 "
                "--log ...` (strata list chips)"
            )
    with tempfile.TemporaryDirectory() as folder:
        files = write_runs(runs, Path(folder))
        fitted = [one for name in names("transport") if (one := _fitted(name, Path(folder), date))]
    told = {file for _, outcomes in fitted for o in outcomes for file in o.files}
    notes = tuple(_why_not(name, rows, catalogue) for name, rows in files.items() if name not in told)
    return LoggedFit(runs=tuple(runs), files=files, fitted=tuple(fitted), notes=notes)


def told_nearby(free: list[Quantity], version: Transport, predict: Predict) -> list[Quantity]:
    """The quantities that some rows tell (those of one collective say nothing of the others'; what rules one or
    two rows would only remember them), each near what it is shipped with: one log has few rows.
    """
    told = []
    for q in free:
        here = float(value_at(version, q.path))
        near = replace(q, low=max(q.low, here / NEAR), high=min(q.high, here * NEAR))
        ends = [
            predict(override(version, {q.path: min(max(here * factor, q.low), q.high)}, "transport")[0])
            for factor in (1.0 / NUDGE, NUDGE)
        ]
        steps = [(np.abs(b.predicted - a.predicted), np.abs(a.predicted)) for a, b in zip(*ends, strict=True)]
        moved = sum(int(np.sum(step > SEEN * size)) for step, size in steps)
        if moved >= TOLD_BY and near.low < near.high:
            told.append(near)
    return told or free


def _fitted(name: str, folder: Path, date: str) -> tuple[Transport, tuple[FitOutcome, ...]] | None:
    """A transport fitted to a folder, where it has rows of it; what did not get better is kept as it was."""
    try:
        _, found = calibrate_transport(name, folder, date=date, choose=told_nearby)
    except BadFile:  # no rows of it, or too few
        return None
    outcomes = tuple(o if o.after < o.before else replace(o, values={}, after=o.before) for o in found)
    shipped, values = transport(name), {path: v for o in outcomes for path, v in o.values.items()}
    return (override(shipped, values, "transport")[0] if values else shipped), outcomes


def _why_not(name: str, rows: int, catalogue: Catalogue) -> str:
    known = any(matches(name, *family.files) for family in NETWORK)
    if reader_of(name, catalogue) is None or not known:
        return f"{name}: no transport is fitted to such rows yet ({rows} of them)"
    least = LEAST_ROWS * HELD_OUT // (HELD_OUT - 1)
    if rows < least:
        return f"{name}: {rows} rows are too few to fit; {least} are needed, a third of them held out"
    return f"{name}: nothing is fitted to its {rows} rows: no transport joins these GPUs so"


def write_fit(fit: LoggedFit, folder: Path) -> list[Path]:
    """Write the rows as measured files, each transport that moved, and the fabrics that use it; what is there
    already with other content is not written over.
    """
    with tempfile.TemporaryDirectory() as scratch:
        texts = {
            name: (Path(scratch) / name).read_text(encoding="utf-8")
            for name in write_runs(fit.runs, Path(scratch))
        }
    for record, outcomes in fit.fitted:
        if any(o.values for o in outcomes):
            texts[f"{record.name}.toml"] = _transport_text(record, outcomes)
    changed = {
        r.name: (folder / f"{r.name}.toml").resolve() for r, _ in fit.fitted if f"{r.name}.toml" in texts
    }
    catalogue = Catalogue()
    for chip_name in dict.fromkeys(run.gpu for run in fit.runs):
        joined = catalogue.usual_fabric(chip_name).name
        if text := _fabric_text(joined, changed):
            texts[f"{joined}.toml"] = text
    for name, text in texts.items():
        path = folder / name
        if path.suffix == ".csv" and path.exists() and path.read_text(encoding="utf-8") != text:
            raise BadFile(f"{path} is there already, with other rows; give another folder")
    return [_written(folder / name, text) for name, text in texts.items()]


def _written(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadFile(f"{path} cannot be written: {str(error.strerror or error).lower()}") from None
    return path


def _transport_text(record: Transport, outcomes: Sequence[FitOutcome]) -> str:
    document = tomlkit.document()
    document.update({"base": record.name, "name": f"{record.name}-measured"})
    document.update(tomlkit.parse(overlay_toml(record, outcomes)))
    return tomlkit.dumps(document)


def _fabric_text(name: str, changed: dict[str, Path]) -> str:
    """A shipped fabric's file whose dimensions use fitted transports; nothing where none does."""
    document = tomlkit.parse((data_folder("fabric") / f"{name}.toml").read_text(encoding="utf-8"))
    uses = [d for d in document.get("dimension", []) if d.get("transport") in changed]
    for dimension in uses:
        dimension["transport"] = changed[dimension["transport"]].as_posix()
    document["name"] = f"{name}-measured"
    return tomlkit.dumps(document) if uses else ""
