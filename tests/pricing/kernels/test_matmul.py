"""Products on GPUs: laws of a single kernel, and traffic counted by somebody else's hardware."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul, reread_bytes
from strata.pricing.kernels.traffic import Product
from strata.pricing.power_cap import power_capped

CHIPS = ("a100-80", "h200", "b200", "mi325x", "stack-ref")
SIZES = some.integers(1, 20000)
FORMATS = {
    "a100-80": ("bf16", "int8"),
    "h200": ("bf16", "fp8", "fp8_block"),
    "b200": ("bf16", "fp8", "fp4"),
    "mi325x": ("bf16", "fp8"),
    "stack-ref": ("bf16",),
}
MORE = (
    "matrix_rate",
    "memory.bandwidth",
    "cache.bandwidth",
    "cache.capacity",
    "cache.core_bandwidth",
    "vector_rate",
)


def bettered(chip, what, factor):
    if what in ("matrix_rate",):
        rates = {k: v * factor for k, v in chip.compute.matrix_rate.items()}
        return replace(chip, compute=replace(chip.compute, matrix_rate=rates))
    if what == "vector_rate":
        return replace(chip, compute=replace(chip.compute, vector_rate=chip.compute.vector_rate * factor))
    owner, field = what.split(".")
    part = getattr(chip, owner)
    return replace(chip, **{owner: replace(part, **{field: getattr(part, field) * factor})})


@some.composite
def products(draw):
    name = draw(some.sampled_from(CHIPS))
    return (
        name,
        draw(some.sampled_from(FORMATS[name])),
        float(draw(SIZES)),
        float(draw(SIZES)),
        float(draw(SIZES)),
    )


def weights_of(name):
    """Formats whose weights are widened before use, too."""
    return {"a100-80": "int4", "h200": "int4"}.get(name, "bf16")


@given(products(), some.sampled_from(MORE), some.booleans())
@settings(max_examples=200, deadline=None)
def test_more_peak_bandwidth_or_cache_is_never_slower(product, what, widened):
    name, used, m, n, k = product
    weight = weights_of(name) if widened else used
    times = [
        matmul(m, n, k, device(bettered(st.chip(name), what, f)), weight, "bf16").time
        for f in (1.0, 1.1, 3.0, 50.0)
    ]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(times))


@given(products(), some.booleans())
@settings(max_examples=200, deadline=None)
def test_padding_never_helps_and_no_time_is_below_the_roofline(product, widened):
    name, used, m, n, k = product
    weight, d = (weights_of(name) if widened else used), device(st.chip(name))
    plain = matmul(m, n, k, d, weight, "bf16")
    assert plain.time >= plain.lower * (1 - 1e-12) and plain.time <= plain.upper * (1 + 1e-12)
    for grain in (2.0, 8.0, 64.0, 256.0):
        up = [np.ceil(x / grain) * grain for x in (m, n, k)]
        for sizes in ((up[0], n, k), (m, up[1], k), (m, n, up[2]), up):
            # Rows that end where a transaction does are read a little faster from banks, so that padding to
            # it may save that much.
            slack = 1e-3 if d.banks is not None else 1e-9
            assert matmul(*sizes, d, weight, "bf16").time >= plain.time * (1 - slack), (grain, sizes)


@pytest.mark.parametrize("name", CHIPS)
def test_a_batch_of_products_equals_single_ones(name):
    rng = np.random.default_rng(3)
    m, n, k = (np.exp(rng.uniform(0, 10, 64)).round() for _ in range(3))
    chip = st.chip(name)
    d, used = device(chip), FORMATS[name][-1]
    batch = power_capped(matmul(m, n, k, d, used, "bf16"), chip)
    for i in range(64):
        one = power_capped(matmul(m[i], n[i], k[i], d, used, "bf16"), chip)
        assert one.price.time == pytest.approx(batch.price.time[i], rel=1e-12) and one.share == batch.share[i]


# Counters of an A100: validation/a100/gemm_ncu.csv. The form of `reread_bytes` was chosen on such rows, so the
# bounds are wide.
@pytest.mark.parametrize(
    ("m", "n", "k", "read"),
    [
        (16384, 32000, 4096, 5325.4e6),
        (16384, 8192, 8192, 3498.8e6),
        (1024, 28672, 4096, 355.4e6),
        (16384, 1, 5120, 176.0e6),
    ],
)
def test_dram_traffic_of_products_larger_than_the_cache(m, n, k, read):
    a100 = device(st.chip("a100-80"), resident=False)
    product = Product(m=m * 1.0, n=n * 1.0, k=k * 1.0, input_bytes=2.0, weight_bytes=2.0, output_bytes=2.0)
    found = float(reread_bytes(product, a100)) + 2.0 * (m * k + n * k)
    assert found == pytest.approx(read, rel=0.35)


def test_formats_in_blocks_are_not_cut_along_their_depth():
    """nvfp4 on a B200: 1 x 256 x 65536 takes 126 us (validation/ops/gemm.csv), eight times what its bytes
    would: one core walks all of k.
    """
    d = device(st.chip("b200"))
    narrow = matmul(1.0, 256.0, 65536.0, d, "fp4", "bf16").time
    assert 90e-6 < narrow < 160e-6
    assert matmul(1.0, 256.0, 65536.0, d, "bf16", "bf16").time < 0.3 * narrow


def test_weights_that_are_widened_keep_the_cores_busy():
    """int4 weights of an A100: a product of 32 rows takes longer than their bytes, as every weight is
    unpacked first.
    """
    d = device(st.chip("a100-80"), weight_only=True)
    price = matmul(32.0, 4096.0, 4096.0, d, "int4", "bf16")
    assert price.time > 1.5 * (4096 * 4096 * 0.516 / (2.039e12 * 0.8))
    assert price.time < matmul(32.0, 4096.0, 4096.0, d, "bf16", "bf16").time * 1.5
