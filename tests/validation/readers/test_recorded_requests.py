"""Runs of vLLM request by request, simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.errors import BadFile
from strata.validation.accuracy.run import validate
from strata.validation.readers.serving_requests import run_in_name

DATA = Path(__file__).resolve().parents[3] / "validation"
HEADER = "request_id,arrival_s,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s\n"
ROWS = "a,0.0,200,50,0.0,0.0,0.05,0.9\nb,0.1,900,20,0.1,0.1,0.2,0.6\nc,0.2,30,1,0.2,0.2,0.3,0.3\n"


def test_runs_that_nothing_was_fitted_to_are_within_what_is_asked():
    outcome = validate(DATA, only=("serving/requests/*",))
    groups = {name: g["mape"] for entry in outcome["files"] for name, g in entry["groups"].items()}
    for gpu in ("rtx4090", "rtxpro6000"):
        assert groups[f"tpot/{gpu}"] < 0.08
        assert groups[f"e2e/{gpu}"] < 0.08
        assert groups[f"ttft/{gpu}"] < 0.15
        assert groups[f"ttft_p95/{gpu}"] < 0.15


def folder_with(tmp_path: Path, name: str, rows: str) -> Path:
    (tmp_path / "serving" / "requests").mkdir(parents=True)
    (tmp_path / "serving" / "requests" / name).write_text(HEADER + rows)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "h100_qwen3-8b.csv",
        "2xH100_qwen3-30b-a3b.csv",
        "h200_qwen3-30b-a3b_dp2_ep2.csv",
        "l40s_llama-3.1-8b_b.csv",
    ],
)
def test_files_of_other_chips_models_and_layouts_are_read(tmp_path, name):
    entry = validate(folder_with(tmp_path, name, ROWS))["files"][0]
    assert (entry["points"], entry["failed"]) == (4, 0)


def test_bad_rows_are_told_and_the_others_compared(tmp_path):
    bad = ROWS + "d,0.3,,5,0.3,0.3,0.4,0.5\ne,0.3,10,5,0.3,0.3,0.2,0.5\nf,0.3,10,5,0.3,0.3,x,0.5\n"
    outcome = validate(folder_with(tmp_path, "h100_qwen3-8b.csv", bad))
    assert {u["row"]: u["why"].split()[0] for u in outcome["unread"]} == {
        5: "column",
        6: "arrival,",
        7: "column",
    }
    assert outcome["files"][0]["points"] == 4


@pytest.mark.parametrize("name", ["warp9_llama-3.1-8b.csv", "h100_llama-99-8b.csv", "h100.csv"])
def test_a_file_of_an_unknown_name_is_listed_as_failed(tmp_path, name):
    outcome = validate(folder_with(tmp_path, name, ROWS))
    assert outcome["files"][0]["failed"] == 1
    assert outcome["unread"][0]["row"] == 0


def test_layouts_in_names():
    assert run_in_name("4xb200_llama-3-70b_tp2_pp2.csv")[2].pp == 2.0
    with pytest.raises(BadFile, match="must say chip and model"):
        run_in_name("runs.csv")
