"""Families left out: each row predicted by numbers that were fitted without its own family."""

from pathlib import Path

import numpy as np
import pytest

from strata.validation.fit.left_out import family_entries, left_out_points

DATA = Path(__file__).parents[3] / "validation"


@pytest.mark.parametrize(
    ("file", "kind", "most"),
    [("ops/gemm.csv", "chip", 0.25), ("h200/decoder.csv", "chip", 0.15), ("ops/nccl.csv", "network", 0.45)],
)
def test_a_generation_left_out_has_the_numbers_of_another(file, kind, most):
    (one,) = family_entries(DATA, left_out_points(DATA, file, kinds=(kind,)))
    assert one["refitted"] and one["shown"] < one["mape"] < most
    assert sum(family["rows"] for family in one["families"].values()) == one["configurations"]


def test_runs_are_refitted_without_each_model():
    (one,) = left_out_points(DATA, "training/megatron_bridge.csv", kinds=("model",))
    assert one.refitted and len(set(one.family)) >= 5 and len(one.points) <= len(one.rows)
    errors = [np.abs(p / one.points.measured - 1.0).mean() for p in (one.points.predicted, one.predicted)]
    assert errors[0] < errors[1] < 0.15


def test_what_nothing_was_fitted_to_stands_as_it_is():
    entries = family_entries(DATA, left_out_points(DATA, "training/b200_megatron.csv", kinds=("model",)))
    assert [(one["refitted"], one["mape"] == one["shown"]) for one in entries] == [(False, True)]
