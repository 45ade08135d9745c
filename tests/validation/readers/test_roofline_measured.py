"""The roofline of all memory levels, nothing fitted, against products measured with hardware counters."""

from pathlib import Path

import numpy as np
import pytest

import strata
from strata.validation.measured.reader import reader_of
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA = Path(strata.__file__).parents[1] / "validation"


@pytest.fixture(scope="module")
def errors():
    """Mean absolute relative error of each group."""
    points = reader_of("a100/gemm_ncu.csv", Catalogue())(read_table(DATA, "a100/gemm_ncu.csv"), Catalogue())
    error = np.abs(points.predicted / points.measured - 1.0)
    return {str(name): float(error[points.group == name].mean()) for name in set(points.group)}


def test_time_of_matrix_products_within_15_percent(errors):
    """DeepFlow has 24 % on these shapes, its successor with fitted utilisation 10.7 %."""
    assert errors["roofline-time/matrices"] <= 0.05


def test_dram_traffic_above_the_l2_within_20_percent(errors):
    assert errors["roofline-dram/above the L2"] <= 0.18


def test_the_fitted_model_stands_beside_it(errors):
    assert {"time", "dram above the L2", "l2 above the L2", "roofline-time/vectors"} <= set(errors)
