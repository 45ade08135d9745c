"""Published numbers as a run of a study: a table of another tool's and of measured values, and Strata's own
predictions of the same rows.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.errors import BadFile, BadValue, UnknownName, require
from strata.base.reading import known_keys
from strata.evaluate import evaluate
from strata.params import read_toml
from strata.pricing.metrics import METRICS
from strata.result import Result
from strata.search.fields import parse_changes
from strata.search.inputs import changed_system, make_workload, model_value, phase_of
from strata.software.engine import engine as make_engine
from strata.workload.model import model as make_model
from strata.workload.program import program as make_program
from strata.workload.tasks import decode

PUBLISHED_KEYS = ("published", "keep", "predict")
PREDICT_KEYS = (
    "column", "rows", "system", "model", "phase", "batch", "input", "output", "tokens", "plan", "engine",
    "weights", "kv", "set", "metric", "scale",
)  # fmt: skip
Row = dict[str, Any]


def published_rows(path: Path) -> list[Row]:
    """Rows of a CSV (lines that begin with # tell where it is from) or of the `[[row]]` of a TOML file, where
    a cell may be a table of `value` and `source`.
    """
    require(path.is_file(), "no such table of published numbers", file=path.name)
    if path.suffix == ".toml":
        table = read_toml(path)
        require("row" in table, f"{path.name} needs [[row]]")
        return [{k: _cell(v, f"{path.name}: {k}") for k, v in row.items()} for row in table["row"]]
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _cell(value: Any, where: str) -> Any:
    """A cell's value; a number that has no source is refused where a source was begun."""
    if not isinstance(value, dict):
        return value
    require({"source"} <= set(value) <= {"value", "source"}, f"{where} has value and source, or source alone")
    return value.get("value", "")


def published_columns(rows: list[Row]) -> dict[str, Any]:
    """Columns by name: numbers where every cell that is told is one (NaN where it is not told), else words.

    >>> published_columns([{"tp": "8", "by": "A"}, {"tp": "", "by": "B"}])["tp"].tolist()
    [8.0, nan]
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: _column([row.get(name, "") for row in rows]) for name in names}


def _column(cells: list[Any]) -> Any:
    try:
        return np.array([float(cell) if cell not in ("", None) else np.nan for cell in cells])
    except ValueError:
        return np.array([str(cell) for cell in cells])


def run_published(
    entry: dict[str, Any], where: str, folder: Path, runs: Any = None, known: Any = None
) -> dict[str, Any]:
    """Columns of a table beside the study, and Strata's predictions of its rows.

    `keep` names columns and the word a row must have there. Each of the list `predict` tells a run with the
    row's values in braces, like `plan = "tp={tp}"`, for all rows or those that have the words of its `rows`;
    a `model` may be a table of sizes, as of a config.json, or a program's file beside the study. Its metric,
    times `scale` where the row counts in another unit, goes into its `column`, NaN where nothing is predicted
    or the run does not fit, beside `COLUMN_fits`. Several may fill one column.
    """
    known_keys(entry, ("name", *PUBLISHED_KEYS), where)
    table = published_rows(folder / entry["published"])
    rows = [row for row in table if _has(row, entry.get("keep", {}))]
    require(bool(rows), f"{where}: no row is kept", keep=str(entry.get("keep", {})))
    told, found = published_columns(rows), dict[str, Any]()
    for settings in entry.get("predict", []):
        known_keys(settings, PREDICT_KEYS, f"{where}, a prediction")
        for key in ("column", "system", "model"):
            require(key in settings, f"{where}: a prediction has column, system and model", missing=key)
        column, metric = settings["column"], settings.get("metric", "step_time")
        require(column not in told, f"{where}: the table has that column", column=column)
        if metric not in METRICS:
            raise UnknownName("metric", metric, METRICS, ", ".join(METRICS))
        values = found.setdefault(column, np.full(len(rows), np.nan))
        fits = found.setdefault(f"{column}_fits", np.zeros(len(rows), bool))
        for i, row in enumerate(rows):
            if _has(row, settings.get("rows", {})):
                result = predict_row(settings, row, where, folder)
                fits[i] = bool(result.fits)
                scale = _scale(settings, row, where)
                values[i] = scale * float(getattr(result.metrics, metric)) if fits[i] else np.nan
    return told | found | {"line": np.arange(len(rows), dtype=float), "axes": ["line"]}


def _has(row: Row, words: Row) -> bool:
    return all(str(row.get(k, "")) == str(v) for k, v in words.items())


def _scale(settings: dict[str, Any], row: Row, where: str) -> float:
    """What one of a metric counts in the row's unit: 1, a number, or a column in braces."""
    told = _filled(settings.get("scale", 1.0), row, where)
    try:
        return float(told)
    except ValueError:
        raise BadValue(f"{where}: scale is a number or a column of numbers, but got '{told}'") from None


def predict_row(settings: dict[str, Any], row: Row, where: str, folder: Path | None = None) -> Result:
    """Strata's prediction of one row: the settings with the row's values in their braces; a program's file is
    looked for in `folder` first.

    >>> told = {"system": "8xa100-80", "model": "llama-2-7b", "phase": "train", "plan": "tp={tp}"}
    >>> bool(predict_row(told, {"tp": 8}, "example").fits)
    True
    """
    known = {k: _filled(v, row, where) for k, v in settings.items() if k != "rows"}
    changes = parse_changes(known.get("set", []))
    wanted = {k: model_value(k, v) for k, v in changes["model"].items()}
    wanted |= {k: known[k] for k in ("weights", "kv") if k in known}
    told = known["model"]
    if folder is not None and isinstance(told, str) and (folder / told).is_file():
        told = folder / told
    program = make_model(told, **wanted) if isinstance(told, dict) else make_program(told, **wanted)
    system = changed_system(known["system"], changes["chip"], changes["fabric"])
    engine = make_engine(known.get("engine", "ideal"), **changes["engine"])
    sizes = (float(known.get(k, usual)) for k, usual in (("batch", 1), ("input", 1024), ("output", 0)))
    workload = make_workload(phase_of(program, known.get("phase", "serve")), *sizes)
    if "tokens" in known:
        workload = decode(workload.batch, workload.context, tokens=float(known["tokens"]))
    return evaluate(system, program, workload, known.get("plan"), engine)


def _filled(value: Any, row: Row, where: str) -> Any:
    """Text with the row's values in its braces; in a table, as of a model's sizes, numbers become numbers."""
    if isinstance(value, dict):
        return {k: _number(_filled(v, row, where)) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(item, row, where) for item in value]
    try:
        return value.format(**row) if isinstance(value, str) else value
    except KeyError as missing:
        raise BadFile(f"{where}: the table has no column {missing}") from None
    except (ValueError, IndexError):
        raise BadValue(f"{where}: braces hold the name of a column, but got '{value}'") from None


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
