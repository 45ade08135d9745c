"""Kill -9 a search at random moments, resume it, and compare with one that nobody disturbed: the same rows,
none lost, none twice.

`python tests/search/kills.py 20` is a part of `make proof`; a few kills are a test. The searches run in
forked children of this process, so that most of their life is searching and not starting; with `--command`
they are the real command, typed anew each time.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet

from strata.search.run import Search
from strata.search.space import space

STACKS = str(Path(__file__).parent / "small.toml")
GOAL, LIMITS = "tokens_per_s, energy_per_token", ["tpot <= 30 ms"]


def rows(folder):
    """Every row of a study as columns, part after part."""
    parts = sorted((Path(folder) / "parts").glob("*.parquet"))
    return [p.name for p in parts], pyarrow.concat_tables([pyarrow.parquet.read_table(p) for p in parts])


def place(sampler):
    """Where a sampler searches: a proof is for a space with limits of heat and area in it."""
    return STACKS if sampler == "exact" else "next-node"


def options(sampler, out):
    one = sampler == "exact"
    return {
        "goal": GOAL.partition(",")[0] if one else GOAL,
        "limits": LIMITS,
        "sampler": sampler,
        "budget": None if one else 30_000 if sampler == "random" else 3_000,
        "seed": 3,
        "out": out,
        "resume": True,
    }


def run_here(on, sampler, out):
    looking = Search(on, **options(sampler, out))
    for _ in looking.rounds():
        pass
    return looking.outcome()


def child(on, sampler, out):
    """A forked process that searches; its id."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        run_here(on, sampler, out)
        code = 0
    finally:  # whatever happens, this copy of the process ends here
        os._exit(code)


def command(on, sampler, out):
    """The command itself, with a process for each core; its id."""
    told = options(sampler, out)
    words = [
        "search",
        place(sampler),
        "--goal",
        told["goal"],
        "--sampler",
        sampler,
        "--seed",
        "3",
        "--out",
        str(out),
        "--resume",
        "--executor",
        "cores",
    ]
    words += [w for text in LIMITS for w in ("--limit", text)] + (
        ["--budget", str(told["budget"])] if told["budget"] else []
    )
    started = subprocess.Popen([sys.executable, "-m", "strata.app.cli", *words], stdout=subprocess.DEVNULL)
    return started.pid


def killed_after(number, seconds):
    """Kill a process after some time unless it ends by itself; whether it was killed."""
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            assert status == 0, f"a search failed by itself: {status}"
            return False
        time.sleep(0.001)
    os.kill(number, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(number, 0)[1])


def same(whole, broken):
    """Refuse two studies that differ in a name, a row, a number or their frontier."""
    (names, left), (other, right) = rows(whole.out), rows(broken.out)
    assert names == other, (names, other)
    assert left.num_rows == right.num_rows == whole.rows == broken.rows
    assert len(set(left["index"].to_pylist())) == len(set(right["index"].to_pylist()))
    for name in left.column_names:
        np.testing.assert_array_equal(left[name].to_numpy(), right[name].to_numpy(), err_msg=name)
    np.testing.assert_array_equal(whole.frontier.digits, broken.frontier.digits)
    assert whole.counts == broken.counts and list((Path(broken.out) / "parts").glob("*.partial")) == []


def prove(kills, folder, sampler="random", start=child, seed=0):
    """Kill so many searches at random moments, resuming each until it is finished; says what happened."""
    Search.checkpoint = 0.0  # states as often as they can be, of samplers that have one
    on, rng, done, studies = space(place(sampler)), random.Random(seed), 0, 0
    began = time.monotonic()
    whole = run_here(on, sampler, Path(folder) / "whole")
    span = time.monotonic() - began
    longest = span / 2 if start is child else 3 + span
    while done < kills or not studies:
        out = Path(folder) / f"killed-{studies}"
        while done < kills:
            if not killed_after(start(on, sampler, out), rng.uniform(0, longest)):
                break
            done += 1
        same(whole, run_here(on, sampler, out))
        studies += 1
    return (
        f"{sampler}: {done} kills in {studies} studies of {whole.rows:,} rows and {whole.rounds} rounds;"
        " every one ends with the same rows and frontier"
    )


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("kills", type=int)
    asked.add_argument("--sampler", default="random")
    asked.add_argument("--command", action="store_true")
    asked.add_argument("--seed", type=int, default=0)
    told = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(prove(told.kills, folder, told.sampler, command if told.command else child, told.seed))
