"""A few physically named quantities of serving engines, fitted to named rows of measured runs and written
with what they rest on.

Rows of whole models are left out, and every third line of the models that are fitted: only those say how good
a fit is. Kernels are not fitted here; they come from a chip's own calibration. One chip is an exception: none
of its kernels were measured, so that what its products and reads sustain comes from whole steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.hardware.chip import Chip
from strata.mapping.engine import Engine
from strata.params import data_folder, leaf_paths, override, value_at
from strata.units import show
from strata.validation.calibrate import Fitted
from strata.validation.datasets import HELD_OUT, Array, Points, Table, read_table
from strata.validation.families import MICRO, Quantity
from strata.validation.run import reader_of
from strata.validation.serving import engines_in_place, named_engine
from strata.validation.steps import forget, named_chip, substituted

SILICON, VLLM, THROUGHPUT = "serving/silicon.csv", "serving/vllm.csv", "serving/trtllm_max_throughput.csv"
FEW_EVALUATIONS = 12  # of a fit: its quantities are almost linear, and each evaluation prices every row
# of a logarithm: for slopes, and the error from which rows count less than their square
STEP, ROBUST = 0.05, 0.05


@dataclass(frozen=True)
class Rows:
    """Rows of a file whose columns hold one of some values, and the metric of theirs that counts: how its
    groups begin or end.
    """

    file: str
    metric: str
    where: dict[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        named = ("system", "backend", "model")
        values = [
            v if column in named else f"{column} {v}" for column, values in self.where.items() for v in values
        ]
        return f"{self.file} ({self.metric.strip('/') or 'tokens/s'} of {', '.join(values)})"


@dataclass(frozen=True)
class EngineFit:
    """What some rows tell about an engine. Fits of one engine run in order, each with what those before it
    found.
    """

    engine: str
    quantities: tuple[Quantity, ...]
    rows: tuple[Rows, ...]


def _online(name: str, metric: str, *models: str) -> Rows:
    return Rows(SILICON, metric, {"backend": (name,), "model": models})


PER_STEP = Quantity("step", 20 * MICRO, 4000 * MICRO)
PER_SEQUENCE = Quantity("sequence", 0.5 * MICRO, 20 * MICRO)
PER_TOKEN = Quantity("stream", 0.5 * MICRO, 100 * MICRO)
HIDDEN = Quantity("pdl_overlap", 0.01, 0.7)
REQUEST = Quantity("request", 1000 * MICRO, 1.0)
EXPERTS = Quantity("expert_launches", 1.0, 500.0)

FITS = (
    EngineFit(
        "vllm",
        (PER_STEP, PER_SEQUENCE, PER_TOKEN, HIDDEN),
        (
            _online("vllm", "tpot", "llama-3.1-70b"),
            Rows(VLLM, "/decode", {"system": ("8xB200",), "model": ("llama-3-70b",), "eager": ("0",)}),
        ),
    ),
    EngineFit(
        "vllm",
        (Quantity("launches", 1.0, 20.0),),
        (Rows(VLLM, "/decode/eager", {"model": ("llama-3-70b",), "eager": ("1",)}),),
    ),
    EngineFit(
        "vllm", (EXPERTS,), (Rows(VLLM, "/decode/eager", {"model": ("deepseek-v3",), "eager": ("1",)}),)
    ),
    EngineFit("vllm", (REQUEST,), (_online("vllm", "ttft", "llama-3.1-70b"),)),
    EngineFit(
        "vllm",
        (Quantity("graph_break_time", 5 * MICRO, 1000 * MICRO),),
        (Rows(VLLM, "/decode", {"model": ("deepseek-v3.2",), "input_tokens": ("1024",)}),),
    ),
    # smaller are noisy
    EngineFit(
        "vllm",
        (Quantity("expert_rate.fp8_block", 0.1, 1.0),),
        (
            Rows(
                VLLM,
                "/prefill",
                {"model": ("deepseek-v3",), "eager": ("0",), "batch": ("32", "64", "128", "256", "512")},
            ),
        ),
    ),
    EngineFit(
        "trtllm",
        (PER_STEP, PER_SEQUENCE, PER_TOKEN, HIDDEN),
        (
            _online("trtllm", "tpot", "llama-3.1-70b", "qwen3-32b"),
            Rows(THROUGHPUT, "", {"model": ("LLaMA-3.3-70B", "Qwen3-30B-A3B")}),
        ),
    ),
    EngineFit(
        "trtllm", (REQUEST,), (_online("trtllm", "ttft", "llama-3.1-70b", "qwen3-32b", "deepseek-v3"),)
    ),
    EngineFit(
        "sglang", (PER_STEP, PER_TOKEN, HIDDEN), (_online("sglang", "tpot", "deepseek-v3", "llama-3.1-8b"),)
    ),
    # Runs of SGLang without a version wait seconds for a first token whatever the load: they say nothing
    # about a request.
    EngineFit(
        "sglang",
        (REQUEST,),
        (
            Rows(
                SILICON,
                "ttft",
                {"backend": ("sglang",), "model": ("deepseek-v3",), "backend_version": ("0.5.9",)},
            ),
        ),
    ),
)

# A chip whose kernels nobody measured for us: what whole steps of one model tell about it.
STEPS_ONLY = "mi325x"
STEPS_QUANTITIES = (
    Quantity("compute.matrix_efficiency.bf16", 0.15, 0.95),
    Quantity("memory.efficiency", 0.4, 0.95),
    Quantity("paged.memory_efficiency", 0.2, 0.95),
    Quantity("overhead.kernel", 1.0 * MICRO, 20 * MICRO),
)
STEPS_ROWS = (
    Rows(VLLM, "/decode", {"system": ("4xMI325X",), "model": ("llama-3-70b",)}),
    Rows(VLLM, "/prefill", {"system": ("4xMI325X",), "model": ("llama-3-70b",)}),
)


def chosen(rows: Rows, folder: Path) -> Table:
    """The table of the rows that count."""
    return kept_by(rows, read_table(folder, rows.file))


def kept_by(rows: Rows, table: Table) -> Table:
    """Of a file's table the rows that count."""
    keep = np.ones(len(table), bool)
    for column, values in rows.where.items():
        keep &= np.isin(table.text(column).astype(str), values)
    return table.keep(keep)


def measured(rows: Rows, table: Table) -> Points:
    """Points of the metric that counts, priced as things stand."""
    reader = reader_of(table.name)
    assert reader is not None
    found = reader(table)
    keep = of_metric(rows, found)
    columns = {
        name: getattr(found, name)[keep]
        for name in ("measured", "predicted", "group", "line", "headline", "rate", "case")
    }
    return replace(found, **columns)


def fitted_points(name: str, table: Table, found: Points) -> Array:
    """Which points of a file are of rows some fit looks at, held-out lines of them included: the others'
    models or layouts no fit has seen.
    """
    seen = np.zeros(len(found), bool)
    for rows in (*(rows for fit in FITS for rows in fit.rows), *STEPS_ROWS):
        if rows.file == name:
            lines = kept_by(rows, table).lines
            seen |= np.isin(found.line, lines) & of_metric(rows, found)
    return seen


def of_metric(rows: Rows, found: Points) -> Array:
    """Which points are of the metric that counts."""
    return np.array([g.startswith(rows.metric) or g.endswith(rows.metric) for g in found.group], bool)


def errors(rows: tuple[Rows, ...], tables: list[Table], fitted: bool) -> Array:
    """Logarithm of predicted over measured time of the rows that are fitted, or of those held out."""
    found = []
    for part, table in zip(rows, tables, strict=True):
        keep = (table.lines % HELD_OUT != 0) == fitted
        if keep.any():
            p = measured(part, table.keep(keep))
            found.append(np.where(p.rate, -1.0, 1.0) * np.log(np.maximum(p.predicted, 1e-12) / p.measured))
    return np.concatenate(found) if found else np.zeros(0)


def _solve(quantities: tuple[Quantity, ...], start: Array, residual: Any) -> Array:
    """Values that fit best, in logarithms: all quantities are positive, their sizes decades apart."""
    from scipy.optimize import least_squares

    low, high = np.log([q.low for q in quantities]), np.log([q.high for q in quantities])
    inside = np.clip(np.log(np.maximum(start, 1e-12)), low + 1e-3, high - 1e-3)
    found = least_squares(
        lambda x: residual(np.exp(x)),
        inside,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=ROBUST,
        diff_step=STEP,
        max_nfev=FEW_EVALUATIONS,
    )
    values: Array = np.exp(found.x)
    return values


def _mean_error(logs: Array) -> float:
    return float(np.mean(np.abs(np.expm1(logs)))) if len(logs) else float("nan")


def fit_engine(fit: EngineFit, made: Engine, folder: Path) -> tuple[Engine, Fitted]:
    """One fit of an engine: it with its new quantities, rounded to the digits they deserve, and what they
    rest on.
    """
    tables = [chosen(rows, folder) for rows in fit.rows]

    def changed(values: Array) -> Engine:
        new: Engine = override(
            made, {q.path: float(v) for q, v in zip(fit.quantities, values, strict=True)}, "engine"
        )[0]
        return new

    def logs(by: Engine, fitted: bool) -> Array:
        with engines_in_place(by):
            return errors(fit.rows, tables, fitted)

    start = np.array([float(value_at(made, q.path)) for q in fit.quantities])
    values = _solve(fit.quantities, start, lambda v: logs(changed(v), True))
    new = changed(np.array([float(f"{v:.3g}") for v in values]))
    count, held = (len(logs(made, fitted)) for fitted in (True, False))
    before, after = (_mean_error(logs(by, False)) for by in (made, new))
    found = {q.path: float(value_at(new, q.path)) for q in fit.quantities}
    return new, Fitted(fit.engine, found, count, held, before, after, tuple(r.name for r in fit.rows))


def fit_engines(folder: Path | str, only: tuple[str, ...] = ()) -> tuple[dict[str, Engine], list[Fitted]]:
    """All fits in order: the engines with their new quantities, and what each fit rests on."""
    made: dict[str, Engine] = {}
    outcomes = []
    for fit in FITS:
        if only and fit.engine not in only:
            continue
        made[fit.engine], outcome = fit_engine(
            fit, made.get(fit.engine) or named_engine(fit.engine), Path(folder)
        )
        outcomes.append(outcome)
    return made, outcomes


def fit_from_steps(folder: Path | str) -> tuple[Chip, Fitted]:
    """The chip without measured kernels, fitted to whole steps."""
    made = named_chip(STEPS_ONLY)
    tables = [chosen(rows, Path(folder)) for rows in STEPS_ROWS]

    def changed(values: Array) -> Chip:
        new: Chip = override(
            made, {q.path: float(v) for q, v in zip(STEPS_QUANTITIES, values, strict=True)}, "chip"
        )[0]
        return new

    def logs(chip: Chip, fitted: bool) -> Array:
        with substituted(chip):
            return errors(STEPS_ROWS, tables, fitted)

    start = np.array([float(value_at(made, q.path)) for q in STEPS_QUANTITIES])
    values = np.array(
        [float(f"{v:.3g}") for v in _solve(STEPS_QUANTITIES, start, lambda v: logs(changed(v), True))]
    )
    count, held = (len(logs(made, fitted)) for fitted in (True, False))
    before, after = (_mean_error(logs(chip, False)) for chip in (made, changed(values)))
    found = {q.path: float(v) for q, v in zip(STEPS_QUANTITIES, values, strict=True)}
    return changed(values), Fitted(
        STEPS_ONLY, found, count, held, before, after, tuple(r.name for r in STEPS_ROWS)
    )


def source_of(outcome: Fitted, date: str) -> str:
    """What a fitted quantity rests on, in words."""
    return (
        f"fitted: {' and '.join(outcome.files)}, two thirds of them ({outcome.rows}), {date or 'undated'}; "
        f"mean error of the held-out third ({outcome.held_out} rows) {outcome.after:.1%}"
    )


def noted(text: str, outcome: Fitted, owner: Any, date: str) -> str:
    """An engine's file with fitted quantities in place of what stood there."""
    for path, value in outcome.values.items():
        unit = leaf_paths(owner)[path]["unit"]
        shown = f"{value:.3g}" if unit == "1" else f'"{show(value, unit, 3)}"'
        text, count = re.subn(
            rf"(?m)^{re.escape(path)} = .*$",
            f'{path} = {{ value = {shown}, source = "{source_of(outcome, date)}" }}',
            text,
        )
        assert count == 1, f"{outcome.family}: one line must say {path}"
    return text


def write_engines(folder: Path, date: str) -> list[Fitted]:
    """Fit every engine to the rows below the folder, and the chip that has only steps, and write what was
    found.
    """
    overlay = data_folder("calibration") / f"{STEPS_ONLY}.toml"
    # a fit starts from the data sheet and what we assumed, not from the last fit
    overlay.unlink(missing_ok=True)
    forget()
    made, outcomes = fit_engines(folder)
    for outcome in outcomes:
        file = data_folder("engine") / f"{outcome.family}.toml"
        file.write_text(
            noted(file.read_text(encoding="utf-8"), outcome, made[outcome.family], date), encoding="utf-8"
        )
    with engines_in_place(*made.values()):
        chip, outcome = fit_from_steps(folder)
    overlay.write_text(_overlay(chip, outcome, date), encoding="utf-8")
    return [*outcomes, outcome]


def _overlay(chip: Chip, outcome: Fitted, date: str) -> str:
    """A chip's fitted quantities as a file to lay over its own."""
    sections: dict[str, list[str]] = {}
    for path, value in outcome.values.items():
        section, key = path.rsplit(".", 1)
        unit = leaf_paths(chip)[path]["unit"]
        shown = f"{value:.3g}" if unit == "1" else f'"{show(value, unit, 3)}"'
        sections.setdefault(section, []).append(
            f'{key} = {{ value = {shown}, source = "{source_of(outcome, date)}" }}'
        )
    head = "# Laid over the chip's own file. Written by `python -m strata.validation.fitted`.\n\n"
    return head + "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())
