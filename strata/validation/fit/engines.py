"""A few physically named quantities of serving engines, fitted to named rows of measured runs and written
with what they rest on.

Rows of whole models are left out, and every third line of the models that are fitted: only those say how good
a fit is. Kernels are not fitted here; they come from a chip's own calibration and from bare kernels. What an
engine's kernels lose on another platform than they were measured on is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine
from strata.validation.fit.families import MICRO, Quantity
from strata.validation.fit.solver import (
    FitOutcome,
    FitProblem,
    FitSearch,
    outcome_of,
    solve_fit,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.registry import reader_of
from strata.validation.readers.tables import Table, read_table

SILICON, VLLM, THROUGHPUT = "serving/silicon.csv", "serving/vllm.csv", "serving/trtllm_max_throughput.csv"
# Quantities of engines are almost linear, and each evaluation prices every row.
SEARCH = FitSearch(tries=((0.05,),), robust=0.05, evaluations=12)
R = TypeVar("R", Engine, Chip)


@dataclass(frozen=True)
class FittedRows:
    """Rows of a file whose columns hold one of some values, and the metric of theirs that counts: how its
    groups begin or end.
    """

    file: str
    metric: str
    columns: dict[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """The rows in words."""
        named = ("system", "backend", "model")
        values = [
            v if column in named else f"{column} {v}"
            for column, values in self.columns.items()
            for v in values
        ]
        return f"{self.file} ({self.metric.strip('/') or 'tokens/s'} of {', '.join(values)})"

    def of(self, table: Table) -> Table:
        """Of the file's table the rows that count."""
        keep = np.ones(len(table), bool)
        for column, values in self.columns.items():
            keep &= np.isin(table.text(column).astype(str), values)
        return table.keep(keep)

    def read(self, folder: Path) -> Table:
        """The table of the rows that count."""
        return self.of(read_table(folder, self.file))

    def counts(self, points: ComparedPoints) -> Array:
        """Which points are of the metric that counts."""
        named = (g.startswith(self.metric) or g.endswith(self.metric) for g in points.group)
        return np.fromiter(named, bool, len(points))


@dataclass(frozen=True)
class EngineFit:
    """What some rows tell about an engine. Fits of one engine run in order, each with what those before it
    found.
    """

    engine: str
    quantities: tuple[Quantity, ...]
    rows: tuple[FittedRows, ...]


def _online(name: str, metric: str, *models: str, **columns: tuple[str, ...]) -> FittedRows:
    return FittedRows(SILICON, metric, {"backend": (name,), "model": models, **columns})


def _long_prompts(name: str, model: str) -> tuple[FittedRows, ...]:
    """First tokens and token times of prompts of 8k, which both tell what reading one takes."""
    return tuple(_online(name, metric, model, isl=("8192",)) for metric in ("ttft", "tpot"))


PER_STEP = Quantity("step", 20 * MICRO, 4000 * MICRO)
PER_SEQUENCE = Quantity("sequence", 0.5 * MICRO, 20 * MICRO)
PER_TOKEN = Quantity("stream", 0.5 * MICRO, 100 * MICRO)
HIDDEN = Quantity("pdl_overlap", 0.01, 0.7)
REQUEST = Quantity("request", 1000 * MICRO, 1.0)
TOKENIZE = Quantity("tokenize", 0.2 * MICRO, 20 * MICRO)
PROMPT_BLOCK = Quantity("prompt_block", 50 * MICRO, 2000 * MICRO)
EXPERT_LAYER = Quantity("expert_layer", 100 * MICRO, 10000 * MICRO)
WIDENED = Quantity("weight_only_work", 0.1, 1.0)
EXPERTS = Quantity("expert_launches", 1.0, 500.0)
BETWEEN_STEPS = Quantity("gap", 20 * MICRO, 2000 * MICRO)
WEIGHT_ONLY = Quantity("weight_only_rate", 0.3, 1.2)

FITS = (
    EngineFit(
        "vllm",
        (PER_STEP, PER_SEQUENCE, HIDDEN),
        (
            _online("vllm", "tpot", "llama-3.1-70b"),
            FittedRows(VLLM, "/decode", {"system": ("8xB200",), "model": ("llama-3-70b",), "eager": ("0",)}),
        ),
    ),
    # Runs whose host did not schedule ahead, of a small model: what a token sent adds to a step.
    EngineFit("vllm", (PER_TOKEN,), (_online("vllm", "tpot", "llama-3.1-8b"),)),
    EngineFit("vllm", (BETWEEN_STEPS, WEIGHT_ONLY), (_online("vllm", "tpot", "gpt-oss-120b"),)),
    EngineFit(
        "vllm",
        (Quantity("launches", 1.0, 20.0),),
        (FittedRows(VLLM, "/decode/eager", {"model": ("llama-3-70b",), "eager": ("1",)}),),
    ),
    EngineFit(
        "vllm", (EXPERTS,), (FittedRows(VLLM, "/decode/eager", {"model": ("deepseek-v3",), "eager": ("1",)}),)
    ),
    # Long prompts: products of experts with tiles full of rows.
    EngineFit("vllm", (WIDENED,), _long_prompts("vllm", "gpt-oss-120b")),
    EngineFit(
        "vllm",
        (REQUEST, TOKENIZE, PROMPT_BLOCK),
        (_online("vllm", "ttft", "llama-3.1-70b", "llama-3.1-8b", "gpt-oss-120b"),),
    ),
    EngineFit(
        "vllm",
        (Quantity("graph_break_time", 5 * MICRO, 1000 * MICRO),),
        (FittedRows(VLLM, "/decode", {"model": ("deepseek-v3.2",), "input_tokens": ("1024",)}),),
    ),
    # smaller are noisy
    EngineFit(
        "vllm",
        (Quantity("expert_rate.fp8_block", 0.1, 1.0),),
        (
            FittedRows(
                VLLM,
                "/prefill",
                {"model": ("deepseek-v3",), "eager": ("0",), "batch": ("32", "64", "128", "256", "512")},
            ),
        ),
    ),
    # The only steps of an engine on ROCm: what its kernels lose there against the chip's own.
    EngineFit(
        "vllm",
        (Quantity("product_rate.rocm", 0.1, 1.0),),
        (
            FittedRows(VLLM, "/decode", {"system": ("4xMI325X",), "model": ("llama-3-70b",)}),
            FittedRows(VLLM, "/prefill", {"system": ("4xMI325X",), "model": ("llama-3-70b",)}),
        ),
    ),
    EngineFit(
        "trtllm",
        (PER_STEP, PER_SEQUENCE, PER_TOKEN, HIDDEN),
        (
            _online("trtllm", "tpot", "llama-3.1-70b", "qwen3-32b"),
            FittedRows(THROUGHPUT, "", {"model": ("LLaMA-3.3-70B", "Qwen3-30B-A3B")}),
        ),
    ),
    EngineFit("trtllm", (WEIGHT_ONLY,), (_online("trtllm", "tpot", "gpt-oss-120b"),)),
    EngineFit("trtllm", (WIDENED,), _long_prompts("trtllm", "gpt-oss-120b")),
    EngineFit(
        "trtllm",
        (REQUEST, TOKENIZE, EXPERT_LAYER),
        (_online("trtllm", "ttft", "llama-3.1-70b", "qwen3-32b", "deepseek-v3", "gpt-oss-120b"),),
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
            FittedRows(
                SILICON,
                "ttft",
                {"backend": ("sglang",), "model": ("deepseek-v3",), "backend_version": ("0.5.9",)},
            ),
        ),
    ),
)


def fit_engine(
    fit: EngineFit, engine: Engine, folder: Path, *, catalogue: Catalogue | None = None, date: str = ""
) -> tuple[Engine, FitOutcome]:
    """One fit of an engine: it with its new quantities, rounded to the digits they deserve, and what they
    rest on.
    """
    names = catalogue or Catalogue()
    problem = FitProblem(
        record=engine,
        kind="engine",
        quantities=fit.quantities,
        predict=_predictor(fit.rows, folder, names.with_engine),
        search=SEARCH,
    )
    solution = solve_fit(problem)
    return solution.record, outcome_of(solution, fit.engine, [r.name for r in fit.rows], date)


def fit_engines(
    folder: Path | str, only: tuple[str, ...] = (), *, catalogue: Catalogue | None = None, date: str = ""
) -> tuple[dict[str, Engine], list[FitOutcome]]:
    """All fits in order: the engines with their new quantities, and what each fit rests on."""
    names = catalogue or Catalogue()
    engines: dict[str, Engine] = {}
    outcomes = []
    for fit in FITS:
        if only and fit.engine not in only:
            continue
        start = engines.get(fit.engine) or names.engine(fit.engine)
        engines[fit.engine], outcome = fit_engine(fit, start, Path(folder), catalogue=names, date=date)
        outcomes.append(outcome)
    return engines, outcomes


def _predictor(
    rows: tuple[FittedRows, ...], folder: Path, catalogue_with: Callable[[R], Catalogue]
) -> Callable[[R], list[ComparedPoints]]:
    """How a version of an engine or of a chip predicts the metric of the rows that count."""
    tables = [part.read(folder) for part in rows]

    def predict(version: R) -> list[ComparedPoints]:
        catalogue = catalogue_with(version)
        predicted = []
        for part, table in zip(rows, tables, strict=True):
            reader = reader_of(table.name, catalogue)
            assert reader is not None
            points = reader(table, catalogue)
            predicted.append(points.keep(part.counts(points)))
        return predicted

    return predict


def seen_by_fits(name: str, table: Table, points: ComparedPoints) -> Array:
    """Which points of a file are of rows some fit looks at, held-out lines of them included: the others'
    models or layouts no fit has seen.
    """
    seen = np.zeros(len(points), bool)
    for rows in (rows for fit in FITS for rows in fit.rows):
        if rows.file == name:
            seen |= np.isin(points.line, rows.of(table).lines) & rows.counts(points)
    return seen
