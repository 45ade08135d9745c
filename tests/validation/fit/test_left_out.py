"""Whole groups left out of a fit: kernels of other.csv judged by quantities that have not seen their kind."""

from pathlib import Path

import pytest

from strata.validation.fit.families import FACTORISATIONS, TRANSFORMS
from strata.validation.fit.left_out import leave_groups_out
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"


@pytest.mark.parametrize(
    ("family", "columns"), [(FACTORISATIONS, ("precision",)), (TRANSFORMS, ("precision", "kernel"))]
)
def test_a_precision_or_a_kernel_nobody_fitted_is_predicted_within_15_percent(family, columns):
    table = read_table(DATA, "h200/other.csv")
    found = leave_groups_out(table, family, columns)
    assert len(found) == 2 * len(columns) and all(f.error < 0.1 for f in found)
    rows = {f.group: f.rows for f in found}
    assert rows["precision=fp32"] == (6 if family is FACTORISATIONS else 16)
    for f in found:
        assert set(f.values) == {q.path for q in family.quantities}
