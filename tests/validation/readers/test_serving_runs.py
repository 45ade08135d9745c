"""Served runs that were held out are met, online and in process."""

from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.validation.readers.benchmark_conditions import parallel_degree, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import held_out
from strata.validation.readers.online_conditions import OnlineConditions, online_runs_of
from strata.validation.readers.served_models import served_model
from strata.validation.readers.serving_online import online_runs
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
CATALOGUE = Catalogue()


def mean_error(found):
    return float(np.mean(np.abs(found.predicted / found.measured - 1.0)))


def test_tokens_of_servers_that_were_held_out(own_points):
    found = held_out(own_points("serving/silicon.csv")[1])
    tpot = found.keep(np.array([g.startswith("tpot") for g in found.group]))
    assert mean_error(tpot) < 0.20 and np.median(np.abs(tpot.predicted / tpot.measured - 1.0)) < 0.12
    ttft = found.keep(np.array([g.startswith("ttft") for g in found.group]))
    assert np.median(np.abs(ttft.predicted / ttft.measured - 1.0)) < 0.30


def test_the_closed_loop_of_rows_agrees_with_the_products():
    table = read_table(DATA, "serving/silicon.csv")
    rows = table.keep(
        (table.text("backend") == "vllm")
        & (table.text("model") == "llama-3.1-70b")
        & (table.text("system") == "h100_sxm")
    )
    rows = rows.keep(np.arange(len(rows)) % 9 == 0)
    found = online_runs(rows, CATALOGUE)
    known = read_conditions(OnlineConditions, rows, "serving/silicon.toml")
    run = online_runs_of(rows, "h100_sxm", "vllm", False, known)
    for i in range(len(rows)):
        tp, clients = float(parallel_degree(rows, "tp_size")[i]), float(rows.number("conc")[i])
        asked = st.serving.Requests(float(run.input[i]), float(run.output[i]))
        made = st.serving.curve(
            f"{int(tp)}xh100",
            served_model(CATALOGUE, "llama-3.1-70b", "fp8", "fp8"),
            asked,
            st.plan(tp=tp),
            "vllm",
            sequences=clients,
        )
        seen = st.serving.closed_load(made, clients, rounds=known.drawn.rounds)
        assert float(seen.tpot[0, 0]) == pytest.approx(found.predicted[len(rows) + i], rel=0.1)


def test_prompts_of_vllm(own_points):
    _, found = own_points("serving/vllm.csv")
    assert mean_error(found.keep(np.array(["prefill" in g for g in found.group]))) < 0.20


def test_decode_of_models_vllm_was_not_fitted_to(own_points):
    _, found = own_points("serving/vllm.csv")
    unseen = np.array([g.endswith("/decode") and "deepseek" in g for g in found.group])
    assert unseen.sum() == 28 and mean_error(found.keep(unseen)) < 0.10


def test_throughput_and_vendor_pages(own_points):
    assert mean_error(own_points("serving/trtllm_max_throughput.csv")[1]) < 0.20
    for name in ("llama2_a100_nemo", "llama33_70b_8xa100_nim", "llama31_8b_a100_koyeb"):
        _, found = own_points(f"serving/{name}.csv")
        assert mean_error(found.keep(found.headline.astype(bool))) < 0.15, name
