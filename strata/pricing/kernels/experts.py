"""Grouped products of routed experts, and the gathers around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from strata.base.arrays import Array, Number, as_float, ceil_div, choose, has_axes, lead, namespace, rank_of
from strata.base.precision import bytes_of, supports
from strata.pricing.kernels import traffic
from strata.pricing.kernels.device import Device, MatrixRate, by_format, kernel_price, rescaled_rate
from strata.pricing.kernels.expert_load import ExpertLoad, load_rank, shared_load, tile_heights
from strata.pricing.kernels.matmul import padded
from strata.pricing.kernels.vector import scattered_rows
from strata.pricing.price import Price, network_price
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import total
from strata.workload.ops import Gather

SCALED_BLOCKS = ("fp8_block",)  # formats of weights with one scale for a block of both sides
COLUMNS = (128.0, 256.0)  # of a tile; the wider ones for the highest tiles only
# tokens up to which sorting by expert takes longer the more there are: seen between 64 and 256 in ops/moe.csv
SORTED = 256.0
# Kernels of serving frameworks fill tiles with zeros and multiply these too. On an H200 tiles of 64 and 128
# rows with one token each cost 0.4 pJ for each of their operations, as full ones do (our measurement: a
# Triton kernel over 128 experts of 2048 x 1536, bf16, at 3.5 to 4.3 TB/s and 695 W, by the clock it held).
PADDING = 1.0
# narrow formats of OCP's Microscaling, whose products take activations of 8 bits (PTX ISA, tcgen05.mma of
# kind mxf8f6f4) at the rate of these
MICROSCALED = ("mxfp4", "mxfp6")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupedKernels:
    """How a library runs grouped products: sustained rate [FLOP/s], DRAM bandwidth [B/s], floor [s], and its
    tiles.

    `rows` and `columns` of the tiles to choose from lie on a leading axis, as do the tiles of the
    `ExpertLoad` that comes with them.
    """

    rate: Number
    bandwidth: Number
    tile: Number  # start and end of one tile [s]
    floor: Number
    rows: Number
    columns: Number
    core_bandwidth: Number | None = None  # what one core draws of weights at most [B/s]; None: no limit
    padding: float = 0.0  # 1 where operations on the empty rows of a tile cost what others do, else 0


def grouped_product(
    load: ExpertLoad,
    product: traffic.Product,
    device: Device,
    unit: MatrixRate,
    kernels: GroupedKernels,
    flop: Number,
) -> Price:
    r"""Price of the products of a rank's experts; `product` is that of one expert with all of the tokens.

    .. math::
        T = \sqrt{T_c^2 + T_m^2} + T_0, \quad
        T_m = \frac{e k n w + [b > C/2] \, b}{B}, \quad b = x (k a + n o)

        T_c = \max\left(\left\lceil \frac{t \lceil n / t_n \rceil}{p} \right\rceil (\tau + \tau_0),
            \frac{M}{L}\right), \quad
        \tau = \max\left(\frac{2 t_m t_n k}{R / p}, t_n k \nu, \frac{t_n k w}{\beta}\right)

    e touched experts with x tokens in t tiles of t_m rows; p cores of rate R together, each starting and
    ending a tile in τ_0; a weight takes ν to widen; a core draws β of weights at most, where that is known;
    bytes a, w, o of an input, a weight and a result; DRAM bandwidth B; M bytes through the cache at L, of
    capacity C. Tiles of a small expert do not fill the pipeline between cores and DRAM, so that the two hide
    each other only in part: their squares add up.

    The square is empirical: of powers 1.5, 2, 3 and the maximum as good as any on validation/ops/moe.csv.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d, unit = (h200 := device(chip("h200"))), h200.matrix("bf16", "bf16")
    >>> widths = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> tiles = {"rows": np.array([128.0]), "columns": np.array([256.0]), "tile": 0.0, "floor": 0.0}
    >>> kernels = GroupedKernels(rate=unit.sustained, bandwidth=d.bandwidth, **tiles)
    >>> load = ExpertLoad(tokens=1024.0, experts=8.0, tiles=np.array([8.0]))
    >>> product = traffic.Product(m=1024.0, n=28672.0, k=4096.0, **widths)
    >>> price = grouped_product(load, product, d, unit, kernels, 2.4e11)
    >>> 4e-4 < float(price.time) < 7e-4  # the weights alone take 3.9e-4 at the DRAM's peak
    True
    """
    computing, moved, worked, least = _best_tiles(load, product, device, unit, kernels)
    xp = namespace(computing, load.tokens, product.n, product.k, kernels.rate)
    cache, inout = moved / device.cache_bandwidth, product.activations
    if device.software.resident:
        inout = xp.where(inout > 0.5 * device.cache_capacity, inout, 0.0)
    dram = load.experts * product.weights + inout
    busy, memory = xp.maximum(computing, cache), dram / kernels.bandwidth
    both, slower = xp.sqrt(busy * busy + memory * memory), busy >= memory
    stretch = xp.where(slower, both / busy, 1.0)
    return kernel_price(
        device,
        compute=computing * stretch,
        cache=cache * stretch,
        memory=xp.where(slower, memory, both),
        moved=least if device.software.for_bounds else moved,
        dram=dram,
        flop=flop,
        joule=xp.maximum(flop, worked) * unit.energy,
        lower=traffic.product_bound(flop, dram, unit, device),
        floor=kernels.floor,
    )


def _best_tiles(
    load: ExpertLoad, product: traffic.Product, device: Device, unit: MatrixRate, kernels: GroupedKernels
) -> tuple[Number, Number, Number, Number]:
    """Time of cores with the quickest tiles [s], their cache bytes and operations, least cache bytes."""
    cores, n, k = device.cores, product.n, product.k
    xp = namespace(load.tokens, load.tiles, n, k, cores, kernels.rate)
    rows, columns = padded(kernels.rows, device.grain), xp.minimum(kernels.columns, padded(n, device.grain))
    tiles = load.tiles * ceil_div(n, kernels.columns)
    work = rows * columns * (2.0 * cores / kernels.rate)
    if unit.widening.__class__ is not float or unit.widening != 0.0:
        work = xp.maximum(work, columns * unit.widening)
    if kernels.core_bandwidth is not None:
        work = xp.maximum(work, columns * product.weight_bytes / kernels.core_bandwidth)
    computing = xp.maximum(ceil_div(tiles, cores), 1.0) * (work * k + kernels.tile)
    operands = (rows * product.input_bytes + columns * product.weight_bytes) * k
    moved = tiles * operands + load.tokens * n * product.output_bytes
    least = xp.min(moved, axis=0) if device.software.for_bounds else 0.0
    worked = tiles * (2.0 * kernels.padding * rows * columns) * k
    cost = xp.maximum(computing, moved / device.cache_bandwidth)
    quickest, crossing, done = (as_float(chosen) for chosen in choose(cost, computing, moved, worked))
    return quickest, crossing, xp.min(worked, axis=0) if device.software.for_bounds else done, least


@lru_cache(maxsize=64)
def expert_tiles(rows: str) -> tuple[Array, Array, Array]:
    """Tiles a tuned library chooses from: index of their height among `tile_heights`, rows and columns.

    >>> [axis.tolist() for axis in expert_tiles("32 128")]
    [[0, 1, 1], [32.0, 128.0, 128.0], [128.0, 128.0, 256.0]]
    """
    heights = tile_heights(rows)
    index = np.array([*range(len(heights)), len(heights) - 1])
    return index, heights[index], np.array([COLUMNS[0]] * len(heights) + [COLUMNS[1]])


def expert_kernels(op: ExpertMatMul, device: Device) -> tuple[str, MatrixRate]:
    """The kernels that serve experts of these formats: the format under which their times and shares were
    measured, and the rates of their arithmetic.

    * Activations stored in 8 bits have kernels of their own, which leave narrower weights to matrix units
      that take them; `expert_inputs` of an engine rounds 16-bit ones to these.
    * Weights the chip has no arithmetic for are widened by kernels measured under the weights' own name, or
      inside a grouped product of the activations' format (`fused` of `weight_only_experts`), which has that
      format's fixed times and no passes of its own.

    >>> from strata.pricing.kernels.device import KernelSoftware, device
    >>> from strata.hardware.chip import chip
    >>> from strata.workload.graph import Extent
    >>> sizes = {"n": (Extent(1.0),), "k": Extent(1.0), "tokens": Extent(32.0), "experts": Extent(16.0)}
    >>> more = {"top_k": 8.0, "all_experts": 128.0, "skew": 0.0, "weight": "mxfp4", "activation": "bf16"}
    >>> op = ExpertMatMul(name="up", module="moe", inputs=(), output="", **sizes, **more)
    >>> served = {"weight_only_experts": "fused", "expert_inputs": "fp8"}
    >>> [expert_kernels(op, device(chip(c), **s))[0] for c in ("h200", "b200") for s in ({}, served)]
    ['mxfp4', 'bf16', 'mxfp4', 'fp8']
    """
    software, unit = device.software, device.matrix(op.weight, op.activation)
    native = supports(device.chip.compute.matrix_rate, op.weight)
    if bytes_of(op.activation) <= 1.0:
        widens = op.activation == op.weight or not native
        return op.activation, unit if widens else replace(unit, widening=0.0)
    if native and op.weight in MICROSCALED and software.expert_inputs == "fp8":
        return "fp8", device.matrix("fp8", "fp8")
    if unit.activation > bytes_of(op.weight) and software.weight_only_experts == "fused":
        return op.activation, unit
    return op.weight, unit


def price_experts(
    op: ExpertMatMul, device: Device, ranks: Number = 1.0, load: ExpertLoad | None = None
) -> Price:
    """Price of one of the two products of a layer of experts, as serving frameworks run it, on the busiest of
    `ranks` expert ranks.

    The load is that of random routing (`busiest_load`), or one that is known. Half of the layer's floor and
    of sorting its tokens count for each product.
    """
    chip, measured = device.chip, device.chip.experts
    name, unit = expert_kernels(op, device)
    stored, n, k = bytes_of(op.activation), total(op.n), op.k.size
    load = load or shared_load(op, device, ranks)
    xp = namespace(load.tokens, load.tiles, op.tokens.size, n, k, device.cores)
    rank = max(load_rank(op, device, ranks), rank_of(load.tokens))
    product = traffic.Product.of(load.tokens, n, k, unit, op.weight, op.activation)

    def weights() -> traffic.RequestStream:
        each = load.tokens / xp.maximum(load.experts, 1.0)
        return traffic.product_stream(chip, replace(product, m=each))

    rounded = load.tokens * k * (2.0 * by_format(measured.passes, name))
    passes = traffic.dram_time(
        device, rounded, measured.gather_efficiency, lambda: traffic.RequestStream(k * stored, 0.5, even=True)
    )
    tokens = op.tokens.size
    sorting = measured.sort * namespace(tokens).minimum(tokens / SORTED, 1.0)
    index, rows, columns = expert_tiles(measured.tile_rows)
    widens = name == op.activation != op.weight and bytes_of(op.weight) < unit.activation
    block = _block_share(name, device, ranks)
    read, worked = (1.0, device.software.weight_only_rate) if widens else (block, block)
    kernels = GroupedKernels(
        rate=rescaled_rate(unit.peak * by_format(measured.efficiency, name), name, chip, device.boost)
        * worked,
        bandwidth=traffic.dram_bandwidth(device, measured.memory_efficiency, weights) * read,
        tile=measured.tile,
        floor=0.5 * (by_format(measured.floor, name) + sorting) + passes,
        rows=lead(rows, rank, xp),
        columns=lead(columns, rank, xp),
        core_bandwidth=measured.core_bandwidth,
        padding=PADDING,
    )
    assert has_axes(load.tiles)
    chosen = ExpertLoad(tokens=load.tokens, experts=load.experts, tiles=load.tiles[index])
    return grouped_product(chosen, product, device, unit, kernels, op.flop())


def _block_share(name: str, device: Device, ranks: Number) -> Number:
    """Rate of expert-parallel grouped products in scaled blocks over that of tuned kernels."""
    if device.software.for_bounds or name not in SCALED_BLOCKS:
        return 1.0
    return namespace(ranks).where(ranks > 1.0, device.software.expert_block_rate, 1.0)


def price_gather(op: Gather, device: Device) -> Price:
    r"""Price of taking rows to their experts, or of adding their results up: each row is a short stream to an
    address of its own.

    .. math:: T = \frac{r + w}{\gamma B_{peak}} + T_0

    bytes read r and written w; share γ of the DRAM peak that gathered rows reach; floor T_0 of a streaming
    kernel. Rows of a table in the host's memory pass its link before that.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> from strata.workload.graph import Extent
    >>> h200 = chip("h200", **{"experts.gather_efficiency": 0.4, "overhead.stream": 0.0})
    >>> moved = {"reads": 1.0, "writes": 1.0, "flop_per_element": 0.0, "special_per_element": 0.0}
    >>> sizes = {"m": Extent(1e5), "n": (Extent(4800.0),), "precision": "bf16"}
    >>> rows = Gather(name="dispatch", module="moe", inputs=(), output="sent", **sizes, **moved)
    >>> round(float(price_gather(rows, device(h200)).time), 6)  # 1.92 GB at 1.92 TB/s
    0.001
    """
    chip, size = device.chip, op.elements() * bytes_of(op.precision)
    moved, flop = size * (op.reads + op.writes), op.vector_flop()
    row, rate, floor = op.row_bytes(), chip.experts.gather_efficiency, chip.overhead.stream

    def requests() -> traffic.RequestStream:
        return traffic.RequestStream(row, traffic.read_fraction(op.reads, op.writes), even=True)

    here = scattered_rows(device, moved, flop, rate, requests, floor=floor)
    return here if op.host_link is None else here + network_price(size / op.host_link, 0.0)
