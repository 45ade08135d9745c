"""What kernels see of a stack: streams, and the bandwidth that banks, cores and network leave them."""

from dataclasses import replace

import numpy as np
import pytest

import strata as st
from strata.hardware.dram.channel import (
    Stream,
    sustained_channel,
)
from strata.hardware.dram.stack import (
    channel_in_stack,
    dram_of,
    stack_banks,
    stack_channels,
)
from strata.hardware.noc import access_bandwidth, access_latency, local_share
from strata.pricing.kernels.attention import attention_kernel
from strata.pricing.kernels.attention_shape import AttentionShape
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.traffic import (
    Product,
    RequestStream,
    bytes_in_flight,
    dram_bandwidth,
    kv_cache_stream,
    product_stream,
    sequential_stream,
)
from strata.pricing.kernels.vector import vector_kernel

SQUARE = {"n": 8192.0, "k": 8192.0, "input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}


def of_a_channel(stack, stream, port=None):
    """What one of a stack's channels sustains: its share of what all cores ask for, and of their ports,
    through which a byte goes twice.
    """
    found, count = dram_of(stack), stack_channels(stack)
    share = None if stream.outstanding is None else stream.outstanding / count
    asked = replace(stream, banks=stack_banks(stack, found), outstanding=share)
    return sustained_channel(
        channel_in_stack(stack, found), asked, 0.0, None if port is None else port / (2.0 * count)
    )


@pytest.fixture(scope="module")
def banked():
    ref = st.chip("stack-ref")
    return replace(ref, stack=replace(ref.stack, memory="stacked-dram"))


def test_a_decode_product_and_a_prefill_product_see_different_bandwidths(banked):
    gemv, gemm = (product_stream(banked, Product(m=m, **SQUARE)) for m in (1.0, 4096.0))
    one, many = (float(dram_bandwidth(device(banked), 0.9, lambda s=s: s)) for s in (gemv, gemm))
    assert one > many * 1.02 and one <= banked.memory.bandwidth
    assert bytes_in_flight(banked) == 8 * 128 * 1024


def test_kernels_take_the_time_of_their_streams(banked):
    d = device(banked)
    price = matmul(1.0, 8192.0, 8192.0, d, "bf16", "bf16")
    stream = product_stream(banked, Product(m=1.0, **SQUARE))
    assert price.memory == pytest.approx(
        float(price.memory_bytes / dram_bandwidth(d, 0.9, lambda: stream)), rel=1e-3
    )
    assert price.time >= price.lower
    copied = vector_kernel(1e9, 1e9, 0.0, 0.0, d)
    assert copied.memory == pytest.approx(
        2e9 / float(dram_bandwidth(d, 0.9, lambda: sequential_stream(d, 0.5))), rel=1e-4
    )
    assert copied.memory > vector_kernel(2e9, 0.0, 0.0, 0.0, d).memory  # reads alone never turn the bus
    sizes = {"sequences": 64.0, "queries": 1.0, "span": 8192.0, "cached": 8192.0, "heads": 32.0}
    widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    step = attention_kernel(AttentionShape(**sizes, **widths, activation="bf16", kv="bf16"), d)
    assert step.memory >= step.memory_bytes / banked.memory.bandwidth
    assert kv_cache_stream(128.0, 2.0, 1.0, 0.0).run == 4096.0


@pytest.mark.parametrize(
    "run, share, packed", [(64.0, 1.0, False), (1000.0, 0.8, True), (2048.0, 0.5, False)]
)
def test_what_kernels_get_is_what_the_stack_sustains_below_the_network(banked, run, share, packed):
    d = device(banked)
    cores, noc = banked.compute.cores, banked.silicon.noc
    latency = banked.memory.latency + access_latency(noc, cores, local_share(noc, cores))
    stream = Stream(
        run=run, read_share=share, outstanding=bytes_in_flight(banked), latency=latency, packed=packed
    )
    whole = of_a_channel(
        banked.stack, stream, cores * banked.compute.sram_bandwidth
    ).bandwidth * stack_channels(banked.stack)
    expected = access_bandwidth(noc, cores, whole, local_share(noc, cores))
    found = dram_bandwidth(d, 0.9, lambda: RequestStream(run, share, packed, even=True))
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
    assert (
        dram_bandwidth(d, 0.9, lambda: RequestStream(run, share, packed, even=True)) is found
    )  # worked out once
    many = dram_bandwidth(d, 0.9, lambda: RequestStream(np.full(3, run), share, packed, even=True))
    np.testing.assert_allclose(many, float(found), rtol=1e-12)


def test_chips_without_banks_keep_their_measured_share():
    for name in ("h200", "b200", "tpu-v4"):
        chip = st.chip(name)
        assert (
            dram_bandwidth(device(chip), 0.7, lambda: pytest.fail("not asked for"))
            == chip.memory.bandwidth * 0.7
        )
