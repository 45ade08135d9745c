"""Runs of nanotron: speeds of rows and of a model that no fit has seen, and memory."""

import numpy as np
import pytest

from strata.validation.accuracy.compare import rank_correlation
from strata.validation.accuracy.run import compared_files
from strata.validation.readers.comparison import HELD_OUT

FILE = "training/h100_nanotron.csv"


@pytest.fixture(scope="module")
def points():
    ((_, found),) = list(compared_files("validation", None, FILE))
    return found


def errors(points, rows):
    return np.abs(points.predicted[rows] / points.measured[rows] - 1.0)


def named(points, *groups):
    return np.isin(points.group.astype(str), groups)


def test_held_out_rows(points):
    held = points.headline & (points.line % HELD_OUT == 0)
    found = errors(points, held & ~named(points, "tokens/A/before_fix", "tokens/C/before_fix"))
    assert len(found) > 200 and np.median(found) < 0.07 and np.mean(found < 0.15) > 0.8
    assert np.mean(errors(points, held) < 0.3) > 0.9


def test_a_model_that_no_fit_has_seen(points):
    found = errors(points, named(points, "tokens/D"))
    assert len(found) == 52 and np.median(found) < 0.08 and np.mean(found < 0.15) > 0.72


def test_a_build_whose_messages_hold_both_stages(points):
    """248 runs, of which two thirds of those of A and C were fitted, by one time."""
    every, unseen = (
        errors(points, named(points, *(f"tokens/{m}/before_fix" for m in models))) for models in ("ACD", "D")
    )
    assert len(every) == 248 and np.mean(every) < 0.06 and np.mean(every < 0.15) > 0.95
    assert len(unseen) == 47 and np.mean(unseen) < 0.06


def test_plans_of_every_node_count_are_ranked(points):
    ranked = {n: rank_correlation(points.measured[r], points.predicted[r]) for n, r in points.ranks.items()}
    assert list(ranked) == ["1", "2", "4", "8", "16", "32", "64"] and min(ranked.values()) > 0.947


def test_memory_and_what_fits(points):
    memory = np.array([name.startswith("memory/") for name in points.group])
    assert np.mean(errors(points, memory)) < 0.027
    assert np.mean(points.predicted[points.group == "fits"] > 0.5) > 0.985
