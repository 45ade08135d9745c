"""Three exact ways to the best fusion agree: order ideals, CP-SAT, and the paper's integer program in HiGHS."""

import os
import signal
import threading
from dataclasses import replace

import pytest
from fuse_random import random_problem
from gpt_layer import gpt_layer
from paper_mip import PaperMip

from strata.optimise.fuse import fuse_kernels, kernel_by_kernel
from strata.pricing.fusion_rules import fusion_rules

PAPER = fusion_rules("dfmodel-2024", compute="utilisation", weight_tiling="none", directions_apart="no")


def of_the_paper(seed):
    problem = random_problem(seed, rules=PAPER, tiles=(2,), outside=False)
    kernels = tuple(replace(k, extra_bytes=0.0, depth=0.0) for k in problem.kernels)
    return replace(problem, kernels=kernels, micro_batches=1.0)


@pytest.mark.parametrize("seed", range(200))
def test_three_solvers_agree(seed):
    problem = of_the_paper(seed)
    path, sat = fuse_kernels(problem), fuse_kernels(problem, method="cp-sat")
    highs = PaperMip(problem, 2).solve()
    assert sat.time == pytest.approx(path.time, rel=1e-9)
    assert highs == pytest.approx(path.time, rel=1e-6)
    if path.feasible:
        assert path.optimal and sat.optimal and sat.lower_bound <= path.time * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_cpsat_agrees_whatever_the_rules(seed):
    problem = random_problem(1000 + seed)
    path, sat = fuse_kernels(problem), fuse_kernels(problem, method="cp-sat")
    assert sat.time == pytest.approx(path.time, rel=1e-9) and sat.feasible == path.feasible
    if path.feasible:
        assert sat.lower_bound <= path.time * (1 + 1e-12) and sat.gap < 1e-5


def test_cpsat_keeps_pins_and_limits_of_partitions():
    problem = random_problem(4, rules=fusion_rules("dfmodel-2024"), kernels=5)
    best = fuse_kernels(problem)
    pinned = replace(problem, pinned=tuple(p.kernels[:1] for p in best.partitions))
    limited = replace(problem, max_partitions=2)
    for one in (pinned, limited):
        path, sat = fuse_kernels(one), fuse_kernels(one, method="cp-sat")
        assert sat.time == pytest.approx(path.time, rel=1e-9)
        assert path.time >= best.time * (1 - 1e-12)


def test_a_time_limit_gives_the_best_so_far_with_its_gap():
    problem = gpt_layer(8, backward=True, tiles=(16, 32))
    found = fuse_kernels(problem, method="cp-sat", seconds=0.5)
    best = fuse_kernels(problem)
    assert found.feasible and found.time <= kernel_by_kernel(problem).time
    assert found.lower_bound <= best.time <= found.time and 0.0 <= found.gap <= 1.0
    assert "stopped after" in found.proof and "rounded down" in found.proof


def test_an_interrupt_gives_the_best_so_far():
    problem = gpt_layer(8, backward=True, tiles=(16, 32))
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    found = fuse_kernels(problem, method="cp-sat", seconds=30.0)
    timer.join()
    assert found.feasible and found.seconds < 20.0
