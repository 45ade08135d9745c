"""`strata search` as a user types it: answers, mistakes, Ctrl-C and going on."""

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import strata as st
from strata.app.cli import run_command
from strata.app.render.search import clock_text, progress_line
from strata.search.outcome import Progress
from strata.search.run import Search

QUICK = ("search", "next-node", "--sampler", "random", "--budget", "2000", "--set", "weights=fp8")
WORDS = [sys.executable, "-m", "strata.app.cli"]


@pytest.fixture
def typed(capsys):
    """Type a command line; its exit code, stdout and stderr."""

    def type_it(*words):
        capsys.readouterr()
        code = run_command([str(w) for w in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return type_it


def test_the_command_gives_what_python_gives(typed):
    code, out, err = typed(
        *QUICK,
        "--goal",
        "energy_per_token",
        "--limit",
        "tpot<=20ms",
        "--limit",
        "tokens_per_s >= 100",
        "--json",
    )
    assert (code, err) == (0, "")
    got = json.loads(out)
    small = st.search.space("next-node", weights=["fp8"])
    found = st.search.search(
        small,
        "energy_per_token",
        limits={"tpot": "<= 20 ms", "tokens_per_s": ">= 100"},
        sampler="random",
        budget=2000,
    )
    assert got["best"]["design"] == found.best["design"] and got["size"] == small.size == 48000
    assert got["best"]["metrics"]["energy_per_token"] == found.best["metrics"]["energy_per_token"]
    assert (
        got["out_by_reason"] == {k: {"points": p, "alone": a} for k, (p, a) in found.reasons.items()}
        and got["rows"] == 2000
        and got["gap"] is None
    )
    assert (
        got["out"]
        == sum(found.counts.values())
        == 2000 - (found.goal.scores(found.evaluated()) > -float("inf")).sum()
    )
    result = found.result()
    assert float(result.metrics.energy_per_token) == pytest.approx(
        found.best["metrics"]["energy_per_token"], rel=1e-12
    )
    assert got["bound_by"] == result.bound_by
    assert {g["what"].partition(",")[0] for g in got["gains_of_axes"]} == {
        "bandwidth",
        "capacity",
        "links",
        "power_cap",
        "batch",
    }
    assert [g["what"] for g in got["gains_of_resources"]] == [
        g.resource for g in st.search.sensitivity(result)
    ]


def test_what_ten_percent_more_buys_is_what_the_changed_design_gives():
    found = st.search.search("next-node", sampler="random", budget=500, seed=4)
    gains = {g.resource.partition(",")[0]: g for g in found.gains()[0]}
    r = found.result()
    memory = replace(r.system.chip.memory, bandwidth=1.1 * r.system.chip.memory.bandwidth)
    again = st.evaluate(
        replace(r.system, chip=replace(r.system.chip, memory=memory)), r.model, r.workload, r.plan
    )
    expected = float(again.metrics.tokens_per_s) / float(r.metrics.tokens_per_s) - 1
    assert gains["bandwidth"].speedup == pytest.approx(expected, abs=1e-9)
    assert gains["bandwidth"].more == pytest.approx(0.1)


def test_an_answer_for_people_says_what_is_proven_and_what_is_out(typed):
    code, out, err = typed(*QUICK, "--limit", "tpot<=20ms")
    assert (code, err) == (0, "")
    assert "most tokens_per_s with tpot <= 20 ms" in out and "nothing is proven" in out
    assert "points are out" in out and "tpot above 20 ms" in out
    assert "What 10 % more of each axis buys" in out and "power_cap, now" in out and "DRAM bandwidth" in out


def test_several_goals_give_a_frontier(typed):
    code, out, _ = typed(*QUICK, "--goal", "tokens_per_s,tokens_per_s_per_user")
    assert code == 0 and "points that no other beats" in out and "all have weights fp8" in out
    code, out, _ = typed(*QUICK, "--goal", "tokens_per_s,tokens_per_s_per_user", "--json")
    rates = [
        (p["metrics"]["tokens_per_s"], p["metrics"]["tokens_per_s_per_user"])
        for p in json.loads(out)["frontier"]
    ]
    assert (
        len(rates) > 3
        and rates == sorted(rates, reverse=True)
        and [u for _, u in rates] == sorted(u for _, u in rates)
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search", "next-nod"), "called 'next-nod'; nearest: next-node"),
        (
            ("search", "next-node", "--set", "bach=4"),
            "no axis of space next-node called 'bach'; nearest: batch",
        ),
        (("search", "next-node", "--set", "batch=3"), "no choice of axis batch called '3'"),
        (("search", "next-node", "--set", "batch"), "--set keeps choices of an axis, like batch=4,8"),
        (("search", "next-node", "--set", "batch=4", "--set", "batch=8"), "--set names axis batch twice"),
        (("search", "next-node", "--goal", "tokens"), "no metric to search for called 'tokens'"),
        (("search", "next-node", "--limit", "latency<=3s"), "no metric to limit called 'latency'"),
        (("search", "next-node", "--limit", "tpot"), "a limit is METRIC <= VALUE"),
        (("search", "next-node", "--limit", ""), "a limit is METRIC <= VALUE"),
        (("search", "next-node", "--limit", "tpot<=1ms", "--limit", "tpot>=2ms"), "no point can keep both"),
        (("search", "next-node", "--sampler", "randm"), "no sampler called 'randm'; nearest: random"),
        (
            ("search", "next-node", "--sampler", "random", "--executor", "core"),
            "no executor called 'core'; nearest: cores",
        ),
        (
            ("search", "next-node", "--sampler", "random", "--budget", "none"),
            "--budget must be a positive whole number",
        ),
        (
            ("search", "next-node", "--sampler", "random", "--workers", "0"),
            "--workers must be a positive whole number",
        ),
        (("search", "next-node", "--sampler", "random", "--gap", "-1"), "a gap is zero or more"),
        (
            ("search", "next-node", "--sampler", "random", "--resume"),
            "to resume a study, say where it is: --out FOLDER",
        ),
        ((*QUICK, "--limit", "tpot<=1us"), "none of 2,000 points fits and keeps the limits"),
    ],
)
def test_mistakes_are_one_line(typed, words, said):
    code, out, err = typed(*words)
    assert code == 2 and out == "" and err.count("\n") == 1, (out, err)
    assert err.startswith("strata: ") and said in err


def test_a_study_that_was_changed_is_one_line_and_stays(typed, tmp_path):
    assert typed(*QUICK, "--out", tmp_path / "a")[0] == 0
    code, out, err = typed(*QUICK, "--out", tmp_path / "a", "--resume", "--seed", "9")
    assert code == 2 and out == "" and err.count("\n") == 1 and "seed was 0, now 9" in err
    assert typed(*QUICK, "--out", tmp_path / "a")[0] == 2
    assert typed(*QUICK, "--out", tmp_path / "a", "--resume")[0] == 0


def test_ctrl_c_shows_what_was_found_and_how_to_go_on(tmp_path):
    words = ["search", "next-node", "--sampler", "random", "--budget", "90000"]
    words += ["--out", str(tmp_path / "o p"), "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen([*WORDS, *words], **pipes)
    stop = time.monotonic() + 60
    while not list((tmp_path / "o p").glob("parts/*.parquet")) and time.monotonic() < stop:
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    found = json.loads(out)
    assert found["ended"] == "stopped" and 0 < found["rows"] < 90000 and found["best"]["design"]
    again, last = err.strip().splitlines()
    assert (
        again == f"strata: go on with: {shlex.join(['strata', *words, '--resume'])}"
        and last == "strata: stopped by Ctrl-C"
    )


def test_on_a_terminal_progress_moves(tmp_path):
    """A real terminal, as the kernel makes one."""
    parent, child = pty.openpty()
    words = ["search", "next-node", "--sampler", "random", "--budget", "20000"]
    started = subprocess.Popen(
        [*WORDS, *words],
        stdout=subprocess.PIPE,
        stderr=child,
        env={**os.environ, "COLUMNS": "160", "TERM": "xterm"},
    )
    os.close(child)
    said = io.BytesIO()
    try:
        while part := os.read(parent, 4096):
            said.write(part)
    except OSError:  # the other end is closed
        pass
    out = started.communicate(timeout=60)[0].decode()
    shown = said.getvalue().decode()
    assert started.returncode == 0 and "most tokens_per_s" in out
    assert "points" in shown and "best tokens_per_s" in shown and "left" in shown


def progress(values):
    names = ("rounds", "rows", "best", "bound", "gap", "open", "seconds", "rate", "left")
    return Progress(**dict(zip(names, values, strict=True)))


def test_the_line_of_progress_says_bound_and_gap_where_they_are_known():
    looking = Search("next-node", sampler="random", budget=10)
    nan = float("nan")
    known = str(progress_line(looking, progress((3, 1500, 2000.0, 2100.0, 0.05, 12, 65.0, 500.0, nan))))
    assert (
        known
        == "round 3  1,500 points  500/s  best tokens_per_s 2,000  bound 2,100  gap 5.00%  12 regions open  "
        "1:05 gone"
    )
    early = str(progress_line(looking, progress((1, 10, nan, nan, nan, 0, 1.0, 10.0, 30.0))))
    assert early == "round 1  10 points  10/s  nothing fits yet  0:01 gone  0:30 left"
    assert clock_text(7200) == "2:00:00"


def test_a_bound_within_the_gap_ends_a_search():
    looking = Search("next-node", sampler="random", budget=20000, gap=0.5)
    best = st.search.search("next-node", sampler="random", budget=20000).best["metrics"]["tokens_per_s"]
    looking.sampler.bound = 1.2 * best
    list(looking.rounds())
    found = looking.outcome()
    assert (
        found.ended == "within the gap"
        and found.rows < 20000
        and 0 < found.gap <= 0.5
        and found.bound == 1.2 * best
    )


def test_time_left_is_that_of_the_budget_or_of_the_shrinking_gap():
    looking = Search("next-node", sampler="random", budget=1000, gap=0.0125)
    looking._rows = 400
    assert looking._left(4.0, 100.0) == 6.0
    looking.sampler.bound = 1.0
    looking._gaps = [(1.0, 0.8), (2.0, 0.4), (3.0, 0.2), (4.0, 0.1)]  # halved each second
    assert looking._left(4.0, 100.0) == pytest.approx(3.0)
    looking._gaps[-1] = (4.0, float("nan"))
    assert looking._left(4.0, 100.0) != looking._left(4.0, 100.0)  # nan: nothing is proven yet


def test_help_names_the_options(typed):
    code, out, _ = typed("search", "--help")
    assert code == 0
    shown = "goal limit set sampler executor budget gap seed out resume json report"
    for option in shown.split():
        assert f"--{option}" in out


def test_a_space_file_of_ones_own_is_searched(typed):
    code, out, _ = typed(
        "search", Path(__file__).parent / "small.toml", "--sampler", "random", "--budget", "300", "--json"
    )
    assert code == 0 and json.loads(out)["space"] == "small"
