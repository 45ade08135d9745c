"""`--chakra` and `.et` on the command line."""

import json

import pytest
from typer.testing import CliRunner

from strata.app.cli import app

ASKED = ["-s", "8xh200", "--batch", "16", "--input", "1024"]


def run(*words):
    return CliRunner().invoke(app, [*words])


def test_predict_writes_traces_that_predict_reads(tmp_path):
    prefix = tmp_path / "new" / "step"
    made = run(
        "predict",
        "-m",
        "llama-3-8b",
        *ASKED,
        "--phase",
        "decode",
        "--plan",
        "tp=8",
        "--chakra",
        str(prefix),
        "--json",
    )
    assert made.exit_code == 0, made.output
    assert len(list(prefix.parent.glob("step.*.et"))) == 8
    read = run("predict", "-m", f"{prefix}.et", "-s", "8xh200", "--json")
    assert read.exit_code == 0, read.output
    told = json.loads(read.stdout)
    assert told["question"]["plan"] == "tp=8" and told["metrics"]["step_time"] > 0.0


@pytest.mark.parametrize("more", [["--compare"], ["--schedule", "zero-bubble"]])
def test_timeline_writes_the_plans_own_schedule_alone(tmp_path, more):
    plan = ["--plan", "tp=2,pp=2,dp=2,microbatches=4"]
    asked = ["timeline", "-m", "llama-3-8b", *ASKED, *plan, "--chakra", str(tmp_path / "x")]
    assert run(*asked).exit_code == 0
    refused = run(*asked, *more)
    assert refused.exit_code != 0 and "--chakra" in str(refused.exception) + refused.output
