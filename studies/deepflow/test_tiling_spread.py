"""Operations for each byte of DRAM in every tiling: bounds that no tiling passes, the best one's, and over
strategies of ever more devices.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from deepflow.hierarchical import hierarchical_matmul
from deepflow.tiling_spread import tiling_intensities, tiling_spread
from strata.base.errors import StrataError
from strata.hardware.generate.recipe import generate
from strata.pricing.kernels.device import device
from strata.pricing.kernels.traffic import Product
from strata.workload.mlp import Gemm

CUBE = Gemm(m=65536.0, k=65536.0, n=65536.0)
TEMPLATES = ("deepflow-2021", "deepflow-v100")
TWO = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}


def v100(template):
    return generate("deepflow-v100", "deepflow-v100", template)


@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=20, deadline=None)
@given(*(hs.integers(0, 14) for _ in range(3)))
def test_no_tiling_reads_less_than_each_matrix_once(template, m, n, k):
    m, n, k = (2.0**power for power in (m, n, k))
    found = tiling_intensities(Product(m=m, n=n, k=k, **TWO), v100(template))
    once = 2.0 * m * n * k / (2.0 * (m * k + k * n + m * n))
    assert np.any(np.isfinite(found)) and np.nanmax(found) <= once * (1.0 + 1e-9)


def test_the_tile_that_a_product_takes_is_one_of_them():
    chip, cube = v100("deepflow-v100"), Product(m=8192.0, n=8192.0, k=8192.0, **TWO)
    dev = device(chip)
    priced = hierarchical_matmul(cube, dev, dev.matrix("fp16", "fp16"))
    found = tiling_intensities(cube, chip)
    assert np.nanmin(np.abs(found - priced.flop / priced.memory_bytes)) < 1e-6


@pytest.mark.parametrize("template", TEMPLATES)
def test_many_products_at_once_are_as_one_by_one(template):
    sizes = np.array([512.0, 4096.0, 65536.0])
    box = tiling_intensities(Product(m=sizes, n=4096.0, k=sizes, **TWO), v100(template))
    each = [tiling_intensities(Product(m=s, n=4096.0, k=s, **TWO), v100(template)) for s in sizes]
    np.testing.assert_allclose(box, np.stack(each, axis=-1))


@pytest.fixture(scope="module")
def chip():
    return v100("deepflow-v100")


def test_every_strategy_of_each_device_count_is_there(chip):
    found = tiling_spread(CUBE, chip, [1, 8, 65536])
    assert found.names[0] == ("d1",)
    assert found.names[1] == ("RC-1-8", "RC-2-4", "RC-4-2", "RC-8-1", "CR-8")
    assert len(found.names[2]) == 18 and found.intensity.shape[:2] == (3, 18)
    assert np.isnan(found.best[0, 1:]).all() and np.isfinite(found.best[2]).all()


def test_the_best_of_thin_parts_is_what_their_shapes_allow(chip):
    """RC-256-256 of 64K devices: 256 x 65536 by 65536 x 256, each matrix once; CR-65536: one of depth."""
    found = tiling_spread(CUBE, chip, [65536])
    best = dict(zip(found.names[0], found.best[0], strict=True))
    once = 2.0 * 256 * 256 * 65536 / (2.0 * (2 * 256 * 65536 + 256 * 256))
    assert best["RC-256-256"] == pytest.approx(once)
    assert best["CR-65536"] == pytest.approx(2.0 * 65536**2 / (2.0 * (65536**2 + 2 * 65536)))
    assert best["RC-128-512"] == pytest.approx(best["RC-512-128"])


def test_a_spread_over_nothing_is_refused_in_one_line(chip):
    with pytest.raises(StrataError, match="device counts"):
        tiling_spread(CUBE, chip, [])
