"""Branch and bound against brute force on random sub-spaces: `make proof` runs fifty, the tests a few small
ones.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np

from strata.search.executors import perform
from strata.search.goal import Goal, goal
from strata.search.points import evaluate_points
from strata.search.samplers.exact import Exact
from strata.search.space import Space, space

GOALS = (
    "tokens_per_s",
    "tokens_per_s",
    "tokens_per_s_per_user",
    "tpot",
    "energy_per_token",
    "cost_per_mtoken",
    "tokens_per_s_per_mm2",
)


def sub_space(whole: Space, rng: np.random.Generator, most: int) -> Space:
    """A random part of a space of at most so many points: some choices of each axis, in their order."""
    while True:
        wanted = most * 10.0 ** rng.uniform(-2.5, 0.0)
        shares = rng.dirichlet(np.ones(len(whole.axes)))
        axes = []
        for axis, share in zip(whole.axes, shares, strict=True):
            count = int(np.clip(round(wanted**share), 1, len(axis)))
            kept = np.sort(rng.choice(len(axis), count, replace=False))
            axes.append(axis.keep(kept))
        made = replace(whole, axes=tuple(axes), name=f"part of {whole.name}")
        try:
            if wanted / 8 <= made.size <= most:
                return made
        except ValueError:  # constraints left nothing
            continue


def brute_force(made: Space, wanted: Goal, chunk: int = 1 << 15) -> tuple[float, int]:
    """The best score of all points, and how many are legal and fit."""
    best, fit = -np.inf, 0
    for start in range(0, made.size, chunk):
        scores = wanted.scores(
            evaluate_points(made, made.digits(np.arange(start, min(start + chunk, made.size))))
        )[:, 0]
        best, fit = max(best, float(scores.max(initial=-np.inf))), fit + int(np.isfinite(scores).sum())
    return best, fit


def branch_and_bound(made: Space, wanted: Goal, seed: int = 0) -> Exact:
    """The same by proof, to the last digit."""
    search = Exact(made, wanted, seed)
    search.gap = 0.0
    while works := search.ask():
        search.tell([perform(made, w) for w in works])
    return search


def compared(whole: Space, seed: int, most: int) -> tuple[bool, str]:
    """One sub-space both ways."""
    rng = np.random.default_rng(seed)
    made, wanted = sub_space(whole, rng, most), goal(GOALS[seed % len(GOALS)])
    start = time.perf_counter()
    best, fit = brute_force(made, wanted)
    middle = time.perf_counter()
    found = branch_and_bound(made, wanted, seed)
    proven = float(found.scores[0, 0]) if len(found.scores) else -np.inf
    same = proven == best or abs(proven - best) <= 1e-12 * abs(best)
    took = f"{middle - start:6.1f} s and {time.perf_counter() - middle:6.1f} s"
    return (
        same,
        f"{made.size:8d} points, {fit:7d} fit, {found.evaluated:7d} evaluated, {found.bounded:7d} bounded,"
        f" {took}, {wanted.metrics[0]}: {best:.9g} {proven:.9g}",
    )


def main(count: int, most: int) -> int:
    whole, right = space("deepstack-3d"), 0
    for seed in range(count):
        same, said = compared(whole, seed, most)
        right += same
        print(f"{seed:3d} {'same     ' if same else 'DIFFERENT'} {said}", flush=True)
    print(f"{right} of {count} the same")
    return 0 if right == count else 1


if __name__ == "__main__":
    sys.exit(
        main(
            int(sys.argv[1]) if len(sys.argv) > 1 else 50,
            int(float(sys.argv[2])) if len(sys.argv) > 2 else 1_000_000,
        )
    )
