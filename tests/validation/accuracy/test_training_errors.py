"""Errors of training: families left out, and runs that look like another build."""

from pathlib import Path

import numpy as np
import pytest

from strata.validation.accuracy.training_errors import mislabelled_runs, training_errors
from strata.validation.fit.trainers import leave_families_out, trainer_fit
from strata.validation.readers.tables import read_table

FILE = "training/h100_nanotron.csv"


def some_runs(count=90):
    table = read_table(Path("validation"), FILE)
    return table.keep(np.arange(len(table)) % (len(table) // count) == 0)


def test_every_row_is_predicted_without_its_own_family():
    table = some_runs()
    (by_model,) = leave_families_out(table, ["model"])
    assert by_model.names == ("A", "C", "D") and by_model.refitted
    assert len(by_model.points) == len(table)
    assert set(by_model.family) == set(table.text("model"))
    error = np.abs(by_model.points.predicted / by_model.points.measured - 1.0)
    assert np.median(error) < 0.12


def test_families_of_files_by_which_nothing_was_fitted_stand_as_they_are():
    (found,) = training_errors("validation", "training/a100_megatron.csv")
    assert trainer_fit(found["file"]) is None and found["held_out"] is None
    assert [one["kind"] for one in found["left_out"]] == ["model", "chip"]
    assert all(one["mape"] == found["all"]["mape"] and not one["refitted"] for one in found["left_out"])


def test_runs_that_say_they_are_of_another_build():
    """22 runs with stages twice as slow as their build; all but one as the build before the fix makes them."""
    found = mislabelled_runs("validation")
    assert found["slow"] == 22 and found["other"] == 21
    assert found["rest"] == pytest.approx(0.145, abs=0.01)
