"""Products of operands whose rows are no whole pieces of 16 bytes: copied element by element."""

from __future__ import annotations

from strata.arrays import Number, ceil_div
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.product import Product

PIECE = 16.0  # bytes that one load of a thread brings at most; rows must be whole pieces of it
SIDE = 64.0  # rows and columns of the tiles such kernels come in
DEPTH = 32.0  # of a step of their main loop
WORD = 4.0  # bytes of a word of local memory: what one element occupies of its port
PORT_TRIPS = 2.0  # an element passes the port on its way into registers and out of them
# Trips to DRAM in turn that a step waits for, and tiles that share a core, from two products with a vector at
# a locked clock (validation/a100/gemm_ncu.csv): 16 tiles on 108 cores take 1.17 us a step, three on a core
# 1.66 us. cuDNN's recurrent products on a V100, whose copies go through registers too, wait for four.
TRIPS = 2.7
TILES_HELD = 5.0


def row_is_whole(elements: Number, element_bytes: Number) -> Number:
    """1 where a row of so many elements is whole pieces of 16 bytes, else 0.

    >>> float(row_is_whole(8.0, 2.0)), float(row_is_whole(1.0, 2.0))
    (1.0, 0.0)
    """
    row = elements * element_bytes
    return 1.0 * (ceil_div(row, PIECE) * PIECE == row)


def unaligned_time(product: Product, device: Device) -> Number:
    r"""Time on the cores of a product whose copies do not run ahead of its main loop [s].

    .. math::
        T = \left\lceil \frac{k}{32} \right\rceil \left( \left\lceil \frac{t}{5 p} \right\rceil 2.7 L
        + \left\lceil \frac{t}{p} \right\rceil \frac{2 \cdot 4 \, (64 + 64) \, 32}{s} \right), \quad
        t = b \left\lceil \frac{m}{64} \right\rceil \left\lceil \frac{n}{64} \right\rceil

    t tiles on p cores, five of which share one and wait for their loads together; latency L of DRAM; every
    element of a tile's operands occupies a word of a core's port s to local memory, in and out.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> vector = {"n": 1.0, "input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> a100 = device(chip("a100-80"))
    >>> few, more = (Product(m=m, k=4096.0, **vector) for m in (1024.0, 16384.0))
    >>> [round(float(unaligned_time(p, a100)) * 1e6) for p in (few, more)]  # as deep, so nearly as long
    [138, 184]
    """
    tiles = product.batch * ceil_div(product.m, SIDE) * ceil_div(product.n, SIDE)
    per_core = ceil_div(tiles, device.cores)
    port = PORT_TRIPS * WORD * 2.0 * SIDE * DEPTH / device.chip.compute.sram_bandwidth
    wait = ceil_div(per_core, TILES_HELD) * TRIPS * device.chip.memory.latency
    return ceil_div(product.k, DEPTH) * (wait + per_core * port)
