"""What MLPerf's rounds say of software, and what that does to rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strata.validation.measured.compared import row_arguments
from strata.validation.measured.formulas import Columns, derived_columns
from strata.validation.measured.reader import reader_of
from strata.validation.measured.spec import spec_of
from strata.validation.questions.question import question
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA, FILE = Path(__file__).parents[3] / "validation", "training/mlperf.csv"


@pytest.mark.parametrize(
    ("run", "read", "fused"),
    [
        (("v5.1", "b200", "lora", "fp8", "1"), 0.0, 1.0),
        (("v6.0", "vr200", "lora", "fp8", "1"), 0.0, 1.0),
        (("v5.0", "b200", "lora", "fp8", "1"), None, 0.0),
        (("v5.1", "h100", "lora", "fp8", "4"), None, 0.0),
        (("v5.1", "mi355x", "lora", "fp8", "1"), None, 0.0),
        (("v5.1", "gb200", "lora", "nvfp4", "1"), None, 1.0),
        (("v5.1", "gb200", "all", "nvfp4", "1"), 3.0, 0.0),
        (("preview", "b200", "lora", "fp8", "1"), None, 0.0),
    ],
)
def test_software_of_a_run(run, read, fused):
    table = read_table(DATA, FILE).keep(np.array([0]))
    own = dict(zip(("round", "chip", "trains", "precision", "tp"), run, strict=True))
    cells = {name: np.array([cell], dtype=object) for name, cell in own.items()}
    spec = spec_of(None, FILE)
    table = derived_columns(replace(table, columns={**table.columns, **cells}), spec)
    asked = row_arguments(question("train"), spec, Columns(table, spec))
    bytes_read = asked["engine.training.quantize_bytes"][0]
    assert (None if np.isnan(bytes_read) else bytes_read, asked["lora.fused"][0]) == (read, fused)


def changed(tmp_path, keep, columns):
    """Predictions of one row of the file as it is, and with each of some columns' values."""
    table = read_table(DATA, FILE)
    header = list(table.columns)
    row = next(i for i in range(len(table)) if all(table.columns[c][i] == v for c, v in keep.items()))
    cells = [table.columns[c][row] for c in header]
    rows = [cells]
    for column, value in columns:
        rows.append([value if c == column else cell for c, cell in zip(header, cells, strict=True)])
    path = tmp_path / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join('"' + c.replace('"', '""') + '"' for c in row) for row in [header, *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    points = reader_of(FILE, Catalogue())(read_table(tmp_path, FILE), Catalogue())
    return points.predicted[: len(rows)]


def test_later_software_takes_less_and_odd_rounds_are_read(tmp_path):
    keep = {"round": "v5.1", "chip": "B200", "trains": "lora", "precision": "fp8", "devices": "8"}
    table = read_table(DATA, FILE)
    keep["chip"] = next(c for c in table.columns["chip"] if c.lower() == "b200")
    usual, older, none = changed(tmp_path, keep, [("round", "v5.0"), ("round", "")])
    assert 0.9 * older < usual < 0.97 * older and none == pytest.approx(older)


def test_graphs_take_the_host_away(tmp_path):
    """Layers with adapters of v4.0, eager on H100: their hosts took longer than their devices."""
    keep = {"round": "v4.0", "trains": "lora", "devices": "64", "tp": "4"}
    eager, graph = changed(tmp_path, keep, [("cuda_graph", "layer")])
    assert 1.2 * graph < eager < 1.35 * graph


def test_errors_of_rows_that_nothing_was_fitted_to():
    """Every row but those that hosts bind: GPT-3 of v3.0 and v3.1, adapters of v4.0."""
    table = read_table(DATA, FILE)
    points = reader_of(FILE, Catalogue())(table, Catalogue())
    head = points.keep(points.headline)
    order = np.array([int(line) - 2 for line in head.line])
    rounds, trains = table.columns["round"][order], table.columns["trains"][order]
    fitted = np.isin(rounds, ("v3.0", "v3.1", "v4.0"))
    off = np.abs(head.predicted / head.measured - 1)
    assert np.median(off[(trains == "all") & ~fitted]) < 0.06
    assert np.mean(off[(trains == "lora") & ~fitted]) < 0.07


def test_plans_of_one_system_rank_as_measured(own_points):
    """Spearman's correlation of systems with more than three plans; of H200 there are three, two of which
    lie within the scatter of vendors.
    """
    _, points = own_points(FILE)
    several = {name: rows for name, rows in points.ranks.items() if len(rows) > 3}
    assert len(several) >= 6
    for name, rows in several.items():
        order = [np.argsort(np.argsort(x)) for x in (points.predicted[rows], points.measured[rows])]
        assert np.corrcoef(*order)[0, 1] > 0.9, name
