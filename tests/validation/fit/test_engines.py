"""Fits of engines find what made the data and give the shipped numbers again."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strata.mapping.engine import engine
from strata.validation.fit.engines import (
    FITS,
    EngineFit,
    FittedRows,
    fit_engine,
)
from strata.validation.fit.overlay import written_into
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import HELD_OUT
from strata.validation.readers.serving_offline import vllm_batches
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
SERVERS = ("vllm", "sglang", "trtllm")
COLUMNS = [
    "system",
    "model",
    "engine",
    "precision",
    "tp",
    "ep",
    "batch",
    "input_tokens",
    "output_tokens",
    "eager",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
]


def test_engines_state_their_limits_and_what_fitted_numbers_rest_on():
    for name in SERVERS:
        made = engine(name)
        assert 2048 <= made.tokens <= 65536 and 64 <= made.sequences <= 8192 and 1 <= made.page <= 128
        for path in {q.path for fit in FITS if fit.engine == name for q in fit.quantities}:
            source = made.sources[path].source
            assert source.startswith("fitted: serving/") and "held-out third" in source, (name, path)
    assert all(
        float(getattr(engine("ideal"), field)) == 0.0
        for field in ("step", "sequence", "stream", "request", "pdl_overlap")
    )


def write_steps(folder, by, rows=24):
    """Decode rates of a model at many batches, from our own equations with another engine."""
    batch = np.round(np.geomspace(1.0, 512.0, rows))
    (folder / "serving").mkdir()
    path = folder / "serving" / "vllm.csv"

    def write(rates):
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(COLUMNS)
            writer.writerows(
                ["8xB200", "llama-3-70b", "vllm", "bf16", 8, 1, b, 1024, 1024, 0, r, r]
                for b, r in zip(batch, rates, strict=True)
            )

    write(np.ones(rows))
    found = vllm_batches(read_table(folder, "serving/vllm.csv"), Catalogue().with_engine(by))
    write(found.predicted[:rows] * np.exp(np.random.default_rng(1).normal(0.0, 0.005, rows)))


def test_a_fit_finds_the_engine_behind_the_data(tmp_path):
    truth = engine("vllm", step=7e-4, sequence=8e-6)
    write_steps(tmp_path, truth)
    quantities = tuple(q for q in FITS[0].quantities if q.path in ("step", "sequence"))
    fit = EngineFit(
        "vllm", quantities, (FittedRows("serving/vllm.csv", "/decode", {"model": ("llama-3-70b",)}),)
    )
    start = engine("vllm", step=2e-4, sequence=2e-6)
    made, outcome = fit_engine(fit, start, tmp_path, date="2026-01-01")
    assert outcome.after < 0.01 < outcome.before and outcome.rows == 16 and outcome.held_out == 8
    assert made.step == pytest.approx(7e-4, rel=0.1) and made.sequence == pytest.approx(8e-6, rel=0.1)
    lines = 'step = { value = "1 s", source = "x" }\nsequence = { value = "1 s", source = "x" }\n'
    text = written_into(lines, made, [outcome])
    assert (
        text.count("fitted: serving/vllm.csv (decode of llama-3-70b), two thirds of them (16), 2026-01-01")
        == 2
    )


@pytest.mark.parametrize("path", ["graph_break_time", "launches"])
def test_a_fit_gives_the_shipped_number_again(path):
    fit = next(fit for fit in FITS if [q.path for q in fit.quantities] == [path])
    shipped = engine(fit.engine)
    again, _ = fit_engine(fit, replace(shipped, **{path: 1.5 * getattr(shipped, path)}), DATA)
    assert getattr(again, path) == pytest.approx(getattr(shipped, path), rel=0.1)


def test_no_fit_sees_a_held_out_line_and_every_fit_has_rows():
    for fit in FITS:
        for rows in fit.rows:
            table = rows.read(DATA)
            assert len(table) >= 5 and np.any(table.lines % HELD_OUT == 0), rows.name
