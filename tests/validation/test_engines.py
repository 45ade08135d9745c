"""Engines: host time obeys its laws, fits find what made the data and give the shipped numbers again, and held-out runs are met."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.mapping.engine import engine
from strata.validation import serving
from strata.validation.datasets import HELD_OUT, held_out, read_table
from strata.validation.engines import FITS, STEPS_ONLY, STEPS_QUANTITIES, EngineFit, Rows, chosen, fit_engine, noted

DATA = Path(__file__).parents[2] / "validation"
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


def step_of(by, batch=64.0, plan="tp=8", model="llama-3-8b", system="8xh200"):
    return st.evaluate(system, model, st.decode(batch=batch, context=2048), plan, by).metrics.step_time


def test_host_time_is_what_the_engine_says():
    bare = engine("vllm", step=0.0, sequence=0.0, stream=0.0)
    for changes, expected in (({"step": 1e-3}, 1e-3), ({"sequence": 1e-5}, 64e-5), ({"stream": 2e-5}, 128e-5)):
        assert step_of(replace(bare, **changes)) - step_of(bare) == pytest.approx(expected, rel=1e-6)
    # Each attention rank schedules its own sequences.
    apart = [step_of(replace(bare, sequence=s), plan="dp=8") for s in (0.0, 1e-5)]
    assert apart[1] - apart[0] == pytest.approx(8e-5, rel=1e-6)


def test_only_sparse_attention_breaks_captured_graphs():
    for model, layers in (("deepseek-v3", 0), ("deepseek-v3.2", 61)):
        quick, slow = (step_of(engine("vllm", uncaptured=u), plan="tp=8,ep=8", model=model) for u in (0.0, 1e-4))
        assert slow - quick == pytest.approx(layers * 1e-4, rel=1e-6, abs=1e-12)
    eager = [step_of(engine("vllm", graphs=0.0, uncaptured=u), plan="tp=8,ep=8", model="deepseek-v3.2") for u in (0.0, 1e-4)]
    assert eager[0] == eager[1]  # nothing captured, nothing to break


def test_prefetching_helps_small_steps_and_only_with_graphs():
    narrow = {"batch": 1.0, "model": st.model("llama-3-70b", weights="fp4"), "system": "8xb200"}
    times = [step_of(engine("vllm", prefetched=p), **narrow) for p in (0.0, 0.3, 0.6)]
    assert times[0] > times[1] > times[2]
    eager = [step_of(engine("vllm", graphs=0.0, prefetched=p), **narrow) for p in (0.0, 0.6)]
    assert eager[0] == eager[1]


def test_a_cache_in_blocks_holds_whole_blocks():
    used = [
        st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64.0, context=1000.0), "tp=8", engine("vllm", page=float(page))).metrics.memory_used
        for page in (1, 16, 1000, 1024)
    ]
    assert used[0] == used[2] < used[1] < used[3]


def test_engines_state_their_limits_and_what_fitted_numbers_rest_on():
    for name in SERVERS:
        made = engine(name)
        assert 2048 <= made.tokens <= 65536 and 64 <= made.sequences <= 8192 and 1 <= made.page <= 128
        for path in {q.path for fit in FITS if fit.engine == name for q in fit.quantities}:
            source = made.sources[path].source
            assert source.startswith("fitted: serving/") and "held-out third" in source, (name, path)
    assert all(float(getattr(engine("ideal"), field)) == 0.0 for field in ("step", "sequence", "stream", "request", "prefetched"))
    overlaid = st.chip(STEPS_ONLY).sources
    assert all(overlaid[q.path].source.startswith("fitted: serving/vllm.csv") for q in STEPS_QUANTITIES)


def write_steps(folder, by, rows=24):
    """Decode rates of a model at many batches, from our own equations with another engine."""
    batch = np.round(np.geomspace(1.0, 512.0, rows))
    (folder / "serving").mkdir()
    path = folder / "serving" / "vllm.csv"

    def write(rates):
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(COLUMNS)
            writer.writerows(["8xB200", "llama-3-70b", "vllm", "bf16", 8, 1, b, 1024, 1024, 0, r, r] for b, r in zip(batch, rates, strict=True))

    write(np.ones(rows))
    with serving.engines_in_place(by):
        found = serving.vllm(read_table(folder, "serving/vllm.csv"))
    write(found.predicted[:rows] * np.exp(np.random.default_rng(1).normal(0.0, 0.005, rows)))


def test_a_fit_finds_the_engine_behind_the_data(tmp_path):
    truth = engine("vllm", step=7e-4, sequence=8e-6)
    write_steps(tmp_path, truth)
    quantities = tuple(q for q in FITS[0].quantities if q.path in ("step", "sequence"))
    fit = EngineFit("vllm", quantities, (Rows("serving/vllm.csv", "/decode", {"model": ("llama-3-70b",)}),))
    made, outcome = fit_engine(fit, engine("vllm", step=2e-4, sequence=2e-6), tmp_path)
    assert outcome.after < 0.01 < outcome.before and outcome.rows == 16 and outcome.held_out == 8
    assert made.step == pytest.approx(7e-4, rel=0.1) and made.sequence == pytest.approx(8e-6, rel=0.1)
    text = noted('step = { value = "1 s", source = "x" }\nsequence = { value = "1 s", source = "x" }\n', outcome, made, "2026-01-01")
    assert text.count("fitted: serving/vllm.csv (decode of llama-3-70b), two thirds of them (16), 2026-01-01") == 2


@pytest.mark.parametrize("path", ["uncaptured", "launches"])
def test_a_fit_gives_the_shipped_number_again(path):
    fit = next(fit for fit in FITS if [q.path for q in fit.quantities] == [path])
    shipped = engine(fit.engine)
    again, _ = fit_engine(fit, replace(shipped, **{path: 1.5 * getattr(shipped, path)}), DATA)
    assert getattr(again, path) == pytest.approx(getattr(shipped, path), rel=0.1)


def test_no_fit_sees_a_held_out_line_and_every_fit_has_rows():
    for fit in FITS:
        for rows in fit.rows:
            table = chosen(rows, DATA)
            assert len(table) >= 9 and np.any(table.lines % HELD_OUT == 0), rows.name


def mean_error(found):
    return float(np.mean(np.abs(found.predicted / found.measured - 1.0)))


def picked(found, keep):
    columns = {name: getattr(found, name)[keep] for name in ("measured", "predicted", "group", "line", "headline", "rate", "case")}
    return replace(found, **columns)


def test_tokens_of_servers_that_were_held_out():
    found = held_out(serving.silicon(read_table(DATA, "serving/silicon.csv")))
    tpot = picked(found, np.array([g.startswith("tpot") for g in found.group]))
    assert mean_error(tpot) < 0.20 and np.median(np.abs(tpot.predicted / tpot.measured - 1.0)) < 0.12
    ttft = picked(found, np.array([g.startswith("ttft") for g in found.group]))
    assert np.median(np.abs(ttft.predicted / ttft.measured - 1.0)) < 0.36


def test_decode_of_models_vllm_was_not_fitted_to():
    found = serving.vllm(read_table(DATA, "serving/vllm.csv"))
    unseen = np.array([g.endswith("/decode") and "deepseek" in g for g in found.group])
    assert unseen.sum() == 28 and mean_error(picked(found, unseen)) < 0.10


def test_throughput_and_vendor_pages():
    throughput = serving.max_throughput(read_table(DATA, "serving/trtllm_max_throughput.csv"))
    assert mean_error(throughput) < 0.20
    for reader, name in ((serving.nemo, "llama2_a100_nemo"), (serving.nim, "llama33_70b_8xa100_nim"), (serving.koyeb, "llama31_8b_a100_koyeb")):
        found = reader(read_table(DATA, f"serving/{name}.csv"))
        assert mean_error(picked(found, found.headline.astype(bool))) < 0.15, name
