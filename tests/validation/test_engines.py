"""Engines: host time obeys its laws, fits find what made the data and give the shipped numbers again, and
held-out runs are met.
"""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.mapping.engine import engine
from strata.validation import runs, serving
from strata.validation.datasets import HELD_OUT, held_out, read_table
from strata.validation.engines import (
    FITS,
    STEPS_ONLY,
    STEPS_QUANTITIES,
    EngineFit,
    Rows,
    chosen,
    fit_engine,
    fitted_points,
    noted,
)
from strata.validation.unseen import unseen_models

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
    for changes, expected in (
        ({"step": 1e-3}, 1e-3),
        ({"sequence": 1e-5}, 64e-5),
        ({"stream": 2e-5}, 128e-5),
    ):
        assert step_of(replace(bare, **changes)) - step_of(bare) == pytest.approx(expected, rel=1e-6)
    # Each attention rank schedules its own sequences.
    apart = [step_of(replace(bare, sequence=s), plan="dp=8") for s in (0.0, 1e-5)]
    assert apart[1] - apart[0] == pytest.approx(8e-5, rel=1e-6)


def test_only_sparse_attention_breaks_captured_graphs():
    for model, layers in (("deepseek-v3", 0), ("deepseek-v3.2", 61)):
        quick, slow = (
            step_of(engine("vllm", graph_break_time=u), plan="tp=8,ep=8", model=model) for u in (0.0, 1e-4)
        )
        assert slow - quick == pytest.approx(layers * 1e-4, rel=1e-6, abs=1e-12)
    eager = [
        step_of(engine("vllm", graphs=0.0, graph_break_time=u), plan="tp=8,ep=8", model="deepseek-v3.2")
        for u in (0.0, 1e-4)
    ]
    assert eager[0] == eager[1]  # nothing captured, nothing to break


def test_prefetching_helps_small_steps_and_only_with_graphs():
    narrow = {"batch": 1.0, "model": st.model("llama-3-70b", weights="fp4"), "system": "8xb200"}
    times = [step_of(engine("vllm", pdl_overlap=p), **narrow) for p in (0.0, 0.3, 0.6)]
    assert times[0] > times[1] > times[2]
    eager = [step_of(engine("vllm", graphs=0.0, pdl_overlap=p), **narrow) for p in (0.0, 0.6)]
    assert eager[0] == eager[1]


def test_only_an_engine_with_rows_for_every_pick_pays_for_other_ranks():
    def read(by, plan, model="deepseek-v3"):
        return st.evaluate("8xb200", model, st.prefill(batch=8, length=1024), plan, by).metrics.step_time

    own, every = engine("vllm", pads_remote_experts=0.0), engine("vllm", pads_remote_experts=1.0)
    assert read(every, "tp=8,ep=8") > 1.15 * read(own, "tp=8,ep=8")
    # One rank of experts has all picks; ranks that exchange tokens see only their own; a dense model has
    # none.
    for plan, model in (
        ("tp=8,ep=1,moe_tp=8", "deepseek-v3"),
        ("dp=8,ep=8", "deepseek-v3"),
        ("tp=8", "llama-3-70b"),
    ):
        assert read(every, plan, model) == pytest.approx(read(own, plan, model), rel=1e-12), plan


def test_shared_experts_hide_beside_routed_ones_but_work_adds_up():
    plan = {"plan": "tp=8,ep=8", "model": "deepseek-v3", "system": "8xb200"}
    for batch in (1.0, 16.0, 256.0):
        one, two = (
            step_of(engine("trtllm", shared_expert_stream=s), batch=batch, **plan) for s in (0.0, 1.0)
        )
        assert 0.85 * one < two < one, batch
    one, two = (step_of(engine("trtllm", shared_expert_stream=s), model="llama-3-70b") for s in (0.0, 1.0))
    assert one == two


def test_only_steps_that_read_prompts_miss_their_graphs():
    def times(by):
        short = st.evaluate(
            "8xh200", "llama-3-70b", st.prefill(batch=1, length=64), "tp=8", by
        ).metrics.step_time
        return short, step_of(by, model="llama-3-70b")

    held, launched = (times(engine("vllm", prompt_graphs=g)) for g in (1.0, 0.0))
    assert launched[0] > 1.5 * held[0] and launched[1] == held[1]
    assert (
        times(engine("vllm", graphs=0.0, prompt_graphs=1.0))[0]
        == times(engine("vllm", graphs=0.0, prompt_graphs=0.0))[0]
    )


def test_experts_are_slower_only_in_the_format_an_engine_says():
    def read(rate, model):
        by = replace(engine("vllm"), expert_rate=rate)
        return st.evaluate(
            "8xb200", model, st.prefill(batch=8, length=1024), "tp=8,ep=8", by
        ).metrics.step_time

    wide = st.model("deepseek-v3", weights="bf16", expert_weights="bf16")
    assert read({"fp8_block": 0.5}, "deepseek-v3") > 1.05 * read(None, "deepseek-v3")
    assert read({"fp8_block": 0.5}, wide) == read(None, wide)


def test_verifying_a_few_guesses_costs_little_more_than_a_step():
    plain, guessed = (
        st.evaluate(
            "8xb200", "deepseek-v3", st.decode(batch=256, context=1500, tokens=t), "dp=8,ep=8", "trtllm"
        ).metrics.step_time
        for t in (1, 2)
    )
    assert plain < guessed < 1.5 * plain


def test_a_cache_in_blocks_holds_whole_blocks():
    used = [
        st.evaluate(
            "8xh200",
            "llama-3-70b",
            st.decode(batch=64.0, context=1000.0),
            "tp=8",
            engine("vllm", page=float(page)),
        ).metrics.memory_used
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
    assert all(
        float(getattr(engine("ideal"), field)) == 0.0
        for field in ("step", "sequence", "stream", "request", "pdl_overlap")
    )
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
            writer.writerows(
                ["8xB200", "llama-3-70b", "vllm", "bf16", 8, 1, b, 1024, 1024, 0, r, r]
                for b, r in zip(batch, rates, strict=True)
            )

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
    text = noted(
        'step = { value = "1 s", source = "x" }\nsequence = { value = "1 s", source = "x" }\n',
        outcome,
        made,
        "2026-01-01",
    )
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
            table = chosen(rows, DATA)
            assert len(table) >= 5 and np.any(table.lines % HELD_OUT == 0), rows.name


def mean_error(found):
    return float(np.mean(np.abs(found.predicted / found.measured - 1.0)))


def picked(found, keep):
    columns = {
        name: getattr(found, name)[keep]
        for name in ("measured", "predicted", "group", "line", "headline", "rate", "case")
    }
    return replace(found, **columns)


def test_tokens_of_servers_that_were_held_out():
    found = held_out(serving.silicon(read_table(DATA, "serving/silicon.csv")))
    tpot = picked(found, np.array([g.startswith("tpot") for g in found.group]))
    assert mean_error(tpot) < 0.20 and np.median(np.abs(tpot.predicted / tpot.measured - 1.0)) < 0.12
    ttft = picked(found, np.array([g.startswith("ttft") for g in found.group]))
    assert np.median(np.abs(ttft.predicted / ttft.measured - 1.0)) < 0.30


def test_what_a_file_does_not_say_of_its_runs_is_known_by_version_and_lengths():
    table = read_table(DATA, "serving/silicon.csv")

    def of(backend, chip, keep, predicts=True):
        rows = table.keep((table.text("backend") == backend) & (table.text("system") == chip) & keep)
        assert len(rows)
        return rows, runs.conditions(rows, chip, backend, predicts)

    guessing = table.text("backend_version") == "1.2.0rc6.post3"
    rows, found = of("trtllm", "b200_sxm", guessing)
    assert np.array_equal(found.guesses, np.where(runs.degree(rows, "attention_dp_size") > 1, 1.0, 3.0))
    assert (
        not of("trtllm", "b200_sxm", ~guessing)[1].guesses.any()
        and not of("trtllm", "b200_sxm", guessing, False)[1].guesses.any()
    )
    rows, found = of("sglang", "b200_sxm", table.text("mode") == "agg")
    assert set(zip(rows.number("conc") >= 16, found.polled, strict=True)) == {(True, 30.0), (False, 10.0)}
    assert set(found.first[rows.text("backend_version") != ""]) == {0.0}
    assert set(of("sglang", "h200_sxm", table.text("mode") == "agg")[1].polled) == {1.0}
    _, kept = of("vllm", "h200_sxm", np.ones(len(table), bool))
    assert np.all(kept.fresh < 1) and np.all(kept.input >= 1000)
    _, drawn = of("vllm", "b200_sxm", np.ones(len(table), bool))
    assert np.all(drawn.fresh == 1) and set(drawn.input) == {0.9 * 1024, 0.9 * 8192}


def test_waits_of_a_closed_loop():
    one = np.ones(1)
    run = runs.plain_run(1000.0 * one, 100.0 * one)
    times = runs.Times(0.01 * one, 0.01 * one, 0.05 * one, 0.05 * one)
    by = engine("ideal")

    def seen(clients, made=run, slots=None):
        running = clients if slots is None else np.minimum(clients, slots)
        return [float(v[0]) for v in runs.client_times(times, clients * one, running * one, one, made, by)]

    # alone: the prompt, half a step, and nobody's prompts
    assert seen(1.0) == pytest.approx([0.05 + 0.005, 0.01])
    assert seen(21.0)[1] == pytest.approx(0.01 + 20 * 0.05 / 100)
    assert seen(21.0, replace(run, fresh=0.5 * one))[1] == pytest.approx(0.01 + 10 * 0.05 / 100)
    assert seen(21.0, replace(run, polled=30.0 * one, burst=4.0 * one))[0] > seen(21.0)[0] + 0.14
    assert seen(21.0, replace(run, first=10.0 * one))[0] == pytest.approx(seen(21.0)[0] + 10.0 / runs.ROUNDS)
    assert seen(42.0, slots=21.0)[0] == pytest.approx(2 * seen(21.0)[0] + 100 * seen(21.0)[1])


def test_the_closed_loop_of_rows_agrees_with_the_products():
    table = read_table(DATA, "serving/silicon.csv")
    rows = table.keep(
        (table.text("backend") == "vllm")
        & (table.text("model") == "llama-3.1-70b")
        & (table.text("system") == "h100_sxm")
    )
    rows = rows.keep(np.arange(len(rows)) % 9 == 0)
    found = serving.silicon(rows)
    run = runs.conditions(rows, "h100_sxm", "vllm", False)
    for i in range(len(rows)):
        tp, clients = float(runs.degree(rows, "tp_size")[i]), float(rows.number("conc")[i])
        asked = st.Requests(float(run.input[i]), float(run.output[i]))
        made = st.curve(
            f"{int(tp)}xh100",
            serving.quantised("llama-3.1-70b", "fp8", "fp8"),
            asked,
            st.plan(tp=tp),
            "vllm",
            sequences=clients,
        )
        seen = st.closed_load(made, clients, rounds=runs.ROUNDS)
        assert float(seen.tpot[0, 0]) == pytest.approx(found.predicted[len(rows) + i], rel=0.1)


def test_models_no_fit_has_seen_are_told_apart():
    table = read_table(DATA, "serving/silicon.csv")
    found = serving.silicon(table)
    seen = fitted_points(table.name, table, found)
    told = {
        (g.split("/")[0], g.split("/")[2], g.split("/")[3])
        for g, s in zip(found.group, seen, strict=True)
        if not s
    }
    assert {
        ("tpot", "trtllm", "deepseek-v3"),
        ("tpot", "vllm", "llama-3.1-8b"),
        ("ttft", "vllm", "llama-3.1-8b"),
    } <= told
    assert not told & {
        ("tpot", "vllm", "llama-3.1-70b"),
        ("tpot", "sglang", "deepseek-v3"),
        ("ttft", "trtllm", "deepseek-v3"),
    }
    for row in unseen_models(table, found):
        assert row["unseen"]["points"] > row["never"]["points"] > 0
        if row["metric"] == "tpot":
            assert (
                row["never"]["mape"] < 0.20
                and row["unseen"]["mape"] < 0.20
                and row["unseen"]["median"] < 0.12
            )
        else:
            assert row["unseen"]["median"] < 0.30


def test_prompts_of_vllm():
    found = serving.vllm(read_table(DATA, "serving/vllm.csv"))
    assert mean_error(picked(found, np.array(["prefill" in g for g in found.group]))) < 0.20


def test_decode_of_models_vllm_was_not_fitted_to():
    found = serving.vllm(read_table(DATA, "serving/vllm.csv"))
    unseen = np.array([g.endswith("/decode") and "deepseek" in g for g in found.group])
    assert unseen.sum() == 28 and mean_error(picked(found, unseen)) < 0.10


def test_throughput_and_vendor_pages():
    throughput = serving.max_throughput(read_table(DATA, "serving/trtllm_max_throughput.csv"))
    assert mean_error(throughput) < 0.20
    for reader, name in (
        (serving.nemo, "llama2_a100_nemo"),
        (serving.nim, "llama33_70b_8xa100_nim"),
        (serving.koyeb, "llama31_8b_a100_koyeb"),
    ):
        found = reader(read_table(DATA, f"serving/{name}.csv"))
        assert mean_error(picked(found, found.headline.astype(bool))) < 0.15, name
