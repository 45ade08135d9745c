"""Intensity over strategies and tilings of ever more devices."""

import numpy as np
import pytest

from deepflow.tiling_spread import tiling_spread
from strata.errors import StrataError
from strata.hardware.generate.recipe import generate
from strata.workload.mlp import Gemm

CUBE = Gemm(m=65536.0, k=65536.0, n=65536.0)


@pytest.fixture(scope="module")
def v100():
    return generate("deepflow-v100", "deepflow-v100", "deepflow-v100")


def test_every_strategy_of_each_device_count_is_there(v100):
    found = tiling_spread(CUBE, v100, [1, 8, 65536])
    assert found.names[0] == ("d1",)
    assert found.names[1] == ("RC-1-8", "RC-2-4", "RC-4-2", "RC-8-1", "CR-8")
    assert len(found.names[2]) == 18 and found.intensity.shape[:2] == (3, 18)
    assert np.isnan(found.best[0, 1:]).all() and np.isfinite(found.best[2]).all()


def test_the_best_of_thin_parts_is_what_their_shapes_allow(v100):
    """RC-256-256 of 64K devices: 256 x 65536 by 65536 x 256, each matrix once; CR-65536: one of depth."""
    found = tiling_spread(CUBE, v100, [65536])
    best = dict(zip(found.names[0], found.best[0], strict=True))
    once = 2.0 * 256 * 256 * 65536 / (2.0 * (2 * 256 * 65536 + 256 * 256))
    assert best["RC-256-256"] == pytest.approx(once)
    assert best["CR-65536"] == pytest.approx(2.0 * 65536**2 / (2.0 * (65536**2 + 2 * 65536)))
    assert best["RC-128-512"] == pytest.approx(best["RC-512-128"])


def test_a_spread_over_nothing_is_refused_in_one_line(v100):
    with pytest.raises(StrataError, match="device counts"):
        tiling_spread(CUBE, v100, [])
