"""Releases of engines: which one a run has, and what it takes; pools in a closed loop."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strata.errors import BadValue
from strata.hardware.chip import chip
from strata.mapping.plan import plan
from strata.validation.readers import serving_inferencex
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.closed_loop import EngineTimes
from strata.validation.readers.engine_releases import (
    EngineRelease,
    ReleaseTimes,
    release_of,
    release_times,
)
from strata.validation.readers.labels import server_of
from strata.validation.readers.online_conditions import plain_runs
from strata.validation.readers.registry import reader_of
from strata.validation.readers.served_models import AS_IN_FILE, pooled_times, served_model
from strata.validation.readers.serving_inferencex import AcceptanceByLength, InferencexConditions
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
FILE = "serving/inferencex.csv"
USUAL = {"step": 0.0, "kernels": 1.0, "prompts": 1.0, "guessing": 0.0}


def entry(**given):
    return EngineRelease(**{"title": "a release", "engine": "sglang", **USUAL, **given})


def test_the_first_release_that_covers_a_row_counts():
    releases = (
        entry(when="before 2026-01-01", experts="dealt", step=1e-3),
        entry(when="before 2026-01-01", step=2e-3),
        entry(platform="rocm", step=3e-3),
        entry(narrowest="fp8", precision="fp8", step=4e-3),
    )
    dates = np.array(["2025-12-05", "2025-12-05", "2026-01-01"])
    dealt = np.array([True, False, True])
    for name, later in (("h200", 3), ("mi300x", 2), ("b200", -1)):
        found = release_of(releases, "sglang", chip(name), "fp8", dates, dealt)
        assert found.tolist() == [0, 1, later]
    assert release_of(releases, "sglang", chip("h200"), "fp4", dates, dealt).tolist() == [0, 1, -1]
    assert release_of(releases, "sglang-dynamo", chip("h200"), "fp8", dates, dealt).tolist() == [-1] * 3
    times = release_times(releases, np.array([1, -1]))
    assert times.step.tolist() == [2e-3, 0.0] and times.kernels.tolist() == [1.0, 1.0]


def test_days_of_a_release_that_are_none_are_told():
    with pytest.raises(BadValue, match="before 2026-01-20"):
        release_of(
            (entry(when="until spring"),), "sglang", chip("h200"), "fp8", np.array([""]), np.array([True])
        )


def test_a_release_as_usual_changes_nothing_and_a_token_takes_its_share_of_a_step():
    times = EngineTimes(
        step=np.array([0.02]), token=np.array([0.01]), reading=np.array([0.3]), own=np.array([0.4])
    )
    same = release_times((), np.array([-1])).of(times, np.array([1.0]))
    assert all(getattr(same, name) == pytest.approx(value) for name, value in vars(times).items())
    slower = ReleaseTimes(
        step=np.array([4e-3]), kernels=np.array([1.5]), prompts=np.array([2.0]), guessing=np.array([6e-3])
    )
    guessed = slower.of(times, np.array([1.0]))
    # 1.5 x 20 + 4 + 6 ms a round of two tokens
    assert float(guessed.step[0]) == pytest.approx(0.040) and float(guessed.token[0]) == pytest.approx(0.020)
    assert float(guessed.reading[0]) == pytest.approx(0.6) and float(guessed.own[0]) == pytest.approx(0.8)
    assert float(slower.of(times, np.array([0.0])).step[0]) == pytest.approx(0.034)


def test_long_outputs_are_guessed_more_easily():
    known = AcceptanceByLength(short=0.7, short_tokens=1024.0, long=0.8, long_tokens=8192.0)
    lengths = np.array([100.0, 1024.0, 1024.0 * 8.0**0.5, 8192.0, 30000.0])
    assert known.at(lengths) == pytest.approx([0.7, 0.7, 0.75, 0.8, 0.8])


def test_routers_before_or_behind_the_name_of_an_engine():
    labels = ("sglang", "sglang-mori", "mori-sglang", "dynamo-trt", "tensorrt-llm-dynamo", "vllm-disagg")
    assert [server_of(x) for x in labels] == ["sglang"] * 3 + ["trtllm"] * 2 + ["vllm"]


def test_shipped_releases_say_what_is_fitted():
    known = read_conditions(InferencexConditions, read_table(DATA, FILE), serving_inferencex.FILE)
    for release in known.release:
        moved = {name for name, usual in USUAL.items() if float(getattr(release, name)) != usual}
        assert set(release.fitted.split()) <= set(USUAL)
        assert server_of(release.engine.split()[0]) in ("sglang", "trtllm") and (moved or release.family)


def test_runs_without_a_date_have_the_last_release():
    table, catalogue = read_table(DATA, FILE), Catalogue()
    old = table.keep(np.flatnonzero((table.text("chip") == "MI300X") & (table.text("date") < "2026-01"))[:2])
    undated = replace(old, columns={**old.columns, "date": np.array(["", ""], dtype=object)})
    late = replace(old, columns={**old.columns, "date": np.array(["2026-09-01"] * 2, dtype=object)})
    reader = reader_of(FILE, catalogue)
    first, last, other = (reader(t, catalogue).predicted for t in (undated, late, old))
    assert first == pytest.approx(last, rel=1e-12) and np.all(first[:2] != pytest.approx(other[:2]))


# ---------------------------------------------------------------------------------------- pools


def pools(workers=1.0, prompts=1.0, **given):
    catalogue = Catalogue()
    model, engine = served_model(catalogue, "deepseek-v3", "fp8", "fp8"), catalogue.engine("sglang")
    side = Serving(
        systems_of(catalogue, "h200", np.array([8.0])), model, plan(tp=8.0, moe_tp=8.0), engine, 1.0
    )
    clients = np.atleast_1d(np.asarray(given.pop("clients", 64.0), float))
    run = plain_runs(np.full(len(clients), 7000.0), np.full(len(clients), 900.0), np.inf)
    release = {"prefill": replace(AS_IN_FILE, prompts=np.array([prompts])), "decode": AS_IN_FILE}
    count = {"prefill": np.array([workers]), "decode": np.array([1.0])}
    return pooled_times({"prefill": side, "decode": side}, count, np.ones(1), clients, run, release, **given)


def test_pools_hold_all_clients_and_slow_prompts_leave_few_to_generate():
    clients = np.array([1.0, 8.0, 64.0, 512.0])
    ttft, tpot = pools(clients=clients)
    assert np.all(np.diff(ttft) > 0) and np.all(np.diff(tpot) >= -1e-12)
    rate = clients / (ttft + 900.0 * tpot)
    alone = float(ttft[0])
    assert np.all(rate <= 1.02 / (alone - 0.2))  # one worker reads one prompt after another
    slow_ttft, slow_tpot = pools(clients=clients, prompts=4.0)
    assert np.all(slow_ttft > ttft) and np.all(slow_tpot <= tpot + 1e-12)
    more_ttft, more_tpot = pools(clients=clients, workers=4.0)
    assert more_ttft[-1] < ttft[-1] and more_tpot[-1] > tpot[-1]


def test_prompts_that_queue_are_read_together_where_that_is_quicker():
    one, several = pools(clients=512.0), pools(clients=512.0, full=np.array([4.0]))
    assert several[0] <= one[0] * (1 + 1e-9)
