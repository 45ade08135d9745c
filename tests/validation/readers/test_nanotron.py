"""Runs of nanotron: speeds of rows and of a model that no fit has seen, and memory."""

import numpy as np
import pytest

from strata.validation.accuracy.run import compared_files
from strata.validation.readers.comparison import HELD_OUT

FILE = "training/h100_nanotron.csv"


@pytest.fixture(scope="module")
def points():
    ((_, found),) = list(compared_files("validation", None, FILE))
    return found


def errors(points, rows):
    return np.abs(points.predicted[rows] / points.measured[rows] - 1.0)


def test_held_out_rows(points):
    found = errors(points, points.headline & (points.line % HELD_OUT == 0))
    assert len(found) > 200 and np.median(found) < 0.1 and np.mean(found < 0.15) > 0.7


def test_a_model_that_no_fit_has_seen(points):
    found = errors(points, points.headline & (points.group == "tokens/D"))
    assert len(found) == 52 and np.median(found) < 0.15


def test_memory_and_what_fits(points):
    memory = np.array([name.startswith("memory/") for name in points.group])
    assert np.mean(errors(points, memory)) < 0.03
    assert np.mean(points.predicted[points.group == "fits"] > 0.5) > 0.985
