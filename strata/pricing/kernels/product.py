"""The product of two matrices as kernels are priced by it: extents, and bytes of each element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.arrays import Number, namespace

if TYPE_CHECKING:
    from strata.pricing.kernels.device import Device, MatrixRate


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Product:
    """`batch` products out[m, n] = in[m, k] weight[k, n], with bytes of an element of each matrix.

    >>> one = Product(m=4.0, n=6.0, k=8.0, input_bytes=1.0, weight_bytes=0.5, output_bytes=2.0)
    >>> one.flop, one.weights, one.activations
    (384.0, 24.0, 80.0)
    """

    m: Number
    n: Number
    k: Number
    input_bytes: Number
    weight_bytes: Number
    output_bytes: Number
    batch: Number = 1.0
    # 1 where weights lie in rows of n that are no whole 16 bytes, so that they are copied element by element
    unaligned: Number = 0.0

    @property
    def flop(self) -> Number:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def weights(self) -> Number:
        """Bytes of all weights."""
        return self.batch * self.k * self.n * self.weight_bytes

    @property
    def activations(self) -> Number:
        """Bytes of all inputs and results."""
        return self.batch * self.m * (self.k * self.input_bytes + self.n * self.output_bytes)


def product_bound(flop: Number, dram: Number, unit: MatrixRate, device: Device) -> Number:
    """No chip with these peaks does a product faster [s]."""
    return namespace(flop, dram, unit.peak).maximum(flop / unit.peak, dram / device.chip.memory.bandwidth)
