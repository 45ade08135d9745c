"""Chips that fuse kernels, searched together with their mappings: bounds that hold, the optimum of brute force."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from proof import compared
from test_exact import boxed_points

from strata.search.bounds import bound_columns, optimistic
from strata.search.goal import goal
from strata.search.points import evaluate_points
from strata.search.relax import coarse_axes
from strata.search.space import space

SPACE = str(Path(__file__).parent / "dataflow.toml")
POINTS = 600
METRICS = ["tokens_per_s", "tpot", "energy_per_token", "cost_per_mtoken", "tokens_per_joule"]


@pytest.fixture(scope="module")
def drawn():
    """Points of chips that fuse, what they deliver, and a random box around each."""
    whole = space(SPACE, execution=["dataflow"], kernels=["bare"])
    return whole, *boxed_points(whole, POINTS, seed=2)


def test_fused_kernels_are_never_slower_whatever_limits_power(drawn):
    whole, digits, fused, _ = drawn
    apart = evaluate_points(space(SPACE, execution=["kernels"], kernels=["bare"]), digits)
    told = evaluate_points(space(SPACE, execution=["dataflow"], kernels=["unfused"]), digits)
    fits = (fused.reason == 0) & (apart.reason == 0)
    gain = fused.columns["tokens_per_s"][fits] / apart.columns["tokens_per_s"][fits]
    assert fits.sum() > POINTS / 4 and np.all(gain >= 1 - 1e-12) and np.any(gain > 1.1)
    np.testing.assert_array_equal(told.columns["tokens_per_s"], apart.columns["tokens_per_s"])
    assert whole.size > 100


@pytest.mark.parametrize("kind", ["box", "nearest", "coarse"])
def test_no_fused_design_of_a_box_beats_its_bound(drawn, kind):
    whole, _, evaluated, boxes = drawn
    coarse = boxes.fixed.copy()
    coarse[:, list(coarse_axes(whole))] = 0
    how = {
        "box": boxes,
        "nearest": replace(boxes, nearest=True),
        "coarse": replace(boxes, fixed=coarse, nearest=True, coarse=True),
    }
    bounds = bound_columns(whole, how[kind])
    for metric in METRICS:
        wanted = goal(metric)
        scores, best = wanted.scores(evaluated)[:, 0], optimistic(wanted, bounds)[:, 0]
        fits = scores > -np.inf
        assert fits.sum() > POINTS / 4 and np.all(best[fits] >= scores[fits]), metric


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_chips_and_mappings_together_are_searched_exactly(seed):
    same, said = compared(space(SPACE), seed, 600)
    assert same, said
