"""Matrix products: the best of a few output tiles, waves over cores, traffic through cache and DRAM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from strata.base.arrays import SCALARS, Number, best_of, ceil_div, namespace, rank_of
from strata.base.shipped import needed_model
from strata.pricing.kernels import traffic
from strata.pricing.kernels.device import Device, MatrixRate, kernel_price
from strata.pricing.kernels.systolic import array_matmul
from strata.pricing.price import Price

# Output tiles tried for each product (rows, columns): shapes GPU libraries ship, large to small. Short sides
# shrink a tile.
TILES = np.array([(256, 128), (128, 256), (128, 128), (64, 256), (64, 128), (64, 64), (64, 32)], float)
# With the largest of all, where registers hold its sums: 512 KiB a core, as on CDNA.
LARGE_TILES = np.concatenate([np.array([(256, 256)], float), TILES])
SPLIT_DEPTH = 384.0  # least depth of one part when a product is cut along k: three steps of 128
# of one row in a step of the main loop: the widest swizzle of a tile in shared memory, on GPUs since 2022
# filled in one piece
STEP_BYTES = 128.0
# How tiles follow each other, from the DRAM counters of an A100 (validation/a100/gemm_ncu.csv): bands of
# eight tiles of 128 rows; results one core works on at a time (a tile of 128 x 256 in registers); what cores
# that drift apart read again. `HELD` of the cache keeps an operand between two uses.
BAND = 1024.0
HELD_BY_CORE = traffic.TILE_ROWS * traffic.TILE_COLUMNS
DRIFT = 1.3


class TileTimes(NamedTuple):
    """A product in tiles."""

    time: Number  # the longer of those on the cores and of the cache [s]
    cores: Number
    moved: Number  # bytes through the cache
    starved: Number  # whether cores wait for their operands


def padded(extent: Number, grain: Number) -> Number:
    """Rows or columns a matrix unit works on: whole instructions, the finer side of which takes the short
    extent.

    >>> float(padded(3.0, 8.0)), float(padded(64.0, 8.0))
    (8.0, 64.0)
    """
    return ceil_div(extent, grain) * grain


@dataclass(eq=False, kw_only=True, slots=True)
class Tiling:
    """What all tilings of a product share: terms of `tile_times`, worked out once.

    Extents in whole instructions; time of a tile's elements at full rate and at least; the least share of the
    depth that a part of a cut product has, and the bytes of its partial sums; a core's share of the tiles;
    times into a core of a row or column of operands and of a result, and of a byte through the cache [s].
    """

    product: traffic.Product
    device: Device
    unit: MatrixRate
    xp: Any
    rows: Number
    columns: Number
    pace: Number
    least: Number
    least_part: Number
    partial_sums: Number
    core_share: Number
    load: Number
    store: Number
    through: Number
    sides: dict[tuple[str, float], tuple[Number, Number, Number]] = field(default_factory=dict)

    def side(self, name: str, size: Number) -> tuple[Number, Number, Number]:
        """A tile's side in whole instructions, its bytes a unit of depth, tiles along the extent; kept."""
        key = (name, size) if size.__class__ is float else None
        if key is not None and key in self.sides:
            return self.sides[key]
        p = self.product
        extent, whole, width = (
            (p.m, self.rows, p.input_bytes) if name == "rows" else (p.n, self.columns, p.weight_bytes)
        )
        length = self.xp.minimum(size, whole)
        side = length, length * width, ceil_div(extent, size)
        if key is not None:
            self.sides[key] = side
        return side


def tiling(product: traffic.Product, device: Device, unit: MatrixRate, xp: Any = None) -> Tiling:
    """The terms that tilings of a product on a device share."""
    depth = padded(product.k, STEP_BYTES / unit.activation)
    return Tiling(
        product=product,
        device=device,
        unit=unit,
        xp=namespace(product.m, product.n, depth, device.cores) if xp is None else xp,
        rows=padded(product.m, device.grain),
        columns=padded(product.n, device.grain),
        pace=2.0 * depth * device.cores / unit.sustained,
        least=depth * unit.step,
        least_part=namespace(depth).minimum(SPLIT_DEPTH / depth, 1.0),
        partial_sums=(2.0 * traffic.ACCUMULATOR * product.batch) * (product.m * product.n),
        core_share=1.0 / device.cores,
        load=product.k / device.core_bandwidth,
        store=product.output_bytes / device.core_bandwidth,
        through=1.0 / device.cache_bandwidth,
    )


def tile_times(of: Tiling, tile_rows: Number, tile_columns: Number) -> TileTimes:
    r"""Time on the cores, cache time [s] and cache bytes of a product cut into tiles, the better of two
    schedules.

    .. math::
        t = b \lceil m/t_m \rceil \lceil n/t_n \rceil, \quad
        \tau = \max\left(\frac{2 \hat t_m \hat t_n k}{R / p},
            \frac{(\hat t_m a + \hat t_n w) k}{\beta}, \lambda k, \hat t_n k \nu\right), \quad
        \epsilon = \tau_0 + \frac{\hat t_m \hat t_n o}{\beta}

        T_{whole} = \lceil t/p \rceil (\tau + \epsilon), \quad
        T_{cut} = \max\left(\frac{t}{p}, \frac{d}{\hat k}\right) \tau
            + \max\left(\frac{t}{p}, 1\right) \epsilon + \sigma

    b products of m x n x k in tiles of t_m x t_n; p cores of rate R together [FLOP/s], each drawing at most β
    from the cache [B/s]; a, w, o bytes an element of activations, weights and results. A tile is computed in
    whole instructions (hats), so padding costs time, and ends with a start and a write of its own (ε); its
    main loop takes at least λ for each unit of depth, and ν for each weight that must be widened first. Whole
    tiles go to cores in waves; or products are cut along k so that every core gets an equal share, of at
    least d of the depth, and the parts are added up in time σ.

    Osama et al., Stream-K, PPoPP 2023 (arXiv 2301.03598): work-centric shares against waves of tiles.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("h200"))
    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> shape = traffic.Product(m=1024.0, n=2304.0, k=16384.0, **two)
    >>> times = tile_times(tiling(shape, d, d.matrix("bf16", "bf16")), 128.0, 256.0)
    >>> 0.7e-4 < float(times.cores) < 1.2e-4  # 72 tiles on 132 cores, cut to fill them
    True
    """
    xp, product, widening = of.xp, of.product, of.unit.widening
    rows, row_bytes, down = of.side("rows", tile_rows)
    columns, column_bytes, across = of.side("columns", tile_columns)
    once = product.batch.__class__ is float and product.batch == 1.0
    tiles = down * across if once else down * across * product.batch
    per_core = tiles * of.core_share
    area = rows * columns
    tensor = area * of.pace
    operands = row_bytes + column_bytes
    port = operands * of.load
    work = xp.maximum(xp.maximum(tensor, port), of.least)
    if widening.__class__ is not float or widening != 0.0:
        work = xp.maximum(work, columns * product.k * widening)
    ends = of.device.tile + area * of.store
    whole = ceil_div(per_core, 1.0) * (work + ends)
    cut = xp.maximum(per_core, of.least_part) * work + xp.maximum(per_core, 1.0) * ends + of.unit.split
    moved = tiles * (operands * product.k + area * product.output_bytes)
    through = moved * of.through
    # Parts pass through the cache: a cut must pay with them, or padding to whole waves would look faster.
    in_parts, in_waves = xp.maximum(cut, through + of.partial_sums * of.through), xp.maximum(whole, through)
    parted = in_parts < in_waves
    return TileTimes(
        xp.minimum(in_parts, in_waves),
        xp.where(parted, cut, whole),
        xp.where(parted, moved + of.partial_sums, moved),
        port > tensor,
    )


def best_tile(
    of: Tiling, rank: int, cost: str = "time", wanted: tuple[str, ...] = ("cores", "moved", "starved")
) -> tuple[Number, ...]:
    """Fields of the times of that one of `TILES` (of `LARGE_TILES`, where it is said what registers hold)
    with the least `cost`, at each point; costs equal but for rounding go to the first.

    A single point leaves out tiles that its short sides shrink to one that was tried before.
    """

    most = of.device.chip.compute.tile_results

    def tried(rows: Number, columns: Number) -> tuple[Number, ...]:
        times = tile_times(of, rows, columns)
        found = getattr(times, cost)
        if most is not None:
            found = of.xp.where(rows * columns > most, float("inf"), found)
        return (found, *[getattr(times, name) for name in wanted])

    if of.xp is not SCALARS:
        return best_of(TILES if most is None else LARGE_TILES, tried, rank, of.xp)
    distinct: dict[tuple[Number, Number], tuple[float, float]] = {}
    for rows, columns in _TILES if most is None else _LARGE_TILES:
        distinct.setdefault((min(rows, of.rows), min(columns, of.columns)), (rows, columns))
    best, *others = [tried(*tile) for tile in distinct.values()]
    for other in others:
        if other[0] * (1.0 + 1e-9) < best[0]:
            best = other
    return best[1:]


_TILES: list[tuple[float, float]] = [(float(rows), float(columns)) for rows, columns in TILES]
_LARGE_TILES: list[tuple[float, float]] = [(float(r), float(c)) for r, c in LARGE_TILES]


def reread_bytes(product: traffic.Product, device: Device) -> Number:
    r"""Bytes of one product read from DRAM more than once [B], because the cache does not hold them until
    they are used again.

    .. math::
        h = \min(m, 1024), \quad w_h = \frac{32768 \, p}{h}, \quad
        B = 1.3 \left( \left[\frac{n}{w_h} - 1\right]_+ m k a \; [(1024 a + w_{1024} w) k > C/2]
        + \left[\frac{m}{1024} - 1\right]_+ n k w \; [n k w > C/2] \right)

    Tiles are worked on in bands of h rows; p cores cover w_h columns of a band at a time. A band's
    activations are read again for the next columns unless the cache C held them meanwhile, and all weights
    for the next band. Where it is said how many results a core holds, they take the place of 32768, and
    weights are read no more often than all cores together begin anew.

    Form and constants from DRAM counters of an A100 (validation/a100/gemm_ncu.csv, 20 shapes above its
    cache).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> a100, two = device(chip("a100-80")), {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> many, few = (traffic.Product(m=m, n=8192.0, k=8192.0, **two) for m in (16384.0, 128.0))
    >>> 2e9 < float(reread_bytes(many, a100)) < 5e9, float(reread_bytes(few, a100))  # counted: 3.1e9
    (True, 0.0)
    """
    m, n, k, a, w = product.m, product.n, product.k, product.input_bytes, product.weight_bytes
    xp = namespace(m, n, k, device.cores, device.cache_capacity)
    band, kept = xp.minimum(m, BAND), traffic.HELD * device.cache_capacity
    most = device.chip.compute.tile_results
    width = (HELD_BY_CORE if most is None else most) * device.cores / band
    bands = m / BAND
    if most is not None:
        bands = xp.minimum(bands, m * n / (most * device.cores))
    in_use = (BAND * a + HELD_BY_CORE / BAND * device.cores * w) * k
    rows = xp.where(in_use > kept, xp.maximum(n / width - 1.0, 0.0) * m * a, 0.0)
    weights = xp.where(n * k * w > kept, xp.maximum(bands - 1.0, 0.0) * n * w, 0.0)
    return DRIFT * k * (rows + weights)


def die_fills(product: traffic.Product, device: Device) -> Number:
    r"""Bytes from the shared level behind the cache into the caches of the compute dies [B].

    .. math:: S = \frac{32768 \, p}{d}, \quad c = \frac{C}{d}

    Each of d dies works on S results at a time and has c of the cache's C bytes to itself: operands are
    fetched for every die that needs them, and again when its part did not hold them (`wave_traffic`).

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> one = traffic.Product(m=4096.0, n=4096.0, k=4096.0, **two)
    >>> eight = die_fills(one, device(chip("mi300x")))
    >>> round(float(eight / (one.weights + one.activations)), 1)  # of the bytes it has
    2.8
    """
    cache = device.chip.cache
    dies = 1.0 if cache.dies is None else cache.dies
    return traffic.wave_traffic(product, HELD_BY_CORE * device.cores / dies, cache.capacity / dies)


def matmul(
    m: Number,
    n: Number,
    k: Number,
    device: Device,
    weight: str,
    activation: str,
    *,
    batch: Number = 1.0,
    resident: bool = False,
    warm: Number = 0.0,
    unaligned: Number = 0.0,
    result_bytes: Number | None = None,
) -> Price:
    r"""Price of out[b, m, n] = in[b, m, k] weight[b, k, n] with the best of `TILES`, or on arrays the best
    dataflow (`array_matmul`).

    .. math::
        T = \max(T_c + \xi \min(T_c, T_m), T_m) + T_0, \quad T_c = \max(T_p, T_l), \quad
        T_m = \frac{b (m k a + k n w + m n a) + B_2}{B}

    DRAM bandwidth B [B/s], sustained; bytes B_2 read more than once (`reread_bytes`); share ξ of the shorter
    time that shows beside the longer; floor T_0 of a kernel. With `resident` the activations come from and go
    to the cache as far as they fit half of it; `warm` is the share of the weights that lies in the cache
    already; `unaligned` is 1 where rows of the weights are no whole 16 bytes (`unaligned_time` for T_p);
    `result_bytes` pass for a result where they are not those of an activation.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> price = matmul(1.0, 8192.0, 8192.0, device(chip("h200")), "bf16", "bf16")
    >>> bool(price.memory > price.compute), bool(price.time > price.lower)
    (True, True)
    """
    unit = device.matrix(weight, activation)
    more: dict[str, Number] = {"batch": batch, "unaligned": unaligned}
    if result_bytes is not None:
        more["output_bytes"] = result_bytes
    product = traffic.Product.of(m, n, k, unit, weight, activation, **more)
    chip = device.chip
    name = chip.kernel_model or chip.kind
    priced = PRODUCT_MODELS.get(name) or needed_model("product models", name)
    return priced(product, device, unit, resident, warm)


def _tiled_matmul(
    product: traffic.Product, device: Device, unit: MatrixRate, resident: bool, warm: Number
) -> Price:
    chip, batch = device.chip, product.batch
    sizes = (product.m, product.n, product.k, batch)
    rates = (device.cores, device.cache_bandwidth, device.core_bandwidth, unit.sustained)
    most = chip.compute.tile_results
    fixed = (device.grain, device.tile, unit.split, unit.step, unit.widening, 0.0 if most is None else most)
    xp = namespace(*sizes, *rates, *fixed)
    rank = 0 if xp is SCALARS else rank_of(*sizes, *rates, *fixed)
    of = tiling(product, device, unit, xp)
    cores, moved, starved = best_tile(of, rank)
    if product.unaligned.__class__ is not float or product.unaligned != 0.0:
        cores = xp.where(product.unaligned > 0.0, traffic.unaligned_time(product, device), cores)
    inout = product.activations
    if resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    through = moved / device.cache_bandwidth
    if device.far_bandwidth is not None:
        through = xp.maximum(through, die_fills(product, device) / device.far_bandwidth)
    # cores that wait for their operands count as cache
    compute, cache = xp.where(starved, 0.0, cores), xp.where(starved, xp.maximum(cores, through), through)
    if device.software.for_bounds:
        (moved,) = best_tile(of, rank, "moved", ("moved",))
    dram = (1.0 - warm) * product.weights + inout + batch * reread_bytes(product, device)
    flop = product.flop
    return kernel_price(
        device,
        compute=compute,
        cache=cache,
        memory=traffic.dram_time(
            device, dram, chip.memory.efficiency, lambda: traffic.product_stream(chip, product)
        ),
        moved=moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy,
        lower=traffic.product_bound(flop, dram, unit, device),
        floor=device.floor + xp.where(dram > 0.0, chip.overhead.cold, 0.0),
        exposed=chip.memory.exposed,
    )


# How a product is priced, by the model a chip asks for or else by its kind; papers offer others.
PRODUCT_MODELS: dict[str, Callable[[traffic.Product, Device, MatrixRate, bool, Number], Price]] = {
    "gpu": _tiled_matmul,
    "systolic": array_matmul,
    "dataflow": array_matmul,
    "tiled": _tiled_matmul,
    "array": array_matmul,
}
