"""`strata timeline`: a table, JSON, pictures, and one line for what is wrong."""

import json

import pytest

from strata.app.cli import run_command

TRAIN = ["timeline", "-m", "llama-3-70b", "-s", "8x8xh200", "--batch", "64", "--input", "4096", "--plan"]
PLAN = "tp=8,pp=4,dp=2,microbatches=16,zero=1"


def test_a_step_and_its_resources(capsys):
    assert run_command([*TRAIN, PLAN, "--schedule", "zero-bubble", "--detail", "stage"]) == 0
    said = capsys.readouterr().out
    for word in ("zero-bubble", "closed form", "bubble", "stage 3", "link 2>3", "each stage in its own time"):
        assert word in said


def test_json_files_and_comparison(capsys, tmp_path):
    html, trace = tmp_path / "a.html", tmp_path / "a.json"
    words = [*TRAIN, PLAN, "--detail", "stage", "--json", "--html", str(html), "--trace", str(trace)]
    assert run_command(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schedule"] == "1f1b" and 0 < told["bubble"] < 1 and html.exists() and trace.exists()
    assert run_command([*TRAIN, PLAN, "--compare", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["schedules"]
    assert rows["1f1b"]["time"] == pytest.approx(told["time"])
    assert list(rows) == ["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--schedule", "1f1"], "no schedule called '1f1'"),
        (["--detail", "ops"], "no detail called 'ops'"),
        (["--compare", "--schedule", "1f1b"], "--compare runs every schedule"),
        (["--phase", "prefill", "--schedule", "1f1b"], "orders backward passes"),
    ],
)
def test_mistakes_are_one_line(capsys, more, said):
    assert run_command([*TRAIN, PLAN, *more]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
