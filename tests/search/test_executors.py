"""Executors: whoever does the work, the rows are the same; a worker that dies costs nothing but time."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from strata.base.errors import BadValue, StrataError
from strata.search.executors import EXECUTORS, ONE_THREAD, PointsWork, open_executor
from strata.search.points import evaluate_points
from strata.search.run import Search
from strata.search.samplers import CHUNK, PointSampler
from strata.search.space import space

# compile faster
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
NODE = space("next-node")
DIGITS = NODE.random(np.random.default_rng(5), 300)
WORKS = [PointsWork(part) for part in np.array_split(DIGITS, 5)]


@dataclass(frozen=True, eq=False)
class Deadly(PointsWork):
    """Points whose first worker is killed on the spot, before it answers."""

    flag: str = ""

    def perform(self, space, backend):
        if self.flag and not Path(self.flag).exists():
            Path(self.flag).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return evaluate_points(space, self.digits, backend)


@dataclass(frozen=True)
class Dead:
    """Work that kills whoever does it."""

    def perform(self, space, backend):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Facts:
    """Work that says where it is done."""

    def perform(self, space, backend):
        return os.getpid(), {name: os.environ.get(name) for name in ONE_THREAD}, space.hash


@dataclass(frozen=True)
class Wrong:
    """Work that a user's input makes impossible."""

    def perform(self, space, backend):
        raise BadValue("this cannot be")


def run(executor, space, works, workers=0):
    """Work done by an executor that is opened for it alone."""
    with open_executor(executor, space, workers) as do:
        return do(works)


def equal(left, right, exact=True):
    np.testing.assert_array_equal(left.digits, right.digits)
    np.testing.assert_array_equal(left.reason, right.reason)
    for name, values in left.columns.items():
        np.testing.assert_allclose(values, right.columns[name], rtol=0 if exact else 1e-9, err_msg=name)


def test_jax_answers_as_numpy_does_and_compiles_once_for_many_lengths():
    from strata.base.stages import compiled_for

    alike = DIGITS[DIGITS[:, NODE.axis("weights")] == 1]
    works = [PointsWork(alike[:70]), PointsWork(alike[70:])]
    compiled_for.cache_clear()
    for left, right in zip(run("one", NODE, works), run("jax", NODE, works), strict=True):
        equal(left, right, exact=False)
    assert compiled_for.cache_info().misses == 1


def test_a_pool_answers_as_one_process_does_though_a_worker_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    flag = tmp_path / "killed"
    works = [*WORKS[:2], Deadly(WORKS[2].digits, str(flag)), *WORKS[3:]]
    with open_executor("cores", NODE, 2) as do:
        there, facts = do(works), do([Facts()] * 20)
    for left, right in zip(run("one", NODE, WORKS), there, strict=True):
        equal(left, right)
    workers = {pid for pid, _, _ in facts}
    assert len(workers) <= 2 and not workers & {os.getpid(), int(flag.read_text())}
    assert all(threads == ONE_THREAD and known == NODE.hash for _, threads, known in facts)
    assert os.environ["OMP_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ


def test_workers_that_always_die_end_the_search_in_one_line(monkeypatch):
    monkeypatch.setattr(sys.modules["strata.search.executors"], "RETRIES", 0)
    with pytest.raises(StrataError, match=r"workers died 1 times over 1 pieces"):
        run("cores", NODE, [Dead()], workers=1)


def test_what_a_user_got_wrong_is_said_by_every_engine():
    for executor in ("one", "cores"):
        with pytest.raises(BadValue, match="this cannot be"):
            run(executor, NODE, [Wrong()], workers=1)


def test_workers_leave_when_the_process_that_started_them_is_killed(tmp_path):
    script = tmp_path / "holder.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from test_executors import NODE, Facts, open_executor\n"
        "if __name__ == '__main__':\n"
        "    with open_executor('cores', NODE, 1) as do:\n"
        "        print(do([Facts()])[0][0], flush=True)\n"
        "        time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, str(script), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    worker = int(holder.stdout.readline())
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    for _ in range(200):
        if (
            not Path(f"/proc/{worker}").exists()
            or Path(f"/proc/{worker}/stat").read_text().split(")")[1].split()[0] == "Z"
        ):
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker outlived the process that started it")


def test_pieces_of_work_are_small_and_hold_points_of_the_same_words_together():
    class Everything(PointSampler):
        told = None

        def propose(self):
            return NODE.digits(np.random.default_rng(1).permutation(2 * CHUNK + 10))

        def learn(self, evaluated):
            self.told = evaluated

    sampler = Everything(NODE, None, budget=2 * CHUNK + 5)
    works = sampler.ask()
    assert [len(w.digits) for w in works] == [CHUNK, CHUNK, 5]
    words = np.concatenate([w.digits for w in works])[:, NODE.axis("weights")]
    assert (np.diff(words) >= 0).all()
    rows = sampler.tell([evaluate_points(NODE, w.digits) for w in works])
    np.testing.assert_array_equal(rows.digits, np.concatenate([w.digits for w in works]))
    np.testing.assert_array_equal(sampler.told.digits, Everything(NODE, None).propose()[: 2 * CHUNK + 5])
    assert sampler.ask() == []


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is an extra")
def test_a_ray_run_with_a_killed_worker_gives_the_same_rows(tmp_path):
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not know this file
    flag = tmp_path / "killed"

    def searched(executor, deadly, out):
        looking = Search(
            NODE,
            "tokens_per_s",
            limits=["tpot <= 20 ms"],
            sampler="random",
            budget=3000,
            seed=1,
            executor=executor,
            workers=2,
            out=out,
        )
        if deadly:
            ask = looking.sampler.ask
            looking.sampler.ask = lambda: [Deadly(w.digits, str(flag)) for w in ask()]
        list(looking.rounds())
        return looking.outcome()

    plain, there = searched("one", False, tmp_path / "one"), searched("ray", True, tmp_path / "ray")
    assert int(flag.read_text()) != os.getpid() and not ray.is_initialized()
    assert there.rows == 3000 and there.counts == plain.counts and there.best["index"] == plain.best["index"]
    equal(plain.evaluated(), there.evaluated())


def test_ray_that_does_not_answer_is_one_line():
    pytest.importorskip("ray")
    with pytest.raises(StrataError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        open_executor("ray", NODE, 0, "127.0.0.1:1").__enter__()


def test_every_engine_is_named_in_the_error_for_an_unknown_one():
    with pytest.raises(StrataError, match="all: " + ", ".join(EXECUTORS)):
        open_executor("gpu", NODE)
    with pytest.raises(BadValue, match="workers"):
        open_executor("cores", NODE, -1)


def test_a_proof_is_the_same_with_workers():
    stacks = space(
        str(Path(__file__).parent / "small.toml"), layers=["4", "6"], connected=["2", "4"], core=["base"]
    )
    here, there = (
        Search(stacks, sampler="exact", gap=0.0, executor=executor, workers=2)
        for executor in ("one", "cores")
    )
    for looking in (here, there):
        list(looking.rounds())
    left, right = here.outcome(), there.outcome()
    assert (
        left.gap == right.gap == 0.0
        and left.best["index"] == right.best["index"]
        and left.bound == right.bound
    )
    equal(left.evaluated(), right.evaluated())
    everything = evaluate_points(stacks, stacks.digits(np.arange(stacks.size)))
    assert left.best["metrics"]["tokens_per_s"] == everything.columns["tokens_per_s"].max()


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is an extra")
def test_ray_says_nothing_of_its_own(tmp_path):
    words = "search next-node --sampler random --budget 4 --executor ray --workers 1 --seed 1 --json --out"
    ran = [sys.executable, "-m", "strata.app.cli", *words.split(), str(tmp_path / "out")]
    done = subprocess.run(ran, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["space"] == "next-node"
    noise = [line for line in done.stderr.splitlines() if "evaluated" not in line and line.strip()]
    assert not noise, done.stderr
