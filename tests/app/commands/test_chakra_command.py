"""`--chakra` and `.et` on the command line."""

import pytest

ASKED = ["-s", "8xh200", "--batch", "16", "--input", "1024"]


def test_predict_writes_traces_that_predict_reads(answer, tmp_path):
    prefix = tmp_path / "new" / "step"
    plan = ["--phase", "decode", "--plan", "tp=8"]
    answer("predict", "-m", "llama-3-8b", *ASKED, *plan, "--chakra", str(prefix))
    assert len(list(prefix.parent.glob("step.*.et"))) == 8
    told = answer("predict", "-m", f"{prefix}.et", "-s", "8xh200", "--json")
    assert told["question"]["plan"] == "tp=8" and told["metrics"]["step_time"] > 0.0


@pytest.mark.parametrize("more", [["--compare"], ["--schedule", "zero-bubble"]])
def test_timeline_writes_the_plans_own_schedule_alone(strata, tmp_path, more):
    plan = ["--plan", "tp=2,pp=2,dp=2,microbatches=4"]
    asked = ["timeline", "-m", "llama-3-8b", *ASKED, *plan, "--chakra", str(tmp_path / "x")]
    made = strata(*asked)
    assert made.code == 0 and "8 ranks" in made.err
    refused = strata(*asked, *more)
    assert refused.code == 2 and "--chakra" in refused.err and refused.err.count("\n") == 1
