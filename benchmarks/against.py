"""`make bench-against REV=...`: this tree beside another commit, in turns of one run, as ratios.

Each measure runs in a process of its own, first in one tree, then in the other, and again: on a shared machine the shortest of
several turns is compared. Only what both commits have is called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MEASURES = ("single", "single_dense", "list_numpy", "box_numpy", "list_jax", "box_jax", "cold_start")
TURNS = 3


def shortest(function: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(name: str) -> float:
    """Seconds of one measure in the tree that is imported."""
    if name == "cold_start":
        command = [sys.executable, "-c", "import strata.app.cli as c; c.main(['--help'])"]
        return shortest(lambda: subprocess.run(command, check=False, capture_output=True), 5)
    import numpy as np

    import strata as st

    chip, fabric = (getattr(st, n, None) or getattr(st.hardware, n) for n in ("chip", "fabric"))
    if name.startswith("single"):
        dense = name == "single_dense"
        model, plan = (st.model("llama-3-70b"), "tp=8") if dense else (st.model("deepseek-v3"), "tp=8,ep=8")
        inputs = st.system("8xh200"), model, st.decode(batch=64, context=2048), st.plan(plan)
        return shortest(lambda: [st.evaluate(*inputs) for _ in range(10)], 20) / 10
    model, rng = st.model("deepseek-v3"), np.random.default_rng(0)
    every = st.plans(256, model)
    layers, width = (np.arange(1.0, 13.0)[:, None, None], 8) if "box" in name else (None, 8192)
    if layers is None:
        pick = rng.integers(0, every.tp.size, width)
        fields = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero")
        every = type(every)(**{f: np.broadcast_to(getattr(every, f), every.tp.shape)[pick] for f in fields})
        layers = rng.integers(1, 13, width) * 1.0
        bandwidth, batch = rng.uniform(5e10, 1e12, width), 2.0 ** rng.integers(2, 12, width)
    else:
        bandwidth, batch = np.linspace(5e10, 1e12, width)[:, None], 1024.0
    system = st.system(chip("stack-ref", layers=layers), fabric("torus-256", bandwidth=bandwidth))
    backend = "jax" if name.endswith("jax") else "numpy"

    def run() -> Any:
        return st.evaluate(
            system, model, st.decode(batch=batch, context=2048.0), every, "ideal", backend=backend
        )

    run()  # compiles
    return shortest(run, 3)


def run_in(tree: Path, name: str) -> float:
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", name]
    done = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout.strip().splitlines()[-1])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--measure"]:
        print(measure(arguments[1]))
        return
    revision, names = arguments[0], arguments[1:] or list(MEASURES)
    other = ROOT / "out" / "bench" / revision
    if not other.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(other), revision], cwd=ROOT, check=True)
    table = {}
    print(f"{'measure':14} {'this [ms]':>10} {revision[:10] + ' [ms]':>16} {'times as fast':>14}")
    for name in names:
        turns = [(run_in(ROOT, name), run_in(other, name)) for _ in range(TURNS)]
        mine, theirs = (min(t[i] for t in turns) for i in (0, 1))
        table[name] = {"this_s": mine, "other_s": theirs, "times_as_fast": theirs / mine}
        print(f"{name:14} {mine * 1e3:10.2f} {theirs * 1e3:16.2f} {theirs / mine:14.2f}")
    (ROOT / "out" / "bench" / "against.json").write_text(json.dumps({"against": revision, **table}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
