"""Matrix products by a roofline of every memory level, with the best tiling found at each point.

A core works on one tile of results at a time; tiles go to cores in waves. Each level has to deliver what the
tile above it needs (`tilings`): the innermost memory feeds the arrays, a core's local memory its matrix
units, the shared levels the cores, DRAM a whole wave. Of the tiles that fit, the one with the least time is
taken.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deepflow.tilings import core_tile_fits, core_tiles, largest, register_bytes, unit_grid
from strata.base.arrays import SCALARS, Number, best_of, ceil_div, floor_div, namespace, rank_of
from strata.hardware.chip_parts import MemoryLevel
from strata.hardware.hierarchy import memory_levels, scope_capacity
from strata.pricing.kernels.device import Device, MatrixRate, kernel_price, noc_byte_energy
from strata.pricing.kernels.systolic import block_traffic, dataflows
from strata.pricing.kernels.traffic import (
    ACCUMULATOR,
    HELD,
    Product,
    dram_time,
    product_bound,
    product_stream,
    tile_traffic,
    wave_traffic,
)
from strata.pricing.price import Price

ENDLESS = 1e300  # waves of tiles beyond what doubles tell apart: as many, and no infinity over another
LEAST_DEPTH = 64.0  # of one part of a product that is cut along its depth to fill the cores


@dataclass(frozen=True)
class RooflineRules:
    """Effects of the hierarchical roofline that can be left out, to see what each is worth."""

    waves: bool = True  # tiles go to cores in whole waves, and the last one leaves some idle
    split: bool = True  # products of few tiles may be cut along their depth
    blocks: bool = False  # software holds blocks of operands in shared memory, not least-recent use


class Memories(NamedTuple):
    """The levels a product passes, as the roofline sees them."""

    levels: tuple[MemoryLevel, ...]  # innermost first, DRAM last
    rates: tuple[Number, ...]  # sustained, at the highest clock [B/s]
    registers: Number | None  # bytes of one matrix unit's own memory
    local: Number  # bytes of one core's
    shared: tuple[Number, ...]  # bytes of the shared levels but DRAM
    units: Number  # of a core
    rows: Number  # of a unit's array
    columns: Number
    dataflow: str  # what software keeps in shared memories: "best", or one of three


class TilingTimes(NamedTuple):
    """A product in one tiling: its whole time without the floor (infinite where the tile does not fit), time
    of the cores and of each level, and bytes through each level, innermost first.
    """

    time: Number
    compute: Number
    times: tuple[Number, ...]
    moved: tuple[Number, ...]


def memories(device: Device) -> Memories:
    """What the roofline needs of a device's levels; a chip without arrays feeds its smallest instruction.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> found = memories(device(chip("a100-80")))
    >>> found.registers, found.local, found.shared, found.units
    (65536.0, 196608.0, (41943040.0,), 4.0)
    """
    chip, compute = device.chip, device.chip.compute
    levels = memory_levels(chip)
    sizes = [scope_capacity(chip, level) for level in levels]
    by_scope = {
        scope: [size for size, level in zip(sizes, levels, strict=True) if level.scope == scope]
        for scope in ("unit", "bundle", "global")
    }
    on_die = [level.bandwidth * level.efficiency * device.boost for level in levels[:-1]]
    return Memories(
        levels=levels,
        rates=(*on_die, device.bandwidth),
        registers=largest(*by_scope["unit"]) if by_scope["unit"] else None,
        local=largest(*by_scope["bundle"]),
        shared=tuple(by_scope["global"][:-1]),
        units=1.0 if compute.units is None else compute.units,
        rows=compute.tile_m if compute.array_rows is None else compute.array_rows,
        columns=compute.tile_n if compute.array_columns is None else compute.array_columns,
        dataflow=compute.dataflow,
    )


def level_traffic(
    product: Product, memory: Memories, tile: tuple[Number, Number], wave: Number, depth: Number, blocks: bool
) -> tuple[Number, ...]:
    """Bytes through each level, innermost first, when cores work on tiles of so many rows and columns, all of
    them on a wave of so many results, with parts of so much depth.
    """
    m, n = product.m, product.n
    xp = namespace(m, n, product.k, *tile, wave, depth)
    down, across = ceil_div(m, tile[0]), ceil_div(n, tile[1])
    by_core = tile_traffic(product, down, across)
    by_unit = by_core
    if memory.registers is not None:
        unit_rows, unit_columns = unit_grid(memory.units)
        by_unit = tile_traffic(product, xp.minimum(down * unit_rows, m), xp.minimum(across * unit_columns, n))
    # arrays are no larger than the matrices, so that no level delivers less than the one below it
    moved = [xp.maximum(register_bytes(product, memory.rows, memory.columns, depth), by_unit)]
    shared = iter(memory.shared)
    for inner, level in itertools.pairwise(memory.levels):
        if inner.scope == "global":
            size = next(shared)
            now = wave_traffic(product, wave, size)
            if blocks:
                now = xp.minimum(now, held_traffic(product, size, memory.dataflow))
        else:
            now = by_unit if level.scope != "global" and inner.scope == "unit" else by_core
        moved.append(xp.minimum(now, moved[-1]))
    return tuple(moved)


def held_traffic(product: Product, capacity: Number, dataflow: str = "best") -> Number:
    """Bytes into a memory whose software holds blocks of a matrix in it, by the best dataflow
    (`systolic`) of those there are.

    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> large = Product(m=16384.0, n=4096.0, k=4096.0, **two)
    >>> round(float(held_traffic(large, 40 * 2.0**20)) / 1e6)  # activations twice, the others once
    436
    """
    given = (product.m, product.n, product.k, product.weight_bytes, capacity)
    xp = namespace(*given)
    array = np if xp is SCALARS else xp
    traffic = block_traffic(dataflows(product, rank_of(*given), array, dataflow), capacity)
    least: Number = array.min(traffic, axis=0) * product.batch
    return least


def tiling_times(
    product: Product,
    device: Device,
    unit: MatrixRate,
    memory: Memories,
    tile: tuple[Number, Number],
    rules: RooflineRules,
) -> TilingTimes:
    r"""Time of a product on the cores and at each level of memory [s], with tiles of t_m x t_n results.

    .. math::
        t = b \left\lceil \frac{m}{t_m} \right\rceil \left\lceil \frac{n}{t_n} \right\rceil s, \quad
        q = \frac{p}{t} \left\lceil \frac{t}{p} \right\rceil, \quad
        T_c = q \, \frac{2 t \, t_m t_n k / s}{R}, \quad
        T_i = q_i \frac{b_i}{B_i} + \lambda_i

        T = \max\left(C + \xi \min(C, T_d), T_d\right), \quad C = \max(T_c, T_0, T_1, \dots)

    t tiles, each cut into s parts along the depth where there are too few to fill the p cores; q is how much
    longer whole waves take than an even share. Level i delivers b_i bytes at B_i with latency λ_i; q counts
    for memories of units and cores (q_i = q), not for shared ones (1), of which a core draws at most its
    port. Share ξ of the shorter of the time on the chip and of DRAM T_d shows.

    DeepFlow (2023), section 5: the time of a product is the longest of its levels'.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("a100-80"))
    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> shape, rate = Product(m=8192.0, n=128.0, k=1024.0, **two), d.matrix("bf16", "bf16")
    >>> of = tiling_times(shape, d, rate, memories(d), (128.0, 128.0), RooflineRules())
    >>> round(float(of.compute * rate.sustained / shape.flop), 3)  # 64 tiles on 108 cores
    1.688
    """
    m, n, k, cores = product.m, product.n, product.k, device.cores
    xp = namespace(m, n, k, product.batch, cores, *tile)
    rows = xp.minimum(tile[0], ceil_div(m, device.grain) * device.grain)
    columns = xp.minimum(tile[1], ceil_div(n, device.grain) * device.grain)
    tiles = product.batch * ceil_div(m, rows) * ceil_div(n, columns)
    room = xp.minimum(floor_div(cores, tiles), floor_div(k, LEAST_DEPTH))
    parts: Number = xp.maximum(room, 1.0) if rules.split else 1.0
    share = xp.minimum(tiles * parts / cores, ENDLESS)
    uneven = ceil_div(share, 1.0) / share if rules.waves else 1.0
    compute = uneven * 2.0 * tiles * rows * columns * k / unit.sustained
    moved = level_traffic(
        product, memory, (rows, columns), cores * rows * columns / parts, k / parts, rules.blocks
    )
    sums = xp.where(parts > 1.0, 2.0 * ACCUMULATOR * parts * product.batch * m * n, 0.0)
    through = [size + sums for size in moved[:-1]]  # parts that are added up pass all levels on the chip
    on_chip = _on_chip_times(device, memory, through, uneven)
    chip, dram = device.chip, moved[-1]
    memory_time = dram_time(device, dram, chip.memory.efficiency, lambda: product_stream(chip, product))
    memory_time = memory_time + chip.memory.latency
    core = largest(compute, *on_chip)
    longest = xp.maximum(core + chip.memory.exposed * xp.minimum(core, memory_time), memory_time)
    fitting = core_tile_fits(
        rows, columns, units=memory.units, registers=memory.registers, local=memory.local
    )
    longest = xp.where(fitting, longest, xp.inf)
    return TilingTimes(longest, compute, (*on_chip, memory_time), (*through, dram))


def _on_chip_times(device: Device, memory: Memories, moved: list[Number], uneven: Number) -> list[Number]:
    """Times of all levels but DRAM; of shared ones a core draws at most its port."""
    port, times = device.core_bandwidth * device.cores, []
    for level, rate, size in zip(memory.levels[:-1], memory.rates[:-1], moved, strict=True):
        if level.scope == "global":
            xp = namespace(size, rate, port, uneven)
            time = xp.maximum(size / rate, uneven * size / port)
        else:
            time = uneven * size / rate
        times.append(time + level.latency)
    return times


def hierarchical_matmul(
    product: Product,
    device: Device,
    unit: MatrixRate,
    resident: bool = False,
    warm: Number = 0.0,
    rules: RooflineRules | None = None,
) -> Price:
    """Price of a product by the roofline of all its memory levels, with the tile of least time.

    With `resident` the activations come from and go to the cache where they fit half of it; `warm` is the
    share of the weights that lies there already. Without rules, software holds blocks in the shared memory of
    all but GPUs, whose caches replace what was used longest ago.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("a100-80", kernel_model="hierarchical"))
    >>> rate, two = d.matrix("bf16", "bf16"), {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> shapes = (Product(m=m, n=8192.0, k=8192.0, **two) for m in (1.0, 8192.0))
    >>> few, many = (hierarchical_matmul(shape, d, rate) for shape in shapes)
    >>> bool(few.memory > few.compute), bool(many.compute > many.memory), bool(many.time > many.lower)
    (True, True, True)
    """
    chip, memory = device.chip, memories(device)
    rules = RooflineRules(blocks=chip.kind != "gpu") if rules is None else rules
    xp, (compute, cache, moved, dram, spent) = _best_tile(product, device, unit, memory, rules)
    if resident:
        kept = product.activations <= HELD * device.cache_capacity
        dram = xp.where(kept, dram - product.activations, dram)
    dram = dram - warm * product.weights
    flop = product.flop
    stream = dram_time(device, dram, chip.memory.efficiency, lambda: product_stream(chip, product))
    return kernel_price(
        device,
        compute=compute,
        cache=cache,
        memory=stream + xp.where(dram > 0.0, chip.memory.latency, 0.0),
        moved=moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy + spent + moved * (noc_byte_energy(chip) - device.byte_energy),
        lower=product_bound(flop, dram, unit, device),
        floor=device.floor,
        exposed=chip.memory.exposed,
    )


def _best_tile(
    product: Product, device: Device, unit: MatrixRate, memory: Memories, rules: RooflineRules
) -> tuple[Any, tuple[Number, ...]]:
    """Of the quickest tile at each point: time of the cores, longest of the levels on the chip, bytes through
    the cache and of DRAM, and energy of all levels but DRAM.
    """
    sizes = (product.m, product.n, product.k, product.batch, product.weight_bytes, product.output_bytes)
    given = (
        *sizes,
        *memory.rates,
        *memory.shared,
        *(memory.local, 0.0 if memory.registers is None else memory.registers),
        *(device.cores, memory.units, memory.rows, memory.columns, device.core_bandwidth, unit.sustained),
    )
    xp = namespace(*given)
    rank = 0 if xp is SCALARS else rank_of(*given)

    def tried(rows: Number, columns: Number) -> tuple[Number, ...]:
        of = tiling_times(product, device, unit, memory, (rows, columns), rules)
        cache = largest(*of.times[:-1])
        spent = of.moved[-2] * device.chip.energy.sram  # written into local memory before they are read there
        for level, size in zip(memory.levels[:-1], of.moved[:-1], strict=True):
            spent = spent + size * level.energy
        return of.time, of.compute, cache, of.moved[-2], of.moved[-1], spent

    def thriftiest(rows: Number, columns: Number) -> tuple[Number, ...]:
        *_, moved, _, spent = tried(rows, columns)
        return spent, moved, spent

    compute, cache, moved, dram, spent = best_of(core_tiles(), tried, rank, xp)
    if device.software.for_bounds:
        moved, spent = best_of(core_tiles(), thriftiest, rank, xp)
    return xp, (compute, cache, moved, dram, spent)
