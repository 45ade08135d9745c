"""Operations for each byte of DRAM in every tiling: bounds that no tiling passes, and the best one's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from deepflow.hierarchical import hierarchical_matmul
from deepflow.intensity import tiling_intensities
from strata.hardware.generate.recipe import generate
from strata.pricing.kernels.device import device
from strata.pricing.kernels.traffic import Product

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
