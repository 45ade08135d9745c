"""Lines of a Fourier transform: each read once, transformed in local memory, and written once."""

from __future__ import annotations

from strata.pricing.kernels.device import Device
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.workload.fft import FftLines


def price_fft(op: FftLines, device: Device) -> Price:
    r"""Price of transforming all lines of one axis: a stream of the grid, its operations on the vector units.

    .. math:: T = T_0 + \max\left(\frac{5 N \log_2 n}{R_v}, \frac{2 b N}{B}\right)

    N points of b bytes in lines of n; vector rate R_v, sustained bandwidth B, floor T_0 of a stream.
    Holds while a line fits a core's local memory (n = 16384 in complex fp32 is 128 KiB).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> grid = {"points": Extent(512.0), "lines": (Extent(512.0**2),), "precision": "fp32"}
    >>> lines = FftLines(name="x", module="x", inputs=("a",), output="b", **grid)
    >>> h200 = price_fft(lines, device(chip("h200")))
    >>> bool(h200.memory > h200.compute), round(float(h200.time) * 1e6)  # 2 x 1.07 GB
    (True, 498)
    """
    moved = op.output_bytes()
    return vector_kernel(moved, moved, op.flop(), 0.0, device)
