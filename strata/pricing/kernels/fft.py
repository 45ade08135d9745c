"""Lines of a Fourier transform: each read once, transformed in local memory, and written once."""

from __future__ import annotations

import math

from strata.arrays import ceil_div, namespace
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.workload.fft import FftLines

PASS_BITS = 8.0  # of a long line's length that one pass over the grid transforms: 256 points


def price_fft(op: FftLines, device: Device) -> Price:
    r"""Price of transforming all lines of one axis: a stream of the grid, its operations on the vector units.

    .. math:: T = p \left(T_0 + \max\left(\frac{5 N \log_2 n}{p R_v}, \frac{2 b N}{B}\right)\right), \quad
        p = \begin{cases} 1 & b n \le S \\ \lceil \log_2 n / 8 \rceil & \text{else} \end{cases}

    N points of b bytes in lines of n; vector rate R_v, sustained bandwidth B, floor T_0 of a stream. A line
    that fits a core's local memory S is read and written once (n = 16384 in complex fp32 is 128 KiB); a
    longer one in passes over the grid, each of which takes 256 points of it (two for 65,536, four for 2^27:
    what cuFFT's times on an H200 show, validation/h200/other.csv).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> grid = {"points": Extent(512.0), "lines": (Extent(512.0**2),), "precision": "fp32"}
    >>> lines = FftLines(name="x", module="x", inputs=("a",), output="b", **grid)
    >>> h200 = price_fft(lines, device(chip("h200")))
    >>> bool(h200.memory > h200.compute), round(float(h200.time) * 1e6)  # 2 x 1.07 GB
    (True, 498)
    """
    moved, points = op.output_bytes(), op.points.size
    xp = namespace(points, device.chip.compute.sram_capacity)
    fits = 2.0 * points * bytes_of(op.precision) <= device.chip.compute.sram_capacity
    passes = xp.where(fits, 1.0, ceil_div(xp.log(points) / math.log(2.0), PASS_BITS))
    return vector_kernel(moved, moved, op.flop() / passes, 0.0, device).times(passes)
