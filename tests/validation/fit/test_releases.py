"""Releases of engines fitted to runs."""

from pathlib import Path

import numpy as np
import pytest

from strata.validation.fit.releases import ReleasedRows, fit_releases, leave_releases_out, released_rows
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.engine_releases import EngineRelease, release_times
from strata.validation.readers.registry import reader_of
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
FILE = "serving/inferencex.csv"
USUAL = {"step": 0.0, "kernels": 1.0, "prompts": 1.0, "guessing": 0.0}


def entry(**given):
    return EngineRelease(**{"title": "a release", "engine": "sglang", **USUAL, **given})


def made_rows(truth, count=60):
    """Rows of two entries, measured as the truth says."""
    random = np.random.default_rng(5)
    place = np.arange(count) % 2
    rows = {
        "line": np.arange(count),
        "chip": np.where(np.arange(count) % 4 < 2, "one", "other"),
        "engine": np.full(count, "sglang"),
        "kind": np.full(count, "none"),
        "place": place,
        "step": random.uniform(8e-3, 30e-3, count),
        "reading": random.uniform(0.0, 1.0, count),
        "own": np.full(count, 0.05),
        "launching": np.zeros(count),
        "guesses": np.zeros(count),
        "running": np.full(count, 21.0),
        "ranks": np.ones(count),
        "output": np.full(count, 1000.0),
        "measured": np.ones(count),
    }
    rows["token"] = rows["step"]
    rows["measured"] = ReleasedRows(**rows).tpot(release_times(truth, place))
    return ReleasedRows(**rows)


def test_a_fit_finds_what_rows_were_made_with():
    free = {"family": "a", "fitted": "step kernels prompts", "step": 1e-3, "kernels": 1.1, "prompts": 1.1}
    truth = [entry(step=4e-3, kernels=1.2, prompts=1.5), entry(step=9e-3, kernels=1.2, prompts=1.5)]
    rows = made_rows(truth)
    found = fit_releases(rows, [entry(**free), entry(**free)], np.ones(60, bool))
    for one, true in zip(found, truth, strict=True):
        for name in ("step", "kernels", "prompts"):
            assert getattr(one, name) == pytest.approx(getattr(true, name), rel=0.03)
    assert rows.error(found, np.ones(60, bool)) < 0.01


def test_what_no_row_tells_is_as_usual_and_what_is_not_fitted_stays():
    given = [entry(fitted="step", step=4e-3), entry(kernels=1.3)]
    rows = made_rows(given)
    first, second = fit_releases(rows, given, rows.place == 1)
    assert first.step == 0.0 and second.kernels == 1.3


def test_what_no_row_tells_is_what_sources_do():
    given = [entry(family="a", fitted="step", step=4e-3, told_step=3e-3, told_kernels=1.2), entry()]
    rows = made_rows(given)
    first, _ = fit_releases(rows, given, rows.place == 1)
    assert (first.step, first.kernels, first.prompts) == (3e-3, 1.2, 1.0)
    seen, _ = fit_releases(rows, given, np.ones(60, bool))
    assert seen.step == pytest.approx(4e-3, rel=0.05)


def test_shipped_releases_are_those_the_fit_finds_and_are_worth_it_on_chips_left_out():
    table = read_table(DATA, FILE)
    table = table.keep(np.flatnonzero((table.text("disaggregated") != "1") & (table.lines % 4 == 1)))
    catalogue = Catalogue()
    rows, releases = released_rows(table, catalogue)
    priced = reader_of(FILE, catalogue)(table, catalogue)
    same = dict(zip(priced.line[priced.headline], priced.predicted[priced.headline], strict=True))
    own = rows.tpot(release_times(releases, rows.place))
    assert own == pytest.approx([same[line] for line in rows.line], rel=1e-9)
    judged = leave_releases_out(rows, releases)
    for name in ("chip b200", "chip h200", "chip mi300x", "held-out third"):
        _, fitted, without = judged[name]
        assert fitted < without
        assert fitted < 0.20  # 0.43 for MI300X before
