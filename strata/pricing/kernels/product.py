"""The product of two matrices as kernels are priced by it: extents, bytes of each element, and the traffic
that follows where tiles of results are worked on.

Results stay where they are added up, in the innermost memory, for as long as the depth of a product lasts;
operands stream past them. What a level has to deliver then depends on the tile of results that is worked on
above it: of one matrix unit, of one core, or of all cores together, a wave of tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.arrays import Number, ceil_div, namespace
from strata.precision import bytes_of

if TYPE_CHECKING:
    from strata.pricing.kernels.device import Device, MatrixRate

ACCUMULATOR = 4.0  # bytes of a partial sum
# of results that a core finishes at a time, the largest a library ships
TILE_ROWS, TILE_COLUMNS = 128.0, 256.0
HELD = 0.5  # part of a memory that holds a block; the rest takes in the next one and the streams meanwhile


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

    @classmethod
    def of(
        cls, m: Number, n: Number, k: Number, unit: MatrixRate, weight: str, stored: str, **more: Number
    ) -> Product:
        """A product on such units, of weights in one format; activations are stored in another."""
        widths = {"input_bytes": unit.activation, "weight_bytes": bytes_of(weight)}
        return cls(m=m, n=n, k=k, **{**widths, "output_bytes": bytes_of(stored), **more})

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


def tile_traffic(product: Product, down: Number, across: Number) -> Number:
    r"""Bytes into tiles of results from the memory they are filled from [B]: operands once for every tile
    that needs them, results once.

    .. math:: b = b_p (m k a \, c + k n w \, r + m n o)

    r tiles along the rows m, c along the columns n; a, w, o bytes of an activation, weight and result.

    >>> one = Product(m=4.0, n=6.0, k=8.0, input_bytes=1.0, weight_bytes=1.0, output_bytes=1.0)
    >>> tile_traffic(one, 2.0, 3.0)  # 3 x 32 activations, 2 x 48 weights, 24 results
    216.0
    """
    operands = product.k * (
        product.m * product.input_bytes * across + product.n * product.weight_bytes * down
    )
    return product.batch * (operands + product.m * product.n * product.output_bytes)


def wave_traffic(product: Product, results: Number, capacity: Number) -> Number:
    r"""Bytes into a shared memory of C bytes from the one below it [B], when all cores together work on S
    results at a time.

    .. math::
        h = \sqrt{S w / a} \le m, \quad v = S / h \le n, \quad
        b = b_p \left(m k a \left[\frac{n}{v}\right]_{(h a + v w) k > C/2}
            + k n w \left[\frac{m}{h}\right]_{(h a + n w) k > C/2} + m n o\right)

    A wave of h x v results reads h rows of activations and v columns of weights; as square as their bytes
    allow is least. Waves follow each other along a band of h rows. A band's activations are read again for
    the next wave unless what a wave reads stays in half of the memory, the weights for the next band unless
    what a band reads does (brackets without that are 1): memory that replaces what was used longest ago keeps
    what all that passes between two uses leaves room for. Bands of columns likewise; the better of the two.

    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> large = Product(m=16384.0, n=4096.0, k=4096.0, **two)
    >>> round(wave_traffic(large, 108 * 128 * 128.0, 40 * 2.0**20) / 1e9, 2)  # an A100 counts 1.01 GB
    0.96
    >>> wave_traffic(large, 108 * 128 * 128.0, 1e9) == large.weights + large.activations  # all of it fits
    True
    """
    m, n, k, a, w = product.m, product.n, product.k, product.input_bytes, product.weight_bytes
    xp, kept = namespace(m, n, k, results, capacity), HELD * capacity
    high = xp.minimum(xp.sqrt(results * w / a), m)
    wide = xp.minimum(results / high, n)
    high = xp.minimum(results / wide, m)
    stays = (high * a + wide * w) * k <= kept
    across, down = xp.maximum(n / wide, 1.0), xp.maximum(m / high, 1.0)
    weights_stay = (high * a + n * w) * k <= kept
    inputs_stay = (m * a + wide * w) * k <= kept
    by_rows = tile_traffic(product, xp.where(weights_stay, 1.0, down), xp.where(stays, 1.0, across))
    by_columns = tile_traffic(product, xp.where(stays, 1.0, down), xp.where(inputs_stay, 1.0, across))
    return xp.minimum(by_rows, by_columns)


def tile_waves(m: Number, n: Number, batch: Number, cores: Number) -> Number:
    r"""Waves in which a product's results come: the pieces that communication can take it in.

    .. math:: w = \left\lceil \frac{b \lceil m/128 \rceil \lceil n/256 \rceil}{p} \right\rceil

    b products of m x n results on p cores. A product of one wave ends everywhere at once: nothing can be sent
    before.

    >>> float(tile_waves(8192.0, 4096.0, 1.0, 132.0)), float(tile_waves(64.0, 8192.0, 1.0, 132.0))
    (8.0, 1.0)
    """
    return ceil_div(batch * ceil_div(m, TILE_ROWS) * ceil_div(n, TILE_COLUMNS), cores)


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
