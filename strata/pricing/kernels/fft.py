"""Lines of a Fourier transform: each read once, transformed in local memory, and written once."""

from __future__ import annotations

import math

from strata.arrays import ceil_div, namespace
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.workload.fft import FftLines

# of a long line's length that one pass over the grid transforms at most: 2048 points, as cuFFT's kernels on
# an H200 (two passes for 2^21 points, three for 2^25)
PASS_BITS = 11.0
WORD = 4.0  # bytes that a lane works on at full rate


def price_fft(op: FftLines, device: Device) -> Price:
    r"""Price of transforming all lines of one axis: a stream of the grid, its operations on the vector units.

    .. math:: T = p \left(T_0 + \max\left(\frac{5 N \log_2 n}{p \, \eta R_v} \frac{w}{4},
        \frac{2 b N}{B}\right)\right), \quad
        p = \begin{cases} 1 & b n \le S / 2 \\ \lceil \log_2 n / 11 \rceil & \text{else} \end{cases}

    N points of b bytes (two parts of w) in lines of n; vector rate R_v of words of 4 B, sustained bandwidth
    B, floor T_0 of a stream. A line that fits half of a core's local memory S, beside the next one, is read
    and written once (n = 16384 in complex fp32 is 128 KiB); a longer one in passes over the grid. η is 1 for
    lines of a power of two in one pass, which are bound by memory; else `fft_efficiency` of the chip: passes
    with twiddle factors between them, and factors of 3 and 5, keep lanes waiting, which binds.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> grid = {"points": Extent(512.0), "lines": (Extent(512.0**2),), "precision": "fp32"}
    >>> lines = FftLines(name="x", module="x", inputs=("a",), output="b", **grid)
    >>> h200 = price_fft(lines, device(chip("h200")))
    >>> bool(h200.memory > h200.compute), round(float(h200.time) * 1e6)  # 2 x 1.07 GB
    (True, 499)
    """
    moved, points, chip = op.output_bytes(), op.points.size, device.chip
    width = bytes_of(op.precision)
    xp = namespace(points, chip.compute.sram_capacity, chip.compute.fft_efficiency)
    bits = xp.log(points) / math.log(2.0)
    fits = 2.0 * points * width <= 0.5 * chip.compute.sram_capacity
    whole = xp.abs(bits - xp.floor(bits + 0.5)) < 1e-9
    passes = xp.where(fits, 1.0, ceil_div(bits, PASS_BITS))
    efficiency = xp.where(fits & whole, 1.0, chip.compute.fft_efficiency)
    flop = op.flop() * max(width / WORD, 1.0) / passes
    resident = device.software.resident
    once = vector_kernel(moved, moved, flop, 0.0, device, resident=resident, efficiency=efficiency)
    return once.times(passes)
