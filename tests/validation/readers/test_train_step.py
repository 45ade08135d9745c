"""Passes of training steps on one device: groups, odd rows, and how near predictions come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.validation import validate
from strata.validation.measured.reader import reader_of
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

FOLDER = Path(__file__).parents[3] / "validation"
FILE = "h200/train_step.csv"


@pytest.fixture(scope="module")
def points():
    return reader_of(FILE, Catalogue())(read_table(FOLDER, FILE), Catalogue())


def errors(points, start):
    of = np.array([g.startswith(start) for g in points.group])
    return np.abs(points.predicted[of] / points.measured[of] - 1.0)


def test_groups_are_metric_mode_and_model(points):
    parts = {tuple(g.split("/")[:2]) for g in points.group}
    metrics, modes = ("forward", "loss", "backward", "kept"), ("compiled", "eager")
    assert parts == {(metric, mode) for metric in metrics for mode in modes} and not points.why
    assert "forward/compiled/llama-3-70b/8" in set(points.group)


@pytest.mark.parametrize(
    ("start", "most"),
    [
        ("forward/compiled", 0.06),
        ("backward/compiled", 0.08),
        ("forward/eager", 0.12),
        ("backward/eager", 0.12),
        ("loss/", 0.08),
        ("kept/", 0.01),
    ],
)
def test_passes_and_what_is_kept_are_near_on_all_rows_and_on_every_third(points, start, most):
    assert errors(points, start).mean() < most
    assert errors(held_out(points), start).mean() < most


def test_the_host_binds_small_shares_whatever_their_tokens(points):
    """A share of 2048 tokens takes the host as long as one of 4096; without its time both would be far off."""
    small = errors(points, "forward/eager/llama-3-8b/8")
    assert small.mean() < 0.12


def test_a_row_of_an_unknown_mode_is_named_and_ends_nothing(tmp_path):
    lines = (FOLDER / FILE).read_text(encoding="utf-8").splitlines()
    odd = lines[1].replace("compiled", "traced", 1)
    (tmp_path / "h200").mkdir()
    (tmp_path / FILE).write_text("\n".join([lines[0], odd, lines[2]]) + "\n", encoding="utf-8")
    outcome = validate(tmp_path)
    (unread,) = outcome["unread"]
    assert unread["row"] == 2 and "compiled or eager" in unread["why"]
    assert outcome["files"][0]["failed"] == 0 and outcome["files"][0]["points"] > 0
