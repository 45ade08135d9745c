"""Matrix products: the best of a few output tiles, waves over cores, traffic through cache and DRAM."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from strata.arrays import Number, best_of, ceil_div, namespace, rank_of
from strata.precision import bytes_of
from strata.pricing.kernels.device import Device, MatrixRate, close_price, rounded_to
from strata.pricing.kernels.dram_access import dram_time, product_stream
from strata.pricing.kernels.quantize import rounding
from strata.pricing.kernels.systolic import array_matmul
from strata.pricing.price import Price
from strata.workload.graph import total
from strata.workload.ops import MatMul

# Output tiles tried for each product (rows, columns): shapes GPU libraries ship, large to small. Short sides
# shrink a tile.
TILES = np.array([(256, 128), (128, 256), (128, 128), (64, 256), (64, 128), (64, 64), (64, 32)], float)
SPLIT_DEPTH = 384.0  # least depth of one part when a product is cut along k: three steps of 128
ACCUMULATOR = 4.0  # bytes of a partial sum
# of one row in a step of the main loop: the widest swizzle of a tile in shared memory, on GPUs since 2022
# filled in one piece
STEP_BYTES = 128.0
# How tiles follow each other, from the DRAM counters of an A100 (validation/a100/gemm_ncu.csv): bands of
# eight tiles of 128
# rows; results one core works on at a time (a tile of 128 x 256 in registers); what cores that drift apart
# read again; and
# the part of the cache that holds an operand between two uses while others stream through.
BAND = 1024.0
HELD_BY_CORE = 128.0 * 256.0
DRIFT = 1.3
KEPT = 0.5


@dataclass(frozen=True, eq=False, slots=True)
class Tiled:
    """A product in tiles: the longer of the times on the cores and of the cache, the former [s], bytes
    through the cache, and whether cores wait for their operands.
    """

    time: Number
    cores: Number
    moved: Number
    starved: Number


def padded(extent: Number, grain: Number) -> Number:
    """Rows or columns a matrix unit works on: whole instructions, the finer side of which takes the short
    extent.

    >>> float(padded(3.0, 8.0)), float(padded(64.0, 8.0))
    (8.0, 64.0)
    """
    return ceil_div(extent, grain) * grain


@dataclass(frozen=True, eq=False, slots=True)
class Extents:
    """What all tilings of a product share: extents in whole instructions and steps, time of a tile's elements
    at full rate and at least [s], the least part of the depth, bytes of partial sums where products are cut,
    a core's share of the tiles, and times of the bytes of a row or column of operands and of a result into a
    core, and of a byte through the cache [s]. `sides` are those of tiles seen so far.
    """

    tall: Number
    wide: Number
    depth: Number
    pace: Number
    least: Number
    part: Number
    parts: Number
    share: Number
    load: Number
    store: Number
    through: Number
    sides: dict[tuple[str, float], tuple[Number, Number, Number]] = field(default_factory=dict)

    def side(
        self, name: str, extent: Number, whole: Number, size: Number, bytes: Number
    ) -> tuple[Number, Number, Number]:
        """One side of a tile in whole instructions, its bytes for a unit of depth, and tiles along the
        extent.

        Tiles of the same height, or width, share them.
        """
        key = (name, size) if isinstance(size, float) else None
        if key is None or key not in self.sides:
            length = namespace(size, whole).minimum(size, whole)
            found = length, length * bytes, ceil_div(extent, size)
            if key is None:
                return found
            self.sides[key] = found
        return self.sides[key]


def extents(
    m: Number, n: Number, k: Number, batch: Number, device: Device, unit: MatrixRate, o: Number
) -> Extents:
    """What all tilings of a product share: terms of `tile_times`, worked out once."""
    depth = padded(k, STEP_BYTES / unit.activation)
    return Extents(
        padded(m, device.grain),
        padded(n, device.grain),
        depth,
        2.0 * depth * device.cores / unit.sustained,
        depth * unit.step,
        namespace(depth).minimum(SPLIT_DEPTH / depth, 1.0),
        (2.0 * ACCUMULATOR * batch) * (m * n),
        1.0 / device.cores,
        k / device.core_bandwidth,
        o / device.core_bandwidth,
        1.0 / device.cache_bandwidth,
    )


def tile_times(
    m: Number,
    n: Number,
    k: Number,
    batch: Number,
    tm: Number,
    tn: Number,
    device: Device,
    unit: MatrixRate,
    w: Number,
    o: Number,
    of: Extents | None = None,
) -> Tiled:
    r"""Time on the cores, cache time [s] and cache bytes of a product cut into tiles of tm x tn, the better
    of two schedules.

    .. math::
        t = b \lceil m/t_m \rceil \lceil n/t_n \rceil, \quad
        \tau = \max\left(\frac{2 \hat t_m \hat t_n k}{R / p}, \frac{(\hat t_m a + \hat t_n w) k}{\beta}, \lambda k, \hat t_n k \nu\right), \quad
        \epsilon = \tau_0 + \frac{\hat t_m \hat t_n o}{\beta}

        T_{whole} = \lceil t/p \rceil (\tau + \epsilon), \quad
        T_{cut} = \max\left(\frac{t}{p}, \frac{d}{\hat k}\right) \tau + \max\left(\frac{t}{p}, 1\right) \epsilon + \sigma

    b products of m x n x k; p cores of rate R together [FLOP/s], each drawing at most β from the cache [B/s];
    a, w, o bytes an element of activations, weights and results. A tile is computed in whole instructions
    (hats), so padding costs time, and ends with a start and a write of its own (ε); its main loop takes at
    least λ for each unit of depth, and ν for each weight that must be widened first. Whole tiles go to cores
    in waves; or products are cut along k so that every core gets an equal share, of at least d of the depth,
    and the parts are added up in time σ.

    Osama et al., Stream-K, PPoPP 2023 (arXiv 2301.03598): work-centric shares against waves of tiles.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> unit = d.matrix("bf16", "bf16")
    >>> times = tile_times(1024.0, 2304.0, 16384.0, 1.0, 128.0, 256.0, d, unit, 2.0, 2.0)
    >>> 0.7e-4 < float(times.cores) < 1.2e-4  # 72 tiles on 132 cores, cut to fill them
    True
    """
    of = extents(m, n, k, batch, device, unit, o) if of is None else of
    xp = namespace(of.tall, of.wide, of.depth, k, batch, tm, device.cores, unit.sustained)
    rows, high, down = of.side("rows", m, of.tall, tm, unit.activation)
    columns, broad, across = of.side("columns", n, of.wide, tn, w)
    tiles = down * across if isinstance(batch, float) and batch == 1.0 else down * across * batch
    per_core = tiles * of.share
    area = rows * columns
    tensor = area * of.pace
    sides = high + broad
    port = sides * of.load
    work = xp.maximum(xp.maximum(tensor, port), of.least)
    if not (isinstance(unit.widening, float) and unit.widening == 0.0):
        work = xp.maximum(work, columns * k * unit.widening)
    ends = device.tile + area * of.store
    whole = ceil_div(per_core, 1.0) * (work + ends)
    cut = xp.maximum(per_core, of.part) * work + xp.maximum(per_core, 1.0) * ends + unit.split
    moved = tiles * (sides * k + area * o)
    through = moved * of.through
    # Parts pass through the cache: a cut must pay with them, or padding to whole waves would look faster.
    in_parts, in_waves = xp.maximum(cut, through + of.parts * of.through), xp.maximum(whole, through)
    parted = in_parts < in_waves
    return Tiled(
        xp.minimum(in_parts, in_waves),
        xp.where(parted, cut, whole),
        xp.where(parted, moved + of.parts, moved),
        port > tensor,
    )


def read_again(m: Number, n: Number, k: Number, a: Number, w: Number, device: Device) -> Number:
    r"""Bytes of one product read from DRAM more than once [B], because the cache does not hold them until
    they are used again.

    .. math::
        h = \min(m, 1024), \quad w_h = \frac{32768 \, p}{h}, \quad
        B = 1.3 \left( \left[\frac{n}{w_h} - 1\right]_+ m k a \; [(1024 a + w_{1024} w) k > C/2]
        + \left[\frac{m}{1024} - 1\right]_+ n k w \; [n k w > C/2] \right)

    Tiles are worked on in bands of h rows; p cores cover w_h columns of a band at a time. A band's
    activations are read again for the next columns unless the cache C held them meanwhile, and all weights
    for the next band.

    Form and constants from DRAM counters of an A100 (validation/a100/gemm_ncu.csv, 20 shapes above its
    cache).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> a100 = device(chip("a100-80"))
    >>> bytes_again = read_again(16384.0, 8192.0, 8192.0, 2.0, 2.0, a100)
    >>> 2e9 < float(bytes_again) < 5e9, float(read_again(128.0, 8192.0, 8192.0, 2.0, 2.0, a100))  # counted: 3.1e9
    (True, 0.0)
    """
    xp = namespace(m, n, k, device.cores, device.cache_capacity)
    band, kept = xp.minimum(m, BAND), KEPT * device.cache_capacity
    width = HELD_BY_CORE * device.cores / band
    in_use = (BAND * a + HELD_BY_CORE / BAND * device.cores * w) * k
    rows = xp.where(in_use > kept, xp.maximum(n / width - 1.0, 0.0) * m * a, 0.0)
    weights = xp.where(n * k * w > kept, xp.maximum(m / BAND - 1.0, 0.0) * n * w, 0.0)
    return DRIFT * k * (rows + weights)


def matmul(
    m: Number,
    n: Number,
    k: Number,
    device: Device,
    weight: str,
    activation: str,
    batch: Number = 1.0,
    resident: bool = False,
    warm: Number = 0.0,
) -> Price:
    r"""Price of out[b, m, n] = in[b, m, k] weight[b, k, n] with the best of `TILES`, or on arrays the best
    dataflow (`array_matmul`).

    .. math::
        T = \max(T_c + \xi \min(T_c, T_m), T_m) + T_0, \quad T_c = \max(T_p, T_l), \quad T_m = \frac{b (m k a + k n w + m n a) + B_2}{B}

    DRAM bandwidth B [B/s], sustained; bytes B_2 read more than once (`read_again`); share ξ of the shorter
    time that shows beside the longer; floor T_0 of a kernel. With `resident` the activations come from and go
    to the cache as far as they fit half of it; `warm` is the share of the weights that lies in the cache
    already.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> price = matmul(1.0, 8192.0, 8192.0, device(chip("h200")), "bf16", "bf16")
    >>> bool(price.memory > price.compute), bool(price.time > price.lower)
    (True, True)
    """
    if device.chip.kind != "gpu":
        return array_matmul(m, n, k, device, weight, activation, batch, resident, warm)
    unit = device.matrix(weight, activation)
    w, stored = bytes_of(weight), bytes_of(activation)
    given = (
        m,
        n,
        k,
        batch,
        device.cores,
        device.cache_bandwidth,
        device.core_bandwidth,
        device.grain,
        device.tile,
        unit.split,
        unit.sustained,
    )
    xp, rank = namespace(*given), rank_of(*given)

    of = extents(m, n, k, batch, device, unit, stored)

    def tiled(tm: Number, tn: Number) -> tuple[Number, ...]:
        found = tile_times(m, n, k, batch, tm, tn, device, unit, w, stored, of)
        return found.time, found.cores, found.moved, found.starved

    cores, moved, starved = best_of(TILES, tiled, rank, xp)
    inout = batch * m * (k * unit.activation + n * stored)
    if resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    compute, cache = credited(cores, moved / device.cache_bandwidth, starved)
    if device.for_bounds:
        (moved,) = best_of(TILES, lambda tm, tn: (tiled(tm, tn)[2],) * 2, rank, xp)
    dram = (1.0 - warm) * batch * k * n * w + inout + batch * read_again(m, n, k, unit.activation, w, device)
    flop = 2.0 * batch * m * n * k
    chip = device.chip
    memory = dram_time(
        device,
        dram,
        chip.memory.efficiency,
        lambda: product_stream(chip, m, n, k, unit.activation, w, stored),
    )
    return close_price(
        device,
        compute=compute,
        cache=cache,
        memory=memory,
        moved=moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy,
        lower=product_bound(flop, dram, unit, device),
        floor=device.floor + xp.where(dram > 0.0, chip.overhead.cold, 0.0),
        exposed=chip.memory.exposed,
    )


def product_bound(flop: Number, dram: Number, unit: MatrixRate, device: Device) -> Number:
    """No chip with these peaks does a product faster [s]."""
    return namespace(flop, dram, unit.peak).maximum(flop / unit.peak, dram / device.chip.memory.bandwidth)


def credited(cores: Number, cache: Number, starved: Number) -> tuple[Number, Number]:
    """Compute and cache time: cores that wait for their operands count as cache."""
    xp = namespace(cores, cache, starved)
    return xp.where(starved, 0.0, cores), xp.where(starved, xp.maximum(cores, cache), cache)


def price_matmul(op: MatMul, device: Device) -> Price:
    """Price of a product in a graph, with its share of the kernels that round activations before narrow
    products.
    """
    price = matmul(
        op.m.size, total(op.n), op.k.size, device, op.weight, op.activation, op.batch.size, device.resident
    )
    to = rounded_to(device, op.weight, op.activation)
    if not to or (
        isinstance(device.separate_quantize_share, float) and device.separate_quantize_share == 0.0
    ):
        return price
    return price + rounding(op.batch.size * op.m.size * op.k.size, to, device, device.resident).times(
        device.separate_quantize_share
    )
