"""The command as a whole: help, completion, Ctrl-C, pipes, and a quick start."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest

import strata as st

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--help",),
        ("-h",),
        *((c, "--help") for c in ("predict", "plan", "sweep", "list", "show", "schema", "diff", "validate")),
    ],
)
def test_help_is_on_stdout(strata, words):
    got = strata(*words)
    assert (got.code, got.err) == (0, "")
    assert "Usage: strata" in got.out
    assert "strata predict --model" in got.out if len(words) < 2 else f"Example: strata {words[0]}" in got.out


def test_version(answer):
    assert answer("--version").strip() == f"strata {st.__version__}"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("strata predict --model llama-3-7", "llama-3-70b"),
        ("strata predict --system 4xh2", "4xh200"),
        ("strata predict --engine vl", "vllm"),
        ("strata predict --phase dec", "decode"),
        ("strata predict --kv fp8_", "fp8_block"),
        ("strata sweep --metric tok", "tokens_per_s"),
        ("strata show chip h2", "h200"),
        ("strata show model mixtral-8x2", "mixtral-8x22b"),
        ("strata val", "validate"),
    ],
)
def test_completion_offers_names(strata, monkeypatch, line, wanted):
    words = line.split()
    monkeypatch.setenv("_STRATA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert wanted in strata().out.split()


def test_ctrl_c_is_one_line_and_130(strata, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("strata.search.plan_for"), "plan_for", interrupted)
    got = strata("predict", *LLAMA)
    assert (got.code, got.err.strip()) == (130, "strata: stopped by Ctrl-C")


def test_ctrl_c_ends_a_running_command():
    """A whole process, interrupted while it works."""
    script = (
        "import importlib, sys, time\n"
        "def long(*a, **k):\n    print('working', file=sys.stderr, flush=True)\n    time.sleep(30)\n"
        "importlib.import_module('strata.search.plan_for').plan_for = long\n"
        "from strata.app.cli import main\n"
        "sys.argv = ['strata', 'predict', '--model', 'llama-3-70b', '--system', '8xh200']\n"
        "main()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "working\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert (process.returncode, said.strip()) == (130, "strata: stopped by Ctrl-C")


def test_a_closed_pipe_is_no_error():
    command = [sys.executable, "-m", "strata.app.cli", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=20) == 0


def test_start_loads_nothing_heavy():
    """A prediction imports no plotting, no compiler and no readers of measurements."""
    script = (
        "import sys\n"
        "from strata.app.cli import run_command\n"
        "code = run_command(['predict', '--model', 'llama-3-70b', '--system', '8xh200', '--plan', 'tp=8'])\n"
        "heavy = [m for m in ('plotly', 'jax', 'scipy', 'pandas', 'strata.validation.accuracy.run', "
        "'strata.app.render.page') if m in sys.modules]\n"
        "sys.exit(code or ' '.join(heavy) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
