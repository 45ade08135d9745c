"""calibrate(): a few physically named quantities of a chip, fitted to measured kernels and written with what they rest on.

Two thirds of the rows are fitted, every third line of a file is held out and only reported. No shape is looked up: the same
equations price the rows before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import BadFile, UnknownName
from strata.hardware.chip import Chip, chip
from strata.params import leaf_paths, override, value_at
from strata.units import show
from strata.validation.datasets import HELD_OUT, Array, Points, Table, read_table
from strata.validation.run import READERS
from strata.validation.steps import substituted

LEAST_ROWS = 12  # fitted rows below which a quantity would only remember them
MOST_ROWS = 1500  # fitted rows of one file: more cost time and change nothing


@dataclass(frozen=True)
class Quantity:
    """A quantity that may be fitted, and the range it must stay in."""

    path: str
    low: float
    high: float


@dataclass(frozen=True)
class Family:
    """Kernels that are fitted together: their files, the column and values of it that count, and what they determine.

    `bare` names the family that has told all but the last quantities already, where a chip has rows of bare kernels.
    """

    name: str
    files: tuple[str, ...]
    column: tuple[str, ...]
    values: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    bare: str = ""
    by_format: bool = False  # quantities of a format are free only where that format was measured


MICRO = 1e-6
ATTENTION = (
    Quantity("overhead.attention", 0.5 * MICRO, 20 * MICRO),
    Quantity("overhead.merge", 0.01 * MICRO, 20 * MICRO),
    Quantity("overhead.query_block", 0.01 * MICRO, 20 * MICRO),
    Quantity("memory.attention_efficiency", 0.3, 0.98),
    Quantity("compute.attention_efficiency", 0.2, 1.0),
    Quantity("compute.softmax_exposed", 0.01, 4.0),
)
PAGED = Quantity("overhead.paged", 0.01 * MICRO, 20 * MICRO)
SERVED_ATTENTION = ("ops/context_attention.csv", "ops/generation_attention.csv", "ops/context_mla.csv", "ops/generation_mla.csv")
FAMILIES = (
    Family(
        "products",
        ("h200/gemm.csv", "ops/gemm.csv"),
        ("dtype", "gemm_dtype"),
        ("bf16", "fp8", "bfloat16"),
        (
            Quantity("overhead.kernel", 0.5 * MICRO, 8 * MICRO),
            Quantity("overhead.quantise.fp8", 0.01 * MICRO, 15 * MICRO),
            Quantity("overhead.tile", 0.01 * MICRO, 4 * MICRO),
            Quantity("overhead.split", 0.2 * MICRO, 15 * MICRO),
            Quantity("cache.core_bandwidth", 10e9, 500e9),
            Quantity("cache.efficiency", 0.2, 1.0),
            Quantity("memory.efficiency", 0.4, 0.98),
            Quantity("compute.matrix_efficiency.bf16", 0.3, 1.0),
            Quantity("compute.matrix_efficiency.fp8", 0.3, 1.0),
        ),
        by_format=True,
    ),
    Family(
        "fp8 in blocks",
        ("ops/gemm.csv",),
        ("gemm_dtype",),
        ("fp8_block",),
        (Quantity("overhead.quantise.fp8_block", 0.01 * MICRO, 15 * MICRO), Quantity("compute.matrix_efficiency.fp8_block", 0.2, 1.0)),
    ),
    Family(
        "fp4",
        ("ops/gemm.csv",),
        ("gemm_dtype",),
        ("nvfp4",),
        (Quantity("overhead.quantise.fp4", 0.01 * MICRO, 15 * MICRO), Quantity("compute.matrix_efficiency.fp4", 0.2, 1.0)),
    ),
    Family("int8", ("ops/gemm.csv",), ("gemm_dtype",), ("sq",), (Quantity("compute.matrix_efficiency.int8", 0.2, 1.0),)),
    Family("streams", ("h200/stream.csv",), ("op",), ("copy", "add", "gelu"), (Quantity("overhead.stream", 0.2 * MICRO, 5 * MICRO),)),
    Family(
        "experts",
        ("h200/grouped_gemm.csv", "ops/moe.csv"),
        ("moe_dtype",),
        ("bfloat16", "fp8", "fp8_block", "nvfp4"),
        (
            Quantity("overhead.grouped", 0.5 * MICRO, 30 * MICRO),
            Quantity("compute.grouped_efficiency", 0.2, 1.0),
            Quantity("memory.grouped_efficiency", 0.2, 0.98),
        ),
    ),
    Family("attention", ("h200/attention.csv",), (), (), ATTENTION),
    Family("served attention", SERVED_ATTENTION, (), (), (*ATTENTION[1:], PAGED), bare="attention"),
)
FORMAT_OF = {"fp8": "fp8", "bf16": "bf16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Fitted:
    """One family's outcome: the new quantities, the rows behind them, and the error on rows that were not fitted."""

    family: str
    values: dict[str, float]
    rows: int
    held_out: int
    before: float
    after: float
    files: tuple[str, ...]


def calibrate(name: str, folder: Path | str, *, only: tuple[str, ...] = (), date: str = "") -> tuple[Chip, list[Fitted]]:
    """Fit a chip to the measured kernels of it below a folder: the chip with its new quantities, and what each fit rests on."""
    known = {f.name: f for f in FAMILIES}
    for word in only:
        if word not in known:
            raise UnknownName("family of kernels", word, known, ", ".join(known))
    made = chip(name)
    outcomes: list[Fitted] = []
    skipped: list[str] = []
    for family in FAMILIES:
        if only and family.name not in only:
            continue
        tables = _tables(family, made, Path(folder))
        rows = sum(len(t) for t in tables)
        if rows < LEAST_ROWS * HELD_OUT // (HELD_OUT - 1):
            skipped.append(f"{family.name}: {rows} rows of {made.name} in {', '.join(family.files)}")
            continue
        free = _free(family, made, tables, [o.family for o in outcomes])
        made, fitted = _fit(family, free, tables, made, date)
        outcomes.append(fitted)
    if not outcomes:
        raise BadFile(
            f"nothing to fit {made.name} on: it needs at least {LEAST_ROWS} rows to fit and as many thirds to hold out, but found {'; '.join(skipped)}"
        )
    return made, outcomes


def _tables(family: Family, made: Chip, folder: Path) -> list[Table]:
    """The rows of a family that were measured on this chip."""
    if not folder.is_dir():
        raise BadFile(f"no data folder at {folder}; it holds files such as h200/gemm.csv")
    found = []
    for name in family.files:
        if not (folder / name).exists():
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
    try:
        return chip(label.lower()).name == name
    except UnknownName:
        return False


def _fit(family: Family, paths: list[Quantity], tables: list[Table], made: Chip, date: str) -> tuple[Chip, Fitted]:
    from scipy.optimize import least_squares

    start = np.array([float(value_at(made, q.path)) for q in paths])
    low, high = np.array([q.low for q in paths]), np.array([q.high for q in paths])
    first = _points(tables, made)
    # Points, not lines, are held out: a shape that two backends ran is one point.
    learn = [np.flatnonzero(p.line % HELD_OUT != 0) for p in first]
    learn = [rows[:: max(1, math.ceil(len(rows) / MOST_ROWS))] for rows in learn]
    check = [np.flatnonzero(p.line % HELD_OUT == 0) for p in first]
    weights = np.concatenate([np.full(len(rows), 1 / math.sqrt(max(len(rows), 1))) for rows in learn])
    weights *= math.sqrt(len(weights)) / np.linalg.norm(weights)

    def residual(x: Array) -> Array:
        found = _points(tables, _changed(made, paths, np.exp(x)))
        errors = [np.log(np.maximum(p.predicted[r], 1e-12) / p.measured[r]) for p, r in zip(found, learn, strict=True)]
        return np.concatenate(errors) * weights

    inside = np.clip(start, low * 1.001, high * 0.999)
    # Logarithms: all quantities are positive, and their sizes lie fifteen decades apart.
    found = least_squares(residual, np.log(inside), bounds=(np.log(low), np.log(high)), loss="soft_l1", f_scale=0.1, diff_step=3e-2, max_nfev=80)
    values = dict(zip([q.path for q in paths], np.exp(found.x).tolist(), strict=True))
    rows, held = sum(map(len, learn)), sum(map(len, check))
    before, after = (_mape(_points(tables, c), check) for c in (made, _changed(made, paths, np.exp(found.x))))
    if after >= before:  # what the chip had is better on rows nobody fitted: keep it
        return made, Fitted(family.name, {}, rows, held, before, before, tuple(t.name for t in tables))
    source = (
        f"fitted: {' and '.join(t.name for t in tables)}, rows of {made.name}, two thirds of them ({rows}), {date or 'undated'}; "
        f"mean error of the held-out third ({held} rows) {after:.1%}, {before:.1%} before"
    )
    shown = {p: _text(v, leaf_paths(made)[p]["unit"]) for p, v in values.items()}
    new, noted = override(made, shown, "chip")
    entries = {p: type(noted[p])(noted[p].value, noted[p].unit, source) for p in noted}
    new = replace(new, sources=made.sources.updated(entries))
    return new, Fitted(family.name, {p: float(value_at(new, p)) for p in values}, rows, held, before, after, tuple(t.name for t in tables))


def _text(value: float, unit: str) -> str:
    """A fitted value to the digits it deserves."""
    return show(value, unit, 3)


def _free(family: Family, made: Chip, tables: list[Table], done: list[str]) -> list[Quantity]:
    """What a family may move: what the chip has, of formats that were measured, and only the last where bare kernels told the rest."""
    asked = family.quantities[-1:] if family.bare in done else family.quantities
    seen = {FORMAT_OF.get(str(v), "") for t in tables for c in family.column if c in t.columns for v in np.unique(t.text(c).astype(str))}
    free = []
    for q in asked:
        owner, _, last = q.path.rpartition(".")
        unmeasured = owner in ("compute.matrix_efficiency", "overhead.quantise") and family.by_format and last not in seen
        if q.path in leaf_paths(made) and not unmeasured:
            free.append(q)
    return free


def _changed(made: Chip, paths: list[Quantity], values: Array) -> Chip:
    new, _ = override(made, {q.path: float(v) for q, v in zip(paths, values, strict=True)}, "chip")
    new_chip: Chip = new
    return new_chip


def _points(tables: list[Table], made: Chip) -> list[Points]:
    readers: list[Callable[[Table], Points]] = [READERS[t.name] for t in tables]
    with substituted(made):
        found = [reader(table) for reader, table in zip(readers, tables, strict=True)]
    return found


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
            value: Any = f"{param.value:.3g}" if param.unit == "1" else f'"{show(param.value, param.unit, 3)}"'
            sections.setdefault(section, []).append(f'{key} = {{ value = {value}, source = "{param.source}" }}')
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())
