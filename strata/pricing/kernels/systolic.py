"""Matrix products on systolic and dataflow arrays: what stays in the array, what streams past it, and how
often it is read again.

One of the three matrices of a product stays (weights, activations or results) while the other two stream
past. The same formula gives the traffic into the arrays, from the shared memory into the cores, and from
DRAM: only the block that stays at a level differs. The best of `CHOICES` is taken, of those that the chip's
arrays have (`compute.dataflow`), and on-chip and DRAM traffic choose for themselves.

Samajdar et al., SCALE-Sim, arXiv 1811.02883, and ISPASS 2020: names and mapping of the three dataflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.arrays import Mask, Number, ceil_div, choose, has_axes, lead, namespace, rank_of
from strata.pricing.kernels.device import Device, MatrixRate, kernel_price
from strata.pricing.kernels.traffic import (
    ACCUMULATOR,
    HELD,
    Product,
    dram_time,
    product_bound,
    product_stream,
)
from strata.pricing.price import Price

# What stays, and the block of it that stays in a memory: balanced, or as deep as the product. Results lie on
# the array as they are or turned, so that a product and its transpose cost the same.
CHOICES = ("weights", "weights, deep", "activations", "activations, deep", "results", "results, turned")
STAYS = {"ws": "weights", "as": "activations", "os": "results"}


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ArrayDataflow:
    """A product seen from what stays: a matrix of `rows` x `columns`, with `steps` of the other two streaming
    past.

    Bytes of an element: `kept` of what stays, `held` as it lies in memory; `along` of the stream that enters
    at the rows and is read again for every block of columns; `across` of the one at the columns, for every
    block of rows, and `ends` more once.
    """

    rows: Number
    columns: Number
    steps: Number
    kept: Number
    held: Number
    along: Number
    across: Number
    ends: Number
    deep: Mask  # whether the block is as deep as it can be
    sums: Mask  # whether results leave as partial sums: steps may then be shared out freely


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ArrayTimes:
    """A product on arrays."""

    compute: Number  # time of the arrays and of the on-chip memories [s]
    cache: Number
    moved: Number  # bytes through the shared one, and of DRAM
    dram: Number


def dataflows(product: Product, rank: int, xp: Any, kept: str = "best") -> ArrayDataflow:
    """Each of `CHOICES` on the leading axis, or those that keep weights ("ws"), activations or outputs.

    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> dataflows(Product(m=8.0, n=4.0, k=2.0, **two), 0, np, "ws").rows
    array([2., 2.])
    """
    named = [c for c in CHOICES if STAYS.get(kept, "") in c]
    m, n, k = product.m, product.n, product.k
    a, w, o = product.input_bytes, product.weight_bytes, product.output_bytes
    weights, results, turned, deep = (
        lead(np.array([word in c for c in named]), rank, xp)
        for word in ("weights", "results", "turned", "deep")
    )
    # a partial sum is written and read; the last one leaves as a result
    sums, once = 2.0 * ACCUMULATOR, o - 2.0 * ACCUMULATOR
    return ArrayDataflow(
        rows=xp.where(results, xp.where(turned, n, m), k),
        columns=xp.where(weights | results & ~turned, n, m),
        steps=xp.where(results, k, xp.where(weights, m, n)),
        kept=xp.where(results, o, xp.where(weights, w, a)),
        held=xp.where(results, ACCUMULATOR, xp.where(weights, w, a)),
        along=xp.where(weights | results & ~turned, a, w),
        across=xp.where(results, xp.where(turned, a, w), sums),
        ends=xp.where(results, 0.0, once),
        deep=deep,
        sums=~results,
    )


def array_cycles(
    folds: Number,
    steps: Number,
    *,
    rows: Number,
    columns: Number,
    cores: Number,
    shared: Mask,
    buffered: bool = True,
) -> Number:
    r"""Clocks of arrays of R x C cells for F folds of T steps each, on p arrays.

    .. math::
        c_{alone} = \left\lceil \frac{F}{p} \right\rceil (2 R + C + T - 2), \quad
        c = \left\lceil \frac{F}{p} \right\rceil \max(T, R) + 2 R + C - 2, \quad
        c_{shared} = \max\left(\frac{F T}{p}, \left\lceil \frac{F}{p} \right\rceil R\right) + 2 R + C - 2

    A fold loads R rows of what stays, lets T steps enter skewed along the rows, and drains over rows and
    columns. With a second set of registers in the cells (`buffered`) folds follow each other: loading and
    draining hide behind the steps of their neighbours and only the first fill and the last drain remain, but
    a fold takes at least the R clocks of its load. Where outputs leave as partial sums (`shared`) arrays may
    also divide the steps of a fold; results that stay belong to one array.

    Samajdar et al., A Systematic Methodology for Characterizing Scalability of DNN Accelerators using
    SCALE-Sim, ISPASS (2020): 2 R + C + T - 2 clocks a fold, without the second set.

    >>> one = {"rows": 256.0, "columns": 256.0, "cores": 1.0, "shared": False}
    >>> float(array_cycles(133.0, 1024.0, **one, buffered=False))  # SCALE-Sim v2: 238069 from 0
    238070.0
    >>> float(array_cycles(133.0, 1024.0, **one))
    136958.0
    """
    xp = namespace(folds, steps, rows, columns, cores, shared)
    turns, ends = ceil_div(folds, cores), 2.0 * rows + columns - 2.0
    if not buffered:
        return turns * (steps + ends)
    divided = xp.maximum(folds * steps / cores, turns * rows)
    return xp.where(shared, divided, turns * xp.maximum(steps, rows)) + ends


def resident_block(
    s: ArrayDataflow, elements: Number, rows: Number = 1.0, columns: Number = 1.0
) -> tuple[Number, Number]:
    r"""Rows and columns of the block that stays in a memory of so many elements, at least those of the array.

    .. math:: \frac{p_b}{q_b} = \frac{v}{u} \quad \text{minimises} \quad
        \frac{u}{q_b} + \frac{v}{p_b}, \quad p_b q_b = e

    u and v bytes of the streams along rows and across columns, e elements of the memory. Sides end at the
    matrix, and the other one takes what is left. A deep block takes all rows first, so that nothing leaves as
    a partial sum.

    >>> import numpy as np
    >>> two = {"input_bytes": 2.0, "weight_bytes": 2.0, "output_bytes": 2.0}
    >>> p, q = resident_block(dataflows(Product(m=1e4, n=1e4, k=1e4, **two), 0, np), 1e6)
    >>> [round(float(x)) for x in p], [round(float(x)) for x in q]
    ([2000, 10000, 2000, 10000, 1000, 1000], [500, 100, 500, 100, 1000, 1000])
    """
    xp = namespace(s.rows, s.columns, s.across, elements, rows, columns)
    balanced = xp.maximum(xp.sqrt(elements * s.across / s.along), elements / s.columns)
    high = xp.minimum(s.rows, xp.maximum(xp.where(s.deep, elements / columns, balanced), rows))
    return high, xp.minimum(s.columns, xp.maximum(elements / high, columns))


def dataflow_traffic(s: ArrayDataflow, by_rows: Number, by_columns: Number) -> Number:
    r"""Bytes into the level above, and back, when what stays is cut into so many blocks along rows and
    columns.

    .. math:: b = p q s + t \left(p u \left\lceil \frac{q}{q_b} \right\rceil
        + q \left(v \left\lceil \frac{p}{p_b} \right\rceil + e\right)\right)

    p x q elements of s bytes stay and are read once; t steps of the two streams, of u and v bytes, are read
    again for every block of the other side. Weights that stay: p = k, q = n, t = m; activations are read
    again for every block of columns, and every block of rows but the last adds a partial sum, written and
    read (v = 8, e = o - 8). Activations that stay: n and m change places. Results that stay: p = m, q = n, t
    = k, and both operands stream.

    Samajdar et al., SCALE-Sim, arXiv 1811.02883: the three dataflows and how they lie on an array.

    >>> import numpy as np
    >>> one = Product(m=4.0, n=6.0, k=8.0, input_bytes=1.0, weight_bytes=1.0, output_bytes=1.0)
    >>> s = dataflows(one, 0, np)
    >>> # 48 weights + 3 x 32 activations + 24 results + 8 x 24 of partial sums
    >>> [float(x) for x in dataflow_traffic(s, 2.0, 3.0)]
    [360.0, 360.0, 392.0, 392.0, 216.0, 232.0]
    """
    return s.rows * s.columns * s.kept + s.steps * (
        s.rows * s.along * by_columns + s.columns * (s.across * by_rows + s.ends)
    )


def block_traffic(s: ArrayDataflow, memory: Number, rows: Number = 1.0, columns: Number = 1.0) -> Number:
    """Bytes into a memory of so many bytes from the one below it."""
    high, wide = resident_block(s, HELD * memory / s.held, rows, columns)
    return dataflow_traffic(s, ceil_div(s.rows, high), ceil_div(s.columns, wide))


def array_times(product: Product, device: Device, unit: MatrixRate) -> ArrayTimes:
    r"""Times and bytes of b products of m x n x k on the arrays of a chip, with the best of `CHOICES`.

    .. math::
        F = b \left\lceil \frac{p}{R} \right\rceil \left\lceil \frac{q}{C} \right\rceil, \quad
        T_p = c(F, t) \frac{2 R C p_c}{R_{max}}, \quad
        T_l = \max\left(\frac{b_{array}}{p_c \beta_s}, \frac{b_{core}}{\beta_l}\right)

    p_c arrays of R x C cells, of rate R_max together [FLOP/s]; c clocks (`array_cycles`); a core's memory
    feeds its array at β_s [B/s], the shared memory feeds cores at β_l [B/s]. What several arrays take at once
    is sent to them once. The choice is the quickest on chip, and of equally quick ones the one that moves
    least; DRAM traffic is the least of any.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d = device(chip("tpu-v4"))
    >>> unit, n = d.matrix("bf16", "bf16"), 8192.0
    >>> shape = Product(m=n, n=n, k=n, input_bytes=2.0, weight_bytes=2.0, output_bytes=2.0)
    >>> times = array_times(shape, d, unit)
    >>> round(shape.flop / float(times.compute) / unit.sustained, 3), float(times.dram) == 3 * n**2 * 2
    (1.0, False)
    """
    compute, batch = device.chip.compute, product.batch
    sizes = (product.m, product.n, product.k, batch, product.weight_bytes, product.output_bytes)
    rates = (device.core_bandwidth, device.cache_bandwidth, unit.sustained, compute.sram_bandwidth)
    high, wide, cores = compute.array_rows, compute.array_columns, device.cores
    assert high is not None and wide is not None  # only a chip of arrays comes here
    given = (*sizes, *rates, cores, high, wide, device.cache_capacity, compute.sram_capacity)
    xp, rank = namespace(*given), rank_of(*given)
    s = dataflows(product, rank, xp, compute.dataflow)
    by_rows, by_columns = ceil_div(s.rows, high), ceil_div(s.columns, wide)
    clocks = array_cycles(
        by_rows * by_columns * batch, s.steps, rows=high, columns=wide, cores=cores, shared=s.sums
    )
    busy = clocks * (2.0 * high * wide * cores / unit.sustained)
    fed = dataflow_traffic(s, by_rows, by_columns) * (batch / (cores * compute.sram_bandwidth))
    moved = block_traffic(s, compute.sram_capacity, high, wide) * batch
    cache = xp.maximum(fed, moved / xp.minimum(device.cache_bandwidth, cores * device.core_bandwidth))
    dram = block_traffic(s, device.cache_capacity) * batch
    assert has_axes(busy) and has_axes(moved)  # one choice after the other
    longer = xp.maximum(busy, cache)
    quick = longer <= xp.min(longer, axis=0) * (1.0 + 1e-9)
    busy, cache, moved = choose(xp.where(quick, moved, xp.inf), busy, cache, moved)
    return ArrayTimes(compute=busy, cache=cache, moved=moved, dram=xp.min(dram, axis=0))


def array_matmul(
    product: Product, device: Device, unit: MatrixRate, resident: bool = False, warm: Number = 0.0
) -> Price:
    """Price of a product on a chip of systolic or dataflow arrays: as `matmul` on a GPU.

    With `resident` activations stay on the chip where they fit half of its shared memory; `warm` is the share
    of the weights that lies there already, as in a section of a dataflow graph that keeps them.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sn = device(chip("sn40l"))
    >>> unit = sn.matrix("bf16", "bf16")
    >>> shape = Product(m=64.0, n=8192.0, k=8192.0, input_bytes=2.0, weight_bytes=2.0, output_bytes=2.0)
    >>> streamed, kept = (array_matmul(shape, sn, unit, True, warm) for warm in (0.0, 1.0))
    >>> bool(streamed.memory > 0), float(kept.memory_bytes), bool(kept.time < streamed.time)
    (True, 0.0, True)
    """
    chip, times = device.chip, array_times(product, device, unit)
    xp = namespace(times.dram, times.moved, warm)
    weights, dram, flop = product.weights, times.dram, product.flop
    if resident:
        dram = xp.where(product.activations > HELD * device.cache_capacity, dram, weights)
    dram = dram - warm * weights
    return kernel_price(
        device,
        compute=times.compute,
        cache=times.cache,
        memory=dram_time(device, dram, chip.memory.efficiency, lambda: product_stream(chip, product)),
        moved=times.moved,
        dram=dram,
        flop=flop,
        joule=flop * unit.energy,
        lower=product_bound(flop, dram, unit, device),
        floor=device.floor,
    )
